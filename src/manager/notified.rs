//! Waiting for a change that a [`Notify`] tells of.

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
