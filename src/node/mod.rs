//! The kinds of nodes: `RedisNode` (feature `redis`) and [`MemoryNode`]. A node only runs single commands. The manager
//! is responsible for quorums, deadlines and retries.

mod commands;
pub(crate) mod memory;
mod notifier;
mod port;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod state;

pub use self::memory::MemoryNode;
#[cfg(feature = "redis")]
pub use self::redis::{Credentials, RedisNode};
pub use self::state::{NodeError, NodeErrorKind, NodeState, ServerStatus};
pub(crate) use self::state::{foreign_config, quarantined, unmarked};

/// The items of the node port. They are private, except in our own tests, which put faults between a manager and its
/// nodes.
#[cfg_attr(
    not(tower_redlock_tests),
    allow(unused_imports, reason = "tests use all of it")
)]
mod door {
    pub use crate::namespace::{Namespace, NodeKey, NodeKeys};
    pub use crate::node::commands::acquire::{AcquireReply, AcquireRequest};
    pub use crate::node::commands::extend::{ExtendReplies, ExtendReply, ExtendRequest};
    pub use crate::node::commands::holders::{
        Holding, KeyReply, ScanReply, ScanRequest, TakeOverRequest,
    };
    pub use crate::node::commands::raise::{RaiseReply, RaiseRequest};
    #[cfg(feature = "idempotency")]
    pub use crate::node::commands::records::{CompleteReply, CompleteRequest, RecallRequest};
    pub use crate::node::commands::release::{ReleaseReply, ReleaseRequest};
    pub use crate::node::commands::voting::{
        CheckInMode, CheckInReply, CheckInRequest, PromoteRequest,
    };
    pub use crate::node::commands::{ClusterConfig, Fence, Record};
    #[cfg(all(feature = "test-util", tower_redlock_tests))]
    pub use crate::node::memory::MemorySnapshot;
    pub use crate::node::notifier::{
        NoticeReceiver, NoticeSender, Notices, Notifier, Subscription,
    };
    pub use crate::node::port::Node;
    #[cfg(feature = "redis")]
    pub use crate::node::redis::LiveNode;
    pub use crate::node::state::{NodeContext, NodeFuture, ServerRegistry};
    pub use crate::token::Holder;
    pub use crate::token::{Label, OwnerToken};
}
#[cfg(tower_redlock_tests)]
pub use self::door::*;
#[cfg(not(tower_redlock_tests))]
pub(crate) use self::door::*;
