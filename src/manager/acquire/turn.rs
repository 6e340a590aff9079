//! The queue of this process: a caller enters it and waits for its turn, or for the lock itself.

use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use crate::manager::acquire::wait::Wait;
use crate::manager::error::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::{Passed, Turn};
use crate::manager::queue::fifo::{Entered, Name, Refused, Seat, SentAway};
use crate::manager::queue::waiting::Holder;
use crate::manager::round::attempt::Purpose;
use crate::manager::shared::Shared;
use crate::namespace::NodeKeys;
use crate::protocol::renewal::Terms;

pub(crate) async fn turn<P: Purpose>(
    shared: &Arc<Shared>,
    terms: &Terms,
    keys: &NodeKeys,
    wait: Wait,
    queued: &mut bool,
) -> Result<Called, AcquireError> {
    loop {
        let entered = enter::<P>(shared, terms, keys.first().shared(), wait);
        let seat = match entered.map_err(|refused| refusal(shared, refused, wait))? {
            Entered::Turn(turn) => return Ok(Called::Turn(turn)),
            Entered::Seat(inner) => LockSeat::new(shared, terms, inner),
        };
        let called = called(shared, keys, wait, seat).await?;
        *queued = true;
        // Lost between the hand-off and this check: then its turn passes to the next caller.
        if !matches!(&called, Called::Lock(guard) if guard.is_lost()) {
            return Ok(called);
        }
    }
}

/// Enters the queue for one key. A caller that does not wait is refused if the key is in use, unless it wants a record
/// and nothing is known of the key: the caller before it may only read the record.
fn enter<P: Purpose>(
    shared: &Shared,
    terms: &Terms,
    name: &Name,
    wait: Wait,
) -> Result<Entered<Passed>, Refused<Holder>> {
    let names = slice::from_ref(name);
    match shared.queue.enter(names, terms.ttl, wait.is_patient()) {
        Err(Refused::InUse(None)) if P::HANDED_ON.is_none() => {
            let entered = shared.queue.enter(names, terms.ttl, true);
            entered.map_err(|refused| match refused {
                Refused::KeyFull | Refused::Full => Refused::InUse(None),
                refused => refused,
            })
        }
        entered => entered,
    }
}

async fn called(
    shared: &Shared,
    keys: &NodeKeys,
    wait: Wait,
    seat: impl Future<Output = Result<Called, SentAway>>,
) -> Result<Called, AcquireError> {
    let _waiter = shared.waiters.add(keys.first(), wait.began, true);
    match timeout(wait.left_in_queue(shared), seat).await {
        Ok(Ok(called)) => Ok(called),
        Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown),
        Err(_) | Ok(Err(SentAway::InUse)) => Err(wait.busy(shared, keys)),
    }
}

pub(crate) async fn turn_of_all(
    shared: &Arc<Shared>,
    terms: &Terms,
    keys: &NodeKeys,
    wait: Wait,
    before_wait: impl FnOnce(),
) -> Result<Turn, AcquireError> {
    let entered = (shared.queue).enter(&names(keys), terms.ttl, wait.is_patient());
    let seat = match entered.map_err(|refused| refusal(shared, refused, wait))? {
        Entered::Turn(turn) => return Ok(turn),
        Entered::Seat(inner) => LockSeat::new(shared, terms, inner),
    };
    before_wait();
    match called(shared, keys, wait, seat).await? {
        Called::Turn(turn) => Ok(turn),
        // A lock is handed off only to a caller that wants its key alone.
        Called::Lock(_) => Err(wait.busy(shared, keys)),
    }
}

pub(crate) fn names(keys: &NodeKeys) -> Vec<Name> {
    let keys = keys.as_slice().iter();
    keys.map(|key| Name::clone(key.shared())).collect()
}

fn refusal(shared: &Shared, refused: Refused<Holder>, wait: Wait) -> AcquireError {
    let bounds = shared.queue.bounds();
    let full = |limit, of_key| AcquireError::QueueFull { limit, of_key };
    match refused {
        Refused::InUse(holder) => wait.busy_for(shared, holder.as_ref()),
        Refused::KeyFull => full(bounds.per_key, true),
        Refused::Full => full(bounds.total, false),
        Refused::Closed => AcquireError::ShuttingDown,
    }
}

/// The value that a waiter is called with. Dropped, it passes on or is released.
pub(crate) enum Called {
    Turn(Turn),
    Lock(LockGuard),
}

impl Called {
    fn new(shared: &Arc<Shared>, max_hold: Duration, passed: Passed) -> Self {
        match passed {
            Passed::Turn(turn) => Self::Turn(turn),
            Passed::Lock(tenancy) => {
                // The `max_hold` of the holder before may differ.
                if tenancy.lease.hold_for(tenancy.number, max_hold) {
                    shared.registry.replan(&tenancy.lease);
                }
                Self::Lock(LockGuard::new(Arc::clone(shared), tenancy))
            }
        }
    }
}

/// A place in the queue. Each way out of it gives the tenancy to a guard, also if the caller leaves between hand-over
/// and wake-up.
#[must_use = "a seat that is dropped is given up"]
pub(crate) struct LockSeat<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) inner: Seat<Passed>,
    max_hold: Duration,
}

impl<'a> LockSeat<'a> {
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
        if let Some(passed) = self.inner.leave() {
            drop(Called::new(self.shared, self.max_hold, passed));
        }
    }
}
