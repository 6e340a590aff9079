//! The [`Node`] port: one independent server that can hold locks.
//!
//! A node runs single commands only. Quorums, deadlines, retries and everything else that makes a lock of several nodes
//! is the manager's. The crate has two adapters: `RedisNode` (feature `redis`) and
//! [`MemoryNode`](memory::MemoryNode).

mod completion;
mod error;
pub mod memory;
mod notifier;
mod port;
#[cfg(feature = "redis")]
pub mod redis;
mod registry;
mod request;

pub use self::completion::{CompleteRequest, RecallRequest};
pub use self::error::{NodeError, NodeErrorKind};
pub(crate) use self::error::{foreign_config, quarantined, unmarked};
pub use self::notifier::{NoticeReceiver, NoticeSender, Notices, Notifier, Subscription};
pub use self::port::{ExtendReplies, Node, NodeContext, NodeFuture, NodeState};
pub use self::registry::ServerRegistry;
pub use self::request::{
    AcquireRequest, CheckInMode, CheckInRequest, ClusterConfig, EndClaim, ExtendRequest, Fence,
    PromoteRequest, RaiseRequest, ReleaseRequest, VerifyRequest,
};
pub use crate::namespace::{Namespace, NodeKey, NodeKeys};
pub use crate::protocol::reply::{
    AcquireReply, CheckInReply, CompleteReply, ExtendReply, Holder, RaiseReply, ReleaseReply,
    VerifyReply,
};
pub use crate::record::Record;
pub use crate::token::{Claim, OwnerToken};
