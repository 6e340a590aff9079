//! The end of an [`Attempt`]: its fencing token is settled and it becomes a lock, or what it set is given back.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::smallvec;
use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::lease::Lease;
use crate::manager::error::AcquireError;
use crate::manager::lease::held::{HeldLease, Turn};
use crate::manager::lease::state::Indices;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::release::{FreeCommand, Freed, Freeing, Release, release};
use crate::manager::round::{Attempt, Purpose, Reply};
use crate::manager::shared::Shared;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::{
    AcquireReply, Fence, NodeError, NodeErrorKind, NodeFuture, RaiseReply, RaiseRequest,
    ReleaseReply, ReleaseRequest,
};
use crate::protocol::quorum::{FenceVerdict, agree};
use crate::protocol::renewal::{LeaseNodes, NodeEffect};
use crate::protocol::round::Vote;
use crate::token::{FencingToken, OwnerToken};

impl<P: Purpose> Attempt<P> {
    fn lease_nodes(&self) -> LeaseNodes {
        let several = self.keys.are_several();
        let mut holding = LeaseNodes::new(self.terms, self.sent).of_several(several);
        for node in 0..self.shared.nodes.len() {
            match self.round.vote(node) {
                Some(Vote::Granted(_)) => holding.confirm(node, self.sent),
                Some(Vote::Refused(_)) => holding.foreign(node, self.sent),
                Some(Vote::Failed { owed: true }) => holding.unknown(node),
                Some(Vote::Failed { owed: false } | Vote::Withheld) => {}
                // All nodes are asked: its reply has not come, or has not been read.
                None => holding.begin(node),
            }
        }
        holding
    }

    /// Makes a lock of a granted round. If no validity is left by now, everything is released.
    pub(crate) fn win(mut self, turn: Option<Turn>) -> Result<Arc<HeldLease>, AcquireError> {
        let shared = Arc::clone(&self.shared);
        let holding = self.lease_nodes();
        let missing = holding.missing() > 0;
        let deadline = holding.deadline();
        let now = shared.clock.now();
        if now >= deadline {
            return Err(AcquireError::TooSlow {
                elapsed: now.since(self.sent),
                ttl: self.terms.ttl,
            });
        }
        if let Some(error) = shared.disagreement() {
            return Err(AcquireError::NoQuorum(error));
        }
        let Some(obligation) = self.obligation.take() else {
            // Nothing else has ended it.
            return Err(self.no_quorum());
        };
        let lease = Lease {
            keys: self.keys.names(),
            owner: self.token,
            fence: self.fence,
            counters_kept: self.keep_fence.unwrap_or_default(),
            ttl: self.terms.ttl,
            started: self.sent,
            deadline,
        };
        let clock = Arc::clone(&shared.clock);
        let held = Arc::new(HeldLease::new(
            (shared.serial, shared.next_id()),
            lease,
            self.keys.clone(),
            clock,
            holding,
            (turn, obligation),
            P::HANDED_ON.is_some(),
        ));
        let nodes = 0..shared.nodes.len();
        let is_doubtful = |vote| matches!(vote, Some(Vote::Failed { owed: true }));
        if nodes.map(|node| self.round.vote(node)).any(is_doubtful) {
            held.may_have(self.asked.as_ref());
        }
        if self.fanout.is_empty() {
            if missing {
                held.plan_top_up(shared.clock.now() + shared.node_timeout);
            }
            return Ok(held);
        }
        let pending: Vec<usize> = self.unheard().collect();
        let (fanout, asked) = (self.fanout.take(), self.asked.take());
        let late = take_late_replies(
            Arc::clone(&shared),
            Arc::clone(&held),
            fanout,
            asked.clone(),
        );
        if !shared.tasks.spawn(false, late) {
            // No room to wait for the late replies: given up, so that a release does not wait for them either.
            held.may_have(asked.as_ref());
            for node in pending {
                held.reply(node, NodeEffect::Unknown);
            }
            held.plan_top_up(shared.clock.now() + shared.node_timeout);
        }
        Ok(held)
    }

    /// Goes on with one of the keys alone, and gives back those that nodes granted in place of it. By their indices.
    pub(crate) fn keep_only(&mut self, index: usize, strays: Vec<(usize, usize)>) {
        let asked = self.keys.clone();
        for (node, stray) in strays {
            self.round.withdraw(node);
            if let Some(stray) = asked.as_slice().get(stray) {
                free_stray(&self.shared, node, stray, self.token, self.terms.ttl);
            }
        }
        if let Some(key) = asked.as_slice().get(index) {
            self.keys = key.clone().into();
        }
        self.asked = Some(asked);
    }

    fn unheard(&self) -> impl Iterator<Item = usize> + '_ {
        let nodes = 0..self.shared.nodes.len();
        nodes.filter(|node| self.round.vote(*node).is_none())
    }

    fn granted(&self) -> Vec<usize> {
        let is_granted = |node: &usize| matches!(self.round.vote(*node), Some(Vote::Granted(_)));
        let nodes = 0..self.shared.nodes.len();
        nodes.filter(is_granted).collect()
    }

    /// Releases the keys of the round and waits until those nodes are free. Other nodes are settled in the background.
    pub(crate) async fn release(mut self) {
        if let Some(freeing) = self.give_back() {
            // Never an error that matters: a release that is not confirmed goes on in the background.
            let _ = Release::new(freeing).quorum().await;
        }
    }

    /// Frees all that the round has set or may still set: nodes that granted at once, nodes that may have granted or
    /// have not replied in the background.
    pub(crate) fn give_back(&mut self) -> Option<Freeing> {
        let obligation = self.obligation.take()?;
        while let Some((node, reply)) = self.fanout.take_ready() {
            self.take_reply(node, reply);
        }
        let nodes = 0..self.shared.nodes.len();
        let owing: Indices = nodes.filter(|node| self.round.owes(*node)).collect();
        let request = ReleaseRequest {
            keys: self.asked.as_ref().unwrap_or(&self.keys).clone(),
            token: self.token,
            announce: !self.lost,
            waited: Duration::ZERO,
            since: Some(self.sent),
            aside: false,
        };
        let mut later: Fanout<Freed> = Fanout::new([]);
        for (node, reply) in self.fanout.take().into_pending() {
            let (shared, request) = (Arc::clone(&self.shared), request.clone());
            later.push(
                node,
                Box::pin(free_after(reply, shared, node, request, P::FREE)),
            );
        }
        let granted = self.granted();
        for node in &owing {
            let is_sent = granted.contains(node) || later.pending().any(|later| later == *node);
            if let (false, Some(there)) = (is_sent, self.shared.nodes.get(*node)) {
                later.push(*node, P::FREE(&**there, &request));
            }
        }
        let ttl = self.terms.ttl;
        let command = (request, P::FREE);
        let mut freeing = Freeing::new(&self.shared, command, owing, Some(obligation), ttl);
        freeing.doubtful = (freeing.owing.iter().copied())
            .filter(|node| !granted.contains(node))
            .collect();
        // Those that granted are waited for.
        let needed = self.shared.terms.quorum.needed();
        freeing.confirmed = needed.saturating_sub(granted.len());
        freeing.later = later;
        Some(freeing)
    }
}

impl<P: Purpose> Drop for Attempt<P> {
    fn drop(&mut self) {
        // The replies to a lost round that come late may set a key at some nodes. That holds up nobody, and to hear them on
        // the manager's thread would cost a replay a fifth of its time.
        let is_over = self.lost && self.round.granted() == 0;
        let release = if is_over {
            Release::new
        } else {
            Release::aside
        };
        drop(self.give_back().map(release));
    }
}

/// Frees `node` once its late `reply` is there, unless the reply says that it has nothing.
async fn free_after(
    reply: NodeFuture<Reply>,
    shared: Arc<Shared>,
    node: usize,
    request: ReleaseRequest,
    free: FreeCommand,
) -> Freed {
    let owes = match reply.await {
        Ok(reply) => reply.is_grant(),
        Err(error) => error.outcome_unknown(),
    };
    match shared.nodes.get(node) {
        Some(node) if owes => free(&**node, &request).await,
        _ => Ok(ReleaseReply::NotOwner),
    }
}

/// Counts the late replies of a round that was won, and plans a top-up for missing nodes.
async fn take_late_replies(
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    mut fanout: Fanout<Reply>,
    asked: Option<NodeKeys>,
) {
    let sent = held.lease.started;
    let mut deadline = pin!(sleep(shared.node_timeout));
    while let Some((node, reply)) = fanout.next_before(deadline.as_mut()).await {
        let granted = match (&reply, &asked) {
            (Ok(AcquireReply::Slot { index, .. }), Some(asked)) => asked.as_slice().get(*index),
            _ => None,
        };
        let effect = match granted.filter(|key| *key != held.keys.first()) {
            Some(stray) => {
                free_stray(&shared, node, stray, held.lease.owner, held.lease.ttl);
                NodeEffect::Absent { sent }
            }
            None => shared.after_acquire(node, sent, &reply),
        };
        held.reply(node, effect);
    }
    for node in fanout.abandon() {
        held.may_have(asked.as_ref());
        held.reply(node, NodeEffect::Unknown);
    }
    let at = shared.clock.now() + shared.node_timeout;
    shared.registry.top_up(&held, at);
}

/// Frees `node` of another slot than the one that the quorum granted, in the background.
fn free_stray(shared: &Arc<Shared>, node: usize, key: &NodeKey, token: OwnerToken, ttl: Duration) {
    let request = ReleaseRequest {
        keys: key.clone().into(),
        token,
        announce: false,
        waited: Duration::ZERO,
        // No tombstone: the owner still wants the other slot there.
        since: None,
        aside: true,
    };
    let command = (request, release as FreeCommand);
    drop(Release::new(Freeing::new(
        shared,
        command,
        smallvec![node],
        None,
        ttl,
    )));
}

impl<P: Purpose> Attempt<P> {
    pub(crate) async fn agree_on_fence(&mut self) -> Result<(), AcquireError> {
        let needed = self.shared.terms.quorum.needed();
        let verdict = agree(self.round.fences().map(|(_, token)| token), needed);
        self.settle_fence(verdict).await
    }

    /// Settles the fencing token of a granted round by this `verdict` over those that the nodes gave. If they do not
    /// agree on one, the highest is written back, which takes a second round trip.
    ///
    /// # Errors
    ///
    /// [`AcquireError::NoQuorum`] if too few nodes confirmed it within the node time-out.
    pub(crate) async fn settle_fence(&mut self, verdict: FenceVerdict) -> Result<(), AcquireError> {
        let Some(keep) = self.keep_fence else {
            return Ok(());
        };
        match verdict {
            FenceVerdict::Agreed(token) => {
                self.fence = Some(token);
                self.shared.fences_agreed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            FenceVerdict::Open(token) => {
                let count = &self.shared.fences_written_back;
                count.fetch_add(1, Ordering::Relaxed);
                self.write_back(Fence { token, keep }).await
            }
            // No round is granted without fencing tokens.
            FenceVerdict::None => Err(self.no_quorum()),
        }
    }

    async fn write_back(&mut self, fence: Fence) -> Result<(), AcquireError> {
        let (shared, token) = (Arc::clone(&self.shared), fence.token);
        let needed = shared.terms.quorum.needed();
        let request = RaiseRequest {
            keys: self.keys.clone(),
            token: self.token,
            fence,
            config: Some(Arc::clone(&shared.config)),
        };
        let granted: Vec<(usize, FencingToken)> = self.round.fences().collect();
        let lower = granted.iter().filter(|(_, number)| *number < token);
        let lower = lower.map(|(node, _)| *node);
        let mut raising = shared.send(lower, |node| node.raise(request.clone()));
        let mut deadline = pin!(sleep(shared.node_timeout));
        // Those that reported it have it already.
        let mut have = granted
            .iter()
            .filter(|(_, number)| *number == token)
            .count();
        while have < needed {
            match raising.next_before(deadline.as_mut()).await {
                Some((_, Ok(RaiseReply::Raised))) => have += 1,
                Some((node, Ok(RaiseReply::NotOwner))) => self.errors.push((node, expired())),
                Some((node, Err(error))) => self.errors.push((node, error)),
                None => {
                    let late = raising.abandon().into_iter();
                    self.errors
                        .extend(late.map(|node| (node, shared.timed_out())));
                    return Err(self.no_quorum());
                }
            }
        }
        self.fence = Some(token);
        Ok(())
    }
}

fn expired() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "the lock had ended there before its fencing token was settled",
    )
}
