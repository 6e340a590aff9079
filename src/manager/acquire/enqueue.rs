//! The queue of this process: a caller enters it and waits for its turn.

use std::future::poll_fn;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::timeout;

use crate::manager::acquire::round::attempt::Purpose;
use crate::manager::acquire::seat::{Called, Entered, LockSeat};
use crate::manager::acquire::wait::Wait;
use crate::manager::error::acquire::{AcquireError, QueueFull, ShuttingDown};
use crate::manager::lease::held::Turn;
use crate::manager::queue::{Refused, SentAway};
use crate::manager::shared::Shared;
use crate::manager::waiting::holder::Holder;
use crate::manager::waiting::turns::names;
use crate::namespace::{NodeKey, NodeKeys};

/// Waits for the turn of one key, or for its lock. Sets `queued` if it had to wait.
pub(crate) async fn turn(
    shared: &Arc<Shared>,
    key: &NodeKey,
    purpose: Purpose,
    wait: Wait,
    queued: &mut bool,
) -> Result<Called, AcquireError> {
    loop {
        let guard = match enter(shared, key, purpose, wait) {
            Ok(Entered::Turn(turn)) => return Ok(Called::Turn(turn)),
            Ok(Entered::Seat(seat)) => {
                let called = called(shared, key, seat, wait).await?;
                *queued = true;
                match called {
                    Called::Lock(guard) => guard,
                    turn @ Called::Turn(_) => return Ok(turn),
                }
            }
            Err(refused) => return Err(refusal(shared, refused, wait)),
        };
        if !guard.is_lost() {
            return Ok(Called::Lock(guard));
        }
        // Lost between the hand-off and this check; its turn passes to the next caller.
        drop(guard);
    }
}

/// Enters the queue for one key. A caller that does not wait is refused if the key is in use; except where it wants a
/// record and nothing is known of the key yet, for the caller before it may only be reading the record, too.
fn enter<'a>(
    shared: &'a Arc<Shared>,
    key: &NodeKey,
    purpose: Purpose,
    wait: Wait,
) -> Result<Entered<'a>, Refused<Holder>> {
    let entered = shared.queue.enter(key.shared(), wait.is_patient());
    let entered = match (entered, purpose) {
        (Err(Refused::InUse(None)), Purpose::Idempotent { .. }) => {
            let entered = shared.queue.enter(key.shared(), true);
            entered.map_err(|refused| match refused {
                Refused::KeyFull | Refused::Full => Refused::InUse(None),
                refused => refused,
            })
        }
        (entered, _) => entered,
    };
    Ok(Entered::new(shared, entered?))
}

async fn called(
    shared: &Arc<Shared>,
    key: &NodeKey,
    seat: LockSeat<'_>,
    wait: Wait,
) -> Result<Called, AcquireError> {
    let _waiter = shared.waiters.add(key, wait.began, true);
    match timeout(wait.left_in_queue(shared), seat).await {
        Ok(Ok(called)) => Ok(called),
        Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown(ShuttingDown)),
        Err(_) | Ok(Err(SentAway::InUse)) => Err(wait.busy(shared, slice::from_ref(key))),
    }
}

/// Enters the queue for several keys.
pub(crate) fn enter_all<'a>(
    shared: &'a Arc<Shared>,
    keys: &NodeKeys,
    wait: Wait,
) -> Result<Entered<'a>, AcquireError> {
    let entered = shared.queue.enter_all(&names(keys), wait.is_patient());
    let entered = entered.map_err(|refused| refusal(shared, refused, wait))?;
    Ok(Entered::new(shared, entered))
}

/// Waits for the turn of several keys.
pub(crate) async fn turn_of_all(
    shared: &Arc<Shared>,
    keys: &NodeKeys,
    seat: LockSeat<'_>,
    wait: Wait,
) -> Result<Turn, AcquireError> {
    let _waiter = shared.waiters.add(keys.first(), wait.began, true);
    match timeout(wait.left_in_queue(shared), claiming(shared, seat, wait)).await {
        Ok(Ok(Called::Turn(turn))) => Ok(turn),
        Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown(ShuttingDown)),
        // A lock is handed off only to a caller that wants its key alone.
        Err(_) | Ok(Err(SentAway::InUse) | Ok(Called::Lock(_))) => {
            Err(wait.busy(shared, keys.as_slice()))
        }
    }
}

/// Waits to be called. Keys are reserved for a caller that was passed over often, for a part of the time that it has
/// waited, and for less than a caller that does not wait stays in the queue: so none is refused because of it.
async fn claiming(shared: &Shared, mut seat: LockSeat<'_>, wait: Wait) -> Result<Called, SentAway> {
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
