//! Giving a lock back on every node that may hold it.

use std::sync::Arc;

use tokio::time::{sleep, timeout};

use crate::clock::Clock as _;
use crate::manager::error::loss::LossReason;
use crate::manager::error::release::ReleaseUnconfirmed;
use crate::manager::lease::held::{HeldLease, Turns};
use crate::manager::lease::share::Owed;
use crate::manager::ledger::{Obligation, Owing};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::retry::{Missed, is_retryable, retry};
use crate::manager::shared::Shared;
use crate::metrics;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::{
    EndClaim, Node, NodeError, NodeErrorKind, NodeFuture, ReleaseReply, ReleaseRequest,
};
use crate::protocol::backoff::give_way;
use crate::token::{Owner, OwnerToken};

/// One release on several nodes. Dropped at any point it goes on in the background.
#[derive(Debug)]
pub(in crate::manager) struct Release {
    // Only `drop` takes it.
    work: Option<Work>,
}

/// What is to be released, and until when it matters.
#[derive(Clone, Debug)]
pub(in crate::manager) struct Debt {
    due: Due,
    // By then the ttl has ended it on its own.
    until: Moment,
    // The lock, if commands that may set the token were under way when it was let go.
    hold: Option<Arc<HeldLease>>,
}

/// What a node is owed.
#[derive(Clone, Debug)]
enum Due {
    Release(ReleaseRequest),
    /// Of a lock that is another's to release.
    EndClaim(EndClaim),
}

impl Debt {
    pub(in crate::manager) fn new(
        shared: &Shared,
        keys: &NodeKeys,
        token: OwnerToken,
        since: Moment,
        announce: bool,
    ) -> Self {
        let request = ReleaseRequest::new(keys.clone(), token, announce).since(since);
        Self {
            due: Due::Release(request),
            until: shared.clock.now() + shared.terms.ttl,
            hold: None,
        }
    }

    /// The same for a lock that was lent, if so.
    fn lent(mut self, lent: bool) -> Self {
        if let Due::Release(request) = &mut self.due {
            request.lent = lent;
        }
        self
    }

    const fn keys(&self) -> &NodeKeys {
        match &self.due {
            Due::Release(request) => &request.keys,
            Due::EndClaim(request) => &request.keys,
        }
    }

    fn send(&self, node: &dyn Node) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        match &self.due {
            Due::Release(request) if !request.lent => node.release(request.clone()),
            Due::Release(request) => {
                let answer = node.release(request.clone());
                Box::pin(async move {
                    match answer.await? {
                        // Once more a little later: it may have ended by then.
                        ReleaseReply::Lent => Err(lent()),
                        reply => Ok(reply),
                    }
                })
            }
            Due::EndClaim(request) => {
                let answer = node.end_claim(request.clone());
                Box::pin(async move { answer.await.map(|()| ReleaseReply::NotOwner) })
            }
        }
    }
}

fn lent() -> NodeError {
    NodeError::new(NodeErrorKind::Unavailable, "borrowed")
}

impl Release {
    /// A release of `debt` on `nodes`, where `free` other nodes are free already. It meets `obligation`.
    pub(in crate::manager) fn new(
        shared: &Arc<Shared>,
        debt: Debt,
        nodes: &[usize],
        free: usize,
        obligation: Option<Obligation>,
    ) -> Self {
        let futures = nodes.iter().filter_map(|&index| {
            let node = shared.nodes.get(index)?;
            Some((index, debt.send(&**node)))
        });
        Self {
            work: Some(Work {
                fanout: Fanout::new(futures),
                shared: Arc::clone(shared),
                sent: shared.clock.now(),
                debt,
                failed: Vec::new(),
                free,
                listeners: 0,
                turns: None,
                tally: None,
                owing: Owing::new(obligation, nodes.to_vec()),
            }),
        }
    }

    /// The end of a claim on all nodes, whether or not they are known to have it.
    pub(in crate::manager) fn of_claim(
        shared: &Arc<Shared>,
        request: EndClaim,
        obligation: Option<Obligation>,
    ) -> Self {
        let debt = Debt {
            due: Due::EndClaim(request),
            until: shared.clock.now() + shared.terms.ttl,
            hold: None,
        };
        let nodes: Vec<usize> = (0..shared.nodes.len()).collect();
        Self::new(shared, debt, &nodes, 0, obligation)
    }

    /// A release that has nothing to do, now or ever.
    pub(in crate::manager) const fn nothing() -> Self {
        Self { work: None }
    }

    /// The release of a lock that was held. Nodes with a command under way are asked when that is answered, and
    /// count like the others: a node that was slow to grant must not make the release depend on all the rest.
    pub(in crate::manager) fn of(
        shared: &Arc<Shared>,
        hold: &Arc<HeldLease>,
        owed: &mut Owed,
    ) -> Self {
        let Owner::Us(token) = hold.lease.owner else {
            // It is the lender's to release.
            let lost = owed.lost.map_or("returned", |_| "lost");
            metrics::released(lost);
            return match hold.lease.owner {
                Owner::Lender(owner, claim) => {
                    let request = EndClaim::new(hold.keys.clone(), owner, claim, true);
                    Self::of_claim(shared, request, owed.obligation())
                }
                Owner::Us(_) => Self::nothing(),
            };
        };
        let debt = Debt::new(shared, &hold.keys, token, hold.lease.started, true);
        let debt = debt.lent(hold.was_lent());
        let mut release = Self::new(shared, debt, &owed.nodes, owed.free, None);
        if let Some(work) = &mut release.work {
            work.owing = owed.owing();
            work.turns = owed.turns.take();
            work.tally = Some(Tally::new(owed.lost));
            if !owed.busy.is_empty() {
                work.debt.hold = Some(Arc::clone(hold));
            }
            for &index in &owed.busy {
                let later = when_settled(Arc::clone(shared), index, work.debt.clone());
                work.fanout.push(index, Box::pin(later));
            }
        }
        release
    }

    /// Waits until a quorum of nodes is free, at most for the node time-out. The rest goes on in the background.
    pub(in crate::manager) async fn quorum(mut self) -> Result<(), ReleaseUnconfirmed> {
        match &mut self.work {
            Some(work) => work.quorum().await,
            None => Ok(()),
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if work.fanout.is_empty() && work.failed.is_empty() {
            return;
        }
        let (shared, keys) = (Arc::clone(&work.shared), work.debt.keys().clone());
        shared.settle(&keys, work.rest());
    }
}

/// A release under way.
#[derive(Debug)]
struct Work {
    shared: Arc<Shared>,
    debt: Debt,
    sent: Moment,
    fanout: Fanout<Result<ReleaseReply, NodeError>>,
    // Nodes to try again.
    failed: Vec<usize>,
    // How many nodes are known to be free.
    free: usize,
    // How many others were told of it, by the node that told most.
    listeners: u32,
    // The right to go for the keys: it passes to the next in this process when a quorum is free.
    turns: Option<Turns>,
    // Of a lock that was held.
    tally: Option<Tally>,
    owing: Owing,
}

/// One release, to be counted. Dropped before it is known what came of it, it counts as one that nobody confirmed.
#[derive(Debug)]
struct Tally {
    outcome: &'static str,
    lost: bool,
}

impl Tally {
    const fn new(lost: Option<LossReason>) -> Self {
        let lost = lost.is_some();
        let outcome = if lost { "lost" } else { "unconfirmed" };
        Self { outcome, lost }
    }

    const fn confirmed(&mut self) {
        if !self.lost {
            self.outcome = "released";
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        metrics::released(self.outcome);
    }
}

impl Work {
    async fn quorum(&mut self) -> Result<(), ReleaseUnconfirmed> {
        self.freed().await;
        self.pass_on();
        let needed = self.shared.terms.quorum.needed();
        if self.free >= needed {
            return Ok(());
        }
        Err(ReleaseUnconfirmed {
            confirmed: self.free,
            needed,
        })
    }

    /// Waits until a quorum of nodes is free, or does not answer in time.
    async fn freed(&mut self) {
        let needed = self.shared.terms.quorum.needed();
        let timer = self.shared.tasks.timer(self.shared.node_timeout);
        tokio::pin!(timer);
        while self.free < needed {
            tokio::select! {
                biased;
                answer = self.fanout.next() => match answer {
                    Some((node, answer)) => self.note(node, answer),
                    None => break,
                },
                () = &mut timer => break,
            }
        }
        while let Some((node, answer)) = self.fanout.take_ready() {
            self.note(node, answer);
        }
        if let Some(mut tally) = self.tally.take()
            && self.free >= needed
        {
            tally.confirmed();
        }
    }

    fn note(&mut self, node: usize, answer: Result<ReleaseReply, NodeError>) {
        match answer {
            Ok(reply) => {
                self.free += 1;
                self.owing.freed(node);
                if let ReleaseReply::Released { listeners } = reply {
                    self.listeners = self.listeners.max(listeners);
                }
            }
            Err(error) if is_retryable(&error) => self.failed.push(node),
            Err(error) => self.shared.refused(node, "release", &error),
        }
    }

    /// Lets the next go for the key.
    fn pass_on(&mut self) {
        if let Some(turns) = self.turns.take() {
            self.shared
                .pass_on(turns, self.debt.keys(), self.listeners, self.sent);
        }
    }

    /// Waits for the releases under way, then tries the failed ones again until the ttl has ended them.
    async fn rest(mut self) {
        if self.turns.is_some() {
            // What is not free by then is tried again below.
            let _ = self.quorum().await;
        }
        let timer = sleep(self.shared.node_timeout);
        tokio::pin!(timer);
        loop {
            tokio::select! {
                biased;
                answer = self.fanout.next() => match answer {
                    Some((node, answer)) => self.note(node, answer),
                    None => break,
                },
                () = &mut timer => {
                    let late = self.fanout.abandon();
                    self.failed.extend(late);
                    break;
                }
            }
        }
        let failed = std::mem::take(&mut self.failed).into_iter();
        let retries = failed.map(|node| {
            let retry = release_later(Arc::clone(&self.shared), node, self.debt.clone());
            (node, Box::pin(retry) as NodeFuture<bool>)
        });
        let mut retries = Fanout::new(retries.collect::<Vec<_>>());
        while let Some((node, released)) = retries.next().await {
            if released {
                self.owing.freed(node);
            }
        }
    }
}

impl Shared {
    /// Lets the next go for keys whose release was sent at `sent`: others, if they were waiting, and then who waits in
    /// this process.
    pub(in crate::manager) fn pass_on(
        &self,
        turns: Turns,
        keys: &NodeKeys,
        listeners: u32,
        sent: Moment,
    ) {
        if listeners > 0 {
            let now = self.clock.now();
            let pause = give_way(listeners, now.since(sent));
            for key in keys.as_slice() {
                self.cooldown.start(key.shared(), now, pause);
            }
        }
        drop(turns);
    }
}

/// Releases one node once nothing is under way to it that could set the token anew.
async fn when_settled(
    shared: Arc<Shared>,
    index: usize,
    debt: Debt,
) -> Result<ReleaseReply, NodeError> {
    let owes = match &debt.hold {
        Some(hold) => hold.settled(index).await,
        None => true,
    };
    match shared.nodes.get(index) {
        Some(node) if owes => debt.send(&**node).await,
        _ => Ok(ReleaseReply::NotOwner),
    }
}

/// Releases on one node again and again until it answers or the ttl is over. Tells whether it did.
async fn release_later(shared: Arc<Shared>, index: usize, debt: Debt) -> bool {
    if let Some(hold) = &debt.hold {
        let left = debt.until.since(shared.clock.now());
        let _ = timeout(left, hold.settled(index)).await;
    }
    let release = |node: &dyn Node| debt.send(node);
    let released = retry(&shared, index, debt.until, "release", release).await;
    if released == Err(Missed::Late) {
        let key = debt.keys().first().show(shared.redact);
        let reason = match &debt.due {
            Due::Release(request) if !request.lent => "a node did not answer in time",
            Due::Release(_) => "a borrower did not end, or a node did not answer, in time",
            Due::EndClaim(_) => return false,
        };
        crate::trace::left_to_expire(&key, reason);
    }
    released.is_ok()
}
