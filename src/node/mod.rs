//! The [`Node`] port: one independent server that can hold locks.
//!
//! A node knows single commands only. Quorums, deadlines, retries and everything else that makes a lock of
//! several nodes lie with the manager. The crate brings two adapters: `RedisNode` (feature `redis`) and
//! [`MemoryNode`](memory::MemoryNode).

mod completion;
pub mod memory;
mod notifier;
#[cfg(feature = "redis")]
pub mod redis;
mod request;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::clock::Clock;
use crate::namespace::Namespace;

pub use self::completion::{CompleteRequest, RecallRequest};
pub use self::notifier::{Ear, Ears, Heard, Notifier, Subscription};
pub use self::request::{
    AcquireRequest, CheckInMode, CheckInRequest, ClusterConfig, EndClaim, ExtendRequest, Fence,
    PromoteRequest, RaiseRequest, ReleaseRequest, VerifyRequest,
};
pub use crate::protocol::reply::{
    AcquireReply, CheckInReply, CompleteReply, ExtendReply, Holder, RaiseReply, ReleaseReply,
    VerifyReply,
};

/// What the methods of a [`Node`] return.
pub type NodeFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// One independent server that can hold locks.
///
/// # What an implementation owes
///
/// * Every command is atomic on the node, also one on several keys: all of them or none.
/// * A command does nothing until its future is first polled. A future may be dropped at any time; then the
///   outcome is unknown, and a `release` that is started afterwards must take effect after the command (or the
///   command must not take effect at all) as long as the connection lives.
/// * A node that is known to be down answers [`NodeErrorKind::Unavailable`] at once, without a time-out.
/// * There is no time-out of its own on a command: the caller brings the deadline.
/// * Errors say whether the command can have taken effect ([`NodeError::outcome_unknown`]), and never contain
///   credentials or tokens.
/// * A node that may have lost keys does not grant, and answers [`NodeErrorKind::Quarantined`], until it was
///   [promoted](Node::promote). The default methods are for nodes that cannot forget.
/// * Where it is asked for a number it counts, as [`Fence`] says, and never counts backwards.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a node that can hold locks",
    label = "must be a `Node`",
    note = "give URLs to `LockManager::builder().redis(..)`, and `RedisNode`s, `MemoryNode`s or nodes of your own to `.nodes(..)`"
)]
pub trait Node: fmt::Debug + Send + Sync + 'static {
    /// A stable name, unique in a manager, fit for logs.
    fn name(&self) -> &str;

    /// Begins to connect in the background, and goes on re-connecting until [`close`](Node::close).
    ///
    /// Called by the manager, once, from inside its runtime. A node with connections belongs to one manager.
    fn start(&self, context: NodeContext);

    /// What of the node all processes must agree on besides its name: by what it finds its server, say. It becomes part
    /// of their [`ClusterConfig`]. Default: nothing.
    fn agreed(&self) -> String {
        String::new()
    }

    /// How much longer than others the node waits in quarantine: for so long after most agree that another server has
    /// taken its place, a process may still count the former one. Default: no longer.
    fn settle_time(&self) -> Duration {
        Duration::ZERO
    }

    /// What is known of the node right now. Cheap.
    fn state(&self) -> NodeState;

    /// Waits until the node takes commands.
    ///
    /// # Errors
    ///
    /// An error says that waiting is no use: the server cannot serve as a node
    /// ([`NodeErrorKind::Misconfigured`]), or the node was closed.
    fn ready(&self) -> NodeFuture<Result<(), NodeError>>;

    /// Sets the keys to the token for a ttl, if all of them are free.
    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>>;

    /// Sets the ttl of many locks anew where we still own them, with one answer per lock, in order.
    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies>;

    /// Deletes the keys that hold the token, and announces it if the request says so.
    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>>;

    /// Raises the counters of keys that hold the token to the lock's number.
    fn raise(&self, request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>> {
        drop(request);
        let error = NodeError::new(NodeErrorKind::Rejected, "it does not number holders");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Takes the lock of an idempotency key, or tells of the record that its request came to.
    fn recall(&self, request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        drop(request);
        Box::pin(std::future::ready(Err(no_records())))
    }

    /// Keeps a record and gives its lock back.
    fn complete(&self, request: CompleteRequest) -> NodeFuture<Result<CompleteReply, NodeError>> {
        drop(request);
        Box::pin(std::future::ready(Err(no_records())))
    }

    /// Looks whether another owner, known by the hash of its token, holds the keys, and for how long yet; if so, notes
    /// who claims a loan of theirs.
    fn verify(&self, request: VerifyRequest) -> NodeFuture<Result<VerifyReply, NodeError>> {
        drop(request);
        let error = NodeError::new(NodeErrorKind::Rejected, "it does not verify owners");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Ends a borrower's claim.
    fn end_claim(&self, request: EndClaim) -> NodeFuture<Result<(), NodeError>> {
        drop(request);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Asks whether the node may vote; if it may have forgotten something, its quarantine begins with this.
    fn check_in(&self, request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>> {
        let standing = CheckInReply::Voting {
            max_lease: request.config.max_lease,
            high_water: None,
            replaced: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(standing)))
    }

    /// Ends the node's quarantine, if it is the one that is meant. Tells whether it was.
    fn promote(&self, request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>> {
        drop(request);
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Stops re-connecting, lets queued commands out, and closes the connection.
    fn close(&self) -> NodeFuture<()>;

    /// How to hear of releases on this node; `None` (the default) if there is no way.
    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        None
    }
}

/// The answers to one [`Node::extend`]: an error of the whole, or one result per lock.
pub type ExtendReplies = Result<Vec<Result<ExtendReply, NodeError>>, NodeError>;

/// What a node is given when it starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeContext {
    /// The manager's clock.
    pub clock: Arc<dyn Clock>,
    /// Where the node registers the server it found.
    pub roster: ServerRegistry,
    /// The ttl of the manager's leases.
    pub ttl: Duration,
    /// How long the manager waits for the answer to a command. A node that is slower than that is of no use, but
    /// one that is as slow need not be down. Default: 200 ms.
    pub node_timeout: Duration,
    /// Where the manager's locks are, and the marker by which the node is known to remember them. Default: `lk`.
    pub namespace: Namespace,
}

impl NodeContext {
    /// A context with the default node time-out and namespace.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, roster: ServerRegistry, ttl: Duration) -> Self {
        Self {
            clock,
            roster,
            ttl,
            node_timeout: Duration::from_millis(200),
            namespace: Namespace::default(),
        }
    }
}

/// What is known of a node.
///
/// Serialised, it is `{"is": "up"}`, and `{"is": "down", "reason": ".."}` where there is a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", content = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeState {
    /// No attempt to connect has ended yet.
    Connecting,
    /// It takes commands.
    Up,
    /// It does not answer; it is being re-connected.
    Down(NodeError),
    /// It answers but cannot serve as a node; it is looked at again from time to time.
    Refused(NodeError),
    /// It was closed.
    Closed,
}

/// Why a node did not do what was asked.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeError {
    kind: NodeErrorKind,
    detail: Cow<'static, str>,
    // The digest of the config that the node is under, if that is the reason.
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
    /// An error of `kind`; `detail` says what happened and must not hold secrets.
    pub fn new(kind: NodeErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            config: None,
        }
    }

    /// The error of a node that is under the config `theirs` with this digest.
    pub(crate) fn foreign(theirs: &str, digest: String, ours: &ClusterConfig) -> Self {
        Self {
            config: Some(digest.into()),
            ..Self::new(NodeErrorKind::Foreign, foreign_config(theirs, &ours.text))
        }
    }

    /// The digest of the config that the node is under, where another than ours is the reason and it is known.
    pub(crate) fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> NodeErrorKind {
        self.kind
    }

    /// Whether the command may have taken effect, or may still do so.
    #[must_use]
    pub const fn outcome_unknown(&self) -> bool {
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
    /// There is no connection, or the server at its end does not count at this time; the command was not sent.
    Unavailable,
    /// The connection broke while the command was under way.
    Interrupted,
    /// No answer came in time.
    TimedOut,
    /// The server refused the command; it had no effect.
    Rejected,
    /// The server has the lock, but too few of its replicas acknowledged it in time: it does not count.
    NotReplicated,
    /// The server's answer made no sense.
    Garbled,
    /// The server cannot serve as a node: wrong role, eviction, missing rights, listed twice.
    Misconfigured,
    /// It serves processes with another [`ClusterConfig`]: another list of nodes, other settings, or another format. It had
    /// no effect.
    Foreign,
    /// It may have forgotten locks that it granted, and does not grant before those have ended. It had no effect.
    Quarantined,
    /// The node was closed.
    Closed,
}

fn no_records() -> NodeError {
    NodeError::new(NodeErrorKind::Rejected, "it keeps no records of requests")
}

/// Says that a node's numbers cannot be counted on from: somebody wrote to its marker.
pub(crate) fn unmarked() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "what its key `..!node` says of the numbers of holders is none, or leaves no room for more; remove that key: the node learns them from the others then",
    )
}

/// Says that a node is under another config than ours.
pub(crate) fn foreign_config(theirs: &str, ours: &str) -> String {
    let theirs: String = theirs
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_CHARTER)
        .collect();
    format!(
        "it serves processes that agreed on [{theirs}], and this one has [{ours}]; nothing is granted before they agree: give all processes the same nodes and settings, or change the list by `adopt_nodes` (`docs::rolling_out`)"
    )
}

/// How much of a config is shown that came from a node.
const LONGEST_CHARTER: usize = 1_000;

/// The servers of one manager, so that one server is never counted as two nodes.
#[derive(Clone, Debug, Default)]
pub struct ServerRegistry {
    // Server identity to node name.
    servers: Arc<Mutex<HashMap<String, String>>>,
}

impl ServerRegistry {
    /// An empty roster.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `node` is served by the server `identity` (its `run_id`), in place of any it had before, which is
    /// given up in any case: two nodes whose servers swapped their addresses must not keep each other out.
    ///
    /// # Errors
    ///
    /// [`NodeErrorKind::Misconfigured`] if another node is served by it already.
    pub fn claim(&self, node: &str, identity: &str) -> Result<(), NodeError> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, name| name != node);
        if let Some(other) = servers.get(identity) {
            return Err(NodeError::new(
                NodeErrorKind::Misconfigured,
                format!(
                    "it is the same server as node `{other}`; every node must be a server of its own, remove one of the two"
                ),
            ));
        }
        servers.insert(identity.to_owned(), node.to_owned());
        drop(servers);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_counted_once() {
        let roster = ServerRegistry::new();
        roster.claim("a", "run-1").unwrap();
        roster.claim("a", "run-1").unwrap();
        let error = roster.claim("b", "run-1").unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        assert!(
            error.to_string().contains("same server as node `a`"),
            "{error}"
        );
        // A restarted server has a new identity, and the old one is free again.
        roster.claim("a", "run-2").unwrap();
        roster.claim("b", "run-1").unwrap();
    }

    #[test]
    fn nodes_whose_servers_swap_addresses_find_their_way() {
        let roster = ServerRegistry::new();
        roster.claim("a", "run-1").unwrap();
        roster.claim("b", "run-2").unwrap();
        roster.claim("a", "run-2").unwrap_err();
        roster.claim("b", "run-1").unwrap();
        roster.claim("a", "run-2").unwrap();
    }
}
