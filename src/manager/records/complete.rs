use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};
use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::asking::Asking;
use crate::manager::error::AcquireError;
use crate::manager::freeing::Freeing;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::waiting::{Missed, is_retryable};
use crate::manager::shared::{RoomForRecords, Shared};
use crate::manager::tasks::TaskTracker;
use crate::manager::want::Want;
use crate::moment::Moment;
use crate::node::{
    CompleteReply, CompleteRequest, Node, NodeError, NodeFuture, Record, ReleaseReply,
    ReleaseRequest,
};
use crate::protocol::on_nodes::Has;
use crate::protocol::recall::Recalled;

/// Fewer nodes than a quorum confirmed the end of a run in time. The next caller with this key finds out whether a result
/// is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompleteError {
    confirmed: usize,
    needed: usize,
}

impl CompleteError {
    pub(super) fn nowhere(shared: &Shared) -> Self {
        Self {
            confirmed: 0,
            needed: shared.set.terms.quorum.needed(),
        }
    }
}

impl fmt::Display for CompleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "only {} of the {} needed nodes confirmed the end of the run in time; \
             begin a run with the same key again to find out whether a result is stored",
            self.confirmed, self.needed
        )
    }
}

impl std::error::Error for CompleteError {}

/// Room for a record on its way to all nodes. Each reply gives back the room for one node.
#[derive(Default)]
pub(crate) struct Room {
    permit: Option<OwnedSemaphorePermit>,
    // How much of it is for each node.
    bytes: usize,
}

impl Room {
    /// Waits for room for a record of this length. Returns `None` if there is none within ten node time-outs.
    pub(crate) async fn wait(shared: &Shared, bytes: usize) -> Option<Self> {
        if bytes <= LEAST {
            return Some(Self::default());
        }
        let nodes = shared.set.nodes.len();
        // A record that is larger than the whole room takes all of it, and is sent alone.
        let bytes = bytes.min(RoomForRecords::UNDER_WAY / nodes);
        let rooms = Arc::clone(&shared.common.room_for_records.under_way);
        let room = rooms.acquire_many_owned(u32::try_from(bytes * nodes).ok()?);
        tokio::select! {
            biased;
            permit = room => permit.ok().map(|permit| Self { permit: Some(permit), bytes }),
            () = shared.common.tasks.timer(shared.set.node_timeout * TURNS) => None,
        }
    }

    fn leave(&mut self) {
        if let Some(permit) = &mut self.permit {
            drop(permit.split(self.bytes));
        }
    }
}

/// Writes `record` to the nodes in the step that releases the lock. Returns once a quorum of nodes has stored it. If
/// the future is dropped, the writing goes on in the background.
pub(super) fn complete(
    freeing: Freeing,
    record: Option<Record>,
    room: Room,
) -> impl Future<Output = Result<(), CompleteError>> {
    let lacking = record.as_ref().map_or(0, |_| freeing.nodes().len());
    let mut completing = Completing::new(freeing, record, (0..lacking).collect());
    completing.room = room;
    completing.ask_all();
    Completion(Some(completing)).quorum()
}

/// Returns the record that a round found on a quorum. In the background, writes the record to nodes that lack it, and
/// releases the keys that the round has set.
pub(super) fn found(mut asking: Asking) -> Result<Record, AcquireError> {
    let Want::Run(recall) = &asking.want else {
        return Err(asking.no_quorum());
    };
    let Some(Recalled::Replay(ballot)) = recall.recalled(&asking.nodes) else {
        return Err(asking.no_quorum());
    };
    let Some((_, record)) = recall.with_ballot(ballot).next().cloned() else {
        return Err(asking.no_quorum());
    };
    let lacking = (0..asking.nodes.len()).filter(|node| {
        let answers = matches!(asking.nodes.has(*node), Has::Ours { .. } | Has::Withheld);
        answers && !recall.with_ballot(ballot).any(|(other, _)| other == node)
    });
    let lacking: Vec<usize> = lacking.collect();
    if !lacking.is_empty()
        && let Some(freeing) = asking.give_back()
    {
        let mut completing = Completing::new(freeing, Some(record.clone()), lacking);
        completing.stored = completing.freeing.needed();
        drop(Completion(Some(completing)));
    }
    Ok(record)
}

/// The writing of one record. If it is dropped, the writing goes on in the background.
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
            shared.common.tasks.spawn_anyway(false, completing.rest());
        }
    }
}

type Stored = Result<CompleteReply, NodeError>;

struct Completing {
    freeing: Freeing,
    // The record that a node stores when it releases the lock.
    record: Option<Record>,
    // Whether a quorum has the record.
    chosen: bool,
    // How many nodes have stored the record.
    stored: usize,
    replies: Fanout<Stored>,
    // The room for nodes that have not replied yet.
    room: Room,
    // If there is a record: the nodes that do not have it yet.
    lacking: Vec<usize>,
}

impl Completing {
    fn new(freeing: Freeing, record: Option<Record>, lacking: Vec<usize>) -> Self {
        Self {
            freeing,
            record,
            chosen: false,
            stored: 0,
            replies: Fanout::new([]),
            room: Room::default(),
            lacking,
        }
    }

    /// Asks all nodes that may have the lock. A node is asked only after the commands in flight to it have landed.
    fn ask_all(&mut self) {
        let nodes = self.freeing.nodes().to_be_released();
        self.replies = Fanout::new(nodes.map(|node| (node, self.ask(node))));
    }

    fn ask(&self, node: usize) -> NodeFuture<Stored> {
        let send = self.command();
        (self.freeing).once_landed(node, move |node, release, _| send(node, release))
    }

    fn command(&self) -> impl Fn(&dyn Node, &ReleaseRequest) -> NodeFuture<Stored> + use<> {
        let (record, chosen) = (self.record.clone(), self.chosen);
        let config = Arc::clone(&self.freeing.shared.set.config);
        move |node, release| {
            node.complete(CompleteRequest {
                release: release.clone(),
                record: record.clone(),
                chosen,
                config: Some(Arc::clone(&config)),
            })
        }
    }

    fn has_quorum(&self) -> bool {
        self.stored >= self.freeing.needed()
    }

    fn is_over(&self) -> bool {
        !self.freeing.is_due() && self.lacking.is_empty()
    }

    async fn quorum(&mut self) -> Result<(), CompleteError> {
        let needed = self.freeing.needed();
        self.hear(needed).await;
        let confirmed = self.stored;
        self.freeing.finish(confirmed >= needed);
        let error = CompleteError { confirmed, needed };
        (confirmed >= needed).then_some(()).ok_or(error)
    }

    async fn hear(&mut self, enough: usize) {
        let shared = &self.freeing.shared;
        let mut deadline = pin!(shared.common.tasks.timer(shared.set.node_timeout));
        while self.stored < enough
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
                self.freeing.shared.set.tell_run(node, COMPLETE);
                self.has_stored(node, &reply);
            }
            // The command is sent again in the background.
            Err(error) if is_retryable(&error) => {
                self.freeing.shared.set.log_refusal(node, COMPLETE, &error);
            }
            // The node has refused the record for good. In the end its lock is released without a record.
            Err(error) => self.freeing.shared.set.refused(node, COMPLETE, &error),
        }
    }

    fn has_stored(&mut self, node: usize, reply: &CompleteReply) {
        // If the node refused, it is free of the lock, but perhaps lacks the record.
        let CompleteReply::Stored { listeners } = reply else {
            return self.freeing.free(node, 0);
        };
        self.freeing.free(node, *listeners);
        self.stored += 1;
        self.lacking.retain(|other| *other != node);
    }

    /// Continues in the background: asks nodes that failed again, and once a quorum has the record, brings it to all
    /// other nodes.
    async fn rest(mut self) {
        if !self.freeing.is_finished() {
            let _ = self.quorum().await;
        }
        for (node, freed) in self.freeing.take_later() {
            self.replies.push(node, without_record(freed));
        }
        self.hear(usize::MAX).await;
        self.replies.abandon();
        self.room = Room::default();
        if !self.is_over() {
            // Boxed, because it is seldom needed.
            Box::pin(self.make_up()).await;
        }
    }

    async fn make_up(mut self) {
        // Without room to keep the record in memory, nodes that lack it get it when a caller next asks for it.
        if let Ok(_room) = self.room_to_keep() {
            if self.lacking.is_empty() || !self.has_quorum() {
                let nodes: Vec<usize> = self.freeing.nodes().to_be_released().collect();
                self.send_again(&nodes, self.freeing.until()).await;
            }
            if !self.lacking.is_empty() && self.has_quorum() {
                self.bring().await;
            }
        }
        self.record = None;
        self.freeing.again(false).await;
    }

    fn room_to_keep(&self) -> Result<Option<OwnedSemaphorePermit>, TryAcquireError> {
        let Some(record) = &self.record else {
            return Ok(None);
        };
        let bytes = u32::try_from(record.body.len().max(LEAST)).unwrap_or(u32::MAX);
        let rooms = Arc::clone(&self.freeing.shared.common.room_for_records.kept);
        rooms.try_acquire_many_owned(bytes).map(Some)
    }

    /// Brings the record to the nodes that lack it, until they have it, the manager shuts down, or a minute is over.
    async fn bring(&mut self) {
        let shared = Arc::clone(&self.freeing.shared);
        self.chosen = true;
        let until = shared.set.clock.now() + SPREAD;
        let lacking = self.lacking.clone();
        let is_closing = tokio::select! {
            biased;
            () = shared.registry.closing.given() => true,
            () = self.send_again(&lacking, until) => false,
        };
        if is_closing {
            // Before the shutdown, send the record once more to the nodes that can be reached.
            let until = shared.set.clock.now() + shared.set.node_timeout;
            let lacking = self.lacking.clone();
            let last = self.send_again(&lacking, until);
            let _ = timeout(shared.set.node_timeout, last).await;
        }
    }

    /// Sends the record to `nodes` repeatedly, at most until `until`. Meanwhile the other nodes are released.
    async fn send_again(&mut self, nodes: &[usize], until: Moment) {
        let stored = nodes.iter().map(|node| (*node, self.retry(*node, until)));
        let mut jobs = Fanout::new(stored);
        let others = self.freeing.nodes().to_be_released();
        for node in others.filter(|node| !nodes.contains(node)) {
            jobs.push(node, without_record(self.freeing.retry(node)));
        }
        while let Some((node, reply)) = jobs.next().await {
            if let Ok(reply) = reply {
                self.has_stored(node, &reply);
            }
        }
    }

    fn retry(&self, node: usize, until: Moment) -> NodeFuture<Result<CompleteReply, Missed>> {
        self.freeing
            .retry_until(until, node, COMPLETE, self.command())
    }
}

fn without_record<E: 'static>(
    freed: NodeFuture<Result<ReleaseReply, E>>,
) -> NodeFuture<Result<CompleteReply, E>> {
    Box::pin(async { freed.await.map(|_| CompleteReply::Refused) })
}

const COMPLETE: &str = "complete";
const SPREAD: Duration = Duration::from_secs(60);
const TURNS: u32 = 10;
/// Records up to this length need no [`Room`], because the limit of tasks already bounds their memory.
const LEAST: usize = RoomForRecords::KEPT / TaskTracker::LIMIT;
