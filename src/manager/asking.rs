//! [`Asking`]: one round over all nodes for one owner token. It ends as a [`HeldLease`], or as a [`Freeing`] that
//! releases the keys it has set. If it is dropped, it releases them in the background.

use std::pin::pin;
use std::sync::Arc;
#[cfg(tower_redlock_tests)]
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::lease::Lease;
use crate::manager::error::AcquireError;
use crate::manager::freeing::{Freed, Freeing, Release, free_stray};
use crate::manager::lease::held::{HeldLease, Turn, Won};
use crate::manager::ledger::Obligation;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::of_error;
use crate::manager::nodes::voting::ask_again;
use crate::manager::shared::Shared;
#[cfg(feature = "idempotency")]
use crate::manager::want::recall::Granted;
use crate::manager::want::{Decision, Reply, Want};
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::{
    AcquireReply, AcquireRequest, Fence, NodeError, NodeErrorKind, NodeFuture, RaiseReply,
    RaiseRequest, ReleaseReply, ReleaseRequest,
};
use crate::protocol::on_nodes::{Keys, Landed, OnNodes, Verdict};
#[cfg(feature = "idempotency")]
use crate::protocol::quorum::highest;
use crate::protocol::quorum::{FenceVerdict, agree};
use crate::protocol::renewal::{Renewal, Terms};
use crate::token::{FencingToken, OwnerHash, OwnerToken};
use crate::trace::Caller;

/// One acquire for each node. If a quorum grants it, [`settle`](Self::settle) and then [`win`](Self::win) make a lock.
pub(crate) struct Asking {
    pub(crate) shared: Arc<Shared>,
    pub(crate) want: Want,
    terms: Terms,
    request: AcquireRequest,
    // The keys of the lock. For a permit these are all requested slots at first, and later the slot that a quorum
    // granted.
    keys: NodeKeys,
    fence: Option<FencingToken>,
    pub(crate) sent: Moment,
    pub(crate) nodes: OnNodes,
    errors: Vec<(usize, NodeError)>,
    fanout: Fanout<Reply>,
    // Whether another owner, other contenders or a record stood in the way. If so, the release of this round is not
    // announced, because it frees nothing that others wait for.
    is_lost: bool,
    // Only `win` and `give_back` take it.
    obligation: Option<Obligation>,
}

/// The round.
impl Asking {
    /// Prepares a round. Sends nothing before [`decide`](Self::decide) is polled.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        keys: &NodeKeys,
        want: Want,
        terms: Terms,
    ) -> Result<Self, AcquireError> {
        if let Some(error) = shared.set.disagreement() {
            return Err(AcquireError::NoQuorum(error));
        }
        let token = fresh_token().map_err(AcquireError::NoEntropy)?;
        let token = token.labelled(&shared.set.instance);
        let obligation = shared.common.ledger.begin(terms.ttl);
        let obligation = obligation.ok_or(AcquireError::ShuttingDown)?;
        let counter_ttl = want.counter_ttl(shared, terms.ttl);
        let keys = want.keys(keys);
        let request = AcquireRequest {
            keys: keys.clone(),
            token,
            ttl: terms.ttl,
            config: Some(Arc::clone(&shared.set.config)),
            fence: counter_ttl.and_then(|keep| shared.set.proposal(keep)),
            any: want.is_permit(),
        };
        // Read the clock before any command can be sent, because validity counts from here for every node.
        let sent = shared.set.clock.now();
        let of = if want.is_permit() {
            Keys::Any
        } else {
            Keys::All
        };
        let mut nodes = OnNodes::new(terms.quorum, of, terms.validity());
        (0..nodes.len()).for_each(|node| nodes.send(node));
        Ok(Self {
            fanout: shared.set.send_all(|node| want.ask(node, request.clone())),
            shared: Arc::clone(shared),
            want,
            terms,
            request,
            keys,
            fence: None,
            sent,
            nodes,
            errors: Vec::new(),
            is_lost: false,
            obligation: Some(obligation),
        })
    }

    /// Asks the nodes. Returns the result as soon as it is certain, or after the node time-out at the latest.
    pub(crate) async fn decide(&mut self) -> Decision {
        let mut deadline = pin!(sleep(self.shared.set.node_timeout));
        loop {
            while let Some((node, reply)) = self.fanout.take_ready() {
                self.take_reply(node, reply);
            }
            if self.shared.set.voting.is_blocked() {
                return Decision::Lock(Verdict::NoQuorum);
            }
            // If some answers made no sense, the result can be open even though all nodes have answered.
            let no_more = || Decision::Lock(Verdict::NoQuorum);
            let last = self.fanout.is_empty().then(no_more);
            if let Some(decision) = self.want.decide(&self.nodes).or(last) {
                let ours = [Verdict::Granted, Verdict::NoQuorum].map(Decision::Lock);
                self.is_lost = !ours.contains(&decision);
                return decision;
            }
            match self.fanout.next_before(deadline.as_mut()).await {
                Some((node, reply)) => self.take_reply(node, reply),
                None => self.time_out(),
            }
        }
    }

    /// Waits for one more reply after the verdict. Returns `false` once the node time-out is over.
    #[cfg(feature = "idempotency")]
    async fn hear_one_more(&mut self) -> bool {
        let spent = self.shared.set.clock.now().since(self.sent);
        let deadline = pin!(sleep(self.shared.set.node_timeout.saturating_sub(spent)));
        match self.fanout.next_before(deadline).await {
            Some((node, reply)) => {
                self.take_reply(node, reply);
                true
            }
            None => {
                self.time_out();
                false
            }
        }
    }

    fn time_out(&mut self) {
        for node in self.fanout.abandon() {
            self.errors.push((node, self.shared.set.timed_out()));
            self.nodes.land(node, self.sent, Landed::Abandoned);
        }
    }

    fn take_reply(&mut self, node: usize, reply: Reply) {
        let landed = landed(&self.shared, &self.request, node, &reply);
        match reply {
            Ok(_) if landed == Landed::Abandoned => self.errors.push((node, no_fence())),
            Ok(reply) => self.want.hear(node, reply),
            Err(error) => self.errors.push((node, error)),
        }
        self.nodes.land(node, self.sent, landed);
    }

    pub(crate) fn no_quorum(&self) -> AcquireError {
        AcquireError::NoQuorum(self.shared.set.no_quorum(self.errors.clone()))
    }

    /// The key that another owner has, and whether readers share it.
    pub(crate) fn rival(&self) -> Option<(NodeKey, bool)> {
        let key = self
            .request
            .keys
            .as_slice()
            .get(self.nodes.blocking_key()?)?;
        let readers = OwnerHash::of(&OwnerToken::readers());
        Some((key.clone(), self.nodes.is_refused_by(readers.tag())))
    }
}

fn landed(shared: &Shared, request: &AcquireRequest, node: usize, reply: &Reply) -> Landed {
    let (fence, key) = match reply {
        Ok(AcquireReply::Granted { fence } | AcquireReply::Promised { fence, .. })
            if !request.any =>
        {
            (*fence, 0)
        }
        Ok(AcquireReply::Slot { index, fence }) if request.any => (*fence, *index),
        // This grant does not fit the request, so it does not count. But the node may have set a key.
        Ok(reply) if reply.is_grant() => return Landed::Abandoned,
        Ok(AcquireReply::Held(holder)) => return Landed::Anothers(*holder),
        Ok(_) => return Landed::Withheld,
        Err(error) => {
            shared.set.heard(node, error);
            return of_error(error);
        }
    };
    if fence.is_none() && request.fence.is_some() {
        // We asked for a fencing token and got none, so the grant does not count. But the node may have our token.
        return Landed::Abandoned;
    }
    shared.set.ran(node);
    Landed::Ours { fence, key }
}

/// The lock.
impl Asking {
    /// Turns a granted and settled round into a lock. If no validity is left, fails and releases everything.
    pub(crate) fn win(
        mut self,
        turn: Option<Turn>,
        waited: Duration,
        caller: Caller,
    ) -> Result<Arc<HeldLease>, AcquireError> {
        let shared = Arc::clone(&self.shared);
        let mut renewal = Renewal::new(self.terms, self.sent);
        let deadline = renewal.deadline(&self.nodes);
        let now = shared.set.clock.now();
        if now >= deadline {
            return Err(AcquireError::TooSlow {
                elapsed: now.since(self.sent),
                ttl: self.terms.ttl,
            });
        }
        if let Some(error) = shared.set.disagreement() {
            return Err(AcquireError::NoQuorum(error));
        }
        let Some(obligation) = self.obligation.take() else {
            // Unreachable, because only this function and `give_back` take it, and after either the round is over.
            return Err(self.no_quorum());
        };
        let late = self.fanout.take();
        if late.is_empty() && self.nodes.count_ours() < self.nodes.len() {
            renewal.plan_top_up(now + shared.set.node_timeout);
        }
        let held = Arc::new(HeldLease::new(
            shared.next_id(),
            Arc::clone(&shared.set.clock),
            Won {
                lease: self.lease(deadline),
                keys: self.keys.clone(),
                asked: self.may_have_others(),
                nodes: self.nodes.take(),
                renewal,
                turn,
                obligation,
                waited,
                caller,
            },
        ));
        if !late.is_empty() {
            self.leave_late_replies(&held, late);
        }
        Ok(held)
    }

    fn lease(&self, deadline: Moment) -> Lease {
        let keep = self.request.fence.map(|fence| fence.keep);
        Lease {
            keys: self.keys.names(),
            owner: self.request.token,
            fence: self.fence,
            counter_ttl: keep.unwrap_or_default(),
            ttl: self.terms.ttl,
            started: self.sent,
            deadline,
        }
    }

    /// For a permit: all requested slots, if a node may still set another slot than the one that is held.
    fn may_have_others(&self) -> Option<NodeKeys> {
        let may_set = |node| self.nodes.is_in_flight(node) || self.nodes.may_still_run(node);
        let is_open = self.want.is_permit() && (0..self.nodes.len()).any(may_set);
        is_open.then(|| self.request.keys.clone())
    }

    fn leave_late_replies(&self, held: &Arc<HeldLease>, late: Fanout<Reply>) {
        let pending: Vec<usize> = late.pending().collect();
        let (shared, request) = (&self.shared, self.request.clone());
        let job = take_late_replies(Arc::clone(shared), Arc::clone(held), late, request);
        if !shared.common.tasks.spawn(false, job) {
            // There is no room for the task, so nobody waits for the late replies. They count as abandoned, so that a
            // release does not wait for them either.
            abandon(held, pending);
            held.plan_top_up(shared.set.clock.now() + shared.set.node_timeout);
        }
    }

    /// Keeps the slot that most nodes granted, and releases the other slots.
    fn keep_best_slot(&mut self) {
        let slots = self.request.keys.as_slice();
        let Some((index, key)) = self
            .nodes
            .best_key()
            .and_then(|it| Some((it, slots.get(it)?)))
        else {
            return;
        };
        self.keys = key.clone().into();
        for (node, stray) in self.nodes.keep_only(index) {
            if let Some(stray) = slots.get(stray) {
                free_stray(
                    &self.shared,
                    node,
                    stray,
                    self.request.token,
                    self.terms.ttl,
                );
            }
        }
    }
}

async fn take_late_replies(
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    mut fanout: Fanout<Reply>,
    request: AcquireRequest,
) {
    let lease = &held.lease;
    let mut deadline = pin!(sleep(shared.set.node_timeout));
    while let Some((node, reply)) = fanout.next_before(deadline.as_mut()).await {
        let landed = match landed(&shared, &request, node, &reply) {
            Landed::Ours { key, .. } if request.any => match request.keys.as_slice().get(key) {
                Some(stray) if stray != held.keys.first() => {
                    free_stray(&shared, node, stray, lease.owner, lease.ttl);
                    Landed::Absent
                }
                // The fencing token of the lock is already settled, so this one no longer matters.
                _ => Landed::Ours { fence: None, key },
            },
            landed => landed,
        };
        held.land(node, lease.started, landed);
    }
    abandon(&held, fanout.abandon());
    if request.any {
        held.has_only_its_slot();
    }
    let at = shared.set.clock.now() + shared.set.node_timeout;
    shared.registry.top_up(&held, at);
}

fn abandon(held: &HeldLease, nodes: Vec<usize>) {
    for node in nodes {
        held.land(node, held.lease.started, Landed::Abandoned);
    }
}

/// The release of a round.
impl Asking {
    /// Releases the keys of the round. Waits for the nodes that granted the lock, but for at most a quorum of them.
    pub(crate) async fn release(mut self) {
        if let Some(freeing) = self.give_back() {
            // The error does not matter, because a release that is not confirmed goes on in the background.
            let _ = Release::new(freeing).quorum().await;
        }
    }

    /// Begins to release all keys that the round has set or may still set. Nodes that have not replied, or whose
    /// command may still run, are freed in the background.
    pub(crate) fn give_back(&mut self) -> Option<Freeing> {
        let obligation = self.obligation.take()?;
        while let Some((node, reply)) = self.fanout.take_ready() {
            self.take_reply(node, reply);
        }
        let request = ReleaseRequest {
            keys: self.request.keys.clone(),
            token: self.request.token,
            announce: !self.is_lost,
            waited: Duration::ZERO,
            since: Some(self.sent),
            background: false,
        };
        let command = (request, self.want.free());
        let doubtful: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.nodes.may_still_run(*node))
            .collect();
        let (nodes, ttl) = (self.nodes.take(), self.terms.ttl);
        let mut freeing = Freeing::new(&self.shared, command, nodes, Some(obligation), ttl);
        freeing.wait_for_granted();
        for (node, reply) in self.fanout.take().into_pending() {
            freeing.later(node, |free| Box::pin(free_after(reply, free)));
        }
        for node in doubtful {
            freeing.later(node, |free| free);
        }
        Some(freeing)
    }
}

/// Waits for the late `reply` of a node, and frees the node if it may have the token.
async fn free_after(reply: NodeFuture<Reply>, free: NodeFuture<Freed>) -> Freed {
    let may_have_it = match reply.await {
        Ok(reply) => reply.is_grant(),
        Err(error) => error.may_have_run(),
    };
    if may_have_it {
        free.await
    } else {
        Ok(ReleaseReply::NotOwner)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // If no node granted a lost round, nobody waits for its release. The release then stays on the runtime of the
        // call, because a switch to the background thread would cost the replay of a stored response a fifth of its
        // time.
        let is_over = self.is_lost && self.nodes.count_ours() == 0;
        let release = if is_over {
            Release::new
        } else {
            Release::in_background
        };
        drop(self.give_back().map(release));
    }
}

/// The steps between a grant and the lock: the slot, the record and the fencing token are settled.
impl Asking {
    pub(crate) async fn settle(&mut self) -> Result<(), AcquireError> {
        let set = &self.shared.set;
        if !set.voting.were_asked_lately(self.sent) {
            // `win` refuses the lock if a node turns out to serve another list.
            Box::pin(ask_again(&self.shared.sets)).await;
        }
        match self.want {
            #[cfg(feature = "idempotency")]
            Want::Run(_) => return Box::pin(self.settle_run()).await,
            Want::Permit { .. } => self.keep_best_slot(),
            Want::Lock | Want::Reader => {}
        }
        let needed = self.shared.set.terms.quorum.needed();
        let verdict = agree(self.nodes.fences().map(|(_, token)| token), needed);
        self.settle_fence(verdict).await
    }

    #[cfg(feature = "idempotency")]
    async fn settle_run(&mut self) -> Result<(), AcquireError> {
        while let Want::Run(recall) = &mut self.want {
            if recall.settle_record() {
                break;
            }
            if !self.hear_one_more().await {
                return Err(self.no_quorum());
            }
        }
        let needed = self.shared.set.terms.quorum.needed();
        let verdict = highest(self.nodes.fences().map(|(_, token)| token), needed);
        self.settle_fence(verdict).await
    }

    #[cfg(feature = "idempotency")]
    pub(crate) fn granted(&self) -> Option<Granted> {
        match &self.want {
            Want::Run(recall) => Some(recall.granted(self.sent)),
            _ => None,
        }
    }

    /// Settles the fencing token of a granted round. If no quorum reports the same token, writes the highest one back,
    /// which takes a second round trip.
    async fn settle_fence(&mut self, verdict: FenceVerdict) -> Result<(), AcquireError> {
        let Some(Fence { keep, .. }) = self.request.fence else {
            return Ok(());
        };
        match verdict {
            FenceVerdict::Agreed(token) => {
                self.fence = Some(token);
                #[cfg(tower_redlock_tests)]
                self.shared.set.fences.agreed.fetch_add(1, Relaxed);
                Ok(())
            }
            FenceVerdict::Open(token) => {
                #[cfg(tower_redlock_tests)]
                self.shared.set.fences.written_back.fetch_add(1, Relaxed);
                Box::pin(self.write_back(Fence { token, keep })).await
            }
            // Unreachable, because `landed` counts no grant without a fencing token.
            FenceVerdict::None => Err(self.no_quorum()),
        }
    }

    async fn write_back(&mut self, fence: Fence) -> Result<(), AcquireError> {
        let (shared, token) = (Arc::clone(&self.shared), fence.token);
        let needed = shared.set.terms.quorum.needed();
        let request = RaiseRequest {
            keys: self.keys.clone(),
            token: self.request.token,
            fence,
            config: Some(Arc::clone(&shared.set.config)),
        };
        let granted: Vec<(usize, FencingToken)> = self.nodes.fences().collect();
        let lower = granted.iter().filter(|(_, number)| *number < token);
        let lower = lower.map(|(node, _)| *node);
        let mut raising = shared.set.send(lower, |node| node.raise(request.clone()));
        let mut deadline = pin!(sleep(shared.set.node_timeout));
        // Nodes that reported this token have it already.
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
                        .extend(late.map(|node| (node, shared.set.timed_out())));
                    return Err(self.no_quorum());
                }
            }
        }
        self.fence = Some(token);
        Ok(())
    }
}

pub(crate) fn fresh_token() -> Result<OwnerToken, String> {
    let mut entropy = [0; OwnerToken::ENTROPY_LEN];
    crate::seam::fill_random(&mut entropy).map_err(|error| error.to_string())?;
    Ok(OwnerToken::from_entropy(entropy))
}

fn no_fence() -> NodeError {
    NodeError::new(
        NodeErrorKind::Garbled,
        "it granted without a fencing token; switch fencing off for nodes that cannot count",
    )
}

fn expired() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "the lock had ended there before its fencing token was settled",
    )
}
