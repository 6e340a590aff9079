//! [`RedisNode`]: the port, on a server.

use std::sync::Arc;
use std::time::Duration;
use redis::Value;
use crate::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, CompleteReply, CompleteRequest,
    EndClaim, ExtendReplies, ExtendRequest, Node, NodeContext, NodeError, NodeFuture, NodeState,
    Notifier, PromoteRequest, RaiseReply, RaiseRequest, RecallRequest, ReleaseReply,
    ReleaseRequest, VerifyReply, VerifyRequest,
};
use connection::Core;
use handle::{FIRST, Handle};
use link::Link;
use sentinel::Sentinels;
use std::fmt;
use std::sync::Arc;
use redis::{Cmd, Value};
use super::connection::Core;
use super::link::Link;
use super::scripts::Script;
use super::{RedisNode, commands};
use crate::namespace::NodeKey;
use crate::node::{Ear, NodeError, NodeFuture, Notifier, Subscription};

/// A Redis or Valkey server as a node. See the [module](self) for what the server must be.
///
/// It connects once its manager starts it, with one connection for all commands unless it has replicas, and keeps it
/// up until [`close`](Node::close) or until the last clone and the last command are gone. Clones are the same node:
/// give it to one manager only, for the first that shuts down closes it.
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
/// # Ok::<(), tower_redlock::node::redis::NodeUrlError>(())
/// ```
#[must_use = "a node does nothing unless a manager is given it"]
#[derive(Clone)]
pub struct RedisNode {
    handle: Arc<Handle>,
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.handle.core.name
    }

    fn start(&self, context: NodeContext) {
        let core = Arc::clone(&self.handle.core);
        if core.begin() {
            if let Some(replicas) = &core.replicas {
                replicas.begin(&context);
            }
            tokio::spawn(listener::listen(Arc::clone(&core)));
            question::begin(&core, &context);
            for lane in 0..core.lanes.count() {
                let core = Arc::clone(&core);
                tokio::spawn(connection::supervise(core, lane, context.clone()));
            }
        }
    }

    fn state(&self) -> NodeState {
        self.handle.core.state()
    }

    fn ready(&self) -> NodeFuture<Result<(), NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { handle.core.ready().await })
    }

    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            let mut link = handle.core.link(&request.token)?;
            let cmd = scripts::acquire(&request, link.identity());
            commands::acquire(
                handle.core.replicas.as_ref(),
                &mut link,
                &scripts::ACQUIRE,
                cmd,
                &request,
            )
            .await
        })
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            if requests.is_empty() {
                return Ok(Vec::new());
            }
            if handle.core.lanes.count() > 1 {
                return Ok(Box::pin(replicas::extend(&handle.core, &requests)).await);
            }
            let mut link = handle.core.link_of(0)?;
            commands::extend(&mut link, &requests, handle.core.replicas.as_ref())
                .await
                .map_err(|error| error::failed(&error))
        })
    }

    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        // Also where the server does not count at this time: what it has is in the way of others when it does.
        let token = request.token;
        let choose = move |core: &Core| core.lanes.link_for(&token);
        let script = match request.lent {
            false => &scripts::RELEASE,
            true => &scripts::RELEASE_LENT,
        };
        let cmd = move |link: &Link| scripts::release(&request, link.since());
        self.command(choose, script, cmd, answers::read_release)
    }

    fn recall(&self, request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            let mut link = handle.core.link(&request.lock.token)?;
            let replicas = handle.core.replicas.as_ref();
            let cmd = scripts::recall(&request, link.identity(), replicas.is_some());
            commands::acquire(replicas, &mut link, &scripts::RECALL, cmd, &request.lock).await
        })
    }

    fn complete(&self, request: CompleteRequest) -> NodeFuture<Result<CompleteReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            let token = &request.release.token;
            let mut link = match &request.record {
                Some(_) => handle.core.link(token)?,
                None => handle.core.lanes.link_for(token)?,
            };
            let replicas = handle.core.replicas.as_ref();
            let (identity, since) = (link.identity(), link.since());
            let cmd = scripts::complete(&request, identity, since, replicas.is_some());
            let config = request.config.as_deref();
            if let Some(replicas) = replicas {
                return Box::pin(replicas::complete(&mut link, replicas, cmd, config)).await;
            }
            let answer = commands::run(&mut link, &scripts::COMPLETE, &cmd).await?;
            answers::read_complete(&answer, config)
        })
    }

    fn raise(&self, request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>> {
        let token = request.token;
        let choose = move |core: &Core| core.link(&token);
        let cmd = move |_: &Link| scripts::raise(&request);
        self.command(choose, &scripts::RAISE, cmd, answers::read_raise)
    }

    fn verify(&self, request: VerifyRequest) -> NodeFuture<Result<VerifyReply, NodeError>> {
        let config = request.config.clone();
        let cmd = move |link: &Link| scripts::verify(&request, link.identity());
        let read = move |answer: &Value| answers::read_verify(answer, config.as_deref());
        self.command(FIRST, &scripts::VERIFY, cmd, read)
    }

    fn end_claim(&self, request: EndClaim) -> NodeFuture<Result<(), NodeError>> {
        let cmd = move |_: &Link| scripts::end_claim(&request);
        // Behind the claim, and as a release also where the server does not count.
        let choose = |core: &Core| core.lanes.link(0);
        self.command(choose, &scripts::END_CLAIM, cmd, answers::read_end_claim)
    }

    fn check_in(&self, request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>> {
        let cmd = move |link: &Link| scripts::check_in(&request, link.identity());
        self.command(FIRST, &scripts::CHECK_IN, cmd, answers::read_check_in)
    }

    fn promote(&self, request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>> {
        let cmd = move |link: &Link| scripts::promote(&request, link.identity());
        self.command(FIRST, &scripts::PROMOTE, cmd, answers::read_promote)
    }

    fn settle_time(&self) -> Duration {
        let sentinels = self.handle.core.target.way.sentinels();
        sentinels.map_or(Duration::ZERO, |sentinels| sentinels.within)
    }

    fn agreed(&self) -> String {
        let sentinels = self.handle.core.target.way.sentinels();
        sentinels.map(Sentinels::agreed).unwrap_or_default()
    }

    fn close(&self) -> NodeFuture<()> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            handle.core.stop();
            handle.core.stopped().await;
        })
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        Some(Arc::new(self.clone()))
    }
}

impl RedisNode {
    /// Runs one script once it is polled: `cmd` for the link it goes out on, which `choose` finds, and its answer read
    /// by `read`.
    pub(super) fn command<T: 'static>(
        &self,
        choose: impl FnOnce(&Core) -> Result<Link, NodeError> + Send + 'static,
        script: &'static Script,
        cmd: impl FnOnce(&Link) -> Cmd + Send + 'static,
        read: impl FnOnce(&Value) -> Result<T, NodeError> + Send + 'static,
    ) -> NodeFuture<Result<T, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            let mut link = choose(&handle.core)?;
            let cmd = cmd(&link);
            read(&commands::run(&mut link, script, &cmd).await?)
        })
    }

    /// Where the node is, the same for two URLs of one address; without credentials.
    #[allow(
        dead_code,
        reason = "the builder of the manager looks for duplicates with it"
    )]
    pub(crate) fn address(&self) -> &str {
        &self.handle.core.target.address
    }
}

impl Notifier for RedisNode {
    fn subscribe(&self, key: &NodeKey, ear: Ear) -> Subscription {
        self.handle.core.hub.subscribe(key, ear)
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: it holds the credentials.
        f.debug_struct("RedisNode")
            .field("name", &self.handle.core.name)
            .field("state", &self.handle.core.state())
            .finish_non_exhaustive()
    }
}

/// The link for what belongs to no owner.
pub(super) const FIRST: fn(&Core) -> Result<Link, NodeError> = |core| core.link_of(0);

/// What nodes and their commands hold. The supervisor holds only the core, so when the last of these is gone it ends.
pub(super) struct Handle {
    pub(super) core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.stop();
    }
}
