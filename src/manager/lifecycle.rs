//! The life of a manager, from its start to its shutdown.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::clock::Clock;
use crate::manager::LockManager;
use crate::manager::error::{ConnectError, LossReason, NoQuorum, NodeFailure};
use crate::manager::guard::end_lapsed;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::no_answer;
use crate::manager::nodes::voting::{length, monitor, retire};
use crate::manager::shared::Shared;
use crate::manager::tasks::TaskTracker;
use crate::manager::want::Want;
use crate::manager::watchdog::{stay, watch};
use crate::node::{ClusterConfig, Node, NodeContext, NodeError, NodeState, ServerRegistry};
use crate::seam;
use crate::settings::checked::{Checked, Times};
use crate::settings::error::ConfigError;

impl LockManager {
    pub(crate) fn start(
        nodes: &[Arc<dyn Node>],
        clock: &Arc<dyn Clock>,
        options: &Checked,
    ) -> Result<Self, ConfigError> {
        let runtime = Handle::try_current().map_err(|_| {
            ConfigError::new(
                "there is no tokio runtime here: build the manager inside one, for its tasks live there",
            )
        })?;
        let tasks = TaskTracker::begin(runtime.clone(), &**clock)
            .map_err(|error| ConfigError::new(format!("{NO_THREAD}: {error}")))?;
        let mut context = NodeContext::new(Arc::clone(clock), ServerRegistry::new());
        context.node_timeout = options.node_timeout;
        context.namespace = options.namespace.clone();
        context.guarded = options.max_clock_skew.is_some();
        context.observes = options.observes;
        context.background = Some(tasks.background.clone());
        crate::instruments::at_zero();
        let size = nodes.len() / options.groups;
        for (index, node) in nodes.iter().enumerate() {
            context.registry.group = index / size;
            node.start(context.clone());
        }
        let groups = Shared::groups(nodes, clock, options, tasks);
        let shared = groups.first().map(Arc::clone);
        let shared = shared.ok_or_else(|| ConfigError::new("there is no node"))?;
        if options.bootstrap {
            shared.set.voting.trust_new(true);
            let limit = options.connect_timeout;
            let voting = Arc::downgrade(&shared.set.voting);
            seam::spawn_on(&runtime, async move {
                sleep(limit).await;
                if let Some(voting) = voting.upgrade() {
                    voting.trust_new(false);
                }
            });
        }
        for group in &*groups {
            group.watch_over(&runtime);
        }
        Ok(Self {
            shared,
            groups,
            times: Times {
                terms: options.terms,
                max_wait: options.max_wait,
            },
            want: Want::Lock,
        })
    }

    /// Waits until every group is connected. If a group cannot connect, closes all nodes, because their tasks would
    /// otherwise go on.
    pub(crate) async fn connected(&self, limit: Duration) -> Result<(), ConnectError> {
        let end = Instant::now() + limit;
        for group in &*self.groups {
            if let Err(error) = group.connected(end, limit).await {
                self.close_nodes(sleep(Duration::ZERO)).await;
                return Err(error);
            }
        }
        self.shared.set.voting.trust_new(false);
        Ok(())
    }

    async fn close_nodes(&self, limit: Sleep) {
        let nodes = self.groups.iter().flat_map(|group| &group.set.nodes);
        let mut closing = Fanout::new(nodes.map(|node| node.close()).enumerate());
        let mut limit = pin!(limit);
        while closing.next_before(limit.as_mut()).await.is_some() {}
    }
}

impl Shared {
    fn watch_over(self: &Arc<Self>, runtime: &Handle) {
        seam::spawn_in_background(&self.common.tasks.background, watch(self, end_lapsed));
        seam::spawn_on(runtime, stay(self));
        let watched = || (Arc::downgrade(&self.set), Arc::clone(&self.set.voting));
        #[cfg(feature = "metrics")]
        {
            let (set, voting) = watched();
            seam::spawn_on(runtime, crate::manager::nodes::counting::gauge(set, voting));
        }
        for index in 0..self.set.nodes.len() {
            let (set, voting) = watched();
            let registry = Arc::clone(&self.registry);
            let forgot = move |since, now| registry.doubt(index, since, now);
            seam::spawn_on(runtime, monitor(set, voting, index, forgot));
        }
    }

    /// Waits until a quorum of nodes votes, and a moment longer for the other nodes. A refused node is an error.
    async fn connected(&self, end: Instant, limit: Duration) -> Result<(), ConnectError> {
        let set = &self.set;
        let moment = set.node_timeout.max(STRAGGLERS);
        let ready = self.ready(end, set.terms.quorum.needed(), moment).await;
        let missing = self.judge(&ready, limit)?;
        set.voting.recheck_all();
        set.quorum_votes(end, true).await.map_err(refusal)?;
        // Missing nodes are logged only once the quorum votes. If a missing node has never accepted the list, no quorum
        // votes, and the call above has returned that as an error.
        for (index, error) in missing.into_iter().filter(|(node, _)| !set.is_up(*node)) {
            crate::trace::node_missing(set.name_of(index), &error);
        }
        // Wait a moment for the other nodes that are up, because the caller stops trusting new nodes when this returns.
        let settled = || set.voting.settled() >= set.up();
        set.voting.news_until(moment, settled).await;
        // A node that has answered since may keep all nodes from granting, because of processes with another list.
        set.quorum_votes(end, true).await.map_err(refusal)
    }

    /// Returns which nodes take commands by `end`. Once `enough` nodes do, waits only this `moment` for the others.
    async fn ready(&self, end: Instant, enough: usize, moment: Duration) -> Vec<bool> {
        let mut waiting = self.set.send_all(|node| node.ready());
        let mut ready = vec![false; self.set.nodes.len()];
        let mut count = 0;
        let mut deadline = pin!(sleep_until(end));
        while let Some((node, reply)) = waiting.next_before(deadline.as_mut()).await {
            if let (Ok(()), Some(slot)) = (reply, ready.get_mut(node)) {
                *slot = true;
                count += 1;
                if count == enough {
                    deadline.set(sleep(moment));
                }
            }
        }
        ready
    }

    async fn all_ready(&self, end: Instant) -> Result<(), NoQuorum> {
        let needed = self.set.nodes.len();
        let ready = self.ready(end, needed, Duration::ZERO).await;
        let missing = (0..).zip(ready).filter(|(_, ready)| !ready);
        let why = |node| {
            self.set
                .why_no_vote(node)
                .unwrap_or_else(|| self.set.timed_out())
        };
        let missing: Vec<Failed> = missing.map(|(node, _)| (node, why(node))).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let error = self.set.without_quorum(missing);
        Err(NoQuorum { needed, ..error })
    }

    fn judge(&self, ready: &[bool], limit: Duration) -> Result<Vec<Failed>, ConnectError> {
        let set = &self.set;
        let mut refused: Vec<NodeFailure> = Vec::new();
        let mut missing: Vec<Failed> = Vec::new();
        for (index, (node, ready)) in set.nodes.iter().zip(ready).enumerate() {
            match node.state() {
                NodeState::Refused(error) => refused.push(set.failure(index, error)),
                _ if *ready => {}
                NodeState::Down(error) => missing.push((index, error)),
                _ => missing.push((index, no_answer(limit))),
            }
        }
        if !refused.is_empty() {
            return Err(ConnectError::Misconfigured(refused));
        }
        if missing.len() > set.terms.quorum.spare() {
            // The error also names the nodes that serve processes with another list. Otherwise the operator would learn
            // of these nodes only after the missing nodes are repaired.
            let mut error = set.without_quorum(missing);
            let blocking = set.voting.blocking(set.clock.now());
            error.failures.splice(..0, blocking);
            return Err(ConnectError::NoQuorum(error));
        }
        Ok(missing)
    }
}

type Failed = (usize, NodeError);

fn refusal(error: NoQuorum) -> ConnectError {
    if error.disagreed {
        return ConnectError::Misconfigured(error.failures);
    }
    ConnectError::NoQuorum(error)
}

const NO_THREAD: &str = "the manager needs a thread of its own, for renewals must not wait for callers, and the system gave none; raise the limit of threads of this process";
const STRAGGLERS: Duration = Duration::from_millis(100);

impl LockManager {
    /// Declares that no lock is held on any node, and waits until the nodes that answer vote. If a lock is held after
    /// all, a second holder can appear.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if fewer than a quorum of nodes vote after the connect time-out.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nodes that do not vote by then stay quarantined.
    pub async fn bootstrap(&self) -> Result<(), NoQuorum> {
        let _trust = self.shared.set.voting.trust_all();
        self.settled().await
    }

    /// Takes the nodes over from processes that had another list of nodes or other settings, and waits until a quorum
    /// of the nodes votes.
    ///
    /// Stop those processes first: if they still run, they lose their locks and are granted nothing. Nodes that served
    /// the former list are quarantined, for the longer of the old and the new [`max_ttl`](crate::Settings::max_ttl). If
    /// the new list has none of these nodes, pass the former `max_ttl` as `former`.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if a node is not connected within the connect time-out: then no node was taken over. If a node does
    /// not answer later, or if too few nodes vote after their quarantine, call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the nodes that were asked by then are taken over.
    pub async fn adopt_nodes(&self, former: Option<Duration>) -> Result<(), NoQuorum> {
        let end = Instant::now() + self.shared.set.connecting.timeout;
        for group in &*self.groups {
            group.all_ready(end).await?;
        }
        let voting = &self.shared.set.voting;
        let _adoption = voting.adopt_all(former.unwrap_or_default());
        self.settled().await?;
        // Wait a moment until the last node votes, too, because a process that starts before that would have to wait
        // for the quarantine of that node.
        let moment = 2 * self.shared.set.node_timeout;
        voting
            .news_until(moment, || !voting.is_any_quarantined())
            .await;
        Ok(())
    }

    /// Retires the nodes before processes move to other nodes, which `successor` names for people. Processes with the
    /// retired nodes are granted nothing and extend nothing any more, and their errors name the successor. Returns how
    /// long to wait until no lock on the retired nodes is valid. `docs::operating` describes such a move.
    ///
    /// The nodes stay retired until they lose their data or are [adopted](Self::adopt_nodes).
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if the nodes that did not answer within the connect time-out could still grant locks: call this
    /// again. Also if a node serves processes with other nodes or settings.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the nodes that were asked by then are retired.
    pub async fn retire_nodes(&self, successor: &str) -> Result<Duration, NoQuorum> {
        // Keep only characters that are safe to print, because the successor is shown on terminals.
        let is_shown = |it: &char| it.is_alphanumeric() || it.is_ascii_graphic() || *it == ' ';
        let successor: String = successor.chars().filter(is_shown).collect();
        let config = Arc::new(ClusterConfig::retired(&successor));
        let end = Instant::now() + self.shared.set.connecting.timeout;
        for group in &*self.groups {
            retire(&group.set, &config, end).await?;
        }
        let sets = self.groups.iter().map(|group| &group.set);
        let lengths = sets.flat_map(|set| set.nodes.iter().map(|node| length(set, &**node)));
        Ok(lengths.max().unwrap_or_default())
    }

    async fn settled(&self) -> Result<(), NoQuorum> {
        let end = Instant::now() + self.shared.set.connecting.timeout;
        for group in &*self.groups {
            group.set.quorum_votes(end, false).await?;
        }
        Ok(())
    }
}

/// The locks of a manager that may still be on nodes when [`LockManager::shutdown`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Locks that were still held after the grace, and that this call ended.
    pub lost: usize,
    /// Locks whose guards were still alive at the end, including lost locks.
    pub held: usize,
    /// Calls for a lock, and hints of waiting writers, that were still asking nodes at the end. If nodes grant such a
    /// call later, the grant is released.
    pub acquiring: usize,
    /// Locks whose release some node had not confirmed at the end. The release goes on in the background.
    pub unconfirmed: usize,
    /// Locks that are not released any more, and that a node may have for up to two ttls. For example, the node refused
    /// the release, or did not answer for a whole ttl.
    pub expiring: usize,
}

impl ShutdownReport {
    /// Whether no node has a key of this manager any more. A command that the network or a server held back for longer
    /// than the ttl may still set a key for one more ttl.
    #[must_use]
    pub const fn is_all_released(&self) -> bool {
        self.held == 0 && self.acquiring == 0 && self.unconfirmed == 0 && self.expiring == 0
    }
}

impl LockManager {
    /// Asks all present and later holders of this manager's locks to finish:
    /// [`LockHandle::draining`](crate::LockHandle::draining) completes. Call it when the server begins to stop. Locks
    /// are still granted, until [`shutdown`](Self::shutdown).
    pub fn drain(&self) {
        self.shared.common.drain.give();
    }

    /// Waits until [`drain`](Self::drain) or [`shutdown`](Self::shutdown) has been called.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        let drain = Arc::clone(&self.shared.common.drain);
        async move { drain.given().await }
    }

    /// Whether [`drain`](Self::drain) or [`shutdown`](Self::shutdown) has been called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.common.drain.is_given()
    }

    /// Ends the manager in an orderly way. Call it after the server has stopped and before the runtime ends.
    ///
    /// New locks are refused with [`ShuttingDown`](crate::AcquireError::ShuttingDown), and holders are asked to finish.
    /// Locks that are still held after `grace` are *lost* with [`LossReason::Shutdown`], and their releases get two
    /// more node time-outs, at least 250 ms. Once all nodes have confirmed all releases, the connections are closed.
    /// Otherwise the releases go on in the background.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, new locks stay refused, and releases go on. Call it again to continue.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let shared = &self.shared;
        shared.common.drain.give();
        let groups = || self.groups.iter();
        groups().for_each(|group| group.grant_no_more());
        let mut lost = 0;
        let mut is_empty = shared.common.ledger.is_empty_within(grace).await;
        if !is_empty {
            let lose = |group: &Arc<Shared>| group.registry.lose_all(LossReason::Shutdown);
            lost = groups().map(lose).sum();
            let last = (shared.set.node_timeout * 2).max(SHORTEST_LAST_WAIT);
            is_empty = shared.common.ledger.is_empty_within(last).await;
        }
        if is_empty {
            // Nothing is held, and nothing new begins, so the nodes can be closed.
            self.close_nodes(shared.common.tasks.timer(LONGEST_CLOSE))
                .await;
            groups().for_each(|group| group.registry.stop());
            shared.common.tasks.ended.give();
        }
        let [acquiring, held, unconfirmed] = shared.common.ledger.open();
        ShutdownReport {
            lost,
            held,
            acquiring,
            unconfirmed,
            expiring: shared.common.ledger.left(),
        }
    }
}

const SHORTEST_LAST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_CLOSE: Duration = Duration::from_millis(500);
