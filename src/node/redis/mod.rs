//! [`RedisNode`]: a Redis or Valkey server as a node.
//!
//! Any Redis from 6.2 on and any Valkey will do, as long as it is a server of its own: a master, not in cluster
//! mode, with `maxmemory-policy noeviction`. A server that is none of this is *refused*: it is never asked for a
//! lock, its state says what to change, and it is looked at again from time to time.
//!
//! # What is on the server
//!
//! The lock `order:42` in the namespace `lk` is the string key `lk:order:42`; it holds the owner's token and
//! expires by itself. That is the form every Redlock client uses, so a foreign client on the same key excludes us
//! and is excluded (it knows nothing of the restart guard and the counters, though). Beside the locks stand
//! `lk!fence:order:42`, the counter of the lock's holders, which expires; one hash `lk!node`, by which the server is
//! known to remember its locks; and for a minute `lk!dead:..`, an owner whose commands were given up with a
//! connection. Releases are announced on the channel `lk!free:order:42`. The locks of requests with idempotency keys
//! are called `lk!idem:..`, with sidecars `lk!idem!..` and channels `lk!idem!free:..`, and what such a request came to
//! is a hash `lk!idem!record:..`, of the size of its answer.
//!
//! # Rights
//!
//! Which rights a user of the server needs, and what is missing without each: `docs::managed_redis` of the guide, "The
//! rights".
//!
//! # Connections
//!
//! One connection carries all commands of a plain node. A second one is made when somebody waits for a lock for the
//! first time; it carries the subscriptions to releases and nothing else, and is made anew only while somebody waits.
//! On the server they are called `tower-redlock` and `tower-redlock-notices`.
//!
//! A node that [requires replicas](#replicas) has a few connections for commands, and all that belongs to one attempt
//! at a lock goes over one of them. [`state`](Node::state) is then that of the connection that is worst off.
//!
//! # Replicas
//!
//! A plain node has no replica, and is refused with one, for that may take its place and have none of its locks.
//! [`expect_replicas`](RedisNodeBuilder::expect_replicas) says that there may be some. After a failover the node is one
//! that forgot, and so it is after a failback: a server is known by its process and by its last promotion, and looked
//! at again every second (`docs::managed_redis` of the guide, "Who a server is").
//!
//! A master that dies takes with it what its replicas have not got yet, and the one that takes its place grants the
//! same lock again. [`RedisNode::replicated`] asks for more than the master's word: acquires, renewals and records
//! count only if replicas acknowledge them in time (`WAIT`, for which the user needs the right `+wait`). What that
//! proves, and what it does not, is said at [`RedisNodeBuilder::require`].
//!
//! # Sentinel
//!
//! [`RedisNode::sentinel`] is one node wherever its master is. Each listed Sentinel is asked about twice a second, and
//! a server is this node only while more than half of *those listed* named it a short time ago. Without that the node
//! is down, which its state and one line in the log explain: it grants, extends and records nothing, and takes locks
//! back. It leaves a server that is demoted, at its first `READONLY`, and one that was replaced and does not know it. A
//! failover is to be taken for *a node that forgot its locks*: Sentinel chooses the new master without asking what it
//! has. What holds on both sides of a partition, and for how long, is said at [`RedisNodeBuilder::confirm_within`].
//!
//! # How it fails
//!
//! | what happens | what callers see |
//! |---|---|
//! | no connection | [`Unavailable`](super::NodeErrorKind::Unavailable), at once |
//! | the connection breaks | [`Interrupted`](super::NodeErrorKind::Interrupted); new attempts after 0 to 50 ms, the bound doubling up to 2 s |
//! | the server stops answering | commands wait for their callers' deadline; one that is given up leads to a `PING`, and without an answer in 200 ms the node is down |
//! | a restart, `SCRIPT FLUSH` | the scripts are loaded again; nothing is seen of it |
//! | most Sentinels do not confirm the master | [`Unavailable`](super::NodeErrorKind::Unavailable), but releases work |
//! | the master becomes a replica | [`Rejected`](super::NodeErrorKind::Rejected) once, then the node is refused, or with Sentinel down until there is a master; a second later also if nobody asks |
//! | it is promoted again | down for a moment, then quarantined: it has another's locks |
//! | it is told to evict, or is given a replica that nobody spoke of | refused within a second, until that is mended; then quarantined if it threw anything away |
//! | too few replicas acknowledge | [`NotReplicated`](super::NodeErrorKind::NotReplicated) for acquires, which are released, renewals, and records, told or kept; releases work |
//! | out of memory | acquires are [`Rejected`](super::NodeErrorKind::Rejected); extensions and releases work |
//! | the connection for release notices breaks | waiters are told that they may have missed one and ask again once it is back; commands see nothing of it |
//! | a key of another type | [`Rejected`](super::NodeErrorKind::Rejected) |

mod answers;
mod builder;
mod commands;
mod confirmation;
mod connect;
mod connection;
mod error;
mod handle;
mod hub;
mod info;
mod lanes;
mod link;
mod listener;
mod look;
mod question;
mod replicas;
mod script;
mod scripts;
mod seat;
mod sentinel;
mod url;

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, CompleteReply, CompleteRequest,
    EndClaim, ExtendReplies, ExtendRequest, Node, NodeContext, NodeError, NodeFuture, NodeState,
    Notifier, PromoteRequest, RaiseReply, RaiseRequest, RecallRequest, ReleaseReply,
    ReleaseRequest, VerifyReply, VerifyRequest,
};

pub use builder::RedisNodeBuilder;
use connection::Core;
pub use error::NodeUrlError;
use handle::{FIRST, Handle};
use link::Link;
use sentinel::Sentinels;

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

impl RedisNode {
    /// The node at `url`: `redis://[[user]:password@]host[:port][/database]`, `rediss://..` for TLS (feature
    /// `tls`), or `unix:///path[?user=..&pass=..&db=..]`.
    ///
    /// # Errors
    ///
    /// [`NodeUrlError`] if the URL cannot be used. Whether there is a server is not looked at.
    pub fn new(url: &str) -> Result<Self, NodeUrlError> {
        Self::builder(url).build()
    }

    /// A node at `url` with settings of its own.
    pub fn builder(url: &str) -> RedisNodeBuilder {
        RedisNodeBuilder::new(url)
    }

    /// A node at `url` with replicas, which must acknowledge what is granted here: by default one of them, in a third
    /// of the manager's node time-out. See [Replicas](self#replicas).
    pub fn replicated(url: &str) -> RedisNodeBuilder {
        Self::builder(url).require(1)
    }

    /// The node that is whatever server the Sentinels at `urls` call `master`. See [Sentinel](self#sentinel).
    ///
    /// A URL is `redis://[[user]:password@]host:port`, or `rediss://..` for TLS to the Sentinels and to the server,
    /// whose certificate must then be good for the address that they tell. Its credentials are those for the Sentinel,
    /// where `+sentinel` is the right that is needed; those for the server are set with
    /// [`user`](RedisNodeBuilder::user) and [`password`](RedisNodeBuilder::password). List every Sentinel, in all
    /// processes the same: most of those listed must name a server again and again for it to count.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_redlock::node::Node as _;
    /// use tower_redlock::node::redis::RedisNode;
    ///
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
    /// let node = RedisNode::sentinel(sentinels, "mymaster")
    ///     .password("secret")
    ///     .require(2)
    ///     .within(Duration::from_millis(20))
    ///     .build()?;
    /// assert_eq!(node.name(), "sentinel:mymaster");
    /// # Ok::<(), tower_redlock::node::redis::NodeUrlError>(())
    /// ```
    pub fn sentinel<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        master: &str,
    ) -> RedisNodeBuilder {
        let urls = urls.into_iter().map(|url| url.as_ref().to_owned());
        RedisNodeBuilder::sentinel(urls.collect(), master)
    }
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
