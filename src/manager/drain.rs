//! [`Drain`]: whether the holders of a manager's locks were asked to come to an end.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::manager::notified::notified_until;

/// Whether the holders of a manager's locks were asked to come to an end, once and for all.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    asked: AtomicBool,
    changed: Notify,
}

impl Drain {
    /// Asks all holders, also those that are still to come.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Waits until the holders are asked.
    pub(crate) async fn asked(&self) {
        notified_until(&self.changed, || self.is_asked().then_some(())).await;
    }
}
