//! Starting a manager on its nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::clock::Clock;
use crate::manager::LockManager;
use crate::manager::error::acquire::{NoQuorum, NodeFailure};
use crate::manager::error::config::ConfigError;
use crate::manager::error::connect::{ConnectError, Misconfigured};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::quarantine::state::VotingStatus;
use crate::manager::nodes::quarantine::warden::{LOOK, keep};
use crate::manager::renewal::watchdog::watch;
use crate::manager::settings::options::Options;
use crate::manager::shared::Shared;
use crate::manager::tasks::TaskTracker;
use crate::node::{Node, NodeContext, NodeError, NodeErrorKind, NodeState, ServerRegistry};

impl Shared {
    /// How many nodes take commands.
    pub(in crate::manager) fn up(&self) -> usize {
        (0..self.nodes.len()).filter(|n| self.is_up(*n)).count()
    }

    /// How many nodes take commands, and vote or will.
    pub(in crate::manager) fn promising(&self) -> usize {
        if self.voting.is_blocked() {
            return 0;
        }
        self.voting.promising(|node| self.is_up(node))
    }
}

impl LockManager {
    /// Starts the nodes and the watchdog, without waiting for any answer.
    pub(crate) fn start(
        nodes: Vec<Arc<dyn Node>>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self, ConfigError> {
        let runtime = Handle::try_current().map_err(|_| {
            ConfigError::new(
                "there is no tokio runtime here: build the manager inside one, for its tasks live there",
            )
        })?;
        let mut context =
            NodeContext::new(Arc::clone(&clock), ServerRegistry::new(), options.terms.ttl);
        context.node_timeout = options.node_timeout;
        context.namespace = options.namespace.clone();
        for node in &nodes {
            node.start(context.clone());
        }
        let (vouched, limit) = (options.vouched, options.connect_timeout);
        let tasks = TaskTracker::new(runtime.clone());
        let shared = Arc::new(Shared::new(nodes, clock, options, tasks));
        if vouched {
            shared.voting.vouch(true);
            let voting = Arc::downgrade(&shared.voting);
            runtime.spawn(async move {
                sleep(limit).await;
                if let Some(voting) = voting.upgrade() {
                    voting.vouch(false);
                }
            });
        }
        runtime.spawn(watch(Arc::downgrade(&shared), Arc::clone(&shared.registry)));
        #[cfg(feature = "metrics")]
        runtime.spawn(gauge(Arc::downgrade(&shared), Arc::clone(&shared.voting)));
        for index in 0..shared.nodes.len() {
            let voting = Arc::clone(&shared.voting);
            runtime.spawn(keep(Arc::downgrade(&shared), voting, index));
        }
        Ok(Self { shared })
    }

    /// Waits until a quorum of nodes is ready and, for a moment longer, for the others, so that each of them is
    /// checked if it answers at all.
    pub(crate) async fn connected(&self, limit: Duration) -> Result<(), ConnectError> {
        let shared = &self.shared;
        let nodes = shared.nodes.iter().enumerate();
        let mut waiting = Fanout::new(nodes.map(|(index, node)| (index, node.ready())));
        let mut ready = vec![false; shared.nodes.len()];
        let needed = shared.terms.quorum.needed();
        let timer = sleep(limit);
        tokio::pin!(timer);
        while ready.iter().filter(|ready| **ready).count() < needed {
            tokio::select! {
                biased;
                answer = waiting.next() => match answer {
                    Some((node, answer)) => note(&mut ready, node, &answer),
                    None => break,
                },
                () = &mut timer => break,
            }
        }
        let stragglers = async {
            while let Some((node, answer)) = waiting.next().await {
                note(&mut ready, node, &answer);
            }
        };
        let _ = timeout(shared.node_timeout.max(STRAGGLERS), stragglers).await;
        self.judge(&ready, limit)?;
        self.standing(needed, timer).await
    }

    /// Waits until a quorum of nodes votes: for as long as quarantines last, and else for what is left of the limit,
    /// or for all of it after a quarantine in the midst of which too many nodes went down.
    pub(in crate::manager) async fn standing(
        &self,
        needed: usize,
        mut timer: Pin<&mut Sleep>,
    ) -> Result<(), ConnectError> {
        let shared = &self.shared;
        shared.voting.suspect_all();
        self.quorum_votes(needed, timer.as_mut()).await?;
        // And the others that are there, for a moment: what is vouched for ends when this returns.
        let others = async {
            loop {
                let news = shared.voting.news();
                if shared.voting.settled() >= shared.up() {
                    return;
                }
                news.await;
            }
        };
        let _ = timeout(shared.node_timeout.max(STRAGGLERS), others).await;
        // A process may share but one node with those that have another list, and have a quorum without it.
        self.none_foreign()
    }

    /// Checks that no node is known to serve processes with another config, unless ours has replaced it.
    pub(in crate::manager) fn none_foreign(&self) -> Result<(), ConnectError> {
        match self.shared.disagreement() {
            Some(NoQuorum { failures, .. }) => {
                Err(ConnectError::Misconfigured(Misconfigured { failures }))
            }
            None => Ok(()),
        }
    }

    pub(in crate::manager) async fn quorum_votes(
        &self,
        needed: usize,
        mut timer: Pin<&mut Sleep>,
    ) -> Result<(), ConnectError> {
        let shared = &self.shared;
        let mut patient = false;
        loop {
            let news = shared.voting.news();
            // Before that it may not be known yet which configs ours has replaced.
            if shared.voting.heard() >= shared.up() {
                self.none_foreign()?;
            }
            if shared.voting.voting() >= needed {
                return Ok(());
            }
            let before = std::mem::replace(&mut patient, shared.promising() >= needed);
            if before && !patient {
                timer
                    .as_mut()
                    .reset(Instant::now() + shared.connect_timeout);
            }
            tokio::select! {
                biased;
                () = news => {}
                () = &mut timer, if !patient => {
                    self.none_foreign()?;
                    return Err(ConnectError::NoQuorum(self.not_standing(needed)));
                }
                // No news tells of a node that goes down.
                () = sleep(LOOK) => {}
            }
        }
    }

    pub(in crate::manager) fn not_standing(&self, needed: usize) -> NoQuorum {
        let shared = &self.shared;
        if let Some(error) = shared.disagreement() {
            return error;
        }
        let now = shared.clock.now();
        let failures = (0..shared.nodes.len()).filter_map(|node| {
            let state = shared.nodes.get(node).map(|node| node.state());
            let error = match (shared.voting.show(node, now), state) {
                (VotingStatus::Voting, _) => return None,
                (_, Some(NodeState::Down(error) | NodeState::Refused(error))) => error,
                _ => shared.voting.explain(node, now).unwrap_or_else(untold),
            };
            Some(shared.failure(node, error))
        });
        NoQuorum {
            needed,
            nodes: shared.nodes.len(),
            failures: failures.collect(),
            retry_after: shared.quorum_in(),
            disagreed: false,
        }
    }

    /// From now on nodes that remember nothing are no longer trusted to have nothing to forget.
    pub(crate) fn vouch_no_more(&self) {
        self.shared.voting.vouch(false);
    }

    pub(in crate::manager) fn judge(
        &self,
        ready: &[bool],
        limit: Duration,
    ) -> Result<(), ConnectError> {
        let shared = &self.shared;
        let mut refused: Vec<NodeFailure> = Vec::new();
        let mut missing: Vec<NodeFailure> = Vec::new();
        for (node, ready) in shared.nodes.iter().zip(ready) {
            match node.state() {
                NodeState::Refused(error) => refused.push(NodeFailure::new(node.name(), error)),
                _ if *ready => {}
                NodeState::Down(error) => missing.push(NodeFailure::new(node.name(), error)),
                _ => missing.push(NodeFailure::new(node.name(), no_answer(limit))),
            }
        }
        if !refused.is_empty() {
            return Err(ConnectError::Misconfigured(Misconfigured {
                failures: refused,
            }));
        }
        let needed = shared.terms.quorum.needed();
        if ready.iter().filter(|ready| **ready).count() < needed {
            return Err(ConnectError::NoQuorum(NoQuorum {
                needed,
                nodes: shared.nodes.len(),
                failures: missing,
                retry_after: None,
                disagreed: false,
            }));
        }
        for failure in missing {
            crate::trace::node_missing(&failure.node, &failure.error);
        }
        Ok(())
    }
}

/// Shows what is known of the nodes, again and again until the manager is gone: nodes of all kinds can be looked at,
/// and not all of them tell of a change.
#[cfg(feature = "metrics")]
pub(in crate::manager) async fn gauge(
    shared: std::sync::Weak<Shared>,
    voting: Arc<crate::manager::nodes::quarantine::warden::VotingStatuses>,
) {
    let mut shown: Vec<String> = Vec::new();
    loop {
        let news = voting.news();
        let Some(shared) = shared.upgrade() else {
            // Else they would look fine for as long as the process runs.
            for name in shown {
                crate::metrics::node(&name, false, false);
            }
            return;
        };
        if shown.is_empty() {
            let names = shared.nodes.iter().map(|node| node.name().to_owned());
            shown.extend(names);
        }
        let now = shared.clock.now();
        for (index, node) in shared.nodes.iter().enumerate() {
            let voting = voting.show(index, now) == VotingStatus::Voting;
            crate::metrics::node(node.name(), shared.is_up(index), voting);
        }
        drop(shared);
        tokio::select! {
            biased;
            () = news => {}
            () = sleep(LOOK) => {}
        }
    }
}

pub(in crate::manager) fn note(ready: &mut [bool], node: usize, answer: &Result<(), NodeError>) {
    if let (Ok(()), Some(slot)) = (answer, ready.get_mut(node)) {
        *slot = true;
    }
}

pub(in crate::manager) fn untold() -> NodeError {
    NodeError::new(NodeErrorKind::TimedOut, "it did not say whether it votes")
}

pub(in crate::manager) fn no_answer(limit: Duration) -> NodeError {
    NodeError::new(
        NodeErrorKind::TimedOut,
        format!("no answer within {limit:?}"),
    )
}

/// How much longer than the quorum the other nodes are waited for, at least.
pub(in crate::manager) const STRAGGLERS: Duration = Duration::from_millis(100);

impl LockManager {
    /// Says that no lock is held on any node, and waits until those that answer vote.
    ///
    /// It ends the quarantines that are under way. See [`RestartGuard`](crate::RestartGuard) for when that is right:
    /// if a lock is held after all, a second holder can appear.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if fewer than a quorum of nodes vote after the connect time-out.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nodes that do not vote by then sit out their quarantine.
    pub async fn bootstrap(&self) -> Result<(), NoQuorum> {
        let _trust = self.shared.voting.trust_all();
        self.settled().await
    }

    /// Takes the nodes over from processes that had other nodes or settings, and waits until a quorum of them votes.
    ///
    /// Stop all processes and wait for the longest ttl first, see [`RestartGuard`](crate::RestartGuard): those that
    /// still run lose their locks and are granted nothing any more. All nodes are quarantined for it, and fencing
    /// tokens go on from the clock of this process; the log says so, as an error. A node that does not answer within
    /// the connect time-out stays with the others until this is called again.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if fewer than a quorum of nodes answer within the connect time-out.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the nodes that were asked by then are taken over.
    pub async fn adopt_nodes(&self) -> Result<(), NoQuorum> {
        let shared = &self.shared;
        let _adoption = shared.voting.adopt_all(shared.clock.now());
        self.settled().await
    }

    pub(in crate::manager) async fn settled(&self) -> Result<(), NoQuorum> {
        let shared = &self.shared;
        let needed = shared.terms.quorum.needed();
        let timer = sleep(shared.connect_timeout);
        tokio::pin!(timer);
        // A quarantine may take longer; but not that of nodes which have been down for so long.
        let mut patient = false;
        loop {
            let news = shared.voting.news();
            let before = std::mem::replace(&mut patient, shared.promising() >= needed);
            if before && !patient && timer.is_elapsed() {
                timer
                    .as_mut()
                    .reset(Instant::now() + shared.connect_timeout);
            }
            // In time all that answer should vote, and then a quorum will do.
            let pending = shared.voting.is_pending() && !timer.is_elapsed();
            if !pending && shared.voting.voting() >= needed {
                return Ok(());
            }
            if timer.is_elapsed() && !patient {
                return Err(self.not_standing(needed));
            }
            tokio::select! {
                biased;
                () = news => {}
                () = &mut timer, if !timer.is_elapsed() => {}
                // No news tells of a node that goes down.
                () = sleep(LOOK) => {}
            }
        }
    }
}
