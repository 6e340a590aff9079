//! Giving a lock back on every node that may hold it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::baton::Turns;
use super::core::{Core, random};
use super::ending::Unconfirmed;
use super::fanout::Fanout;
use super::hold::{Hold, Owed};
use crate::clock::Clock as _;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::{NodeError, NodeErrorKind, NodeFuture, ReleaseReply, ReleaseRequest};
use crate::protocol::backoff::{Backoff, give_way};
use crate::token::{Owner, OwnerToken};

/// One release on several nodes. Dropped at any point it goes on in the background.
#[derive(Debug)]
pub(super) struct Release {
    // Only `drop` takes it.
    work: Option<Work>,
}

/// What is to be released, and until when it matters.
#[derive(Clone, Debug)]
pub(super) struct Debt {
    keys: NodeKeys,
    token: OwnerToken,
    // When the first command of this owner was sent.
    since: Moment,
    // By then the ttl has ended it on its own.
    until: Moment,
    // Whether those who wait are told.
    announce: bool,
    // The lock, if commands that may set the token were under way when it was let go.
    hold: Option<Arc<Hold>>,
}

impl Debt {
    pub(super) fn new(
        core: &Core,
        keys: &NodeKeys,
        token: OwnerToken,
        since: Moment,
        announce: bool,
    ) -> Self {
        Self {
            keys: keys.clone(),
            token,
            since,
            until: core.clock.now() + core.terms.ttl,
            announce,
            hold: None,
        }
    }

    fn request(&self) -> ReleaseRequest {
        ReleaseRequest::new(self.keys.clone(), self.token, self.announce).since(self.since)
    }
}

impl Release {
    /// A release of `debt` on `nodes`, where `free` other nodes are free already.
    pub(super) fn new(core: &Arc<Core>, debt: Debt, nodes: &[usize], free: usize) -> Self {
        let futures = nodes.iter().filter_map(|&index| {
            let node = core.nodes.get(index)?;
            Some((index, node.release(debt.request())))
        });
        Self {
            work: Some(Work {
                fanout: Fanout::new(futures),
                core: Arc::clone(core),
                sent: core.clock.now(),
                debt,
                failed: Vec::new(),
                free,
                listeners: 0,
                turns: None,
            }),
        }
    }

    /// A release that has nothing to do, now or ever.
    pub(super) const fn nothing() -> Self {
        Self { work: None }
    }

    /// The release of a lock that was held. Nodes with a command under way are asked when that is answered, and
    /// count like the others: a node that was slow to grant must not make the release depend on all the rest.
    pub(super) fn of(core: &Arc<Core>, hold: &Arc<Hold>, owed: &mut Owed) -> Self {
        let Owner::Us(token) = hold.lease.owner else {
            // It is the lender's to release.
            return Self::nothing();
        };
        let debt = Debt::new(core, &hold.keys, token, hold.lease.started, true);
        let mut release = Self::new(core, debt, &owed.nodes, owed.free);
        if let Some(work) = &mut release.work {
            work.turns = owed.turns.take();
            if !owed.busy.is_empty() {
                work.debt.hold = Some(Arc::clone(hold));
            }
            for &index in &owed.busy {
                let later = when_settled(Arc::clone(core), index, work.debt.clone());
                work.fanout.push(index, Box::pin(later));
            }
        }
        release
    }

    /// Waits until a quorum of nodes is free, at most for the node time-out. The rest goes on in the background.
    pub(super) async fn quorum(mut self) -> Result<(), Unconfirmed> {
        match &mut self.work {
            Some(work) => work.quorum().await,
            None => Ok(()),
        }
    }

    /// The same, but the right to go for the keys does not pass on. If this is dropped half-way, it does.
    pub(super) async fn reclaim(mut self) -> Option<Turns> {
        let work = self.work.as_mut()?;
        work.freed().await;
        work.turns.take()
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if work.fanout.is_empty() && work.failed.is_empty() {
            return;
        }
        let (core, keys) = (Arc::clone(&work.core), work.debt.keys.clone());
        core.settle(&keys, work.rest());
    }
}

/// A release under way.
#[derive(Debug)]
struct Work {
    core: Arc<Core>,
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
}

impl Work {
    async fn quorum(&mut self) -> Result<(), Unconfirmed> {
        self.freed().await;
        self.pass_on();
        let needed = self.core.terms.quorum.needed();
        if self.free >= needed {
            return Ok(());
        }
        Err(Unconfirmed {
            confirmed: self.free,
            needed,
        })
    }

    /// Waits until a quorum of nodes is free, or does not answer in time.
    async fn freed(&mut self) {
        let needed = self.core.terms.quorum.needed();
        let timer = sleep(self.core.node_timeout);
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
    }

    fn note(&mut self, node: usize, answer: Result<ReleaseReply, NodeError>) {
        match answer {
            Ok(reply) => {
                self.free += 1;
                if let ReleaseReply::Released { listeners } = reply {
                    self.listeners = self.listeners.max(listeners);
                }
            }
            Err(error) if is_worth_another_try(&error) => self.failed.push(node),
            Err(error) => self.core.refused(node, &error),
        }
    }

    /// Lets the next go for the key: others, if they were waiting, and then who waits in this process.
    fn pass_on(&mut self) {
        let Some(turns) = self.turns.take() else {
            return;
        };
        if self.listeners > 0 {
            let now = self.core.clock.now();
            let pause = give_way(self.listeners, now.since(self.sent));
            for key in self.debt.keys.as_slice() {
                self.core.courtesy.stand_back(key.shared(), now, pause);
            }
        }
        drop(turns);
    }

    /// Waits for the releases under way, then tries the failed ones again until the ttl has ended them.
    async fn rest(mut self) {
        if self.turns.is_some() {
            // What is not free by then is tried again below.
            let _ = self.quorum().await;
        }
        let timer = sleep(self.core.node_timeout);
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
        let Self {
            core, debt, failed, ..
        } = self;
        let retries = failed.into_iter().map(|node| {
            let retry: NodeFuture<()> = Box::pin(retry(Arc::clone(&core), node, debt.clone()));
            (node, retry)
        });
        let mut retries = Fanout::new(retries.collect::<Vec<_>>());
        while retries.next().await.is_some() {}
    }
}

/// Releases one node once nothing is under way to it that could set the token anew.
async fn when_settled(
    core: Arc<Core>,
    index: usize,
    debt: Debt,
) -> Result<ReleaseReply, NodeError> {
    let owes = match &debt.hold {
        Some(hold) => hold.settled(index).await,
        None => true,
    };
    match core.nodes.get(index) {
        Some(node) if owes => node.release(debt.request()).await,
        _ => Ok(ReleaseReply::NotOwner),
    }
}

/// Releases on one node again and again until it answers or the ttl is over.
async fn retry(core: Arc<Core>, index: usize, debt: Debt) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    // A node that is slow rather than gone must get to answer, or each of its releases would go on until the ttl.
    let mut patience = core.node_timeout;
    let Some(node) = core.nodes.get(index) else {
        return;
    };
    if let Some(hold) = &debt.hold {
        let left = debt.until.since(core.clock.now());
        let _ = timeout(left, hold.settled(index)).await;
    }
    loop {
        let left = debt.until.since(core.clock.now());
        match timeout(left, node.ready()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => break,
        }
        patience = patience.saturating_mul(2);
        match timeout(patience, node.release(debt.request())).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) if !is_worth_another_try(&error) => {
                core.refused(index, &error);
                return;
            }
            Ok(Err(_)) | Err(_) => {}
        }
        if core.clock.now() >= debt.until {
            break;
        }
        sleep(backoff.next(random())).await;
    }
    crate::trace::left_to_expire(debt.keys.first().as_str(), "a node did not answer in time");
}

impl Core {
    fn refused(&self, node: usize, error: &NodeError) {
        crate::trace::command_failed(self.name_of(node), "release", error);
    }
}

/// Whether the same release may work later: not if the server refuses it or the node is closed.
fn is_worth_another_try(error: &NodeError) -> bool {
    !matches!(
        error.kind(),
        NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Closed
    )
}
