//! The state of a node, its errors, and the context in which it starts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::namespace::Namespace;
use crate::node::commands::ClusterConfig;

/// A command that runs on a node.
pub type NodeFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// What a manager passes to a node that it starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeContext {
    /// The manager's clock.
    pub clock: Arc<dyn Clock>,
    /// The registry of servers in which the node enters its own.
    pub registry: ServerRegistry,
    /// How long the manager waits for the reply to a command. Default: 200 ms.
    pub node_timeout: Duration,
    /// The namespace of the manager's locks. Default: `lk`.
    pub namespace: Namespace,
    /// Whether the restart guard is on. Default: `true`.
    pub guarded: bool,
    /// Whether the manager only observes and writes nothing. Default: `false`.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) observes: bool,
    /// The runtime of renewals. Default: the one in which the node is started.
    pub(crate) background: Option<Handle>,
}

impl NodeContext {
    /// A context with the defaults.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, registry: ServerRegistry) -> Self {
        Self {
            clock,
            registry,
            node_timeout: Duration::from_millis(200),
            namespace: Namespace::default(),
            guarded: true,
            observes: false,
            background: None,
        }
    }
}

/// The state of a node. It is serialised as `{"is": "up"}`, or with a reason as `{"is": "down", "reason": ".."}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", content = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeState {
    /// The first attempt to connect is in progress.
    Connecting,
    /// The node accepts commands.
    Up,
    /// The node does not reply. The manager keeps trying to reconnect.
    Down(NodeError),
    /// The server replies but cannot serve as a node. It is checked again every second.
    Refused(NodeError),
    /// The node was closed.
    Closed,
}

/// What the server of a node reports about itself. The node asks once a second, by `INFO`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The server's `redis_version`. Valkey reports the version of Redis that it is compatible with.
    pub version: String,
    /// Where the server was reached: host and port, or the path of a socket.
    pub address: String,
    /// The server's role: `master`.
    pub role: String,
    /// The memory in use, in bytes.
    pub used_memory: u64,
    /// The server's `maxmemory` in bytes, or `None` without a limit.
    pub max_memory: Option<u64>,
    /// Whether the server is too full for more stored responses. It still grants locks and finds stored responses.
    pub is_full: bool,
    /// How far the server's clock is ahead of ours, in microseconds, if known.
    pub clock_ahead: Option<i64>,
}

/// Why a node did not run a command.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeError {
    kind: NodeErrorKind,
    detail: Cow<'static, str>,
    // The digest of the config that the node has instead of ours.
    config: Option<Box<str>>,
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeError")
            .field("kind", &self.kind)
            .field("detail", &self.detail)
            .finish_non_exhaustive()
    }
}

impl NodeError {
    /// `detail` says what happened, without secrets.
    pub(crate) fn new(kind: NodeErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            config: None,
        }
    }

    /// An error for a test.
    #[cfg(tower_redlock_tests)]
    pub fn of(kind: NodeErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(kind, detail)
    }

    pub(crate) fn foreign(theirs: &str, digest: String, ours: &str) -> Self {
        Self {
            config: Some(digest.into()),
            ..Self::new(NodeErrorKind::Foreign, foreign_config(theirs, ours))
        }
    }

    pub(crate) fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> NodeErrorKind {
        self.kind
    }

    /// Whether the command may have taken effect, or may still take effect.
    #[cfg(tower_redlock_tests)]
    #[must_use]
    pub const fn outcome_unknown(&self) -> bool {
        self.may_have_run()
    }

    pub(crate) const fn may_have_run(&self) -> bool {
        matches!(
            self.kind,
            NodeErrorKind::Interrupted
                | NodeErrorKind::TimedOut
                | NodeErrorKind::Garbled
                | NodeErrorKind::NotReplicated
        )
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for NodeError {}

/// Serialised as its text.
impl Serialize for NodeError {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The kinds of [`NodeError`]. With `Interrupted`, `TimedOut`, `NotReplicated` and `Garbled`, the command may have
/// taken effect. With all other kinds, it had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// There is no connection, or the server behind it is not confirmed.
    Unavailable,
    /// The connection broke before the reply.
    Interrupted,
    /// No reply came within the time-out.
    TimedOut,
    /// The server refused the command.
    Rejected,
    /// The server has no memory left for the command.
    Full,
    /// The server has too little memory left for more stored responses, but still grants locks.
    FullForRecords,
    /// Another program stored a value in the key or in a key that belongs to it.
    WrongType,
    /// Too few replicas acknowledged the lock in time, so it does not count.
    NotReplicated,
    /// The reply was not one that the command can have.
    Garbled,
    /// The server cannot serve as a node, for example because it is a replica, evicts keys, or is listed twice.
    Misconfigured,
    /// The node serves processes that have another list of nodes, other settings or another format.
    Foreign,
    /// The node may have lost locks, so it grants nothing until they have ended.
    Quarantined,
    /// The node was closed.
    Closed,
}

pub(crate) fn unmarked() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "the highest fencing token in its key `..!node` is missing, no number, or the last possible one; delete that key, and the node learns the token from the other nodes",
    )
}

pub(crate) fn quarantined() -> NodeError {
    let detail = "it may have forgotten locks and does not vote before they have ended";
    NodeError::new(NodeErrorKind::Quarantined, detail)
}

pub(crate) fn foreign_config(theirs: &str, ours: &str) -> String {
    let theirs: String = theirs
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_CONFIG)
        .collect();
    if let Some(successor) = ClusterConfig::successor(&theirs) {
        return format!(
            "it was retired in favour of `{successor}`; give this process those nodes, or take these into use again by `redlock nodes adopt` (docs::operating)"
        );
    }
    format!(
        "it serves processes that agreed on [{theirs}], and this one has [{ours}]; nothing is granted before they agree: give all processes the same nodes and settings, or change them as `docs::operating` says (moving, or `redlock nodes adopt`); if only an address changed, keep the node's old `name`"
    )
}

const LONGEST_CONFIG: usize = 1_000;

/// The servers of one manager's nodes. It ensures that no server is counted as two nodes.
#[derive(Clone, Debug, Default)]
pub struct ServerRegistry {
    servers: Arc<Mutex<Parts>>,
    // The group of the node that gets the next clone.
    pub(crate) group: usize,
}

/// The name and group of each node, by its server and tag.
type Parts = HashMap<(String, String), (String, usize)>;

impl ServerRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the server `run_id`, or in a cluster its slot `tag`, for `node`. Fails if another node has it. Returns
    /// a node of the same group that has another slot of this server, if there is one.
    pub(crate) fn claim(
        &self,
        node: &str,
        run_id: &str,
        tag: &str,
    ) -> Result<Option<String>, NodeError> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, (name, _)| name != node);
        let identity = (run_id.to_owned(), tag.to_owned());
        if let Some((other, _)) = servers.get(&identity) {
            return Err(NodeError::new(
                NodeErrorKind::Misconfigured,
                format!(
                    "it is the same server as node `{other}`; every node must be a server of its own, remove one of the two"
                ),
            ));
        }
        let is_beside = |((id, _), (_, group)): &(&(String, _), &(_, usize))| {
            id == run_id && *group == self.group
        };
        let beside = servers.iter().find(is_beside);
        let beside = beside.map(|(_, (other, _))| other.clone());
        servers.insert(identity, (node.to_owned(), self.group));
        drop(servers);
        Ok(beside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_another_list_is_told_how_to_change_an_address_alone() {
        let text = foreign_config("nodes a, b", "nodes a, c");
        assert!(text.contains("keep the node's old `name`"), "{text}");
    }

    #[test]
    fn a_server_is_counted_once() {
        let registry = ServerRegistry::new();
        registry.claim("a", "run-1", "").unwrap();
        registry.claim("a", "run-1", "").unwrap();
        let error = registry.claim("b", "run-1", "").unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        assert!(
            error.to_string().contains("same server as node `a`"),
            "{error}"
        );
        // A restarted server has a new identity, and the old one is free again.
        registry.claim("a", "run-2", "").unwrap();
        registry.claim("b", "run-1", "").unwrap();
    }

    #[test]
    fn nodes_whose_servers_swap_addresses_find_their_way() {
        let registry = ServerRegistry::new();
        registry.claim("a", "run-1", "").unwrap();
        registry.claim("b", "run-2", "").unwrap();
        registry.claim("a", "run-2", "").unwrap_err();
        registry.claim("b", "run-1", "").unwrap();
        registry.claim("a", "run-2", "").unwrap();
    }
}
