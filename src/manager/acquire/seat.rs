//! [`LockSeat`]: a place in the queue of this process, from which no lock is lost on the way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::manager::guard::LockGuard;
use crate::manager::lease::held::{Passed, Turn};
use crate::manager::queue::{self, Seat, SentAway};
use crate::manager::shared::Shared;

/// What a caller has after it entered the queue.
pub(crate) enum Entered<'a> {
    /// The keys are not in use here.
    Turn(Turn),
    /// Others are before.
    Seat(LockSeat<'a>),
}

impl<'a> Entered<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, entered: queue::Entered<Passed>) -> Self {
        match entered {
            queue::Entered::Turn(turn) => Self::Turn(turn),
            queue::Entered::Seat(seat) => Self::Seat(LockSeat { shared, seat }),
        }
    }
}

/// What a waiter is called with. Dropped, it passes on or is released.
pub(crate) enum Called {
    /// Go for the keys.
    Turn(Turn),
    /// The key is yours already.
    Lock(LockGuard),
}

impl Called {
    fn new(shared: &Arc<Shared>, passed: Passed) -> Self {
        match passed {
            Passed::Turn(turn) => Self::Turn(turn),
            Passed::Lock(tenancy) => Self::Lock(LockGuard::new(Arc::clone(shared), tenancy)),
        }
    }
}

/// A place in the queue. The queue hands over a tenancy as a plain value; each way out of this gives it to a guard,
/// which releases the lock or hands it to the next: also if the caller leaves between hand-over and wake-up.
#[must_use = "a seat that is dropped is given up"]
pub(crate) struct LockSeat<'a> {
    shared: &'a Arc<Shared>,
    seat: Seat<Passed>,
}

impl LockSeat<'_> {
    /// As [`Seat::claims`].
    pub(crate) fn claims(&self) -> bool {
        self.seat.claims()
    }

    /// As [`Seat::give_way`].
    pub(crate) fn give_way(&self) {
        self.seat.give_way();
    }
}

impl Future for LockSeat<'_> {
    type Output = Result<Called, SentAway>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared;
        let called = Pin::new(&mut self.seat).poll(cx);
        called.map_ok(|passed| Called::new(shared, passed))
    }
}

impl Drop for LockSeat<'_> {
    fn drop(&mut self) {
        if let Some(passed) = self.seat.leave() {
            drop(Called::new(self.shared, passed));
        }
    }
}
