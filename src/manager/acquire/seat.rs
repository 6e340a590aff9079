//! [`LockSeat`]: a place in the queue of this process, from which no lock is lost on the way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::manager::guard::LockGuard;
use crate::manager::lease::held::{Passed, Turn};
use crate::manager::queue::{Seat, SentAway};
use crate::manager::shared::Shared;
use crate::mutant::{self, Mutant};
use crate::protocol::renewal::Terms;

/// The value that a waiter is called with. Dropped, it passes on or is released.
pub(crate) enum Called {
    /// Go for the keys.
    Turn(Turn),
    /// The key is yours already.
    Lock(LockGuard),
}

impl Called {
    fn new(shared: &Arc<Shared>, max_hold: Duration, passed: Passed) -> Self {
        match passed {
            Passed::Turn(turn) => Self::Turn(turn),
            Passed::Lock(tenancy) => {
                // That of the holder before may be another.
                if tenancy.lease.hold_for(tenancy.number, max_hold) {
                    shared.registry.hasten(&tenancy.lease);
                }
                Self::Lock(LockGuard::new(Arc::clone(shared), tenancy))
            }
        }
    }
}

/// A place in the queue. The queue hands over a tenancy as a plain value; each way out of this gives it to a guard,
/// which releases the lock or hands it to the next: also if the caller leaves between hand-over and wake-up.
#[must_use = "a seat that is dropped is given up"]
pub(crate) struct LockSeat<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) inner: Seat<Passed>,
    max_hold: Duration,
}

impl<'a> LockSeat<'a> {
    /// The seat of a caller that is to hold the lock under these `terms`.
    pub(crate) const fn new(shared: &'a Arc<Shared>, terms: &Terms, inner: Seat<Passed>) -> Self {
        Self {
            shared,
            inner,
            max_hold: terms.max_hold,
        }
    }
}

impl Future for LockSeat<'_> {
    type Output = Result<Called, SentAway>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (shared, max_hold) = (self.shared, self.max_hold);
        let called = Pin::new(&mut self.inner).poll(cx);
        called.map_ok(|passed| Called::new(shared, max_hold, passed))
    }
}

impl Drop for LockSeat<'_> {
    fn drop(&mut self) {
        let passed = self.inner.leave();
        if let Some(passed) = passed.filter(|_| !mutant::is(Mutant::LockLostOnCancel)) {
            drop(Called::new(self.shared, self.max_hold, passed));
        }
    }
}
