//! [`Release`]: one lock being released, which is not forgotten when it is dropped.

use std::sync::Arc;
use std::time::Duration;

use crate::instruments;
use crate::manager::error::release::ReleaseUnconfirmed;
use crate::manager::lease::held::{HeldLease, PendingRelease};
use crate::manager::ledger::{Obligation, Owing};
use crate::manager::release::command::Command;
use crate::manager::release::settlement::Settlement;
use crate::manager::shared::Shared;
use crate::node::{EndClaim, ReleaseRequest};
use crate::token::Owner;

/// One lock being released. It runs where it is awaited, as another task would have to be woken for every reply;
/// dropped at any point it goes on in the background.
#[derive(Debug)]
pub(crate) struct Release(
    // Only `drop` takes it.
    Option<Settlement>,
);

impl Release {
    /// `command` for `nodes`, which keep the lock for `ttl`, where `free` other nodes are free already. It meets
    /// `obligation`.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        command: Command,
        nodes: &[usize],
        free: usize,
        obligation: Option<Obligation>,
        ttl: Duration,
    ) -> Self {
        let owing = Owing::new(obligation, nodes.to_vec());
        let mut settlement = Settlement::new(shared, command, nodes, owing, ttl);
        settlement.confirmed = free;
        Self(Some(settlement))
    }

    /// The end of a claim on all nodes, whether or not they are known to have it.
    pub(crate) fn of_claim(
        shared: &Arc<Shared>,
        request: EndClaim,
        obligation: Option<Obligation>,
        ttl: Duration,
    ) -> Self {
        let nodes: Vec<usize> = (0..shared.nodes.len()).collect();
        let command = Command::EndClaim(request);
        Self::new(shared, command, &nodes, 0, obligation, ttl)
    }

    /// The release of a lock that was held.
    pub(crate) fn of(
        shared: &Arc<Shared>,
        lease: &Arc<HeldLease>,
        pending: PendingRelease,
    ) -> Self {
        match lease.lease.owner {
            Owner::Us(token) => {
                let request = ReleaseRequest::new(lease.keys.clone(), token, true);
                let request = request.since(lease.lease.started).lent(lease.was_lent());
                Self::of_held(shared, lease, pending, Command::Release(request))
            }
            Owner::Lender(owner, claim) => {
                // It is the lender's to release.
                let is_lost = pending.left.counts_as_lost();
                instruments::released(if is_lost { "lost" } else { "returned" });
                let request = EndClaim::new(lease.keys.clone(), owner, claim, true);
                Self::of_claim(shared, request, pending.obligation, lease.lease.ttl)
            }
        }
    }

    /// `command` for all nodes that may have a lock that was held.
    pub(crate) fn of_held(
        shared: &Arc<Shared>,
        lease: &Arc<HeldLease>,
        pending: PendingRelease,
        command: Command,
    ) -> Self {
        let is_completion = command.is_completion();
        let obligation = pending.obligation.as_ref().filter(|_| is_completion);
        let waited_for = obligation.map(|obligation| obligation.share().owing_nothing());
        let left = pending.left;
        let nodes = [&*left.nodes, &*left.busy].concat();
        let owing = Owing::new(pending.obligation, nodes);
        let mut settlement = Settlement::new(shared, command, &left.nodes, owing, lease.lease.ttl);
        // A node that is free already has no record yet.
        settlement.confirmed = if is_completion { 0 } else { left.free };
        settlement.waited_for = waited_for;
        settlement.turn = pending.turn;
        settlement.was_lost = Some(left.counts_as_lost());
        settlement.has_expired = left.has_expired();
        for node in left.busy {
            settlement.add_busy(lease, node);
        }
        Self(Some(settlement))
    }

    /// Waits until a quorum of nodes has confirmed, at most for the node time-out. The rest goes on in the background.
    pub(crate) async fn quorum(mut self) -> Result<(), ReleaseUnconfirmed> {
        match &mut self.0 {
            Some(settlement) => settlement.quorum().await,
            None => Ok(()),
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let Some(settlement) = self.0.take().filter(|it| !it.is_over()) else {
            return;
        };
        let shared = Arc::clone(&settlement.shared);
        if settlement.command.is_completion() {
            // There are no more of them than requests that run.
            shared.tasks.spawn_anyway(settlement.rest());
        } else {
            let keys = settlement.command.keys().clone();
            shared.spawn_release(&keys, settlement.rest());
        }
    }
}
