//! The queue of this process: a caller enters it and waits for its turn.

use std::future::poll_fn;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::timeout;

use crate::manager::acquire::round::attempt::Purpose;
use crate::manager::acquire::wait::Wait;
use crate::manager::error::acquire::{AcquireError, QueueFull, ShuttingDown};
use crate::manager::queue::{Entered, Refused, Seat, SentAway};
use crate::manager::shared::Shared;
use crate::manager::waiting::turns::{Baton, Note, Turn, names};
use crate::namespace::{NodeKey, NodeKeys};

/// Waits for the turn of one key, or for its lock. Sets `queued` if it had to wait.
pub(in crate::manager) async fn turn(
    shared: &Arc<Shared>,
    key: &NodeKey,
    purpose: Purpose,
    wait: Wait,
    queued: &mut bool,
) -> Result<Baton, AcquireError> {
    loop {
        let guard = match enter(shared, key, purpose, wait) {
            Ok(Entered::Turn(turn)) => return Ok(Baton::Turn(turn)),
            Ok(Entered::Seat(seat)) => {
                let baton = called(shared, key, seat, wait).await?;
                *queued = true;
                match baton {
                    Baton::Lock(guard) => guard,
                    turn @ Baton::Turn(_) => return Ok(turn),
                }
            }
            Err(refused) => return Err(refusal(shared, refused, wait)),
        };
        if !guard.is_lost() {
            return Ok(Baton::Lock(guard));
        }
        // Lost between the hand-off and this check; its turn passes to the next caller.
        drop(guard);
    }
}

/// Enters the queue for one key. A caller that does not wait is refused if the key is in use; except where it wants a
/// record and nothing is known of the key yet, for the caller before it may only be reading the record, too.
fn enter(
    shared: &Arc<Shared>,
    key: &NodeKey,
    purpose: Purpose,
    wait: Wait,
) -> Result<Entered<Baton>, Refused<Note>> {
    let entered = shared.queue.enter(key.shared(), wait.is_patient());
    match (entered, purpose) {
        (Err(Refused::InUse(None)), Purpose::Idempotent { .. }) => {
            let entered = shared.queue.enter(key.shared(), true);
            entered.map_err(|refused| match refused {
                Refused::KeyFull | Refused::Full => Refused::InUse(None),
                refused => refused,
            })
        }
        (entered, _) => entered,
    }
}

async fn called(
    shared: &Arc<Shared>,
    key: &NodeKey,
    seat: Seat<Baton>,
    wait: Wait,
) -> Result<Baton, AcquireError> {
    let _waiter = shared.waiters.add(key, wait.began, true);
    match timeout(wait.left_in_queue(shared), seat).await {
        Ok(Ok(baton)) => Ok(baton),
        Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown(ShuttingDown)),
        Err(_) | Ok(Err(SentAway::InUse)) => Err(wait.busy(shared, slice::from_ref(key))),
    }
}

/// Enters the queue for several keys.
pub(in crate::manager) fn enter_all(
    shared: &Arc<Shared>,
    keys: &NodeKeys,
    wait: Wait,
) -> Result<Entered<Baton>, AcquireError> {
    let entered = shared.queue.enter_all(&names(keys), wait.is_patient());
    entered.map_err(|refused| refusal(shared, refused, wait))
}

/// Waits for the turn of several keys.
pub(in crate::manager) async fn turn_of_all(
    shared: &Arc<Shared>,
    keys: &NodeKeys,
    seat: Seat<Baton>,
    wait: Wait,
) -> Result<Turn, AcquireError> {
    let _waiter = shared.waiters.add(keys.first(), wait.began, true);
    match timeout(wait.left_in_queue(shared), claiming(shared, seat, wait)).await {
        Ok(Ok(Baton::Turn(turn))) => Ok(turn),
        Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown(ShuttingDown)),
        // A lock is handed off only to a caller that wants its key alone.
        Err(_) | Ok(Err(SentAway::InUse) | Ok(Baton::Lock(_))) => {
            Err(wait.busy(shared, keys.as_slice()))
        }
    }
}

/// Waits to be called. Keys are reserved for a caller that was passed over often, for a part of the time that it has
/// waited, and for less than a caller that does not wait stays in the queue: so none is refused because of it.
async fn claiming(
    shared: &Arc<Shared>,
    mut seat: Seat<Baton>,
    wait: Wait,
) -> Result<Baton, SentAway> {
    loop {
        let called_or_claims = poll_fn(|cx| match Pin::new(&mut seat).poll(cx) {
            Poll::Ready(called) => Poll::Ready(Some(called)),
            Poll::Pending if seat.claims() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(called) = called_or_claims.await {
            return called;
        }
        let limit = (wait.waited(shared) / CLAIM).min(shared.node_timeout * 9 / 10);
        if let Ok(called) = timeout(limit, &mut seat).await {
            return called;
        }
        seat.give_way();
    }
}

/// For what part of the time that it has waited keys may be reserved for a caller.
const CLAIM: u32 = 8;

fn refusal(shared: &Shared, refused: Refused<Note>, wait: Wait) -> AcquireError {
    let bounds = shared.queue.bounds();
    let full = |limit, of_key| AcquireError::QueueFull(QueueFull { limit, of_key });
    match refused {
        Refused::InUse(note) => wait.busy_for(shared, note.as_ref()),
        Refused::KeyFull => full(bounds.per_key, true),
        Refused::Full => full(bounds.total, false),
        Refused::Closed => AcquireError::ShuttingDown(ShuttingDown),
    }
}
