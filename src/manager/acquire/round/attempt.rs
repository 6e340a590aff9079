//! [`Attempt`]: one acquire round over all nodes, including the release of what a lost round set.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::lease::Lease;
use crate::manager::error::acquire::{AcquireError, ShuttingDown, TooSlow};
use crate::manager::lease::clocks::Clocks;
use crate::manager::lease::held::{HeldLease, Turn};
use crate::manager::ledger::{Obligation, Stage};
use crate::manager::nodes::effect::NodeEffect;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::random::token;
use crate::manager::release::command::Command;
use crate::manager::release::releaser::Release;
use crate::manager::shared::Shared;
use crate::manager::target::LockTarget;
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::{
    AcquireReply, AcquireRequest, CompleteRequest, NodeError, NodeErrorKind, RecallRequest,
    ReleaseRequest,
};
use crate::protocol::renewal::{LeaseNodes, Terms};
use crate::protocol::round::{Round, Verdict, Vote};
use crate::record::Record;
use crate::token::{FencingToken, OwnerToken};

/// The purpose of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// A lock.
    Lock,
    /// The stored result of an idempotency key, or else the lock to compute it.
    Idempotent {
        /// Whether nodes that have a record grant, too.
        adopt: bool,
        /// How long records are kept.
        keep: Duration,
    },
}

/// One acquire round over all nodes, with one owner token.
///
/// It ends in exactly one of three ways: [`win`](Self::win) makes a lock of it, [`release`](Self::release) releases
/// what it set and waits for that, and `drop`, at any point, releases what it set in the background.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) shared: Arc<Shared>,
    pub(crate) keys: NodeKeys,
    pub(crate) purpose: Purpose,
    pub(crate) terms: Terms,
    pub(crate) token: OwnerToken,
    pub(crate) fence: Option<FencingToken>,
    pub(crate) sent: Moment,
    pub(crate) round: Round,
    // How long fencing counters are kept; `None`: the lock has no fencing token.
    pub(crate) keep_fence: Option<Duration>,
    // Those of the nodes that have one.
    pub(crate) records: Vec<(usize, Record)>,
    // The clocks of the nodes that granted.
    pub(crate) clocks: Vec<u64>,
    pub(crate) errors: Vec<(usize, NodeError)>,
    pub(crate) fanout: Fanout<Result<AcquireReply, NodeError>>,
    // The round was lost: the release of what it set is no news for others.
    pub(crate) lost: bool,
    // Only `win` and `drop` take it.
    pub(crate) obligation: Option<Obligation>,
}

impl Attempt {
    /// Prepares a round for `keys`, under these `terms`. Nothing is sent before [`decide`](Self::decide) is polled.
    ///
    /// # Errors
    ///
    /// [`AcquireError::ShuttingDown`] if the manager takes no more locks, and [`AcquireError::NoQuorum`] if a node is
    /// known to serve processes with another list.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        keys: &NodeKeys,
        purpose: Purpose,
        terms: Terms,
    ) -> Result<Self, AcquireError> {
        if let Some(error) = shared.disagreement() {
            return Err(AcquireError::NoQuorum(error));
        }
        let token = token().map_err(AcquireError::NoEntropy)?;
        let obligation = shared.ledger.begin(terms.ttl);
        let obligation = obligation.ok_or(AcquireError::ShuttingDown(ShuttingDown))?;
        let keep_fence = match purpose {
            Purpose::Lock => shared.fencing.map(|keep| keep.max(terms.ttl)),
            // A record needs its ballot also where fencing is off. Its counter need not live as long: the mark, which
            // stands in for it, is above the ballots of all records.
            Purpose::Idempotent { .. } => Some(shared.counters_kept.max(terms.ttl)),
        };
        let bare = !shared.config.guarded && mutant::is(Mutant::UnguardedAgreesToNothing);
        let request = AcquireRequest::new(keys.clone(), token, terms.ttl)
            .under((!bare).then(|| Arc::clone(&shared.config)))
            .fenced(keep_fence.and_then(|keep| shared.proposal(keep)));
        // Before anything can leave: validity counts from here, for every node.
        let sent = shared.clock.now();
        let fanout = shared.send_all(|node| match purpose {
            Purpose::Lock => node.acquire(request.clone()),
            Purpose::Idempotent { adopt, keep } => {
                let before = before_run(&shared.longest_run, &terms);
                let linger = linger(before, terms.ttl, keep);
                node.recall(RecallRequest::new(request.clone(), adopt, linger))
            }
        });
        Ok(Self {
            fanout,
            shared: Arc::clone(shared),
            keys: keys.clone(),
            purpose,
            terms,
            token,
            fence: None,
            sent,
            round: Round::new(shared.terms.quorum),
            keep_fence,
            records: Vec::new(),
            clocks: Vec::new(),
            errors: Vec::new(),
            lost: false,
            obligation: Some(obligation),
        })
    }

    /// Which of the keys is in the way, as far as the nodes tell.
    pub(crate) fn blocking_key(&self) -> Option<NodeKey> {
        let index = self.round.in_the_way()?;
        self.keys.as_slice().get(index).cloned()
    }

    /// Asks the nodes and returns the verdict as soon as it is certain, after the node time-out at the latest.
    pub(crate) async fn decide(&mut self) -> Verdict {
        let limit = self.shared.node_timeout;
        let deadline = || sleep(limit);
        loop {
            while let Some((node, reply)) = self.fanout.take_ready() {
                self.take_reply(node, reply);
            }
            if self.shared.voting.is_blocked() {
                return Verdict::NoQuorum;
            }
            if let Some(verdict) = self.round.verdict() {
                self.lost = !matches!(verdict, Verdict::Granted | Verdict::NoQuorum);
                return verdict;
            }
            match self.fanout.next_within(deadline).await {
                Some((node, reply)) => self.take_reply(node, reply),
                None => self.time_out(),
            }
        }
    }

    /// Counts every node that has not replied as failed: the time is up.
    pub(crate) fn time_out(&mut self) {
        let late = self.fanout.abandon().into_iter();
        let late = late.map(|node| (node, self.shared.timed_out()));
        self.errors.extend(late);
        self.round.time_out();
    }

    /// Counts the reply of a node.
    pub(crate) fn take_reply(&mut self, node: usize, reply: Result<AcquireReply, NodeError>) {
        let vote = match reply {
            Ok(
                AcquireReply::Granted { fence: None } | AcquireReply::Promised { fence: None, .. },
            ) if self.keep_fence.is_some() => self.fail(node, no_fence(), true),
            Ok(AcquireReply::Granted { fence }) => {
                self.shared.ran(node);
                Vote::Granted(fence)
            }
            Ok(AcquireReply::Promised { fence, record, now }) => {
                self.shared.ran(node);
                self.clocks.push(now);
                self.records.extend(record.map(|record| (node, record)));
                Vote::Granted(fence)
            }
            Ok(AcquireReply::Recorded(record)) => {
                let ballot = record.ballot;
                self.records.push((node, record));
                Vote::Recorded(ballot)
            }
            Ok(AcquireReply::Held(holder)) => Vote::Refused(holder),
            Err(error) => {
                self.shared.heard(node, &error);
                let owed = error.outcome_unknown();
                self.fail(node, error, owed)
            }
        };
        self.round.record(node, vote);
    }

    fn fail(&mut self, node: usize, error: NodeError, owed: bool) -> Vote {
        self.errors.push((node, error));
        Vote::Failed { owed }
    }

    /// The token that each node is believed to hold now that the round is granted.
    fn lease_nodes(&self) -> LeaseNodes {
        let mut holding = LeaseNodes::new(self.terms, self.sent);
        let sent = match mutant::is(Mutant::GrantCountsFromTheReply) {
            true => self.shared.clock.now(),
            false => self.sent,
        };
        for node in 0..self.shared.nodes.len() {
            match self.round.vote(node) {
                Some(Vote::Granted(_)) => holding.confirm(node, sent),
                Some(Vote::Refused(_)) => holding.foreign(node, self.sent),
                Some(Vote::Failed { owed: true }) => holding.unknown(node),
                Some(Vote::Failed { owed: false } | Vote::Recorded(_)) => {}
                None if mutant::is(Mutant::UnreadReplyForgotten)
                    && !self.fanout.pending().any(|other| other == node) => {}
                // All nodes are asked: its reply has not come, or has not been read.
                None => holding.begin(node),
            }
        }
        holding
    }

    /// Makes a lock on `target` of a granted round. If no validity is left by now, everything is released.
    pub(crate) fn win(
        mut self,
        target: LockTarget,
        turn: Turn,
    ) -> Result<Arc<HeldLease>, AcquireError> {
        let shared = Arc::clone(&self.shared);
        let holding = self.lease_nodes();
        let missing = holding.missing() > 0;
        let deadline = holding.deadline();
        let now = shared.clock.now();
        if now >= deadline {
            return Err(AcquireError::TooSlow(TooSlow {
                elapsed: now.since(self.sent),
                ttl: self.terms.ttl,
            }));
        }
        if let Some(error) = shared.disagreement() {
            return Err(AcquireError::NoQuorum(error));
        }
        let Some(obligation) = self.obligation.take() else {
            // Nothing else has ended it.
            return Err(self.no_quorum());
        };
        let lease = Lease {
            keys: target.names,
            owner: self.token,
            fence: self.fence,
            ttl: self.terms.ttl,
            started: self.sent,
            deadline,
        };
        let clock = Arc::clone(&shared.clock);
        let held = HeldLease::new(
            (shared.serial, shared.next_id()),
            shared.redact,
            lease,
            target.keys,
            clock,
            holding,
            (turn, obligation),
        );
        let held = Arc::new(match self.purpose {
            Purpose::Lock => held,
            Purpose::Idempotent { .. } => {
                held.of_a_run(Clocks::new(take(&mut self.clocks), self.sent))
            }
        });
        if self.fanout.is_empty() {
            if missing {
                held.plan_top_up(shared.clock.now() + shared.node_timeout);
            }
            return Ok(held);
        }
        let mut pending: Vec<usize> = (0..shared.nodes.len()).collect();
        pending.retain(|node| self.round.vote(*node).is_none());
        let late = take_late_replies(Arc::clone(&shared), Arc::clone(&held), self.fanout.take());
        if !shared.tasks.spawn(late) {
            // No room to wait for the late replies: given up, so that a release does not wait for them either.
            for node in pending {
                held.reply(node, NodeEffect::Unknown);
            }
            held.plan_top_up(shared.clock.now() + shared.node_timeout);
        }
        Ok(held)
    }

    /// Releases what the round set and waits until those nodes are free, so that the next round is not refused by
    /// keys of our own previous attempt. Nodes that have not replied are settled in the background.
    pub(crate) async fn release(mut self) {
        let granted = self.granted();
        let Some(obligation) = self.obligation.as_ref().filter(|_| !granted.is_empty()) else {
            return;
        };
        obligation.enter(Stage::Releasing);
        // Never an error that matters: a release that is not confirmed goes on in the background.
        let free = self
            .shared
            .terms
            .quorum
            .needed()
            .saturating_sub(granted.len());
        let share = Some(obligation.share());
        let (command, ttl) = (self.release_command(), self.terms.ttl);
        let release = Release::new(&self.shared, command, &granted, free, share, ttl);
        for node in granted {
            self.round.mark_released(node);
        }
        let _ = release.quorum().await;
    }

    /// The nodes that granted.
    pub(crate) fn granted(&self) -> Vec<usize> {
        let is_granted = |node: &usize| matches!(self.round.vote(*node), Some(Vote::Granted(_)));
        let nodes = 0..self.shared.nodes.len();
        nodes.filter(is_granted).collect()
    }

    fn release_command(&self) -> Command {
        let request = ReleaseRequest::new(self.keys.clone(), self.token, !self.lost);
        let request = request.since(self.sent);
        match self.purpose {
            Purpose::Lock => Command::Release(request),
            Purpose::Idempotent { .. } => Command::Forget(CompleteRequest::new(request, None)),
        }
    }

    /// The error for a round without a quorum.
    pub(crate) fn no_quorum(&self) -> AcquireError {
        AcquireError::NoQuorum(self.shared.no_quorum(self.errors.clone()))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(obligation) = self.obligation.take() else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let fanout = self.fanout.take();
        let pending: Vec<usize> = fanout.pending().collect();
        let owed: Vec<usize> = (0..shared.nodes.len())
            .filter(|node| self.round.owes(*node) && !pending.contains(node))
            .collect();
        if fanout.is_empty() && owed.is_empty() {
            obligation.meet();
            return;
        }
        obligation.enter(Stage::Releasing);
        let rest = settle_lost(shared, self.release_command(), fanout, owed, obligation);
        self.shared.spawn_release(&self.keys, rest);
    }
}

/// For how long a holder from before a run that begins now, under `terms`, may believe that it still has the lock, by
/// the handles that have begun runs so far; the `longest` of these.
fn before_run(longest: &AtomicU64, terms: &Terms) -> Duration {
    let own = terms.max_hold.saturating_add(terms.ttl);
    // Rounded up.
    let millis = u64::try_from(own.as_millis()).unwrap_or(u64::MAX);
    let before = longest.fetch_max(millis.saturating_add(1), Ordering::Relaxed);
    own.max(Duration::from_millis(before))
}

/// Settles a lost round: releases the keys that were granted, and those that are granted late.
async fn settle_lost(
    shared: Arc<Shared>,
    command: Command,
    mut fanout: Fanout<Result<AcquireReply, NodeError>>,
    owed: Vec<usize>,
    obligation: Obligation,
) {
    // A dropped release goes on in the background, where we are already: this only starts it.
    let release = |nodes: &[usize]| {
        let (share, ttl) = (Some(obligation.share()), obligation.ttl());
        drop(Release::new(&shared, command.clone(), nodes, 0, share, ttl));
    };
    if !owed.is_empty() {
        release(&owed);
    }
    fanout.until(sleep(shared.node_timeout));
    while let Some((node, reply)) = fanout.next().await {
        match reply {
            _ if mutant::is(Mutant::LateGrantForgotten) => {}
            Ok(AcquireReply::Granted { .. } | AcquireReply::Promised { .. }) => release(&[node]),
            Err(error) if error.outcome_unknown() => release(&[node]),
            Ok(_) | Err(_) => {}
        }
    }
    let late = fanout.abandon();
    if !late.is_empty() {
        release(&late);
    }
    // The rest is done by the releases.
    obligation.meet();
}

/// Counts the late replies of a round that was won; plans a top-up for the nodes that are missing then.
async fn take_late_replies(
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    mut fanout: Fanout<Result<AcquireReply, NodeError>>,
) {
    let sent = held.lease.started;
    fanout.until(sleep(shared.node_timeout));
    while let Some((node, reply)) = fanout.next().await {
        let effect = shared.after_acquire(node, sent, &reply);
        held.reply(node, effect);
    }
    for node in fanout.abandon() {
        held.reply(node, NodeEffect::Unknown);
    }
    shared
        .registry
        .top_up(&held, shared.clock.now() + shared.node_timeout);
}

/// For how long nodes remember a grant with this `ttl` and without a result: longer than its commands can be under way,
/// and than the holder before it can believe that it still holds the lock. That is up to `before`, a `max_hold` and a
/// ttl, where a node has lost it too early. Records are not kept for longer than `keep` either.
fn linger(before: Duration, ttl: Duration, keep: Duration) -> Duration {
    let under_way = ttl.saturating_mul(4);
    before.min(keep).max(under_way).max(Duration::from_secs(60))
}

fn no_fence() -> NodeError {
    NodeError::new(
        NodeErrorKind::Garbled,
        "it granted without a fencing token; switch fencing off for nodes that cannot count",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::quorum::Quorum;
    use crate::protocol::validity::Drift;

    #[test]
    fn a_run_is_remembered_for_as_long_as_any_handle_may_have_held_the_one_before() {
        let secs = Duration::from_secs;
        let longest = AtomicU64::new(0);
        let before = |ttl, max_hold| {
            let terms = Terms {
                quorum: Quorum::masking(3, 0).unwrap(),
                ttl: secs(ttl),
                drift: Drift::default(),
                retry: secs(1),
                max_hold: secs(max_hold),
            };
            before_run(&longest, &terms)
        };
        assert_eq!(before(10, 60), secs(70));
        assert_eq!(before(20, 300), secs(320));
        let after = before(10, 60);
        assert!(after >= secs(320) && after < secs(321), "{after:?}");
    }

    #[test]
    fn a_grant_is_remembered_until_nobody_can_hold_the_lock_from_before() {
        let secs = Duration::from_secs;
        let (hour, day) = (secs(3_600), secs(86_400));
        for (ttl, max_hold, keep, expected) in [
            (secs(10), secs(60), day, secs(70)),
            (secs(1), secs(2), day, secs(60)),
            (secs(10), hour, day, hour + secs(10)),
            (hour, hour, day, 4 * hour),
            (secs(10), Duration::MAX, day, day),
            (secs(10), hour, secs(1), secs(60)),
        ] {
            let before = max_hold.saturating_add(ttl);
            assert_eq!(linger(before, ttl, keep), expected, "{ttl:?} {max_hold:?}");
        }
    }
}
