//! Giving a lock back on every node that may hold it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::core::{Core, random};
use super::error::Unconfirmed;
use super::fanout::Fanout;
use super::hold::{Hold, Owed};
use crate::clock::Clock as _;
use crate::moment::Moment;
use crate::namespace::NodeKey;
use crate::node::{NodeError, NodeErrorKind, NodeFuture, ReleaseReply, ReleaseRequest};
use crate::protocol::backoff::Backoff;
use crate::token::OwnerToken;

/// One release on several nodes. Dropped at any point it goes on in the background.
#[derive(Debug)]
pub(super) struct Release {
    core: Arc<Core>,
    debt: Debt,
    fanout: Fanout<Result<ReleaseReply, NodeError>>,
    // Nodes to try again.
    failed: Vec<usize>,
    // Nodes known to be free.
    free: usize,
}

/// What is to be released, and until when it matters.
#[derive(Clone, Debug)]
struct Debt {
    place: NodeKey,
    token: OwnerToken,
    // By then the ttl has ended it on its own.
    until: Moment,
    // The lock, if commands that may set the token were under way when it was let go.
    hold: Option<Arc<Hold>>,
}

impl Debt {
    fn request(&self) -> ReleaseRequest {
        ReleaseRequest::new(self.place.clone(), self.token, true)
    }
}

impl Release {
    /// A release of `place` by `token` on `nodes`, where `free` other nodes are free already.
    pub(super) fn new(
        core: &Arc<Core>,
        place: &NodeKey,
        token: OwnerToken,
        nodes: &[usize],
        free: usize,
    ) -> Self {
        let debt = Debt {
            place: place.clone(),
            token,
            until: core.clock.now() + core.terms.ttl,
            hold: None,
        };
        let futures = nodes.iter().filter_map(|&index| {
            let node = core.nodes.get(index)?;
            Some((index, node.release(debt.request())))
        });
        Self {
            fanout: Fanout::new(futures),
            core: Arc::clone(core),
            debt,
            failed: Vec::new(),
            free,
        }
    }

    /// The release of a lock that was held. Nodes with a command under way are asked when that is answered, and
    /// count like the others: a node that was slow to grant must not make the release depend on all the rest.
    pub(super) fn of(core: &Arc<Core>, hold: &Arc<Hold>, owed: &Owed) -> Self {
        let (place, token) = (&hold.place, hold.lease.token);
        let mut release = Self::new(core, place, token, &owed.nodes, owed.free);
        if !owed.busy.is_empty() {
            release.debt.hold = Some(Arc::clone(hold));
            for &index in &owed.busy {
                let later = when_settled(Arc::clone(core), index, release.debt.clone());
                release.fanout.push(index, Box::pin(later));
            }
        }
        release
    }

    /// Waits until a quorum of nodes is free, at most for the node time-out. The rest goes on in the background.
    pub(super) async fn quorum(mut self) -> Result<(), Unconfirmed> {
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
        if self.free >= needed {
            return Ok(());
        }
        Err(Unconfirmed {
            confirmed: self.free,
            needed,
        })
    }

    fn note(&mut self, node: usize, answer: Result<ReleaseReply, NodeError>) {
        match answer {
            Ok(_) => self.free += 1,
            Err(error) if is_worth_another_try(&error) => self.failed.push(node),
            Err(error) => self.core.refused(node, &error),
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if self.fanout.is_empty() && self.failed.is_empty() {
            return;
        }
        let rest = rest(
            Arc::clone(&self.core),
            self.debt.clone(),
            self.fanout.take(),
            std::mem::take(&mut self.failed),
        );
        self.core.settle(&self.debt.place, rest);
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

/// Waits for the releases under way, then tries the failed ones again until the ttl has ended them.
async fn rest(
    core: Arc<Core>,
    debt: Debt,
    mut fanout: Fanout<Result<ReleaseReply, NodeError>>,
    mut failed: Vec<usize>,
) {
    let timer = sleep(core.node_timeout);
    tokio::pin!(timer);
    loop {
        tokio::select! {
            biased;
            answer = fanout.next() => match answer {
                Some((_, Ok(_))) => {}
                Some((node, Err(error))) if is_worth_another_try(&error) => failed.push(node),
                Some((node, Err(error))) => core.refused(node, &error),
                None => break,
            },
            () = &mut timer => {
                failed.extend(fanout.abandon());
                break;
            }
        }
    }
    let retries = failed.into_iter().map(|node| {
        let retry: NodeFuture<()> = Box::pin(retry(Arc::clone(&core), node, debt.clone()));
        (node, retry)
    });
    let mut retries = Fanout::new(retries.collect::<Vec<_>>());
    while retries.next().await.is_some() {}
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
    crate::trace::left_to_expire(debt.place.as_str(), "a node did not answer in time");
}

impl Core {
    fn refused(&self, node: usize, error: &NodeError) {
        let name = self.nodes.get(node).map_or("?", |node| node.name());
        crate::trace::command_failed(name, "release", error);
    }
}

/// Whether the same release may work later: not if the server refuses it or the node is closed.
fn is_worth_another_try(error: &NodeError) -> bool {
    !matches!(
        error.kind(),
        NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Closed
    )
}
