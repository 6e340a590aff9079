//! [`Completion`]: writing the record of a piece of work, and giving its lock back in the same step.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::lease::held::{HeldLease, PendingRelease};
use crate::manager::lease::state::Debt;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::waiting::{Missed, is_retryable};
use crate::manager::release::{Freed, Freeing, given};
use crate::manager::shared::{RoomForRecords, Shared};
use crate::manager::tasks::TaskTracker;
use crate::moment::Moment;
use crate::node::{
    CompleteReply, CompleteRequest, Node, NodeError, NodeFuture, Record, ReleaseReply,
    ReleaseRequest,
};

/// Fewer nodes than a quorum stored a result in time. The next caller with this key finds out whether it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompleteError {
    confirmed: usize,
    needed: usize,
}

impl CompleteError {
    /// The record was not even sent.
    pub(super) fn nowhere(shared: &Shared) -> Self {
        Self {
            confirmed: 0,
            needed: shared.terms.quorum.needed(),
        }
    }
}

impl fmt::Display for CompleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the result was stored by {} nodes where {} are needed; begin again with this key to find out whether it is durable",
            self.confirmed, self.needed
        )
    }
}

impl std::error::Error for CompleteError {}

/// Room for a record on its way to all nodes, which is given back node by node as they reply. A short record needs none.
#[derive(Default)]
pub(crate) struct Room {
    permit: Option<OwnedSemaphorePermit>,
    // For each node.
    bytes: usize,
}

impl Room {
    /// For a record of so many bytes, behind those that wait already; `None` if there is none within ten node time-outs.
    pub(crate) async fn wait(shared: &Shared, bytes: usize) -> Option<Self> {
        if bytes <= LEAST {
            return Some(Self::default());
        }
        let nodes = shared.nodes.len();
        // One that never fits goes alone.
        let bytes = bytes.min(RoomForRecords::UNDER_WAY / nodes);
        let rooms = Arc::clone(&shared.room_for_records.under_way);
        let room = rooms.acquire_many_owned(u32::try_from(bytes * nodes).ok()?);
        tokio::select! {
            biased;
            permit = room => permit.ok().map(|permit| Self { permit: Some(permit), bytes }),
            () = shared.tasks.timer(shared.node_timeout * TURNS) => None,
        }
    }

    fn leave(&mut self) {
        if let Some(permit) = &mut self.permit {
            drop(permit.split(self.bytes));
        }
    }
}

/// Writes `record` as the result of the work under `lease`, or, for `None`, that the work may be done again, and gives
/// the lock back. Returns once a quorum of nodes has it, or too few have it within the node time-out.
///
/// # Cancel safety
///
/// The nodes that a quorum does not need are asked in the background, and so are all nodes when this is dropped.
pub(crate) async fn complete(
    shared: &Arc<Shared>,
    lease: &Arc<HeldLease>,
    pending: PendingRelease,
    record: Option<Record>,
    room: Room,
) -> Result<(), CompleteError> {
    let mut freeing = Freeing::of(shared, lease, pending);
    // A node that is free already has no record yet.
    freeing.confirmed = 0;
    let lacking = record.as_ref().map_or(0, |_| shared.nodes.len());
    let mut completing = Completing::new(freeing, record, (0..lacking).collect());
    completing.room = room;
    completing.ask_all();
    Completion(Some(completing)).quorum().await
}

/// Brings a record that a quorum has to the nodes `lacking` it, and gives back what the round that read it has set, all
/// in the background.
pub(crate) fn spread(freeing: Freeing, record: Record, lacking: Vec<usize>) {
    let mut completing = Completing::new(freeing, Some(record), lacking);
    completing.freeing.confirmed = completing.needed();
    drop(Completion(Some(completing)));
}

/// One record that is written. Dropped at any point it goes on in the background.
struct Completion(
    // Only `drop` takes it.
    Option<Completing>,
);

impl Completion {
    async fn quorum(mut self) -> Result<(), CompleteError> {
        match &mut self.0 {
            Some(completing) => completing.quorum().await,
            None => Ok(()),
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(completing) = self.0.take().filter(|it| !it.is_over()) {
            let shared = Arc::clone(&completing.freeing.shared);
            shared.tasks.spawn_anyway(false, completing.rest());
        }
    }
}

type Stored = Result<CompleteReply, NodeError>;

struct Completing {
    // The lock to give back. Its `confirmed` counts the nodes that have the record.
    freeing: Freeing,
    request: CompleteRequest,
    replies: Fanout<Stored>,
    // Taken by the nodes whose replies are awaited.
    room: Room,
    // Nodes that do not have the record yet, if there is one.
    lacking: Vec<usize>,
}

impl Completing {
    fn new(freeing: Freeing, record: Option<Record>, lacking: Vec<usize>) -> Self {
        let config = Some(Arc::clone(&freeing.shared.config));
        Self {
            request: CompleteRequest {
                release: freeing.request.clone(),
                record,
                chosen: false,
                config,
            },
            freeing,
            replies: Fanout::new([]),
            room: Room::default(),
            lacking,
        }
    }

    /// Asks all nodes that may have the lock. A node with a command under way that may set it anew is asked once that
    /// is settled.
    fn ask_all(&mut self) {
        let nodes = self.freeing.owing.iter();
        self.replies = Fanout::new(nodes.map(|node| (*node, self.ask(*node))));
    }

    fn ask(&self, node: usize) -> NodeFuture<Stored> {
        let (shared, request) = (Arc::clone(&self.freeing.shared), self.request.clone());
        match shared.nodes.get(node) {
            Some(there) if !self.freeing.must_settle(node) => there.complete(request),
            _ => {
                let settled = self.freeing.settled(node);
                Box::pin(async move {
                    let request = completion(&request, settled.await);
                    match shared.nodes.get(node) {
                        Some(node) => node.complete(request).await,
                        None => Ok(CompleteReply::Refused),
                    }
                })
            }
        }
    }

    fn needed(&self) -> usize {
        self.freeing.shared.terms.quorum.needed()
    }

    fn has_quorum(&self) -> bool {
        self.freeing.confirmed >= self.needed()
    }

    fn is_over(&self) -> bool {
        self.freeing.owing.is_empty() && self.lacking.is_empty()
    }

    async fn quorum(&mut self) -> Result<(), CompleteError> {
        let needed = self.needed();
        self.hear(needed).await;
        let confirmed = self.freeing.confirmed;
        let error = CompleteError { confirmed, needed };
        self.freeing.end().then_some(()).ok_or(error)
    }

    /// Takes in replies until `enough` nodes have the record, there are no more, or the node time-out is over.
    async fn hear(&mut self, enough: usize) {
        let shared = &self.freeing.shared;
        let mut deadline = pin!(shared.tasks.timer(shared.node_timeout));
        while self.freeing.confirmed < enough
            && let Some((node, reply)) = self.replies.next_before(deadline.as_mut()).await
        {
            self.take_reply(node, reply);
        }
        while let Some((node, reply)) = self.replies.take_ready() {
            self.take_reply(node, reply);
        }
    }

    fn take_reply(&mut self, node: usize, reply: Stored) {
        self.room.leave();
        match reply {
            Ok(reply) => {
                self.freeing.shared.tell_run(node, COMPLETE);
                self.stored(node, &reply);
            }
            // It is tried again.
            Err(error) if is_retryable(&error) => {
                self.freeing.shared.log_refusal(node, COMPLETE, &error);
            }
            // Its lock is given back without the record in the end.
            Err(error) => self.freeing.shared.refused(node, COMPLETE, &error),
        }
    }

    fn stored(&mut self, node: usize, reply: &CompleteReply) {
        self.freeing.forget(node);
        // A node that is free may have refused the record.
        if let CompleteReply::Stored { listeners } = reply {
            self.freeing.listeners = self.freeing.listeners.max(*listeners);
            self.freeing.confirmed += 1;
            self.lacking.retain(|other| *other != node);
        }
    }

    /// The work in the background, once the caller was told or has left: nodes that failed are asked again until the
    /// ttl has ended the lock, and once a quorum has the record it is brought to all others.
    async fn rest(mut self) {
        if !self.freeing.is_counted() {
            let _ = self.quorum().await;
        }
        for (node, freed) in self.freeing.later.take().into_pending() {
            self.replies
                .push(node, Box::pin(async { freed.await.map(without_record) }));
        }
        self.hear(usize::MAX).await;
        self.replies.abandon();
        self.room = Room::default();
        if !self.is_over() {
            // Boxed, as it is seldom needed.
            Box::pin(self.make_up()).await;
        }
    }

    async fn make_up(mut self) {
        // Without room for it, they are given it when it is next asked for.
        if let Ok(_room) = self.room_to_keep() {
            if self.lacking.is_empty() || !self.has_quorum() {
                let nodes = self.freeing.owing.clone();
                self.send_again(&nodes, self.freeing.until).await;
            }
            if !self.lacking.is_empty() && self.has_quorum() {
                self.bring().await;
            }
        }
        self.request.record = None;
        self.freeing.again(false).await;
    }

    fn room_to_keep(&self) -> Result<Option<OwnedSemaphorePermit>, NoRoom> {
        let Some(record) = &self.request.record else {
            return Ok(None);
        };
        let bytes = u32::try_from(record.body.len().max(LEAST)).unwrap_or(u32::MAX);
        let rooms = Arc::clone(&self.freeing.shared.room_for_records.kept);
        let room = rooms.try_acquire_many_owned(bytes).map_err(|_| NoRoom)?;
        Ok(Some(room))
    }

    /// Brings a record that a quorum has to the nodes that lack it: until they have it, the manager shuts down, or a
    /// minute is over. A node may be down for all of that minute.
    async fn bring(&mut self) {
        let shared = Arc::clone(&self.freeing.shared);
        self.request.chosen = true;
        let until = shared.clock.now() + SPREAD;
        let lacking = self.lacking.clone();
        let is_closing = tokio::select! {
            biased;
            () = shared.registry.closing.given() => true,
            () = self.send_again(&lacking, until) => false,
        };
        if is_closing {
            // Once more, for nodes that are there.
            let until = shared.clock.now() + shared.node_timeout;
            let lacking = self.lacking.clone();
            let last = self.send_again(&lacking, until);
            let _ = timeout(shared.node_timeout, last).await;
        }
    }

    /// Sends the record to `nodes` again and again until each has answered or it is `until`. The release on other nodes
    /// goes on beside that.
    async fn send_again(&mut self, nodes: &[usize], until: Moment) {
        let stored = nodes.iter().map(|node| (*node, self.retry(*node, until)));
        let mut jobs = Fanout::new(stored);
        let others = self
            .freeing
            .owing
            .iter()
            .filter(|node| !nodes.contains(node));
        for node in others {
            let freed = self.freeing.retry(*node);
            jobs.push(*node, Box::pin(async { freed.await.map(without_record) }));
        }
        while let Some((node, reply)) = jobs.next().await {
            if let Ok(reply) = reply {
                self.stored(node, &reply);
            }
        }
    }

    fn retry(&self, node: usize, until: Moment) -> NodeFuture<Result<CompleteReply, Missed>> {
        let request = self.request.clone();
        let command = move |node: &dyn Node, debt| node.complete(completion(&request, debt));
        self.freeing.send_until(until, node, COMPLETE, command)
    }
}

/// The request to a node that owes this much.
fn completion(request: &CompleteRequest, debt: Debt) -> CompleteRequest {
    CompleteRequest {
        release: given(&request.release, debt),
        ..request.clone()
    }
}

struct NoRoom;

fn without_record(_: ReleaseReply) -> CompleteReply {
    CompleteReply::Refused
}

/// Gives back what a lost round for a run has set: the node forgets the grant, too, which it remembers for a result
/// that will not come. Unlike a completion it need not reach a quorum, and no config can stand against it.
pub(crate) fn forget(node: &dyn Node, request: &ReleaseRequest) -> NodeFuture<Freed> {
    let reply = node.complete(CompleteRequest {
        release: request.clone(),
        record: None,
        chosen: false,
        config: None,
    });
    Box::pin(async move {
        reply.await.map(|reply| match reply {
            CompleteReply::Stored { listeners } => ReleaseReply::Released { listeners },
            CompleteReply::Refused => ReleaseReply::NotOwner,
        })
    })
}

const COMPLETE: &str = "complete";
const SPREAD: Duration = Duration::from_secs(60);
/// For how many node time-outs a record waits for its turn. A burst that the network carries in a second is stored.
const TURNS: u32 = 10;
/// The length of a record that takes no more room than a job by itself.
const LEAST: usize = RoomForRecords::KEPT / TaskTracker::LIMIT;
