//! The watchdog: one timer and, per node, one batch of extensions for all held locks.

use std::sync::{Arc, Weak};

use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::lease::held::HeldLease;
use crate::manager::lease::registry::Registry;
use crate::manager::lease::state::NodeEffect;
use crate::manager::renewal::verify::follow;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::node::{ExtendReply, ExtendRequest, NodeError, NodeErrorKind};
use crate::token::{Owner, OwnerToken};

/// One turn: everything that is due gets its step, and each node one batch.
pub(in crate::manager) fn turn(shared: &Arc<Shared>) {
    let mut batches: Vec<Vec<Due>> = shared.nodes.iter().map(|_| Vec::new()).collect();
    // The send time of all batches: read before anything can leave.
    let sent = shared.clock.now();
    // While a node serves processes with another list, what is held ends with its validity.
    let blocked = shared.voting.is_blocked();
    for hold in shared.registry.due(sent) {
        let (next, nodes) = hold.tick(sent);
        for node in nodes {
            if blocked {
                hold.reply(node, NodeEffect::None);
                continue;
            }
            match (hold.lease.owner, batches.get_mut(node)) {
                (Owner::Us(token), Some(batch)) => batch.push(Due {
                    request: renewal(shared, &hold, token),
                    hold: Arc::clone(&hold),
                }),
                (Owner::Lender(owner, claim), _) => {
                    let lender = (owner, claim);
                    let look = follow(Arc::clone(shared), node, Arc::clone(&hold), lender, sent);
                    shared.tasks.spawn_anyway(look);
                }
                (Owner::Us(_), None) => {}
            }
        }
        shared.registry.reschedule(&hold, next);
    }
    for (node, batch) in batches.into_iter().enumerate() {
        if !batch.is_empty() {
            let job = extend(Arc::clone(shared), node, batch, sent);
            shared.tasks.spawn_anyway(job);
        }
    }
}

pub(in crate::manager) fn renewal(
    shared: &Shared,
    hold: &HeldLease,
    token: OwnerToken,
) -> ExtendRequest {
    let lease = &hold.lease;
    ExtendRequest::new(hold.keys.clone(), token, lease.ttl, true)
        .under(Some(Arc::clone(&shared.config)))
        .numbered(lease.fence.map(|token| shared.fence(token)))
}

pub(in crate::manager) fn note_failure(shared: &Shared, index: usize, error: &NodeError) {
    shared.heard(index, error);
    if matches!(
        error.kind(),
        NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Foreign
    ) {
        crate::trace::command_failed(shared.name_of(index), "extend", error);
    }
}

/// Looks after the locks of a manager until it is gone.
pub(in crate::manager) async fn watch(shared: Weak<Shared>, registry: Arc<Registry>) {
    let now = || shared.upgrade().map(|shared| shared.clock.now());
    while registry.wait(now).await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        turn(&shared);
    }
}

/// One lock in a batch.
pub(in crate::manager) struct Due {
    pub(in crate::manager) hold: Arc<HeldLease>,
    pub(in crate::manager) request: ExtendRequest,
}

/// Extends a batch of locks on one node.
pub(in crate::manager) async fn extend(
    shared: Arc<Shared>,
    index: usize,
    batch: Vec<Due>,
    sent: Moment,
) {
    let Some(node) = shared.nodes.get(index) else {
        return;
    };
    let requests: Arc<[ExtendRequest]> = batch.iter().map(|due| due.request.clone()).collect();
    let answers = match timeout(shared.node_timeout, node.extend(requests)).await {
        Ok(answers) => answers,
        Err(_) => Err(shared.timed_out()),
    };
    let mut answers = match answers {
        Ok(answers) => answers,
        Err(error) => vec![Err(error); batch.len()],
    };
    // A node that answers for fewer locks than it was asked about has not answered for the others.
    answers.resize_with(batch.len(), || Err(shared.timed_out()));
    for (due, answer) in batch.iter().zip(answers) {
        if let Err(error) = &answer {
            due.hold
                .tell(|key| crate::trace::not_extended(key, shared.name_of(index), error));
        }
        let effect = match answer {
            Ok(ExtendReply::Extended | ExtendReply::Refilled) if shared.in_time(sent) => {
                NodeEffect::Confirmed(sent)
            }
            // Too late to count; it may be there.
            Ok(ExtendReply::Extended | ExtendReply::Refilled) => NodeEffect::Unknown,
            Ok(ExtendReply::Quarantined) => {
                // It is there, to be carried when the node votes again or knows of leases as long, and counts for
                // nothing until then.
                shared.voting.suspect(index);
                NodeEffect::Unknown
            }
            Ok(ExtendReply::Absent) => NodeEffect::Absent(sent),
            Ok(ExtendReply::Held(_)) => NodeEffect::Foreign(sent),
            Err(error) => {
                note_failure(&shared, index, &error);
                NodeEffect::of(&error)
            }
        };
        due.hold.reply(index, effect);
    }
}

#[cfg(test)]
mod tests {
    use crate::LockManager;

    #[tokio::test]
    async fn a_lock_that_was_held_for_a_moment_does_not_make_the_next_wake_the_watchdog() {
        let locks = LockManager::builder().memory(1).connect().await.unwrap();
        let planned = || locks.shared.registry.state().armed;
        drop(locks.try_acquire("one").await.unwrap());
        let first = planned();
        assert!(first.is_some());
        // It looks after the lock now, and finds it gone.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(locks.shared.registry.holds().is_empty());
        assert_eq!(planned(), first, "it sleeps until then");
        let _lock = locks.try_acquire("two").await.unwrap();
        assert_eq!(planned(), first, "and need not be woken");
    }
}
