//! Waiting for a change that a [`Notify`] tells of; and [`Drain`], such a change that comes once.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Waits until `look` finds something. It looks at once, and whenever all waiters of `changed` are notified.
pub(crate) async fn notified_until<T>(changed: &Notify, look: impl Fn() -> Option<T>) -> T {
    loop {
        // Before the look, so that no change is missed in between.
        let notified = changed.notified();
        if let Some(found) = look() {
            return found;
        }
        notified.await;
    }
}

/// Whether the holders of a manager's locks were asked to come to an end: never undone.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    asked: AtomicBool,
    changed: Notify,
}

impl Drain {
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    pub(crate) async fn asked(&self) {
        notified_until(&self.changed, || self.is_asked().then_some(())).await;
    }
}
