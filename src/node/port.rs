//! The [`Node`] port itself.

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
/// * Every command is atomic on the node, also one on several keys: all of them or none.
/// * A command does nothing until its future is first polled. A future may be dropped at any time; then the outcome is
///   unknown, and a `release` that is started afterwards must take effect after the command, or the command not at all,
///   as long as the connection lives.
/// * A node that is known to be down fails with [`NodeErrorKind::Unavailable`] at once, without a time-out.
/// * A command has no time-out of its own: the caller sets the deadline.
/// * Errors say whether the command can have taken effect ([`NodeError::may_have_run`]), and never contain
///   credentials or tokens.
/// * A node that may have lost keys does not grant, and fails with [`NodeErrorKind::Quarantined`], until it was
///   [promoted](Node::promote).
/// * If a request has a [`Fence`](crate::node::Fence), the node counts as described there, and never counts backwards.
pub trait Node: fmt::Debug + Send + Sync + 'static {
    /// A stable name, unique in a manager, fit for logs.
    fn name(&self) -> &str;

    /// Begins to connect in the background, and goes on re-connecting until [`close`](Node::close).
    ///
    /// Called by the manager, once, from inside its runtime. A node with connections belongs to one manager.
    fn start(&self, context: NodeContext);

    /// The facts about the node besides its name on which all processes must agree: how it finds its server, say.
    /// Default: nothing.
    fn agreed(&self) -> String {
        String::new()
    }

    /// How much longer than other nodes it stays in quarantine: how long a process may count the former server after
    /// most others have agreed on a new one. Default: zero.
    fn settle_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The last known state of the node. Cheap.
    fn state(&self) -> NodeState;

    /// The server, as it was last seen. Cheap. Default: `None`.
    fn server(&self) -> Option<ServerStatus> {
        None
    }

    /// Waits until the node takes commands.
    ///
    /// # Errors
    ///
    /// An error means that waiting is useless: the server cannot serve as a node
    /// ([`NodeErrorKind::Misconfigured`]), or the node was closed.
    fn ready(&self) -> NodeFuture<Result<(), NodeError>>;

    /// Sets the keys to the token for a ttl, if all of them are free.
    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>>;

    /// Sets the ttl of many locks again where we still own them, with one reply per lock, in order.
    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies>;

    /// Deletes the keys that hold the token, and announces the release if the request says so.
    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>>;

    /// Raises the counters of keys that hold the token to the lock's fencing token.
    fn raise(&self, request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>>;

    /// Acquires the lock of an idempotency key, or returns its record.
    #[cfg(feature = "idempotency")]
    fn recall(&self, request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>>;

    /// Whether it is not too full for a record of so many bytes. Cheap. Default: `true`.
    #[cfg(feature = "idempotency")]
    fn has_room(&self, _: u64) -> bool {
        true
    }

    /// Stores a record and releases its lock.
    #[cfg(feature = "idempotency")]
    fn complete(&self, request: CompleteRequest) -> NodeFuture<Result<CompleteReply, NodeError>>;

    /// Tells whether the node may vote; if it may have lost data, begins its quarantine.
    fn check_in(&self, request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>>;

    /// Ends the node's quarantine, if it is in the one that is named. Returns whether it was.
    fn promote(&self, request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>>;

    /// Tells who holds each key, and whether its result is stored, in their order.
    fn holders(&self, keys: NodeKeys) -> NodeFuture<Result<Vec<KeyReply>, NodeError>>;

    /// Tells some keys that are held.
    fn scan(&self, request: ScanRequest) -> NodeFuture<Result<ScanReply, NodeError>>;

    /// Puts an owner in the place of another one for the rest of its ttl, which it returns, and a second; `None` if the
    /// key is not that one's.
    fn take_over(
        &self,
        request: TakeOverRequest,
    ) -> NodeFuture<Result<Option<Duration>, NodeError>>;

    /// Stops re-connecting, lets queued commands finish, and closes the connection.
    fn close(&self) -> NodeFuture<()>;

    /// Notices of releases on this node; `None` if it has none.
    fn notifier(&self) -> Option<Arc<dyn Notifier>>;
}
