//! The [`Node`] port.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::namespace::NodeKeys;
use crate::node::commands::acquire::{AcquireReply, AcquireRequest};
use crate::node::commands::extend::{ExtendReplies, ExtendRequest};
use crate::node::commands::holders::{KeyReply, ScanReply, ScanRequest, TakeOverRequest};
use crate::node::commands::raise::{RaiseReply, RaiseRequest};
#[cfg(feature = "idempotency")]
use crate::node::commands::records::{CompleteReply, CompleteRequest, RecallRequest};
use crate::node::commands::release::{ReleaseReply, ReleaseRequest};
use crate::node::commands::voting::{CheckInReply, CheckInRequest, PromoteRequest};
use crate::node::notifier::Notifier;
#[cfg(doc)]
use crate::node::state::NodeErrorKind;
use crate::node::state::{NodeContext, NodeError, NodeFuture, NodeState, ServerStatus};

/// One independent server that can hold locks.
///
/// # Contract
///
/// * Every command is atomic on the node: a command on several keys changes all of them or none.
/// * A command does nothing until its future is first polled. A future can be dropped at any time, and the outcome is
///   then unknown. A `release` that starts afterwards must take effect after the dropped command, or prevent it, as
///   long as the connection lives.
/// * A node that is known to be down fails with [`NodeErrorKind::Unavailable`] immediately.
/// * A command has no time-out of its own, because the caller sets the deadline.
/// * Errors say whether the command may have taken effect ([`NodeError::may_have_run`]), and never contain credentials
///   or tokens.
/// * A node that may have lost keys grants nothing and fails with [`NodeErrorKind::Quarantined`] until it is
///   [promoted](Node::promote).
/// * If a request has a [`Fence`](crate::node::Fence), the node sets its counters as described there, and never lowers
///   them.
pub trait Node: fmt::Debug + Send + Sync + 'static {
    /// A stable name for logs, unique within a manager.
    fn name(&self) -> &str;

    /// Begins to connect in the background, and reconnects until [`close`](Node::close).
    ///
    /// The manager calls this once, inside its runtime. A node with connections belongs to one manager.
    fn start(&self, context: NodeContext);

    /// What all processes must agree on for this node in addition to its name. Default: nothing.
    fn agreed(&self) -> String {
        String::new()
    }

    /// How much longer a quarantine lasts because a process may still use the former server. Default: zero.
    fn settle_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The last known state of the node.
    fn state(&self) -> NodeState;

    /// The server as it was last seen. Default: `None`.
    fn server(&self) -> Option<ServerStatus> {
        None
    }

    /// Waits until the node accepts commands.
    ///
    /// # Errors
    ///
    /// Fails if waiting is useless, because the server cannot serve as a node ([`NodeErrorKind::Misconfigured`]) or the
    /// node was closed.
    fn ready(&self) -> NodeFuture<Result<(), NodeError>>;

    /// Acquires a lock.
    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>>;

    /// Extends locks. The replies are in the order of the requests.
    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies>;

    /// Releases a lock.
    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>>;

    /// Writes the fencing token of a lock back to its counters.
    fn raise(&self, request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>>;

    /// Acquires the lock of an idempotency key, or returns its record.
    #[cfg(feature = "idempotency")]
    fn recall(&self, request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>>;

    /// Whether there is room for a record of this many bytes. Default: `true`.
    #[cfg(feature = "idempotency")]
    fn has_room(&self, _: u64) -> bool {
        true
    }

    /// Stores a record and releases its lock.
    #[cfg(feature = "idempotency")]
    fn complete(&self, request: CompleteRequest) -> NodeFuture<Result<CompleteReply, NodeError>>;

    /// Asks whether the node may vote. If it may have lost data, this begins its quarantine.
    fn check_in(&self, request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>>;

    /// Ends the named quarantine. Returns whether the node was in it.
    fn promote(&self, request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>>;

    /// Returns the state of each key, in order.
    fn holders(&self, keys: NodeKeys) -> NodeFuture<Result<Vec<KeyReply>, NodeError>>;

    /// Lists some of the keys that are held.
    fn scan(&self, request: ScanRequest) -> NodeFuture<Result<ScanReply, NodeError>>;

    /// Replaces the owner of a key. Returns the rest of the ttl, or `None` if the key has another owner.
    fn take_over(
        &self,
        request: TakeOverRequest,
    ) -> NodeFuture<Result<Option<Duration>, NodeError>>;

    /// Lets queued commands finish, and closes the connection.
    fn close(&self) -> NodeFuture<()>;

    /// Where to subscribe to notices of releases, if the node sends them.
    fn notifier(&self) -> Option<Arc<dyn Notifier>>;
}
