//! One call for a lock: the queue of this process first, then the nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::lock_keys::LockKeys;
use crate::manager::acquire::call::AcquireCall;
use crate::manager::acquire::contender::Contender;
use crate::manager::acquire::enqueue::{enter_all, turn, turn_of_all};
use crate::manager::acquire::outcome::Acquired;
use crate::manager::acquire::round::attempt::Purpose;
use crate::manager::acquire::seat::{Called, Entered};
use crate::manager::acquire::wait::Wait;
use crate::manager::error::acquire::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::Turns;
use crate::manager::shared::Shared;
use crate::manager::target::LockTarget;

/// Acquires a lock on `names`.
pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    names: LockKeys,
    limit: Duration,
) -> Result<LockGuard, AcquireError> {
    let target = LockTarget::new(&shared.namespace, names)?;
    match acquire_for(shared, target, Purpose::Lock, limit).await? {
        Acquired::Lock(guard) | Acquired::Adopted(guard, _) => Ok(guard),
        // Nodes tell of records only if they are asked for them.
        Acquired::Record(_) => Err(AcquireError::NoQuorum(shared.no_quorum(Vec::new()))),
    }
}

/// Acquires a lock on `target`, or finds what `purpose` wants instead.
///
/// The turns of several keys are taken at once or not at all: no caller has that of one while it waits for that of
/// another, so there is no deadlock, and a key that one caller cannot use yet is free for others.
pub(crate) async fn acquire_for(
    shared: &Arc<Shared>,
    target: LockTarget,
    purpose: Purpose,
    limit: Duration,
) -> Result<Acquired, AcquireError> {
    let call = AcquireCall::new(shared, &target.keys);
    let wait = Wait::new(call.began(), limit);
    shared.voting.all_asked(shared.node_timeout).await;
    let outcome = call.around(queue_and_contend(shared, target, purpose, wait));
    let outcome = outcome.await;
    call.end(&outcome);
    outcome
}

async fn queue_and_contend(
    shared: &Arc<Shared>,
    target: LockTarget,
    purpose: Purpose,
    wait: Wait,
) -> Result<Acquired, AcquireError> {
    let mut queued = false;
    let turn = if target.are_several() {
        match enter_all(shared, &target.keys, wait)? {
            Entered::Turn(turn) => turn,
            Entered::Seat(seat) => {
                queued = true;
                // Boxed, so that the future of a caller that wants one key is small.
                Box::pin(turn_of_all(shared, &target.keys, seat, wait)).await?
            }
        }
    } else {
        match turn(shared, target.keys.first(), purpose, wait, &mut queued).await? {
            Called::Turn(turn) => turn,
            Called::Lock(guard) => {
                return Ok(Acquired::Lock(guard.waited_for(wait.waited(shared))));
            }
        }
    };
    let mut turns = Turns::new(turn);
    if matches!(purpose, Purpose::Idempotent { .. }) {
        // The next caller is to read the record.
        turns = turns.personal();
    }
    let contender = Contender::new(shared, target, purpose, turns, wait, queued);
    // Boxed, so that the futures of the many that wait are small: only one per key contends.
    Box::pin(contender.contend()).await
}
