//! What all parts of a manager share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::background::{Background, Gauge};
use super::baton::Queue;
use super::courtesy::Courtesy;
use super::error::{AcquireError, NoEntropy, NodeFailure};
use super::hand_off::HandOff;
use super::options::Options;
use super::watchdog::Registry;
use crate::clock::Clock;
use crate::namespace::{Namespace, NodeKey};
use crate::node::{Node, NodeError, NodeErrorKind};
use crate::protocol::renewal::Terms;
use crate::token::OwnerToken;

/// The inside of a manager. Guards and background jobs keep it alive; the watchdog does not.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) nodes: Vec<Arc<dyn Node>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) namespace: Namespace,
    pub(super) terms: Terms,
    pub(super) node_timeout: Duration,
    pub(super) max_wait: Duration,
    pub(super) hand_off: HandOff,
    pub(super) queue: Arc<Queue>,
    pub(super) courtesy: Courtesy,
    pub(super) background: Background,
    // Attempts under way: a shutdown waits for them, because they may yet be granted.
    pub(super) attempts: Gauge,
    pub(super) registry: Arc<Registry>,
    next_id: AtomicU64,
}

impl Core {
    pub(super) fn new(
        nodes: Vec<Arc<dyn Node>>,
        clock: Arc<dyn Clock>,
        options: Options,
        background: Background,
    ) -> Self {
        Self {
            nodes,
            clock,
            namespace: options.namespace,
            terms: options.terms,
            node_timeout: options.node_timeout,
            max_wait: options.max_wait,
            hand_off: options.hand_off,
            queue: Arc::new(Queue::new(options.bounds)),
            courtesy: Courtesy::default(),
            background,
            attempts: Gauge::new(),
            registry: Arc::new(Registry::new()),
            next_id: AtomicU64::new(0),
        }
    }

    /// A number for a lock, unique in this manager.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Names `node` as failed with `error`.
    pub(super) fn failure(&self, node: usize, error: NodeError) -> NodeFailure {
        let name = self.nodes.get(node).map_or("?", |node| node.name());
        NodeFailure::new(name, error)
    }

    /// The error of a node that did not answer within the node time-out.
    pub(super) fn timed_out(&self) -> NodeError {
        NodeError::new(
            NodeErrorKind::TimedOut,
            format!("no answer within {:?}", self.node_timeout),
        )
    }

    /// Runs `job` in the background; if there is no room, the key is left to its ttl, and that is said.
    pub(super) fn settle(&self, place: &NodeKey, job: impl Future<Output = ()> + Send + 'static) {
        if !self.background.spawn(job) {
            crate::trace::left_to_expire(place.as_str(), "too many releases are under way");
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.registry.stop();
    }
}

/// A fresh owner token.
pub(super) fn token() -> Result<OwnerToken, AcquireError> {
    let mut entropy = [0; OwnerToken::ENTROPY_LEN];
    getrandom::fill(&mut entropy).map_err(|error| {
        AcquireError::NoEntropy(NoEntropy {
            detail: error.to_string(),
        })
    })?;
    Ok(OwnerToken::from_entropy(entropy))
}

/// A random number for jitter. Without entropy there is no jitter, which is slower but not wrong.
pub(super) fn random() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX / 2)
}
