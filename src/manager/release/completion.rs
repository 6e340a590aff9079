//! Writing what a request came to, and giving its lock back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Clock as _;
use crate::manager::error::release::CompleteError;
use crate::manager::lease::held::{HeldLease, Turns};
use crate::manager::lease::share::Owed;
use crate::manager::ledger::{Obligation, Owing};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::retry::{is_retryable, retry};
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::node::{
    CompleteReply, CompleteRequest, Node, NodeError, NodeFuture, ReleaseReply, ReleaseRequest,
};
use crate::record::Record;
use crate::token::Owner;

/// For how long nodes that lack a record are waited for. One that comes back later is given it when the record is next
/// asked for.
const SPREAD: Duration = Duration::from_secs(60);
/// How many bytes of records are kept here for nodes that lack them.
const MOST_KEPT: usize = 64 << 20;
/// What a record counts for at least: no more are kept than there are tasks that can be had for them.
const LEAST: usize = MOST_KEPT / 10_000;

/// Bytes of records that this process keeps for nodes that lack them.
#[derive(Debug, Default)]
pub(in crate::manager) struct Kept(Arc<AtomicUsize>);

impl Kept {
    fn room_for(&self, record: &Record) -> Option<Room> {
        let bytes = record.body.len().max(LEAST);
        let before = self.0.fetch_add(bytes, Ordering::AcqRel);
        let room = Room(Arc::clone(&self.0), bytes);
        (before.saturating_add(bytes) <= MOST_KEPT).then_some(room)
    }
}

struct Room(Arc<AtomicUsize>, usize);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::AcqRel);
    }
}

/// A record on its way to nodes that lack it. A quorum has it.
pub(in crate::manager) struct Spread {
    /// What is released with it.
    pub(in crate::manager) release: ReleaseRequest,
    pub(in crate::manager) record: Record,
    /// By then what is released has ended on its own.
    pub(in crate::manager) until: Moment,
    /// The nodes that it is to be released on.
    pub(in crate::manager) owing: Owing,
    /// Nothing is owed for it; but a shutdown waits for its last try.
    pub(in crate::manager) waited_for: Option<Obligation>,
}

impl Spread {
    /// Releases what is still to be released, without a record.
    async fn free(mut self, shared: Arc<Shared>) {
        let nodes = self.owing.nodes();
        free(&shared, &self.release, self.until, nodes, &mut self.owing).await;
    }
}

/// Brings a record to `nodes` in the background: until they have it, the manager shuts down, or a minute is over.
pub(in crate::manager) fn spread(shared: &Arc<Shared>, job: Spread, nodes: Vec<usize>) {
    let Some(room) = shared.kept.room_for(&job.record) else {
        // They are given it when it is asked for; but what they granted is owed a release.
        let keys = job.release.keys.clone();
        shared.settle(&keys, job.free(Arc::clone(shared)));
        return;
    };
    spread_in(shared, room, job, nodes);
}

/// The same for a record that has its `room` already.
fn spread_in(shared: &Arc<Shared>, room: Room, mut job: Spread, nodes: Vec<usize>) {
    let until = shared.clock.now() + SPREAD;
    let request = CompleteRequest::new(job.release.clone(), Some(job.record.clone()))
        .under(Some(Arc::clone(&shared.config)))
        .chosen();
    let owner = Arc::clone(shared);
    // A node may be down for all of that minute. What must be released then cannot wait behind its records.
    shared.tasks.spawn_beside(async move {
        let _room = room;
        let closed = tokio::select! {
            biased;
            () = owner.registry.closing() => true,
            _ = retry_all(&owner, &request, until, nodes.clone(), &mut job.owing) => false,
        };
        if closed {
            // Once more, for nodes that are there.
            let until = owner.clock.now() + owner.node_timeout;
            let last = retry_all(&owner, &request, until, nodes, &mut job.owing);
            let _ = tokio::time::timeout(owner.node_timeout, last).await;
        }
        drop(job.waited_for.take());
        job.free(owner).await;
    });
}

/// Completes on all of `nodes`, and tells which of them have the record then. Those that answered are not `owing` a
/// release any more.
async fn retry_all(
    shared: &Arc<Shared>,
    request: &CompleteRequest,
    until: Moment,
    nodes: Vec<usize>,
    owing: &mut Owing,
) -> Vec<usize> {
    let jobs = nodes.into_iter().map(|index| {
        let (shared, request) = (Arc::clone(shared), request.clone());
        let job: NodeFuture<Option<CompleteReply>> = Box::pin(async move {
            let complete = |node: &dyn Node| node.complete(request.clone());
            let answer = retry(&shared, index, until, "complete", complete).await;
            answer.ok()
        });
        (index, job)
    });
    let mut jobs = Fanout::new(jobs.collect::<Vec<_>>());
    let mut stored = Vec::new();
    while let Some((node, reply)) = jobs.next().await {
        if reply.is_some() {
            owing.freed(node);
        }
        if matches!(reply, Some(CompleteReply::Stored { .. })) {
            stored.push(node);
        }
    }
    stored
}

/// Releases on all of `nodes`; those that answered are not `owing` it any more.
async fn free(
    shared: &Arc<Shared>,
    release: &ReleaseRequest,
    until: Moment,
    nodes: Vec<usize>,
    owing: &mut Owing,
) {
    let jobs = nodes.into_iter().map(|index| {
        let (shared, release) = (Arc::clone(shared), release.clone());
        let job: NodeFuture<bool> = Box::pin(async move {
            let release = |node: &dyn Node| -> NodeFuture<Result<ReleaseReply, NodeError>> {
                node.release(release.clone())
            };
            retry(&shared, index, until, "release", release)
                .await
                .is_ok()
        });
        (index, job)
    });
    let mut jobs = Fanout::new(jobs.collect::<Vec<_>>());
    while let Some((node, freed)) = jobs.next().await {
        if freed {
            owing.freed(node);
        }
    }
}

/// When what is written ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::manager) enum End {
    /// So long from now on.
    After(Duration),
    /// When it was to end already: in milliseconds since 1970.
    At(u64),
}

/// Writes that the request under `hold` came to this, or, for `None`, that it may run again, and gives the lock back.
/// Tells once a quorum of nodes has it, or too few have it within the node time-out. The rest goes on in the
/// background, and so does all of it when this is dropped.
pub(in crate::manager) async fn complete(
    shared: &Arc<Shared>,
    hold: Arc<HeldLease>,
    owed: Owed,
    outcome: Option<(Bytes, End)>,
) -> Result<(), CompleteError> {
    let nothing = CompleteError {
        confirmed: 0,
        needed: shared.terms.quorum.needed(),
    };
    let (Owner::Us(token), Some(ballot)) = (hold.lease.owner, hold.lease.fence) else {
        return Err(nothing);
    };
    let release = ReleaseRequest::new(hold.keys.clone(), token, true).since(hold.lease.started);
    let record = outcome.map(|(body, end)| {
        // Here and nowhere else: all who write it again take it from the record.
        let until = match end {
            End::After(keep) => hold.end_after(keep),
            End::At(until) => until,
        };
        Record::new(ballot, body, until)
    });
    let request = CompleteRequest::new(release, record).under(Some(Arc::clone(&shared.config)));
    let mut completion = Completion {
        work: Some(Work::new(shared, &hold, owed, request)),
    };
    match &mut completion.work {
        Some(work) => work.quorum().await,
        None => Err(nothing),
    }
}

/// A completion under way. It runs where it is waited for, as another task would have to be woken for every answer;
/// dropped at any point it goes on in the background.
struct Completion {
    // Only `drop` takes it.
    work: Option<Work>,
}

impl Drop for Completion {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else {
            return;
        };
        if !work.is_over() {
            let shared = Arc::clone(&work.shared);
            // There are no more of them than requests that run.
            shared.tasks.spawn_anyway(work.rest());
        }
    }
}

struct Work {
    shared: Arc<Shared>,
    request: CompleteRequest,
    sent: Moment,
    fanout: Fanout<Result<CompleteReply, NodeError>>,
    stored: Vec<usize>,
    // Nodes to try again.
    failed: Vec<usize>,
    // How many others were told of the release, by the node that told most.
    listeners: u32,
    turns: Option<Turns>,
    // Whether a quorum has it, or has not got it in time.
    decided: bool,
    // The nodes that may have the lock.
    owing: Owing,
    waited_for: Option<Obligation>,
}

impl Work {
    fn new(
        shared: &Arc<Shared>,
        hold: &Arc<HeldLease>,
        mut owed: Owed,
        request: CompleteRequest,
    ) -> Self {
        let now = owed.nodes.iter().filter_map(|&index| {
            let node = shared.nodes.get(index)?;
            Some((index, node.complete(request.clone())))
        });
        let mut fanout = Fanout::new(now);
        for &index in &owed.busy {
            // Not before what may set our token anew.
            let (shared, hold, request) = (Arc::clone(shared), Arc::clone(hold), request.clone());
            let later: NodeFuture<_> = Box::pin(async move {
                hold.settled(index).await;
                match shared.nodes.get(index) {
                    Some(node) => node.complete(request).await,
                    None => Ok(CompleteReply::Refused),
                }
            });
            fanout.push(index, later);
        }
        Self {
            sent: shared.clock.now(),
            shared: Arc::clone(shared),
            request,
            fanout,
            stored: Vec::new(),
            failed: Vec::new(),
            listeners: 0,
            turns: owed.turns.take(),
            decided: false,
            waited_for: owed.waited_for(),
            owing: owed.owing(),
        }
    }

    fn needed(&self) -> usize {
        self.shared.terms.quorum.needed()
    }

    /// Whether nothing is left to be done.
    fn is_over(&self) -> bool {
        self.decided && self.fanout.is_empty() && self.stored.len() == self.shared.nodes.len()
    }

    /// Waits until a quorum of nodes has it, at most for the node time-out.
    async fn quorum(&mut self) -> Result<(), CompleteError> {
        self.hear(self.needed()).await;
        self.decided = true;
        if let Some(turns) = self.turns.take() {
            let keys = &self.request.release.keys;
            self.shared.pass_on(turns, keys, self.listeners, self.sent);
        }
        let outcome = if self.stored.len() >= self.needed() {
            Ok(())
        } else {
            Err(CompleteError {
                confirmed: self.stored.len(),
                needed: self.needed(),
            })
        };
        crate::metrics::released(outcome.as_ref().map_or("unconfirmed", |()| "released"));
        outcome
    }

    /// Notes answers until `enough` nodes have it, or none is to come, or it is too late for them.
    async fn hear(&mut self, enough: usize) {
        let spent = self.shared.clock.now().since(self.sent);
        let left = self.shared.node_timeout.saturating_sub(spent);
        let timer = self.shared.tasks.timer(left);
        tokio::pin!(timer);
        while self.stored.len() < enough {
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

    fn note(&mut self, node: usize, answer: Result<CompleteReply, NodeError>) {
        if answer.is_ok() {
            self.owing.freed(node);
        }
        match answer {
            Ok(CompleteReply::Stored { listeners }) => {
                self.stored.push(node);
                self.listeners = self.listeners.max(listeners);
            }
            Ok(CompleteReply::Refused) => {}
            Err(error) if is_retryable(&error) => self.failed.push(node),
            Err(error) => self.shared.refused(node, "complete", &error),
        }
    }

    /// What is to be done when the caller has been told, or has left: nodes that failed are tried again until the ttl
    /// has ended the lock, and once a quorum has the record all others are given it.
    async fn rest(mut self) {
        if !self.decided {
            // Nobody is left to hear it.
            let _ = self.quorum().await;
        }
        self.hear(self.shared.nodes.len()).await;
        self.failed.extend(self.fanout.abandon());
        if self.stored.len() < self.shared.nodes.len() {
            // Boxed, as it is seldom needed.
            Box::pin(self.bring()).await;
        }
    }

    /// Tries nodes that failed again, and gives the record to all others.
    async fn bring(mut self) {
        let until = self.sent + self.shared.terms.ttl;
        let room = match &self.request.record {
            Some(record) => self.shared.kept.room_for(record),
            None => None,
        };
        if self.request.record.is_some() && room.is_none() {
            let (release, failed) = (&self.request.release, std::mem::take(&mut self.failed));
            free(&self.shared, release, until, failed, &mut self.owing).await;
            return;
        }
        if self.stored.len() < self.needed() || self.request.record.is_none() {
            let failed = std::mem::take(&mut self.failed);
            let owing = &mut self.owing;
            let more = retry_all(&self.shared, &self.request, until, failed, owing).await;
            self.stored.extend(more);
        }
        let nodes = 0..self.shared.nodes.len();
        let lacking: Vec<usize> = nodes.filter(|node| !self.stored.contains(node)).collect();
        if let (Some(room), Some(record)) = (room, self.request.record.take())
            && !lacking.is_empty()
            && self.stored.len() >= self.needed()
        {
            let job = Spread {
                release: self.request.release,
                record,
                until,
                owing: self.owing,
                waited_for: self.waited_for,
            };
            spread_in(&self.shared, room, job, lacking);
        }
    }
}
