//! Starting a manager on its nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::LockManager;
use super::background::Background;
use super::core::Core;
use super::error::{NoQuorum, NodeFailure};
use super::fanout::Fanout;
use super::options::{ConfigError, ConnectError, Misconfigured, Options};
use super::watchdog::watch;
use crate::clock::Clock;
use crate::node::{Node, NodeContext, NodeError, NodeErrorKind, NodeState, Roster};

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
        for node in &nodes {
            node.start(context.clone());
        }
        let core = Arc::new(Core::new(
            nodes,
            clock,
            options,
            Background::new(runtime.clone()),
        ));
        runtime.spawn(watch(Arc::downgrade(&core), Arc::clone(&core.registry)));
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
        self.judge(&ready, limit)
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
            }));
        }
        for failure in missing {
            crate::trace::node_missing(&failure.node, &failure.error);
        }
        Ok(())
    }
}

fn note(ready: &mut [bool], node: usize, answer: &Result<(), NodeError>) {
    if let (Ok(()), Some(slot)) = (answer, ready.get_mut(node)) {
        *slot = true;
    }
}

fn no_answer(limit: Duration) -> NodeError {
    NodeError::new(
        NodeErrorKind::TimedOut,
        format!("no answer within {limit:?}"),
    )
}

/// How much longer than the quorum the other nodes are waited for, at least.
const STRAGGLERS: Duration = Duration::from_millis(100);
