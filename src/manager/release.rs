//! [`Release`]: one lock that is given back: until a quorum of nodes is free of it, and in the background until all
//! are, or its ttl has ended it. [`Freeing`] is its state. `records/complete.rs` uses it, too, for a node that frees a
//! lock in the step that stores a record: it reads `request`, `lease` and `until`, takes nodes out of `owing`, and
//! counts in `confirmed` the nodes that have the record.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::instruments;
use crate::manager::error::ReleaseError;
use crate::manager::lease::held::{HeldLease, PendingRelease, Turn};
use crate::manager::lease::state::{Debt, Indices};
use crate::manager::ledger::{Obligation, Stage};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::waiting::{Missed, is_retryable, retry};
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::node::{Node, NodeError, NodeFuture, ReleaseReply, ReleaseRequest};

pub(crate) type Freed = Result<ReleaseReply, NodeError>;

/// The command by which a node gives a lock back.
pub(crate) type FreeCommand = fn(&dyn Node, &ReleaseRequest) -> NodeFuture<Freed>;

/// It runs where it is awaited, as another task would have to be woken for every reply; dropped at any point it goes on
/// in the background.
pub(crate) struct Release(
    // Only `drop` takes it.
    Option<Freeing>,
);

impl Release {
    pub(crate) fn new(mut freeing: Freeing) -> Self {
        let nodes = freeing
            .owing
            .iter()
            .filter(|node| !freeing.is_later(**node));
        freeing.replies = Fanout::new(nodes.map(|node| (*node, freeing.ask(*node))));
        Self(Some(freeing))
    }

    /// A release that nobody waits for.
    pub(crate) fn aside(mut freeing: Freeing) -> Self {
        freeing.request.aside = true;
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
        if let Some(freeing) = self.0.take().filter(|it| !it.owing.is_empty()) {
            let shared = Arc::clone(&freeing.shared);
            let (keys, aside) = (freeing.request.keys.clone(), freeing.request.aside);
            shared.spawn_release(&keys, aside, freeing.rest());
        }
    }
}

/// The nodes that are to be freed of one owner token, and what follows once a quorum of them is.
pub(crate) struct Freeing {
    pub(crate) shared: Arc<Shared>,
    pub(crate) request: ReleaseRequest,
    free: FreeCommand,
    sent: Moment,
    // By then the ttl has ended the lock on its own.
    pub(crate) until: Moment,
    // The lock, if commands that may set its token were under way at the release: `settled` waits until they are not.
    pub(crate) lease: Option<Arc<HeldLease>>,
    // The nodes at which a command that may set it was given up.
    pub(crate) doubtful: Indices,
    // The nodes that may have the token and can be made to give it back.
    pub(crate) owing: Indices,
    // How many nodes are free of it, or have the record.
    pub(crate) confirmed: usize,
    replies: Fanout<Freed>,
    // Nodes that nobody waits for: they are freed in the background.
    pub(crate) later: Fanout<Freed>,
    // A node refused, and has the token until its ttl ends.
    is_refused: bool,
    obligation: Option<Obligation>,
    // How many other processes heard of the release: the highest count of a node. The cooldown grows with it.
    pub(crate) listeners: u32,
    // The right to contend for the keys, until a quorum has confirmed, or cannot in time.
    turn: Option<Turn>,
    // Whether its end counts as a loss. There until its end is counted, and only if it was held.
    was_lost: Option<bool>,
    // The log has said, or need not say, that its ttl ends it.
    pub(crate) is_told: bool,
}

impl Freeing {
    /// To free the nodes `owing` from a lock of this `ttl` by the command `free`. Nothing is sent yet.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        (request, free): (ReleaseRequest, FreeCommand),
        owing: Indices,
        mut obligation: Option<Obligation>,
        ttl: Duration,
    ) -> Self {
        let sent = shared.clock.now();
        if let Some(obligation) = &mut obligation {
            obligation.enter(Stage::Releasing);
        }
        Self {
            shared: Arc::clone(shared),
            request,
            free,
            sent,
            until: sent + ttl,
            lease: None,
            doubtful: Indices::new(),
            owing,
            confirmed: 0,
            replies: Fanout::new([]),
            later: Fanout::new([]),
            is_refused: false,
            obligation,
            listeners: 0,
            turn: None,
            was_lost: None,
            is_told: false,
        }
    }

    /// To free the nodes of a lock that was held.
    pub(crate) fn of(
        shared: &Arc<Shared>,
        lease: &Arc<HeldLease>,
        pending: PendingRelease,
    ) -> Self {
        let left = pending.left;
        let request = ReleaseRequest {
            keys: lease.owed().clone(),
            token: lease.lease.owner,
            announce: true,
            waited: lease.waited.get().copied().unwrap_or_default(),
            since: Some(lease.lease.started),
            aside: false,
        };
        let (was_lost, is_told) = (left.counts_as_lost(), left.has_expired());
        let (free, ttl) = (release as FreeCommand, lease.lease.ttl);
        let mut freeing = Self::new(shared, (request, free), left.owing, pending.obligation, ttl);
        freeing.lease = left.is_busy.then(|| Arc::clone(lease));
        freeing.doubtful = left.doubtful;
        freeing.confirmed = left.free;
        freeing.turn = pending.turn;
        freeing.was_lost = Some(was_lost);
        freeing.is_told = is_told;
        freeing
    }

    fn is_later(&self, node: usize) -> bool {
        self.later.pending().any(|later| later == node)
    }

    /// Asks a node to give the lock back, once no command is under way there that may set it anew.
    fn ask(&self, index: usize) -> NodeFuture<Freed> {
        match self.shared.nodes.get(index) {
            Some(node) if !self.must_settle(index) => (self.free)(&**node, &self.request),
            _ => {
                let (settled, shared) = (self.settled(index), Arc::clone(&self.shared));
                let (request, free) = (self.request.clone(), self.free);
                Box::pin(async move {
                    let debt = settled.await;
                    match shared.nodes.get(index) {
                        Some(node) if debt != Debt::Nothing => {
                            free(&**node, &given(&request, debt)).await
                        }
                        _ => Ok(ReleaseReply::NotOwner),
                    }
                })
            }
        }
    }

    /// Whether [`settled`](Self::settled) has anything to say about the node.
    pub(crate) fn must_settle(&self, node: usize) -> bool {
        self.lease.is_some() || self.doubtful.contains(&node)
    }

    /// Waits until no command is under way at `node` that may set the lock anew, and tells what it owes then.
    pub(crate) fn settled(&self, node: usize) -> impl Future<Output = Debt> + Send + use<> {
        let lease = self.lease.clone();
        let known = match self.doubtful.contains(&node) {
            true => Debt::Doubtful,
            false => Debt::Token,
        };
        async move {
            match lease {
                Some(lease) => lease.settled(node).await,
                None => known,
            }
        }
    }

    async fn quorum(&mut self) -> Result<(), ReleaseError> {
        let needed = self.shared.terms.quorum.needed();
        self.hear(needed).await;
        let confirmed = self.confirmed;
        let error = ReleaseError::Unconfirmed { confirmed, needed };
        self.end().then_some(()).ok_or(error)
    }

    /// Counts the end of the lock, and passes its turn on. Returns whether a quorum has confirmed.
    pub(crate) fn end(&mut self) -> bool {
        let is_confirmed = self.confirmed >= self.shared.terms.quorum.needed();
        self.count(if is_confirmed {
            "released"
        } else {
            "unconfirmed"
        });
        self.pass_on();
        is_confirmed
    }

    fn count(&mut self, outcome: &'static str) {
        if let Some(was_lost) = self.was_lost.take() {
            instruments::released(if was_lost { "lost" } else { outcome });
        }
    }

    /// Whether its end was counted, or need not be: its caller was told, or has gone before it was held.
    pub(crate) const fn is_counted(&self) -> bool {
        self.was_lost.is_none()
    }

    async fn hear(&mut self, enough: usize) {
        let mut deadline = pin!(self.shared.tasks.timer(self.shared.node_timeout));
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
                self.shared.tell_run(node, RELEASE);
                self.freed(node, &reply);
            }
            // It is tried again.
            Err(error) if is_retryable(&error) => {
                self.shared.log_refusal(node, RELEASE, &error);
            }
            Err(error) => {
                self.shared.refused(node, RELEASE, &error);
                self.refused(node);
            }
        }
    }

    fn freed(&mut self, node: usize, reply: &ReleaseReply) {
        self.forget(node);
        self.confirmed += 1;
        if let ReleaseReply::Released { listeners } = reply {
            self.listeners = self.listeners.max(*listeners);
        }
    }

    pub(crate) fn forget(&mut self, node: usize) {
        self.owing.retain(|other| *other != node);
    }

    fn refused(&mut self, node: usize) {
        self.forget(node);
        self.is_refused = true;
    }

    fn pass_on(&mut self) {
        // It passes on at the end, for the next caller looks at the cooldown first.
        let turn = self.turn.take();
        let (first, queue) = (self.request.keys.first(), &self.shared.queue);
        let others = match first.slot() {
            None if turn.is_none() || self.listeners == 0 => return,
            None => self.listeners,
            Some(_) if !self.request.announce => return,
            // One caller of this process listens, too, if any waits.
            Some(_) => {
                let is_heard_here = queue.is_in_use(first.announced().as_str());
                self.listeners.saturating_sub(u32::from(is_heard_here))
            }
        };
        let round_trip = self.shared.clock.now().since(self.sent);
        for key in self.request.keys.as_slice() {
            self.shared.give_way(key, others, round_trip);
        }
    }

    /// The work in the background, once the caller was told or has left.
    async fn rest(mut self) {
        if !self.is_counted() {
            let _ = self.quorum().await;
        }
        for (node, reply) in self.later.take().into_pending() {
            self.replies.push(node, reply);
        }
        self.hear(usize::MAX).await;
        self.replies.abandon();
        if !self.owing.is_empty() {
            // Boxed, as it is seldom needed.
            Box::pin(self.again(true)).await;
        }
    }

    /// Asks the nodes that are not free again and again, until the ttl has ended the lock. A lock that is left then is
    /// logged, if `tells`.
    pub(crate) async fn again(mut self, tells: bool) {
        let jobs = self.owing.iter().map(|node| (*node, self.retry(*node)));
        let mut jobs = Fanout::new(jobs);
        let mut is_late = false;
        while let Some((node, reply)) = jobs.next().await {
            match reply {
                Ok(reply) => self.freed(node, &reply),
                Err(Missed::Refused) => self.refused(node),
                Err(Missed::Late) => is_late = true,
            }
        }
        if is_late && tells && !self.is_told {
            let key = self.request.keys.first().show();
            let reason = "a node did not answer in time";
            self.shared.left_to_expire(&key, reason);
        }
    }

    pub(crate) fn retry(&self, node: usize) -> NodeFuture<Result<ReleaseReply, Missed>> {
        let (request, free) = (self.request.clone(), self.free);
        self.send_until(self.until, node, RELEASE, move |node, debt| {
            free(node, &given(&request, debt))
        })
    }

    /// Sends `node` a command again and again, once no other is under way there that may set the lock anew.
    pub(crate) fn send_until<T: Send + 'static>(
        &self,
        until: Moment,
        node: usize,
        name: &'static str,
        command: impl Fn(&dyn Node, Debt) -> NodeFuture<Result<T, NodeError>> + Send + Sync + 'static,
    ) -> NodeFuture<Result<T, Missed>> {
        let (shared, settled) = (Arc::clone(&self.shared), self.settled(node));
        Box::pin(async move {
            let left = until.since(shared.clock.now());
            let debt = timeout(left, settled).await.unwrap_or(Debt::Doubtful);
            retry(&shared, node, until, name, move |node| command(node, debt)).await
        })
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        self.count("unconfirmed");
        if let Some(obligation) = &mut self.obligation
            && (self.owing.is_empty() && !self.is_refused)
        {
            obligation.meet();
        }
    }
}

/// The request to a node that owes this much.
pub(crate) fn given(request: &ReleaseRequest, debt: Debt) -> ReleaseRequest {
    match debt {
        Debt::Doubtful => request.after_doubt(),
        Debt::Token | Debt::Nothing => request.clone(),
    }
}

pub(crate) fn release(node: &dyn Node, request: &ReleaseRequest) -> NodeFuture<Freed> {
    node.release(request.clone())
}

const RELEASE: &str = "release";
