//! The queue of this process: a caller enters it and waits for its turn.

use std::future::poll_fn;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::timeout;

use crate::manager::acquire::round::attempt::Purpose;
use crate::manager::acquire::seat::{Called, LockSeat};
use crate::manager::acquire::wait::Wait;
use crate::manager::error::acquire::{AcquireError, QueueFull, ShuttingDown};
use crate::manager::lease::held::{Passed, Turn};
use crate::manager::queue::{Entered, Name, Refused, SentAway};
use crate::manager::shared::Shared;
use crate::manager::waiting::holder::Holder;
use crate::namespace::NodeKeys;
use crate::protocol::renewal::Terms;

/// Waits for the turn of one key, or for its lock. Sets `queued` if it had to wait.
pub(crate) async fn turn(
    shared: &Arc<Shared>,
    terms: &Terms,
    keys: &NodeKeys,
    purpose: Purpose,
    wait: Wait,
    queued: &mut bool,
) -> Result<Called, AcquireError> {
    loop {
        let entered = enter(shared, terms, keys.first().shared(), purpose, wait);
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

/// Enters the queue for one key. A caller that does not wait is refused if the key is in use; except where it wants a
/// record and nothing is known of the key yet, for the caller before it may only be reading the record, too.
fn enter(
    shared: &Shared,
    terms: &Terms,
    name: &Name,
    purpose: Purpose,
    wait: Wait,
) -> Result<Entered<Passed>, Refused<Holder>> {
    let names = slice::from_ref(name);
    match (
        shared.queue.enter(names, terms.ttl, wait.is_patient()),
        purpose,
    ) {
        (Err(Refused::InUse(None)), Purpose::Idempotent { .. }) => {
            let entered = shared.queue.enter(names, terms.ttl, true);
            entered.map_err(|refused| match refused {
                Refused::KeyFull | Refused::Full => Refused::InUse(None),
                refused => refused,
            })
        }
        (entered, _) => entered,
    }
}

/// Waits in the queue for one of `keys`, or for all of them.
async fn called(
    shared: &Shared,
    keys: &NodeKeys,
    wait: Wait,
    seat: impl Future<Output = Result<Called, SentAway>>,
) -> Result<Called, AcquireError> {
    let _waiter = shared.waiters.add(keys.first(), wait.began, true);
    match timeout(wait.left_in_queue(shared), seat).await {
        Ok(Ok(called)) => Ok(called),
        Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown(ShuttingDown)),
        Err(_) | Ok(Err(SentAway::InUse)) => Err(wait.busy(shared, keys)),
    }
}

/// Waits for the turn of several keys. Calls `before_wait` if it has to wait.
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
    // Boxed, so that the future of a caller that wants one key is small.
    let seat = Box::pin(claiming(shared, seat, wait));
    match called(shared, keys, wait, seat).await? {
        Called::Turn(turn) => Ok(turn),
        // A lock is handed off only to a caller that wants its key alone.
        Called::Lock(_) => Err(wait.busy(shared, keys)),
    }
}

/// The names of `keys` in the queue.
pub(crate) fn names(keys: &NodeKeys) -> Vec<Name> {
    let keys = keys.as_slice().iter();
    keys.map(|key| Name::clone(key.shared())).collect()
}

/// Waits to be called. Keys are reserved for a caller that was passed over often, for a part of the time that it has
/// waited, and for less than a caller that does not wait stays in the queue: so none is refused because of it.
async fn claiming(shared: &Shared, mut seat: LockSeat<'_>, wait: Wait) -> Result<Called, SentAway> {
    loop {
        let called_or_claims = poll_fn(|cx| match Pin::new(&mut seat).poll(cx) {
            Poll::Ready(called) => Poll::Ready(Some(called)),
            Poll::Pending if seat.inner.claims() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(called) = called_or_claims.await {
            return called;
        }
        let limit = (wait.waited(shared) / CLAIM).min(shared.node_timeout * 9 / 10);
        if let Ok(called) = timeout(limit, &mut seat).await {
            return called;
        }
        seat.inner.give_way();
    }
}

/// Keys may be reserved for a caller for one part in so many of the time that it has waited.
const CLAIM: u32 = 8;

fn refusal(shared: &Shared, refused: Refused<Holder>, wait: Wait) -> AcquireError {
    let bounds = shared.queue.bounds();
    let full = |limit, of_key| AcquireError::QueueFull(QueueFull { limit, of_key });
    match refused {
        Refused::InUse(holder) => wait.busy_for(shared, holder.as_ref()),
        Refused::KeyFull => full(bounds.per_key, true),
        Refused::Full => full(bounds.total, false),
        Refused::Closed => AcquireError::ShuttingDown(ShuttingDown),
    }
}
