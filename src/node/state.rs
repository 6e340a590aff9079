//! The state of a node, its errors, and what a node is given when it starts.

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

/// A command on its way to a node.
pub type NodeFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// What a node is given when it starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeContext {
    /// The manager's clock.
    pub clock: Arc<dyn Clock>,
    /// Where the node registers the server it found.
    pub registry: ServerRegistry,
    /// How long the manager waits for the reply to a command. Default: 200 ms.
    pub node_timeout: Duration,
    /// The namespace of the manager's locks. Default: `lk`.
    pub namespace: Namespace,
    /// Whether the restart guard is on. Default: `true`.
    pub guarded: bool,
    /// Whether the manager only looks, without the right to write. Default: `false`.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) observes: bool,
    /// Where renewals run. Default: where the node is started.
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

/// The state of a node. Serialised, it is `{"is": "up"}`, or `{"is": "down", "reason": ".."}` with a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", content = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeState {
    /// The first attempt to connect is under way.
    Connecting,
    /// It takes commands.
    Up,
    /// It does not reply. The manager connects to it again and again.
    Down(NodeError),
    /// It replies but cannot serve as a node. It is checked again every second.
    Refused(NodeError),
    /// It was closed.
    Closed,
}

/// What the server of a node says of itself (`INFO`, once a second).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its `redis_version`. Valkey gives the version of Redis that it is compatible with.
    pub version: String,
    /// Where it was reached: host and port, or the path of a socket.
    pub address: String,
    /// Its role: `master`.
    pub role: String,
    /// The memory that it uses, in bytes.
    pub used_memory: u64,
    /// Its `maxmemory`, in bytes; `None` without a limit.
    pub max_memory: Option<u64>,
    /// Whether it is too full for more stored responses. It still grants locks and finds stored responses.
    pub is_full: bool,
    /// How far its clock is ahead of ours, in microseconds, if that is known.
    pub clock_ahead: Option<i64>,
}

/// Why a node did not do what was asked.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeError {
    kind: NodeErrorKind,
    detail: Cow<'static, str>,
    // The digest of the node's config, if another config is the reason.
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
    /// An error of `kind`. `detail` says what happened, without secrets.
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

    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> NodeErrorKind {
        self.kind
    }

    /// Whether the command may have taken effect, or may still do so.
    #[cfg(tower_redlock_tests)]
    #[must_use]
    pub const fn outcome_unknown(&self) -> bool {
        self.may_have_run()
    }

    /// Whether the command may have taken effect, or may still do so.
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

/// As its text.
impl Serialize for NodeError {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The kinds of [`NodeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// There is no connection, or its server is not confirmed. The command was not sent.
    Unavailable,
    /// The connection broke while the command was under way.
    Interrupted,
    /// No reply came in time.
    TimedOut,
    /// The server refused the command; it had no effect.
    Rejected,
    /// The server has no memory left for the command; it had no effect.
    Full,
    /// The server has too little memory left for more stored responses, but grants locks. The command had no effect.
    FullForRecords,
    /// The key, or a key that belongs to it, holds a value of another program. The command had no effect.
    WrongType,
    /// Too few replicas acknowledged the lock in time, so it does not count. The server itself has it.
    NotReplicated,
    /// The server's reply made no sense.
    Garbled,
    /// The server cannot serve as a node: wrong role, eviction, missing rights, listed twice.
    Misconfigured,
    /// The node serves processes with another list of nodes, other settings or another format. The command had no
    /// effect.
    Foreign,
    /// The node may have lost locks that it granted, and does not grant before those have ended. The command had no effect.
    Quarantined,
    /// The node was closed.
    Closed,
}

pub(crate) fn unmarked() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "the highest fencing token in its key `..!node` is missing, no number, or the last possible one; delete that key: the node learns it from the others",
    )
}

pub(crate) fn quarantined() -> NodeError {
    let detail = "it may have forgotten locks and does not vote before those have ended";
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
        "it serves processes that agreed on [{theirs}], and this one has [{ours}]; nothing is granted before they agree: give all processes the same nodes and settings, or change the list by `adopt_nodes` (`docs::operating`); if only an address changed, keep the node's old `name`"
    )
}

const LONGEST_CONFIG: usize = 1_000;

/// The servers of one manager's nodes, so that one server is never counted as two nodes.
#[derive(Clone, Debug, Default)]
pub struct ServerRegistry {
    servers: Arc<Mutex<Parts>>,
    // Of the next node that gets a clone.
    pub(crate) group: usize,
}

/// By server and part of it: the node's name and group.
type Parts = HashMap<(String, String), (String, usize)>;

impl ServerRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the part `tag` of the server `run_id` as the server of `node`; an error if it is another node's. Returns
    /// a node of its group that is another part of the same server.
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
