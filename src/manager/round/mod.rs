//! [`Attempt`]: one acquire round. All nodes are asked at once, their replies are folded into a verdict, and the round
//! becomes a lock, or what it set is given back.

mod end;

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::manager::error::AcquireError;
use crate::manager::lease::held::Tenancy;
use crate::manager::ledger::Obligation;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::release::{FreeCommand, release};
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::{AcquireReply, AcquireRequest, Node, NodeError, NodeErrorKind, NodeFuture};
use crate::protocol::renewal::Terms;
use crate::protocol::round::{Round, Verdict, Vote};
use crate::token::{FencingToken, OwnerHash, OwnerToken};

pub(crate) type Reply = Result<AcquireReply, NodeError>;

/// The purpose of a round, chosen once, where a call enters.
pub(crate) trait Purpose: Clone + fmt::Debug + Send + Sync + 'static {
    type Found: Send;
    type Along: Send;
    /// The command by which nodes give back what a lost round has set.
    const FREE: FreeCommand;
    /// For a lock that its holder hands on: what comes with it. `None`: locks of this purpose are not handed on. Then
    /// each caller asks the nodes, and one that does not wait is not refused while nothing is known of the caller
    /// before it.
    const HANDED_ON: Option<Self::Along>;
    /// Whether one of the keys of a round is enough. Several callers of a process may hold one each, so a caller has a
    /// turn only once it has found all of them held.
    const ANY: bool = false;
    /// Whether several owners may have the lock together.
    const SHARED: bool = false;

    /// The keys of the next round, for a lock on `keys`.
    fn keys(&mut self, keys: &NodeKeys) -> NodeKeys {
        keys.clone()
    }

    /// How long fencing counters are kept for a lock of this `ttl`; `None`: the lock has no fencing token.
    fn keep_fence(&self, shared: &Shared, ttl: Duration) -> Option<Duration>;
    fn ask(&self, node: &dyn Node, request: AcquireRequest) -> NodeFuture<Reply>;
    fn vote(&mut self, node: usize, reply: AcquireReply) -> Vote;
    fn decide(&self, round: &Round) -> Option<Decision>;

    /// A lock of this process that the caller may share.
    fn join(&self, _: &Shared, _: &NodeKeys, _: &Terms) -> Option<(Tenancy, Self::Along)> {
        None
    }

    /// Whether a lock with this slot, which another caller of this process passes on, is one that this caller asks for.
    fn fits(&self, _: Option<u32>) -> bool {
        true
    }

    /// Changes what the next round asks, after [`Decision::Again`]; whether that is possible.
    fn ask_again(&mut self) -> bool;
    fn found(attempt: Attempt<Self>) -> Result<Self::Found, AcquireError>;
    /// Whether the lock came with the stored result of earlier work.
    fn is_replay(along: &Self::Along) -> bool;
    /// Settles the fencing token of a granted round, and what comes with the lock.
    fn settle(
        attempt: &mut Attempt<Self>,
    ) -> impl Future<Output = Result<Self::Along, AcquireError>> + Send;
}

#[cfg_attr(
    not(feature = "idempotency"),
    expect(dead_code, reason = "all that is found is records")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Lock(Verdict),
    /// The nodes have something in place of the lock.
    Found,
    /// The nodes are to be asked again, in another way.
    Again,
}

/// A lock for one owner, or for one of several readers.
#[derive(Clone, Debug)]
pub(crate) struct Lock<const SHARED: bool>;

impl<const SHARED: bool> Purpose for Lock<SHARED> {
    type Found = Infallible;
    type Along = ();
    const FREE: FreeCommand = release;
    const HANDED_ON: Option<()> = if SHARED { None } else { Some(()) };
    const SHARED: bool = SHARED;

    fn join(&self, shared: &Shared, keys: &NodeKeys, terms: &Terms) -> Option<(Tenancy, ())> {
        let open = SHARED.then_some(&shared.open_leases)?;
        Some((open.join(keys.first(), terms)?, ()))
    }

    fn keep_fence(&self, shared: &Shared, ttl: Duration) -> Option<Duration> {
        shared.fencing.map(|keep| keep.max(ttl))
    }

    fn ask(&self, node: &dyn Node, request: AcquireRequest) -> NodeFuture<Reply> {
        node.acquire(request)
    }

    fn vote(&mut self, _: usize, reply: AcquireReply) -> Vote {
        match reply {
            AcquireReply::Granted { fence } | AcquireReply::Promised { fence, .. } => {
                Vote::Granted(fence)
            }
            // No answer to an acquire: nothing follows from it, and the node may have set the key.
            AcquireReply::Recorded(_) | AcquireReply::Slot { .. } => Vote::Failed { owed: true },
            AcquireReply::Held(holder) => Vote::Refused(holder),
        }
    }

    fn decide(&self, round: &Round) -> Option<Decision> {
        round.verdict().map(Decision::Lock)
    }

    fn ask_again(&mut self) -> bool {
        false
    }

    fn found(attempt: Attempt<Self>) -> Result<Infallible, AcquireError> {
        Err(attempt.no_quorum())
    }

    fn is_replay((): &()) -> bool {
        false
    }

    async fn settle(attempt: &mut Attempt<Self>) -> Result<(), AcquireError> {
        attempt.agree_on_fence().await
    }
}

/// One acquire round over all nodes, with one owner token. [`win`](Self::win) makes a lock of it,
/// [`release`](Self::release) releases its keys and waits for that, and `drop` releases them in the background.
pub(crate) struct Attempt<P: Purpose> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) purpose: P,
    pub(super) keys: NodeKeys,
    // All that was asked for, where one of them was enough and was granted.
    pub(super) asked: Option<NodeKeys>,
    pub(super) terms: Terms,
    pub(super) token: OwnerToken,
    pub(super) fence: Option<FencingToken>,
    pub(crate) sent: Moment,
    pub(crate) round: Round,
    // How long fencing counters are kept; `None`: the lock has no fencing token.
    pub(super) keep_fence: Option<Duration>,
    pub(super) errors: Vec<(usize, NodeError)>,
    pub(crate) fanout: Fanout<Reply>,
    // The round was lost: the release of what it set is no news for others.
    pub(super) lost: bool,
    // Only `win` and what gives back take it.
    pub(super) obligation: Option<Obligation>,
}

impl<P: Purpose> Attempt<P> {
    /// Prepares a round for `keys`, under these `terms`. Sends nothing before [`decide`](Self::decide) is polled.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        keys: &NodeKeys,
        mut purpose: P,
        terms: Terms,
    ) -> Result<Self, AcquireError> {
        if let Some(error) = shared.disagreement() {
            return Err(AcquireError::NoQuorum(error));
        }
        let token = fresh_token().map_err(AcquireError::NoEntropy)?;
        let token = token.labelled(&shared.instance);
        let obligation = shared.ledger.begin(terms.ttl);
        let obligation = obligation.ok_or(AcquireError::ShuttingDown)?;
        let keep_fence = purpose.keep_fence(shared, terms.ttl);
        let keys = purpose.keys(keys);
        let request = AcquireRequest {
            keys: keys.clone(),
            token,
            ttl: terms.ttl,
            config: Some(Arc::clone(&shared.config)),
            fence: keep_fence.and_then(|keep| shared.proposal(keep)),
            any: P::ANY,
        };
        // Before anything can leave: validity counts from here, for every node.
        let sent = shared.clock.now();
        Ok(Self {
            fanout: shared.send_all(|node| purpose.ask(node, request.clone())),
            shared: Arc::clone(shared),
            purpose,
            keys,
            asked: None,
            terms,
            token,
            fence: None,
            sent,
            round: Round::new(shared.terms.quorum),
            keep_fence,
            errors: Vec::new(),
            lost: false,
            obligation: Some(obligation),
        })
    }

    /// Whether readers have the lock, according to some node.
    pub(crate) fn is_read(&self) -> bool {
        let readers = OwnerHash::of(&OwnerToken::readers());
        self.round.is_refused_by(readers.tag())
    }

    pub(crate) fn blocking_key(&self) -> Option<NodeKey> {
        let index = self.round.in_the_way()?;
        self.keys.as_slice().get(index).cloned()
    }

    /// Asks the nodes and returns the result as soon as it is certain, after the node time-out at the latest.
    pub(crate) async fn decide(&mut self) -> Decision {
        let mut deadline = pin!(sleep(self.shared.node_timeout));
        loop {
            while let Some((node, reply)) = self.fanout.take_ready() {
                self.take_reply(node, reply);
            }
            if self.shared.voting.is_blocked() {
                return Decision::Lock(Verdict::NoQuorum);
            }
            if let Some(decision) = self.purpose.decide(&self.round) {
                let ours = [Verdict::Granted, Verdict::NoQuorum].map(Decision::Lock);
                self.lost = !ours.contains(&decision);
                return decision;
            }
            match self.fanout.next_before(deadline.as_mut()).await {
                Some((node, reply)) => self.take_reply(node, reply),
                None => self.time_out(),
            }
        }
    }

    pub(crate) fn time_out(&mut self) {
        let late = self.fanout.abandon().into_iter();
        let late = late.map(|node| (node, self.shared.timed_out()));
        self.errors.extend(late);
        self.round.time_out();
    }

    pub(crate) fn take_reply(&mut self, node: usize, reply: Reply) {
        let vote = match reply {
            Ok(
                AcquireReply::Granted { fence: None }
                | AcquireReply::Promised { fence: None, .. }
                | AcquireReply::Slot { fence: None, .. },
            ) if self.keep_fence.is_some() => self.fail(node, no_fence(), true),
            Ok(reply) => {
                if reply.is_grant() {
                    self.shared.ran(node);
                }
                self.purpose.vote(node, reply)
            }
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

    pub(crate) fn no_quorum(&self) -> AcquireError {
        AcquireError::NoQuorum(self.shared.no_quorum(self.errors.clone()))
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
