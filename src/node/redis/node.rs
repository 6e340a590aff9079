//! [`RedisNode`]: the port, on a server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::namespace::NodeKey;
use crate::node::commands::{acquire, check_in, extend, promote, raise, release};
#[cfg(feature = "idempotency")]
use crate::node::commands::{complete, recall};
use crate::node::redis::discovery::question;
use crate::node::redis::discovery::sentinel::Sentinels;
use crate::node::redis::shared::Shared;
use crate::node::redis::{listener, supervisor};
use crate::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, ExtendReplies, ExtendRequest, Node,
    NodeContext, NodeError, NodeFuture, NodeState, NoticeSender, Notifier, PromoteRequest,
    RaiseReply, RaiseRequest, ReleaseReply, ReleaseRequest, Subscription,
};
#[cfg(feature = "idempotency")]
use crate::node::{CompleteReply, CompleteRequest, RecallRequest};
use crate::task;

/// A Redis or Valkey server as a node. It connects once its manager starts it. Clones are one node: give it to one
/// manager only.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_redlock::node::Node as _;
/// use tower_redlock::node::redis::RedisNode;
///
/// let node = RedisNode::new("redis://:secret@10.0.0.1/2")?;
/// assert_eq!(node.name(), "10.0.0.1:6379/2");
///
/// let node = RedisNode::builder("unix:///run/redis.sock")
///     .name("local")
///     .connect_timeout(Duration::from_millis(200))
///     .build()?;
/// assert_eq!(node.name(), "local");
/// # Ok::<(), tower_redlock::error::ConfigError>(())
/// ```
#[must_use = "a node does nothing unless a manager is given it"]
#[derive(Clone)]
pub struct RedisNode {
    handle: Arc<Handle>,
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.handle.shared.name
    }

    fn start(&self, context: NodeContext) {
        let shared = Arc::clone(&self.handle.shared);
        if shared.begin() {
            if let Some(replicas) = &shared.replicas {
                replicas.begin(&context);
            }
            task::spawn(listener::listen(Arc::clone(&shared)));
            question::begin(&shared, &context);
            for index in 0..shared.connections.count() {
                let shared = Arc::clone(&shared);
                task::spawn(supervisor::supervise(shared, index, context.clone()));
            }
        }
    }

    fn state(&self) -> NodeState {
        self.handle.shared.connections.state()
    }

    fn ready(&self) -> NodeFuture<Result<(), NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { handle.shared.ready().await })
    }

    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { acquire::on_redis::acquire(&handle.shared, &request).await })
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { extend::on_redis::extend(&handle.shared, &requests).await })
    }

    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { release::on_redis::release(&handle.shared, &request).await })
    }

    fn raise(&self, request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { raise::on_redis::raise(&handle.shared, &request).await })
    }

    #[cfg(feature = "idempotency")]
    fn recall(&self, request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { recall::on_redis::recall(&handle.shared, &request).await })
    }

    #[cfg(feature = "idempotency")]
    fn complete(&self, request: CompleteRequest) -> NodeFuture<Result<CompleteReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { complete::on_redis::complete(&handle.shared, &request).await })
    }

    fn check_in(&self, request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { check_in::on_redis::check_in(&handle.shared, &request).await })
    }

    fn promote(&self, request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { promote::on_redis::promote(&handle.shared, &request).await })
    }

    fn settle_time(&self) -> Duration {
        let sentinels = self.handle.shared.target.way.sentinels();
        sentinels.map_or(Duration::ZERO, |sentinels| sentinels.within)
    }

    fn agreed(&self) -> String {
        let sentinels = self.handle.shared.target.way.sentinels();
        sentinels.map(Sentinels::agreed).unwrap_or_default()
    }

    fn close(&self) -> NodeFuture<()> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            handle.shared.stop();
            handle.shared.connections.ended().await;
        })
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        Some(Arc::new(self.clone()))
    }
}

impl RedisNode {
    /// A node that has not been started.
    pub(super) fn of(shared: Shared) -> Self {
        Self {
            handle: Arc::new(Handle {
                shared: Arc::new(shared),
            }),
        }
    }

    #[allow(
        dead_code,
        reason = "the builder of the manager looks for duplicates with it"
    )]
    pub(crate) fn address(&self) -> &str {
        &self.handle.shared.target.address
    }
}

impl Notifier for RedisNode {
    fn subscribe(&self, key: &NodeKey, sender: NoticeSender) -> Subscription {
        self.handle.shared.subscriptions.subscribe(key, sender)
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: it holds the credentials.
        f.debug_struct("RedisNode")
            .field("name", &self.handle.shared.name)
            .field("state", &self.handle.shared.connections.state())
            .finish_non_exhaustive()
    }
}

/// The part that clones of a node and its commands hold. The supervisors hold only [`Shared`], so they end when the
/// last handle is gone.
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.stop();
    }
}
