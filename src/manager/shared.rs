//! What all parts of a manager share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::manager::error::acquire::{NoQuorum, NodeFailure};
use crate::manager::lease::registry::Registry;
use crate::manager::ledger::Ledger;
use crate::manager::nodes::fences::Numbers;
use crate::manager::nodes::quarantine::standing::VotingStatuses;
use crate::manager::queue::MISSES;
use crate::manager::settings::fencing::usual;
use crate::manager::settings::hand_off::HandOff;
use crate::manager::settings::options::Options;
use crate::manager::tasks::TaskTracker;
use crate::manager::waiting::cooldown::Cooldown;
use crate::manager::waiting::turns::Queue;
use crate::manager::waiting::waiters::Waiters;
use crate::moment::Moment;
use crate::namespace::{Namespace, NodeKeys};
use crate::node::{ClusterConfig, Fence, Node, NodeError, NodeErrorKind, NodeState};
use crate::protocol::quarantine::latest_vote;
use crate::protocol::renewal::Terms;
use crate::token::FencingToken;

/// The inside of a manager. Guards and background jobs keep it alive; the watchdog does not.
#[derive(Debug)]
pub(in crate::manager) struct Shared {
    pub(in crate::manager) nodes: Vec<Arc<dyn Node>>,
    pub(in crate::manager) clock: Arc<dyn Clock>,
    pub(in crate::manager) namespace: Namespace,
    // The namespace of requests with idempotency keys.
    pub(in crate::manager) requests: Namespace,
    // In bytes, for records that are brought to nodes that lack them.
    pub(in crate::manager) room_for_records: Arc<Semaphore>,
    pub(in crate::manager) terms: Terms,
    pub(in crate::manager) node_timeout: Duration,
    pub(in crate::manager) max_wait: Duration,
    pub(in crate::manager) hand_off: HandOff,
    // How long counters are kept; `None` if holders are not numbered.
    pub(in crate::manager) fencing: Option<Duration>,
    pub(in crate::manager) numbers: Numbers,
    // What the nodes must agree to.
    pub(in crate::manager) config: Arc<ClusterConfig>,
    pub(in crate::manager) voting: Arc<VotingStatuses>,
    pub(in crate::manager) max_clock_skew: Duration,
    // No lease of any process is longer.
    pub(in crate::manager) max_ttl: Duration,
    // How long after an attempt began a vote may count.
    pub(in crate::manager) latest_vote: Duration,
    pub(in crate::manager) connect_timeout: Duration,
    pub(in crate::manager) queue: Arc<Queue>,
    pub(in crate::manager) cooldown: Cooldown,
    pub(in crate::manager) waiters: Waiters,
    // Whether keys are hidden from those who look.
    pub(in crate::manager) redact: bool,
    pub(in crate::manager) tasks: TaskTracker,
    // What may be set on nodes: a shutdown waits until all of it was given back.
    pub(in crate::manager) ledger: Ledger,
    pub(in crate::manager) registry: Arc<Registry>,
    // Tells managers apart.
    pub(in crate::manager) serial: u64,
    pub(in crate::manager) next_id: AtomicU64,
}

impl Shared {
    pub(in crate::manager) fn new(
        nodes: Vec<Arc<dyn Node>>,
        clock: Arc<dyn Clock>,
        options: Options,
        tasks: TaskTracker,
    ) -> Self {
        let config = options.config(&nodes);
        let latest = latest_vote(options.max_ttl);
        Self {
            voting: Arc::new(VotingStatuses::new(
                nodes.len(),
                options.terms.quorum.needed(),
                config.guarded,
            )),
            connect_timeout: options.connect_timeout,
            max_clock_skew: options.guard.max_clock_skew.unwrap_or_default(),
            max_ttl: options.max_ttl,
            // By the slowest clock.
            latest_vote: latest.saturating_sub(options.terms.drift.of(latest)),
            config,
            fencing: options.fencing.keep,
            numbers: Numbers::default(),
            nodes,
            ledger: Ledger::new(Arc::clone(&clock), options.terms.ttl),
            clock,
            requests: options.namespace.idempotency(),
            room_for_records: Arc::new(Semaphore::new(ROOM_FOR_RECORDS)),
            namespace: options.namespace,
            terms: options.terms,
            node_timeout: options.node_timeout,
            max_wait: options.max_wait,
            hand_off: options.hand_off,
            queue: Arc::new(Queue::new(options.bounds, MISSES)),
            cooldown: Cooldown::default(),
            waiters: Waiters::default(),
            redact: options.redact,
            tasks,
            registry: Arc::new(Registry::new()),
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            next_id: AtomicU64::new(0),
        }
    }

    /// A number for a lock, unique in this manager.
    pub(in crate::manager) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Why nothing may be granted or extended, whatever the nodes say: some of them serve processes with another list.
    pub(in crate::manager) fn disagreement(&self) -> Option<NoQuorum> {
        if !self.voting.is_blocked() {
            return None;
        }
        let failures = self.voting.blocking().into_iter();
        Some(NoQuorum {
            needed: self.terms.quorum.needed(),
            nodes: self.nodes.len(),
            failures: failures
                .map(|(node, error)| self.failure(node, error))
                .collect(),
            retry_after: None,
            disagreed: true,
        })
    }

    /// Whether a vote counts that comes now, of an attempt or a renewal that was sent at `sent`.
    pub(in crate::manager) fn in_time(&self, sent: Moment) -> bool {
        self.clock.now().since(sent) <= self.latest_vote
    }

    /// How long the nodes' votes are waited for: later ones would not count.
    pub(in crate::manager) fn patience(&self, sent: Moment) -> Duration {
        let left = self
            .latest_vote
            .saturating_sub(self.clock.now().since(sent));
        self.node_timeout.min(left)
    }

    /// Names `node` as failed with `error`.
    pub(in crate::manager) fn failure(&self, node: usize, error: NodeError) -> NodeFailure {
        let error = match error.kind() {
            // The node knows only that it is; how long yet is ours to tell.
            NodeErrorKind::Quarantined => {
                self.voting.explain(node, self.clock.now()).unwrap_or(error)
            }
            _ => error,
        };
        NodeFailure::new(self.name_of(node), error)
    }

    pub(in crate::manager) fn name_of(&self, node: usize) -> &str {
        self.nodes.get(node).map_or("?", |node| node.name())
    }

    /// After how long a quorum votes again, if it is quarantines that keep it from that.
    pub(in crate::manager) fn quorum_in(&self) -> Option<Duration> {
        let needed = self.terms.quorum.needed();
        let up = |node: usize| self.is_up(node);
        self.voting.quorum_in(needed, self.clock.now(), up)
    }

    /// Whether `node` takes commands.
    pub(in crate::manager) fn is_up(&self, node: usize) -> bool {
        let node = self.nodes.get(node);
        node.is_some_and(|node| node.state() == NodeState::Up)
    }

    /// Takes in what an error of `node` says of the node itself.
    pub(in crate::manager) fn heard(&self, node: usize, error: &NodeError) {
        // Else every caller would have it looked at, and all others asked about it.
        if error.kind() == NodeErrorKind::Foreign {
            self.voting.is_foreign(node, error);
        } else if !self.voting.knows(node, error.kind()) {
            self.voting.suspect(node);
        }
    }

    /// The number that is proposed for a grant at this moment, to be kept for so long.
    pub(in crate::manager) fn proposal(&self, keep: Duration) -> Option<Fence> {
        // A clock of nonsense proposes nothing that counts: the nodes go on from what they have.
        let token = FencingToken::proposed_at(self.clock.unix_micros()).or(FencingToken::new(1))?;
        Some(Fence::new(token, keep))
    }

    /// The number of a lock, for the nodes.
    pub(in crate::manager) fn fence(&self, token: FencingToken) -> Fence {
        Fence::new(token, self.counters_kept())
    }

    /// How long counters are kept, also those of locks that are numbered though holders are not.
    pub(in crate::manager) fn counters_kept(&self) -> Duration {
        self.fencing.unwrap_or_else(|| usual(self.terms.ttl))
    }

    /// The error of a node whose vote came too late to count.
    pub(in crate::manager) fn too_late(&self) -> NodeError {
        NodeError::new(
            NodeErrorKind::TimedOut,
            format!(
                "it answered later than {:?} after it was asked, and then its word does not count",
                self.latest_vote
            ),
        )
    }

    /// The error of a node that did not answer within the node time-out.
    pub(in crate::manager) fn timed_out(&self) -> NodeError {
        NodeError::new(
            NodeErrorKind::TimedOut,
            format!("no answer within {:?}", self.node_timeout),
        )
    }

    /// Runs `job` in the background; if there is no room, the key is left to its ttl, and that is said.
    pub(in crate::manager) fn settle(
        &self,
        keys: &NodeKeys,
        job: impl Future<Output = ()> + Send + 'static,
    ) {
        if !self.tasks.spawn(job) {
            let key = keys.first().show(self.redact);
            crate::trace::left_to_expire(&key, "too many releases are under way");
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.registry.stop();
        // So that the wardens see that there is nothing left to look after.
        self.voting.suspect_all();
    }
}

/// How many bytes of records are kept for nodes that lack them.
pub(in crate::manager) const ROOM_FOR_RECORDS: usize = 64 << 20;

pub(in crate::manager) static NEXT_SERIAL: AtomicU64 = AtomicU64::new(0);
