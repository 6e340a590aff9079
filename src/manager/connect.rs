//! Starting a manager on its nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::LockManager;
use super::background::Background;
use super::config_error::ConfigError;
use super::core::Core;
use super::error::{NoQuorum, NodeFailure};
use super::fanout::Fanout;
use super::options::{ConnectError, Misconfigured, Options};
use super::warden::{NodeStanding, keep};
use super::watchdog::watch;
use crate::clock::Clock;
use crate::node::{Node, NodeContext, NodeError, NodeErrorKind, NodeState, Roster};

impl Core {
    /// How many nodes take commands.
    fn up(&self) -> usize {
        (0..self.nodes.len()).filter(|n| self.is_up(*n)).count()
    }

    /// How many nodes take commands, and vote or will.
    pub(super) fn promising(&self) -> usize {
        if self.standings.is_blocked() {
            return 0;
        }
        self.standings.promising(|node| self.is_up(node))
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
        let mut context = NodeContext::new(Arc::clone(&clock), Roster::new(), options.terms.ttl);
        context.node_timeout = options.node_timeout;
        context.namespace = options.namespace.clone();
        for node in &nodes {
            node.start(context.clone());
        }
        let (vouched, limit) = (options.vouched, options.connect_timeout);
        let background = Background::new(runtime.clone());
        let core = Arc::new(Core::new(nodes, clock, options, background));
        if vouched {
            core.standings.vouch(true);
            let standings = Arc::downgrade(&core.standings);
            runtime.spawn(async move {
                sleep(limit).await;
                if let Some(standings) = standings.upgrade() {
                    standings.vouch(false);
                }
            });
        }
        runtime.spawn(watch(Arc::downgrade(&core), Arc::clone(&core.registry)));
        #[cfg(feature = "metrics")]
        runtime.spawn(gauge(Arc::downgrade(&core), Arc::clone(&core.standings)));
        for index in 0..core.nodes.len() {
            let standings = Arc::clone(&core.standings);
            runtime.spawn(keep(Arc::downgrade(&core), standings, index));
        }
        Ok(Self { core })
    }

    /// Waits until a quorum of nodes is ready and, for a moment longer, for the others, so that each of them is
    /// checked if it answers at all.
    pub(crate) async fn connected(&self, limit: Duration) -> Result<(), ConnectError> {
        let core = &self.core;
        let nodes = core.nodes.iter().enumerate();
        let mut waiting = Fanout::new(nodes.map(|(index, node)| (index, node.ready())));
        let mut ready = vec![false; core.nodes.len()];
        let needed = core.terms.quorum.needed();
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
        let _ = timeout(core.node_timeout.max(STRAGGLERS), stragglers).await;
        self.judge(&ready, limit)?;
        self.standing(needed, timer).await
    }

    /// Waits until a quorum of nodes votes: for as long as quarantines last, and else for what is left of the limit,
    /// or for all of it after a quarantine in the midst of which too many nodes went down.
    async fn standing(
        &self,
        needed: usize,
        mut timer: Pin<&mut Sleep>,
    ) -> Result<(), ConnectError> {
        let core = &self.core;
        core.standings.suspect_all();
        self.quorum_votes(needed, timer.as_mut()).await?;
        // And the others that are there, for a moment: what is vouched for ends when this returns.
        let others = async {
            loop {
                let news = core.standings.news();
                if core.standings.settled() >= core.up() {
                    return;
                }
                news.await;
            }
        };
        let _ = timeout(core.node_timeout.max(STRAGGLERS), others).await;
        // A process may share but one node with those that have another list, and have a quorum without it.
        self.none_foreign()
    }

    /// Checks that no node is known to serve processes with another charter, unless ours has replaced it.
    fn none_foreign(&self) -> Result<(), ConnectError> {
        match self.core.disagreement() {
            Some(NoQuorum { failures, .. }) => {
                Err(ConnectError::Misconfigured(Misconfigured { failures }))
            }
            None => Ok(()),
        }
    }

    async fn quorum_votes(
        &self,
        needed: usize,
        mut timer: Pin<&mut Sleep>,
    ) -> Result<(), ConnectError> {
        let core = &self.core;
        let mut patient = false;
        loop {
            let news = core.standings.news();
            // Before that it may not be known yet which charters ours has replaced.
            if core.standings.heard() >= core.up() {
                self.none_foreign()?;
            }
            if core.standings.voting() >= needed {
                return Ok(());
            }
            let before = std::mem::replace(&mut patient, core.promising() >= needed);
            if before && !patient {
                timer.as_mut().reset(Instant::now() + core.connect_timeout);
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

    pub(super) fn not_standing(&self, needed: usize) -> NoQuorum {
        let core = &self.core;
        if let Some(error) = core.disagreement() {
            return error;
        }
        let now = core.clock.now();
        let failures = (0..core.nodes.len()).filter_map(|node| {
            let state = core.nodes.get(node).map(|node| node.state());
            let error = match (core.standings.show(node, now), state) {
                (NodeStanding::Voting, _) => return None,
                (_, Some(NodeState::Down(error) | NodeState::Refused(error))) => error,
                _ => core.standings.explain(node, now).unwrap_or_else(untold),
            };
            Some(core.failure(node, error))
        });
        NoQuorum {
            needed,
            nodes: core.nodes.len(),
            failures: failures.collect(),
            retry_after: core.quorum_in(),
            disagreed: false,
        }
    }

    /// From now on nodes that remember nothing are no longer trusted to have nothing to forget.
    pub(crate) fn vouch_no_more(&self) {
        self.core.standings.vouch(false);
    }

    fn judge(&self, ready: &[bool], limit: Duration) -> Result<(), ConnectError> {
        let core = &self.core;
        let mut refused: Vec<NodeFailure> = Vec::new();
        let mut missing: Vec<NodeFailure> = Vec::new();
        for (node, ready) in core.nodes.iter().zip(ready) {
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
        let needed = core.terms.quorum.needed();
        if ready.iter().filter(|ready| **ready).count() < needed {
            return Err(ConnectError::NoQuorum(NoQuorum {
                needed,
                nodes: core.nodes.len(),
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
async fn gauge(core: std::sync::Weak<Core>, standings: Arc<super::warden::Standings>) {
    let mut shown: Vec<String> = Vec::new();
    loop {
        let news = standings.news();
        let Some(core) = core.upgrade() else {
            // Else they would look fine for as long as the process runs.
            for name in shown {
                crate::metrics::node(&name, false, false);
            }
            return;
        };
        if shown.is_empty() {
            let names = core.nodes.iter().map(|node| node.name().to_owned());
            shown.extend(names);
        }
        let now = core.clock.now();
        for (index, node) in core.nodes.iter().enumerate() {
            let voting = standings.show(index, now) == NodeStanding::Voting;
            crate::metrics::node(node.name(), core.is_up(index), voting);
        }
        drop(core);
        tokio::select! {
            biased;
            () = news => {}
            () = sleep(LOOK) => {}
        }
    }
}

fn note(ready: &mut [bool], node: usize, answer: &Result<(), NodeError>) {
    if let (Ok(()), Some(slot)) = (answer, ready.get_mut(node)) {
        *slot = true;
    }
}

fn untold() -> NodeError {
    NodeError::new(NodeErrorKind::TimedOut, "it did not say whether it votes")
}

fn no_answer(limit: Duration) -> NodeError {
    NodeError::new(
        NodeErrorKind::TimedOut,
        format!("no answer within {limit:?}"),
    )
}

/// How much longer than the quorum the other nodes are waited for, at least.
const STRAGGLERS: Duration = Duration::from_millis(100);
/// How often who waits for nodes to vote looks whether they are still there.
pub(super) const LOOK: Duration = Duration::from_secs(1);
