//! The [`Node`] port: one independent server that can hold locks. A node runs single commands only; quorums, deadlines
//! and retries are the manager's.

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
    AcquireRequest, CheckInMode, CheckInRequest, ClusterConfig, ExtendRequest, Fence,
    PromoteRequest, RaiseRequest, ReleaseRequest,
};
pub use crate::namespace::{Namespace, NodeKey, NodeKeys};
pub use crate::protocol::reply::{
    AcquireReply, CheckInReply, CompleteReply, ExtendReply, Holder, RaiseReply, ReleaseReply,
};
pub use crate::record::Record;
pub use crate::token::OwnerToken;
