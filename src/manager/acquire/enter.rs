//! One call for a lock: the queue of this process first, then the nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::lock_keys::LockKeys;
use crate::manager::acquire::call::AcquireCall;
use crate::manager::acquire::contender::Contender;
use crate::manager::acquire::enqueue::{turn, turn_of_all};
use crate::manager::acquire::outcome::Acquired;
use crate::manager::acquire::round::attempt::Purpose;
use crate::manager::acquire::seat::Called;
use crate::manager::acquire::wait::Wait;
use crate::manager::error::acquire::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::shared::Shared;
use crate::manager::target::LockTarget;
use crate::protocol::renewal::Terms;

/// Acquires a lock on `names` under these `terms`, waiting for `limit` at most.
pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    terms: Terms,
    names: LockKeys,
    limit: Duration,
) -> Result<LockGuard, AcquireError> {
    let target = LockTarget::new(&shared.namespace, names)?;
    match acquire_for(shared, terms, target, Purpose::Lock, limit).await? {
        Acquired::Lock(guard) | Acquired::Adopted(guard, _) => Ok(guard),
        // Nodes tell of records only if they are asked for them.
        Acquired::Record(_) => Err(AcquireError::NoQuorum(shared.no_quorum(Vec::new()))),
    }
}

/// Acquires a lock on `target`, or finds the record that `purpose` asks for.
///
/// The turns of several keys are taken at once or not at all: no caller has that of one while it waits for that of
/// another, so there is no deadlock, and a key that one caller cannot use yet is free for others.
pub(crate) async fn acquire_for(
    shared: &Arc<Shared>,
    terms: Terms,
    target: LockTarget,
    purpose: Purpose,
    limit: Duration,
) -> Result<Acquired, AcquireError> {
    let call = AcquireCall::new(shared, &target.keys);
    let wait = Wait::new(call.began, limit);
    tokio::select! {
        biased;
        // Mostly nothing is to be waited for.
        () = shared.all_asked() => {}
        // Who comes during a shutdown, or waits when it begins, is refused by the queue, and not after this.
        () = shared.registry.closing() => {}
    }
    let outcome = call
        .around(queue_and_contend(shared, terms, target, purpose, wait))
        .await;
    call.end(&outcome);
    outcome
}

async fn queue_and_contend(
    shared: &Arc<Shared>,
    terms: Terms,
    target: LockTarget,
    purpose: Purpose,
    wait: Wait,
) -> Result<Acquired, AcquireError> {
    let mut queued = false;
    let turn = if target.are_several() {
        turn_of_all(shared, &terms, &target.keys, wait, || queued = true).await?
    } else {
        match turn(shared, &terms, &target.keys, purpose, wait, &mut queued).await? {
            Called::Turn(turn) => turn,
            Called::Lock(guard) => {
                return Ok(Acquired::Lock(guard.waited_for(wait.waited(shared))));
            }
        }
    };
    let contender = Contender::new(shared, terms, (target, purpose), turn, wait, queued);
    // Boxed, so that the futures of the many that wait are small: only one per key contends.
    Box::pin(contender.contend()).await
}
