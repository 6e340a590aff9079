#[cfg(tower_redlock_tests)]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::LockManager;
use crate::manager::error::AcquireError;
use crate::manager::lease::held::LeaseView;
use crate::manager::nodes::LOOK;
use crate::manager::nodes::counting::Count;
use crate::manager::nodes::voting::status::VotingStatus;
use crate::manager::shared::Shared;
use crate::namespace::NodeKey;
use crate::node::{ClusterConfig, Node, NodeState, ServerStatus};
use crate::token::FencingToken;

impl LockManager {
    /// Returns the held locks, the waiting callers, and the state of the nodes.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let shared = &self.shared;
        let now = shared.set.clock.now();
        let load = shared.common.queue.load();
        let waiters = shared.common.waiters.by_key();
        let show = |key: &NodeKey| key.show().into_owned();
        let waiting = |key: &NodeKey| waiters.get(key.shared()).map_or(0, |(_, count, _)| *count);
        let groups = || self.groups.iter();
        let held: Vec<_> = groups().flat_map(|it| it.registry.leases()).collect();
        let mut views: Vec<LeaseView> = held.iter().map(|lease| lease.view()).collect();
        views.sort_by_key(|view| view.since);
        let locks = views.into_iter().take(Snapshot::MOST);
        let locks = locks.map(|view| HeldLock {
            waiting: view.keys.as_slice().iter().map(waiting).sum(),
            keys: view.keys.as_slice().iter().map(show).collect(),
            held_for: now.since(view.since),
            remaining: view.deadline.since(now),
            lost: view.deadline <= now,
            fence: view.fence,
        });
        let locks = locks.collect();
        let queues = waiters.values().map(|(key, waiting, since)| QueueStatus {
            key: show(key),
            waiting: *waiting,
            longest_wait: now.since(*since),
        });
        let mut queues: Vec<QueueStatus> = queues.collect();
        queues.sort_by_key(|queue| std::cmp::Reverse(queue.longest_wait));
        queues.truncate(Snapshot::MOST);
        let status = |group: &Shared, index: usize, node: &dyn Node| NodeStatus {
            name: node.name().to_owned(),
            state: node.state(),
            server: node.server(),
            voting: group.set.voting_status(index, now),
        };
        let nodes = groups().flat_map(|group| {
            let nodes = group.set.nodes.iter().enumerate();
            nodes.map(move |(index, node)| status(group, index, &**node))
        });
        let nodes: Vec<NodeStatus> = nodes.collect();
        let retired = nodes.iter().find_map(|node| match &node.voting {
            VotingStatus::Foreign { reason } if ClusterConfig::successor(reason).is_some() => {
                Some(format!(": {reason}"))
            }
            _ => None,
        });
        let count = self.quorum();
        let lacking = groups().position(|group| !group.quorum().is_quorum());
        let lacking = lacking.filter(|_| self.groups.len() > 1);
        let of_group = |group: usize| format!("group {} of {}: ", group + 1, self.groups.len());
        #[cfg(tower_redlock_tests)]
        let sum =
            |count: fn(&Shared) -> &AtomicU64| groups().map(|it| count(it).load(Relaxed)).sum();
        Snapshot {
            instance: shared.set.instance.as_str().to_owned(),
            verdict: lacking.map(of_group).unwrap_or_default()
                + &count.to_string()
                + &retired.unwrap_or_default(),
            has_quorum: count.is_quorum(),
            held: held.len(),
            keys: load.keys,
            waiting: load.waiting + shared.common.waiters.outside(),
            #[cfg(tower_redlock_tests)]
            fences_agreed: sum(|group| &group.set.fences.agreed),
            #[cfg(tower_redlock_tests)]
            fences_written_back: sum(|group| &group.set.fences.written_back),
            nodes,
            locks,
            queues,
        }
    }
}

/// The locks, queues and nodes of a manager at one moment. When it is serialised, times are seconds with fractions, and
/// fencing tokens are strings. It contains lock keys and the names and addresses of nodes, but no owner tokens and no
/// passwords.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// One sentence on the nodes, such as `quorum: 5 of 5 vote, 3 needed`.
    pub verdict: String,
    /// [`LockManager::has_quorum`].
    pub has_quorum: bool,
    /// The [instance](crate::Settings::instance) of this process.
    pub instance: String,
    /// How many locks have a guard, including locks that are lost.
    pub held: usize,
    /// How many keys are in use: held, contended for, or being released.
    pub keys: usize,
    /// How many callers wait.
    pub waiting: usize,
    /// How many grants so far had a fencing token on which the nodes agreed immediately.
    #[cfg(tower_redlock_tests)]
    #[serde(skip)]
    pub fences_agreed: u64,
    /// How many grants so far needed a second round trip for their fencing token.
    #[cfg(tower_redlock_tests)]
    #[serde(skip)]
    pub fences_written_back: u64,
    /// The nodes and the state of each.
    pub nodes: Vec<NodeStatus>,
    /// The locks that have been held longest, at most 100.
    pub locks: Vec<HeldLock>,
    /// The keys with the longest waits, at most 100.
    pub queues: Vec<QueueStatus>,
}

impl Snapshot {
    pub(crate) const MOST: usize = 100;
}

/// One lock that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeldLock {
    /// The locked keys.
    pub keys: Vec<String>,
    /// The time since the grant, or since the lock was passed to the present holder.
    #[serde(serialize_with = "seconds")]
    pub held_for: Duration,
    /// How long the lock stays valid if nothing extends it.
    #[serde(serialize_with = "seconds")]
    pub remaining: Duration,
    /// Whether the lock was lost.
    pub lost: bool,
    /// How many callers of this process wait for these keys.
    pub waiting: usize,
    /// The fencing token of the holder.
    pub fence: Option<FencingToken>,
}

/// The callers of this process that wait for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueStatus {
    /// The key.
    pub key: String,
    /// How many callers wait.
    pub waiting: usize,
    /// How long the first caller has waited.
    #[serde(serialize_with = "seconds")]
    pub longest_wait: Duration,
}

/// One node and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's name.
    pub name: String,
    /// The state of its connection.
    pub state: NodeState,
    /// Whether its votes count towards the quorum now.
    pub voting: VotingStatus,
    /// Its server; `None` without a connection, and for nodes in memory.
    pub server: Option<ServerStatus>,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

impl LockManager {
    /// Whether enough nodes of each group vote, so that locks can be granted. Each node is asked once a second, and
    /// this answers from the last replies. Use it for a readiness probe, not before each lock. It is `false` once a
    /// [shutdown](Self::shutdown) has begun.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        self.quorum().is_quorum()
    }

    fn quorum(&self) -> Count {
        let mut counts = self.groups.iter().map(|group| group.quorum());
        let lacking = counts.find(|count| !count.is_quorum());
        lacking.unwrap_or_else(|| self.shared.quorum())
    }

    /// Asks all nodes again, and waits without a limit until every node is up and votes. For the program `redlock`.
    ///
    /// # Errors
    ///
    /// [`AcquireError::ShuttingDown`] once the manager is shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    #[doc(hidden)]
    pub async fn all_voting(&self) -> Result<(), AcquireError> {
        let begun = self.groups.iter().map(|group| group.begun());
        let begun: Vec<Vec<Option<u64>>> = begun.collect();
        let voting = &self.shared.set.voting;
        voting.recheck_all();
        loop {
            let news = voting.news();
            if self.shared.registry.closing.is_given() {
                return Err(AcquireError::ShuttingDown);
            }
            let mut groups = self.groups.iter().zip(&begun);
            if groups.all(|(group, begun)| group.votes_since(begun)) && !voting.is_blocked() {
                return Ok(());
            }
            // `news` does not resolve when a node goes up or down, or at a shutdown, so look again after a while.
            let _news = timeout(LOOK, news).await;
        }
    }
}

impl Shared {
    fn begun(&self) -> Vec<Option<u64>> {
        let begun = |node| self.set.voting.replies(node, |replies| replies.begun);
        (0..self.set.nodes.len()).map(begun).collect()
    }

    fn votes_since(&self, begun: &[Option<u64>]) -> bool {
        begun.iter().enumerate().all(|(node, begun)| {
            let voted = |begun| self.set.voting.replies(node, |it| it.voted_after(begun));
            begun.and_then(voted) == Some(true) && self.set.counts(node)
        })
    }
}
