//! [`Freeing`] releases one owner token on the nodes. The caller waits until a quorum of nodes is free of it. Then the
//! work goes on in the background, until all nodes are free or the ttl has ended the token.
//!
//! ```text
//!   Freeing ──► Release ─ quorum().await ─► the caller goes on
//!                  └───── drop ───────────► rest(), again(): in the background
//! ```
//!
//! A node is asked only after the commands that are in flight to it have landed.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::instruments;
use crate::manager::error::ReleaseError;
use crate::manager::lease::held::{HeldLease, LetGo, Turn};
use crate::manager::ledger::{Obligation, Stage};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::no_answer;
use crate::manager::nodes::waiting::{Missed, is_retryable, retry};
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::NodeKey;
use crate::node::{Node, NodeError, NodeFuture, ReleaseReply, ReleaseRequest};
use crate::protocol::on_nodes::{Keys, Landed, OnNodes};
use crate::token::OwnerToken;

pub(crate) type Freed = Result<ReleaseReply, NodeError>;

pub(crate) type FreeCommand = fn(&dyn Node, &ReleaseRequest) -> NodeFuture<Freed>;

/// A release that has begun. If it is dropped, it goes on in the background.
pub(crate) struct Release(
    // Only `drop` takes it.
    Option<Freeing>,
);

impl Release {
    pub(crate) fn new(mut freeing: Freeing) -> Self {
        let nodes = freeing.nodes.to_be_released();
        let nodes = nodes.filter(|node| !freeing.is_later(*node));
        let ask = |node| (node, freeing.once_landed(node, freeing.release_if_there()));
        freeing.replies = Fanout::new(nodes.map(ask));
        Self(Some(freeing))
    }

    pub(crate) fn in_background(mut freeing: Freeing) -> Self {
        freeing.command.0.background = true;
        Self::new(freeing)
    }

    pub(crate) async fn quorum(mut self) -> Result<(), ReleaseError> {
        match &mut self.0 {
            Some(freeing) => freeing.quorum().await,
            None => Ok(()),
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(freeing) = self.0.take_if(|freeing| freeing.is_due()) {
            let shared = Arc::clone(&freeing.shared);
            let request = &freeing.command.0;
            let (keys, background) = (request.keys.clone(), request.background);
            shared.spawn_release(&keys, background, freeing.rest());
        }
    }
}

pub(crate) struct Freeing {
    pub(crate) shared: Arc<Shared>,
    command: (ReleaseRequest, FreeCommand),
    nodes: OnNodes,
    // The lock, if commands that may set its token were in flight when its release began.
    held: Option<Arc<HeldLease>>,
    // How many nodes count as free. The caller waits until this is a quorum.
    confirmed: usize,
    replies: Fanout<Freed>,
    // The releases that no caller waits for.
    later: Fanout<Freed>,
    sent: Moment,
    // By this moment the ttl has ended the token on all nodes.
    until: Moment,
    obligation: Option<Obligation>,
    // The highest number of listeners that a node counted for the release. The cooldown grows with it.
    listeners: u32,
    end: End,
}

#[derive(Default)]
struct End {
    // The turn of the lock, which passes on at the end.
    turn: Option<Turn>,
    // Whether the end counts as a loss. `None` if the token was never held, or once the end is counted.
    was_lost: Option<bool>,
    // True if a token that stays on a node until its ttl ends it needs no message in the log.
    is_logged: bool,
}

/// How it begins.
impl Freeing {
    /// Prepares the release of a token with this `ttl`. Sends nothing.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        command: (ReleaseRequest, FreeCommand),
        nodes: OnNodes,
        mut obligation: Option<Obligation>,
        ttl: Duration,
    ) -> Self {
        let sent = shared.set.clock.now();
        if let Some(obligation) = &mut obligation {
            obligation.enter(Stage::Releasing);
        }
        Self {
            shared: Arc::clone(shared),
            command,
            held: None,
            confirmed: nodes.count_free(),
            nodes,
            replies: Fanout::new([]),
            later: Fanout::new([]),
            sent,
            until: sent + ttl,
            obligation,
            listeners: 0,
            end: End::default(),
        }
    }

    pub(crate) fn of_held(shared: &Arc<Shared>, held: &Arc<HeldLease>, let_go: LetGo) -> Self {
        let lease = &held.lease;
        let request = ReleaseRequest {
            keys: let_go.keys,
            token: lease.owner,
            announce: true,
            waited: held.waited,
            since: Some(lease.started),
            background: false,
        };
        let end = End {
            turn: let_go.turn,
            was_lost: Some(let_go.end.counts_as_lost()),
            is_logged: let_go.end.has_expired(),
        };
        let nodes = let_go.end.nodes;
        let is_in_flight = nodes.count_in_flight() > 0;
        let command = (request, release as FreeCommand);
        let mut freeing = Self::new(shared, command, nodes, let_go.obligation, lease.ttl);
        freeing.held = is_in_flight.then(|| Arc::clone(held));
        freeing.end = end;
        freeing
    }

    /// Makes the caller wait only for nodes that are known to have the token, and for at most a quorum of them.
    pub(crate) fn wait_for_granted(&mut self) {
        self.confirmed = self.needed().saturating_sub(self.nodes.count_ours());
    }

    /// For the hint of a writer: no node counts as free before it has replied, and a hint that is left is not logged.
    pub(crate) const fn of_hint(mut self) -> Self {
        self.confirmed = 0;
        self.end.is_logged = true;
        self
    }

    /// Frees a node in the background. `with` can wrap the release, for example to wait for a late reply first.
    pub(crate) fn later(
        &mut self,
        index: usize,
        with: impl FnOnce(NodeFuture<Freed>) -> NodeFuture<Freed>,
    ) {
        self.nodes.land(index, self.sent, Landed::Abandoned);
        if let Some(node) = self.shared.set.nodes.get(index) {
            let (request, send) = &self.command;
            self.later.push(index, with(send(&**node, request)));
        }
    }

    fn is_later(&self, node: usize) -> bool {
        self.later.pending().any(|later| later == node)
    }
}

/// What is asked and answered.
impl Freeing {
    pub(crate) fn needed(&self) -> usize {
        self.shared.set.terms.quorum.needed()
    }

    pub(crate) const fn request(&self) -> &ReleaseRequest {
        &self.command.0
    }

    #[cfg(feature = "idempotency")]
    pub(crate) const fn nodes(&self) -> &OnNodes {
        &self.nodes
    }

    pub(crate) fn is_due(&self) -> bool {
        self.nodes.to_be_released().next().is_some()
    }

    fn release_if_there(
        &self,
    ) -> impl Fn(&dyn Node, &ReleaseRequest, bool) -> NodeFuture<Freed> + use<> {
        let send = self.command.1;
        move |node, request, is_there| match is_there {
            true => send(node, request),
            false => Box::pin(ready(Ok(ReleaseReply::NotOwner))),
        }
    }

    /// Sends a node a command after the commands that are in flight to it have landed. `send` gets the release for this
    /// node, and whether the node may have the token.
    pub(crate) fn once_landed<T: 'static>(
        &self,
        index: usize,
        send: impl Fn(&dyn Node, &ReleaseRequest, bool) -> NodeFuture<Result<T, NodeError>>
        + Send
        + 'static,
    ) -> NodeFuture<Result<T, NodeError>> {
        let (shared, request) = (&self.shared, self.request());
        if self.held.is_none()
            && !self.nodes.may_still_run(index)
            && let Some(node) = shared.set.nodes.get(index)
        {
            return send(&**node, request, true);
        }
        let (shared, request) = (Arc::clone(shared), request.clone());
        let landed = self.landed(index);
        Box::pin(async move {
            let nodes = landed.await;
            let request = request.for_node(nodes.may_still_run(index));
            let is_there = nodes.is_to_be_released(index);
            match shared.set.nodes.get(index) {
                Some(node) => send(&**node, &request, is_there).await,
                None => Err(no_answer(shared.set.node_timeout)),
            }
        })
    }

    fn landed(&self, node: usize) -> impl Future<Output = OnNodes> + Send + use<> {
        let (held, known) = (self.held.clone(), self.nodes.clone());
        async move {
            match held {
                Some(held) => held.landed(node).await,
                None => known,
            }
        }
    }

    async fn quorum(&mut self) -> Result<(), ReleaseError> {
        let needed = self.needed();
        self.hear(needed).await;
        let confirmed = self.confirmed;
        let error = ReleaseError::Unconfirmed { confirmed, needed };
        let is_confirmed = confirmed >= needed;
        self.finish(is_confirmed);
        is_confirmed.then_some(()).ok_or(error)
    }

    async fn hear(&mut self, enough: usize) {
        let mut deadline = pin!(self.shared.common.tasks.timer(self.shared.set.node_timeout));
        while self.confirmed < enough
            && let Some((node, reply)) = self.replies.next_before(deadline.as_mut()).await
        {
            self.take_reply(node, reply);
        }
        while let Some((node, reply)) = self.replies.take_ready() {
            self.take_reply(node, reply);
        }
    }

    fn take_reply(&mut self, node: usize, reply: Freed) {
        match reply {
            Ok(reply) => {
                self.shared.set.tell_run(node, RELEASE);
                self.freed(node, &reply);
            }
            // The release is sent again in the background.
            Err(error) if is_retryable(&error) => {
                self.shared.set.log_refusal(node, RELEASE, &error);
            }
            Err(error) => {
                self.shared.set.refused(node, RELEASE, &error);
                self.nodes.refuses_release(node);
            }
        }
    }

    fn freed(&mut self, node: usize, reply: &ReleaseReply) {
        let listeners = match reply {
            ReleaseReply::Released { listeners } => *listeners,
            ReleaseReply::NotOwner => 0,
        };
        self.free(node, listeners);
        self.confirmed += 1;
    }

    pub(crate) fn free(&mut self, node: usize, listeners: u32) {
        self.nodes.free(node);
        self.listeners = self.listeners.max(listeners);
    }

    async fn rest(mut self) {
        if !self.is_finished() {
            let _ = self.quorum().await;
        }
        for (node, reply) in self.take_later() {
            self.replies.push(node, reply);
        }
        self.hear(usize::MAX).await;
        self.replies.abandon();
        if self.is_due() {
            // Boxed, because it is seldom needed.
            Box::pin(self.again(true)).await;
        }
    }

    pub(crate) fn take_later(
        &mut self,
    ) -> impl Iterator<Item = (usize, NodeFuture<Freed>)> + use<> {
        self.later.take().into_pending()
    }

    /// Sends the release again to nodes that are not free, until the ttl has ended the token. If `logs`, a token that
    /// is left until then is logged.
    pub(crate) async fn again(mut self, logs: bool) {
        let jobs = self.nodes.to_be_released();
        let mut jobs = Fanout::new(jobs.map(|node| (node, self.retry(node))));
        let mut is_late = false;
        while let Some((node, reply)) = jobs.next().await {
            match reply {
                Ok(reply) => self.freed(node, &reply),
                Err(Missed::Refused) => self.nodes.refuses_release(node),
                Err(Missed::Late) => is_late = true,
            }
        }
        if is_late && logs && !self.end.is_logged {
            let key = self.request().keys.first().show();
            let reason = "a node did not answer in time";
            self.shared.set.left_to_expire(&key, reason);
        }
    }

    pub(crate) fn retry(&self, node: usize) -> NodeFuture<Result<ReleaseReply, Missed>> {
        self.retry_until(self.until, node, RELEASE, self.command.1)
    }

    #[cfg(feature = "idempotency")]
    pub(crate) const fn until(&self) -> Moment {
        self.until
    }

    /// Sends `node` a command repeatedly, after the commands that are in flight to it have landed.
    pub(crate) fn retry_until<T: Send + 'static>(
        &self,
        until: Moment,
        node: usize,
        name: &'static str,
        send: impl Fn(&dyn Node, &ReleaseRequest) -> NodeFuture<Result<T, NodeError>>
        + Send
        + Sync
        + 'static,
    ) -> NodeFuture<Result<T, Missed>> {
        let (shared, landed) = (Arc::clone(&self.shared), self.landed(node));
        let request = self.request().clone();
        Box::pin(async move {
            let left = until.since(shared.set.clock.now());
            let nodes = timeout(left, landed).await;
            let may_still_run = nodes.map_or(true, |nodes| nodes.may_still_run(node));
            let request = request.for_node(may_still_run);
            retry(&shared.set, node, until, name, |node| send(node, &request)).await
        })
    }
}

/// How it ends.
impl Freeing {
    pub(crate) fn finish(&mut self, is_confirmed: bool) {
        self.count(if is_confirmed {
            "released"
        } else {
            "unconfirmed"
        });
        self.pass_on();
    }

    fn count(&mut self, outcome: &'static str) {
        if let Some(was_lost) = self.end.was_lost.take() {
            instruments::released(if was_lost { "lost" } else { outcome });
        }
    }

    /// Whether the end was counted, or the token was never held.
    pub(crate) const fn is_finished(&self) -> bool {
        self.end.was_lost.is_none()
    }

    fn pass_on(&mut self) {
        // The turn passes on when this function returns. The cooldown must have begun by then, because the next caller
        // looks at it first.
        let turn = self.end.turn.take();
        let (first, queue) = (self.request().keys.first(), &self.shared.common.queue);
        let others = match first.slot() {
            None if turn.is_none() || self.listeners == 0 => return,
            None => self.listeners,
            Some(_) if !self.request().announce => return,
            // If callers of this process wait for a slot, one of them is among the listeners.
            Some(_) => {
                let is_heard_here = queue.is_in_use(first.announced().as_str());
                self.listeners.saturating_sub(u32::from(is_heard_here))
            }
        };
        let round_trip = self.shared.set.clock.now().since(self.sent);
        for key in self.request().keys.as_slice() {
            self.shared.give_way(key, others, round_trip);
        }
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        self.count("unconfirmed");
        if let Some(obligation) = &mut self.obligation
            && self.nodes.is_free_everywhere()
        {
            obligation.meet();
        }
    }
}

/// Releases, in the background, a slot on `node` that is not the slot of the permit.
pub(crate) fn free_stray(
    shared: &Arc<Shared>,
    node: usize,
    key: &NodeKey,
    token: OwnerToken,
    ttl: Duration,
) {
    let request = ReleaseRequest {
        keys: key.clone().into(),
        token,
        announce: false,
        waited: Duration::ZERO,
        // Without a send time the node sets no tombstone. It would refuse our token, but we may still want the slot of
        // the permit there.
        since: None,
        background: true,
    };
    let (quorum, sent) = (shared.set.terms.quorum, shared.set.clock.now());
    let mut nodes = OnNodes::new(quorum, Keys::All, ttl);
    let (fence, key) = (None, 0);
    nodes.land(node, sent, Landed::Ours { fence, key });
    let command = (request, release as FreeCommand);
    // The stray slot has its own entry in the ledger, because the permit may be released earlier. It has none if the
    // manager has shut down.
    let obligation = shared.common.ledger.begin(ttl);
    let freeing = Freeing::new(shared, command, nodes, obligation, ttl);
    drop(Release::new(freeing));
}

pub(crate) fn release(node: &dyn Node, request: &ReleaseRequest) -> NodeFuture<Freed> {
    node.release(request.clone())
}

const RELEASE: &str = "release";
