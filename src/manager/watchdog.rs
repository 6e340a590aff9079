//! The watchdog extends all held locks, with one timer and with one batch of extensions for each node.

use std::sync::{Arc, Weak};

use crate::clock::Clock as _;
use crate::manager::error::LossReason;
use crate::manager::lease::held::{HeldLease, Tenancy};
use crate::manager::nodes::NodeSet;
use crate::manager::nodes::voting::ask_again;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::node::{ExtendRequest, Fence};
use crate::protocol::on_nodes::Landed;

/// Extends the locks of a manager until the manager is gone. Calls `end_lapsed` for hand-overs that no caller accepted
/// in time. If this future is dropped earlier, all locks are lost.
pub(crate) fn watch(
    shared: &Arc<Shared>,
    end_lapsed: fn(&Arc<Shared>, Tenancy),
) -> impl Future<Output = ()> + Send + use<> {
    // Made outside the async block, so that all locks are lost even if the future is dropped before its first poll.
    let mut lose_all = LoseAllOnDrop(Arc::downgrade(shared));
    let (shared, registry) = (Arc::downgrade(shared), Arc::clone(&shared.registry));
    async move {
        let now = || shared.upgrade().map(|shared| shared.set.clock.now());
        while registry.wait(now).await {
            let Some(shared) = shared.upgrade() else {
                break;
            };
            renew_due(&shared, end_lapsed);
        }
        lose_all.disarm();
    }
}

/// Runs on the runtime on which the manager was built. If that runtime ends, it drops this future, and all locks are
/// lost.
pub(crate) fn stay(shared: &Arc<Shared>) -> impl Future<Output = ()> + Send + use<> {
    let mut lose_all = LoseAllOnDrop(Arc::downgrade(shared));
    let ended = Arc::clone(&shared.common.tasks.ended);
    async move {
        ended.given().await;
        lose_all.disarm();
    }
}

struct LoseAllOnDrop(Weak<Shared>);

impl LoseAllOnDrop {
    fn disarm(&mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for LoseAllOnDrop {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.grant_no_more();
            shared.registry.lose_all(LossReason::Shutdown);
            shared.common.tasks.ended.give();
        }
    }
}

pub(crate) fn renew_due(shared: &Arc<Shared>, end_lapsed: fn(&Arc<Shared>, Tenancy)) {
    let set = &shared.set;
    let mut batches: Vec<Vec<Due>> = set.nodes.iter().map(|_| Vec::new()).collect();
    // The send time of all batches. It is read before any command is sent, because the validity of locks counts from
    // it.
    let sent = set.clock.now();
    // While a node serves processes with another list, nothing is extended, so held locks end with their validity. Nor
    // while this is not known, because this process was stopped for a while: then ask, and extend in the next round.
    let is_known = set.voting.were_asked_lately(sent);
    let blocked = set.voting.is_blocked() || !is_known;
    let mut wants = false;
    for lease in shared.registry.due(sent) {
        let (nodes, lapsed) = lease.tick(sent);
        for node in nodes {
            wants = true;
            if blocked {
                lease.land(node, sent, Landed::NoEffect);
                continue;
            }
            if let Some(batch) = batches.get_mut(node) {
                batch.push((renewal(set, &lease), Arc::clone(&lease)));
            }
        }
        shared.registry.replan(&lease);
        if let Some(lapsed) = lapsed {
            end_lapsed(shared, lapsed);
        }
    }
    if wants && !is_known {
        let sets = Arc::clone(&shared.sets);
        let job = async move { ask_again(&sets).await };
        shared.common.tasks.spawn_anyway(true, job);
    }
    for (node, batch) in batches.into_iter().enumerate() {
        if !batch.is_empty() {
            let job = extend(Arc::clone(set), node, batch, sent);
            shared.common.tasks.spawn_anyway(true, job);
        }
    }
}

fn renewal(set: &NodeSet, held: &HeldLease) -> ExtendRequest {
    let lease = &held.lease;
    ExtendRequest {
        keys: held.keys.clone(),
        token: lease.owner,
        ttl: lease.ttl,
        refill: true,
        config: Some(Arc::clone(&set.config)),
        fence: lease.fence.map(|token| Fence {
            token,
            keep: lease.counter_ttl,
        }),
    }
}

type Due = (ExtendRequest, Arc<HeldLease>);

async fn extend(set: Arc<NodeSet>, index: usize, mut batch: Vec<Due>, sent: Moment) {
    let Some(node) = set.nodes.get(index) else {
        return;
    };
    batch.sort_by(|(a, _), (b, _)| a.shape().cmp(&b.shape()));
    let requests = batch.iter().map(|(request, _)| request.clone()).collect();
    let replies = set.reply(node.extend(requests)).await;
    let mut replies = replies.unwrap_or_else(|error| vec![Err(error); batch.len()]);
    // If the node answers for fewer locks than it was asked about, the missing replies count as time-outs.
    replies.resize_with(batch.len(), || Err(set.timed_out()));
    for ((request, lease), reply) in batch.iter().zip(replies) {
        if let Err(error) = &reply {
            lease.log(|key| crate::trace::not_extended(key, set.name_of(index), error));
        }
        let landed = set.after_extend(index, request.keys.are_several(), &reply);
        lease.land(index, sent, landed);
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
        // Let the watchdog run, so that it sees that the lock is gone.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(locks.shared.registry.leases().is_empty());
        assert_eq!(planned(), first, "it sleeps until then");
        let _lock = locks.try_acquire("two").await.unwrap();
        assert_eq!(planned(), first, "and need not be woken");
    }
}
