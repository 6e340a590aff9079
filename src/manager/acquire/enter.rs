//! From asking for a lock to having it: the queue of this process, then the nodes.

use std::future::poll_fn;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use crate::lock_keys::LockKeys;
use crate::manager::acquire::call::AcquireCall;
use crate::manager::acquire::contender::Contender;
use crate::manager::acquire::outcome::Acquired;
use crate::manager::acquire::round::attempt::Purpose;
use crate::manager::acquire::seat::{Called, Entered, LockSeat};
use crate::manager::acquire::wait::Wait;
use crate::manager::error::acquire::{AcquireError, QueueFull, ShuttingDown};
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::{Turn, Turns};
use crate::manager::queue::{Refused, SentAway};
use crate::manager::shared::Shared;
use crate::manager::waiting::holder::Holder;
use crate::manager::waiting::turns::names;
use crate::manager::waiting::waiters::Waiter;
use crate::namespace::{NodeKey, NodeKeys};

/// Gets in line, and goes for the lock when its turn has come.
pub(in crate::manager) async fn acquire(
    shared: &Arc<Shared>,
    names: LockKeys,
    limit: Duration,
) -> Result<LockGuard, AcquireError> {
    let keys = shared.namespace.node_keys(&names)?;
    match go(shared, (names, keys), Purpose::Lock, limit).await? {
        Acquired::Lock(guard) | Acquired::Adopted(guard, _) => Ok(guard),
        // Nodes tell of records only if they are asked for them.
        Acquired::Record(_) => Err(AcquireError::NoQuorum(shared.no_answer())),
    }
}

/// Gets in line, and goes for what is wanted when the turn has come.
///
/// The turns of several keys are taken at once or not at all: nobody has that of one while waiting for that of another,
/// so nobody waits in a circle, and what one caller cannot use yet is free for others.
pub(in crate::manager) async fn go(
    shared: &Arc<Shared>,
    (names, keys): (LockKeys, NodeKeys),
    purpose: Purpose,
    limit: Duration,
) -> Result<Acquired, AcquireError> {
    let call = AcquireCall::new(shared, &keys);
    let wait = Wait::new(call.began(), limit);
    shared.voting.introduced(shared.node_timeout).await;
    let search = line_up(shared, (names, keys), purpose, wait);
    let outcome = call.around(search).await;
    call.end(&outcome);
    outcome
}

pub(in crate::manager) async fn line_up(
    shared: &Arc<Shared>,
    (names, keys): (LockKeys, NodeKeys),
    purpose: Purpose,
    wait: Wait,
) -> Result<Acquired, AcquireError> {
    let mut queued = false;
    let turn = if names.are_several() {
        match enter_all(shared, &keys, wait)? {
            Entered::Turn(turn) => turn,
            Entered::Seat(seat) => {
                queued = true;
                // Boxed, so that those who want one key are small.
                Box::pin(called_for_all(shared, &keys, seat, wait)).await?
            }
        }
    } else {
        match turn(shared, keys.first(), purpose, wait, &mut queued).await? {
            Called::Turn(turn) => turn,
            Called::Lock(guard) => {
                return Ok(Acquired::Lock(guard.waited_for(wait.waited(shared))));
            }
        }
    };
    let mut turns = Turns::new(turn);
    if matches!(purpose, Purpose::Recall { .. }) {
        // The next is to look for what came of it.
        turns = turns.personal();
    }
    let contender = Contender::new(shared, (names, keys), purpose, turns, wait, queued);
    // Boxed, so that the many who wait are small: only one per key goes for it.
    Box::pin(contender.contend()).await
}

/// Waits for the turn of one key, or for its lock.
pub(in crate::manager) async fn turn(
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
                // Who comes back has waited, too.
                *queued = true;
                match called {
                    Called::Lock(guard) => guard,
                    turn @ Called::Turn(_) => return Ok(turn),
                }
            }
            Err(refused) => return Err(shared.refuse_entry(refused, wait)),
        };
        if !guard.is_lost() {
            return Ok(Called::Lock(guard));
        }
        // Lost between the pass and this look; the turn went on to the next.
        drop(guard);
    }
}

/// Takes the turns of several keys, or a seat.
pub(in crate::manager) fn enter_all<'a>(
    shared: &'a Arc<Shared>,
    keys: &NodeKeys,
    wait: Wait,
) -> Result<Entered<'a>, AcquireError> {
    match shared.queue.enter_all(&names(keys), wait.is_patient()) {
        Ok(entered) => Ok(Entered::new(shared, entered)),
        Err(refused) => Err(shared.refuse_entry(refused, wait)),
    }
}

/// Waits for the turns of several keys.
pub(in crate::manager) async fn called_for_all(
    shared: &Arc<Shared>,
    keys: &NodeKeys,
    seat: LockSeat<'_>,
    wait: Wait,
) -> Result<Turn, AcquireError> {
    let _waiting = Waiter::new(shared, keys.first(), wait.began, true);
    match timeout(wait.patience(shared), claiming(shared, seat, wait)).await {
        Ok(Ok(Called::Turn(turn))) => Ok(turn),
        Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown(ShuttingDown)),
        // A lock is passed only to those who want its key alone.
        Err(_) | Ok(Err(SentAway::InUse) | Ok(Called::Lock(_))) => {
            Err(wait.busy(shared, keys.as_slice()))
        }
    }
}

/// What part of the time that it has waited a caller may have keys kept for it.
pub(in crate::manager) const CLAIM: u32 = 8;

/// Gets in line. A key that is in use is not for those who do not wait; but where they ask for a record, and nothing is
/// known of the key yet, it may be that whoever is before them is only asking, too.
pub(in crate::manager) fn enter<'a>(
    shared: &'a Arc<Shared>,
    key: &NodeKey,
    purpose: Purpose,
    wait: Wait,
) -> Result<Entered<'a>, Refused<Holder>> {
    let entered = shared.queue.enter(key.shared(), wait.is_patient());
    let entered = match (entered, purpose) {
        (Err(Refused::InUse(None)), Purpose::Recall { .. }) => {
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

/// Waits in the queue.
pub(in crate::manager) async fn called(
    shared: &Arc<Shared>,
    key: &NodeKey,
    seat: LockSeat<'_>,
    wait: Wait,
) -> Result<Called, AcquireError> {
    let _waiting = Waiter::new(shared, key, wait.began, true);
    match timeout(wait.patience(shared), seat).await {
        Ok(Ok(called)) => Ok(called),
        Ok(Err(SentAway::Closed)) => Err(AcquireError::ShuttingDown(ShuttingDown)),
        Err(_) | Ok(Err(SentAway::InUse)) => Err(wait.busy(shared, slice::from_ref(key))),
    }
}

impl Shared {
    pub(in crate::manager) fn refuse_entry(
        &self,
        refused: Refused<Holder>,
        wait: Wait,
    ) -> AcquireError {
        let bounds = self.queue.bounds();
        match refused {
            Refused::InUse(note) => wait.busy_for(self, note.as_ref()),
            Refused::KeyFull => AcquireError::QueueFull(QueueFull {
                limit: bounds.per_key,
                of_key: true,
            }),
            Refused::Full => AcquireError::QueueFull(QueueFull {
                limit: bounds.total,
                of_key: false,
            }),
            Refused::Closed => AcquireError::ShuttingDown(ShuttingDown),
        }
    }
}

/// Waits to be called. What is kept for this caller, because it has been passed over often, is kept for a part of the
/// time that it has waited, and never for as long as who does not wait may have to: so nobody is refused for it.
pub(in crate::manager) async fn claiming(
    shared: &Shared,
    mut seat: LockSeat<'_>,
    wait: Wait,
) -> Result<Called, SentAway> {
    loop {
        let called_or_claims = poll_fn(|cx| match Pin::new(&mut seat).poll(cx) {
            Poll::Ready(called) => Poll::Ready(Some(called)),
            Poll::Pending if seat.claims() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(called) = called_or_claims.await {
            return called;
        }
        let patience = (wait.waited(shared) / CLAIM).min(shared.node_timeout * 9 / 10);
        if let Ok(called) = timeout(patience, &mut seat).await {
            return called;
        }
        seat.give_way();
    }
}
