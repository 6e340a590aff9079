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
//! connection. Releases are announced on the channel `lk!free:order:42`.
//!
//! # Rights
//!
//! A user that may do this and nothing else is enough, here for the namespace `lk`:
//!
//! ```text
//! ACL SETUSER locks reset on >PASSWORD ~lk:* ~lk!* resetchannels &lk!free:* -@all +evalsha +script|load +set +get +del +exists +pexpire +pttl +incrby +hget +hset +hmget +hdel +time +publish +subscribe +unsubscribe +pubsub|numsub +info +ping
//! ```
//!
//! Worth having, but not needed: `+client|id +client|kill`, so that commands of a lost connection cannot run after
//! those of its successor, and `+client|setname`, so that operators see who is connected.
//! Without `+publish`, `+subscribe`, `+unsubscribe` or the channel, waiters are not told of releases and learn of
//! them by asking again, at least ten times a second; what we may not subscribe to is said once in the log. Without
//! `+pubsub|numsub` a waiter does not know how many others are told with it, and contenders get in each other's way
//! a little more often.
//!
//! # Connections
//!
//! One connection carries all commands. A second one is made when somebody waits for a lock for the first time; it
//! carries the subscriptions to releases and nothing else, and is made anew only while somebody waits. On the server
//! they are called `tower-redlock` and `tower-redlock-notices`.
//!
//! # How it fails
//!
//! | what happens | what callers see |
//! |---|---|
//! | no connection | [`Unavailable`](super::NodeErrorKind::Unavailable), at once |
//! | the connection breaks | [`Interrupted`](super::NodeErrorKind::Interrupted); new attempts after 0 to 50 ms, the bound doubling up to 2 s |
//! | the server stops answering | commands wait for their callers' deadline; one that is given up leads to a `PING`, and without an answer in 200 ms the node is down |
//! | a restart, `SCRIPT FLUSH` | the scripts are loaded again; nothing is seen of it |
//! | the master becomes a replica | [`Rejected`](super::NodeErrorKind::Rejected) once, then the node is refused |
//! | out of memory | acquires are [`Rejected`](super::NodeErrorKind::Rejected); extensions and releases work |
//! | the connection for release notices breaks | waiters are told that they may have missed one and ask again once it is back; commands see nothing of it |
//! | a key of another type | [`Rejected`](super::NodeErrorKind::Rejected) |

mod answers;
mod connect;
mod connection;
mod error;
mod hub;
mod info;
mod link;
mod listener;
mod scripts;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use crate::namespace::NodeKey;
use crate::node::{
    AcquireReply, AcquireRequest, CheckIn, Ear, ExtendReplies, ExtendReply, ExtendRequest, Node,
    NodeContext, NodeError, NodeFuture, NodeState, Notifier, Promotion, RaiseReply, RaiseRequest,
    ReleaseReply, ReleaseRequest, Standing, Subscription, VerifyReply, VerifyRequest,
};

use connection::Core;
pub use error::NodeUrlError;
use link::Link;
use scripts::Script;
use url::{Certificates, Target};

/// How long one attempt to connect may take, unless set.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A Redis or Valkey server as a node. See the [module](self) for what the server must be.
///
/// It connects once its manager starts it, with one connection for all commands, and keeps it up until
/// [`close`](Node::close) or until the last clone and the last command are gone. Clones are the same node: give it
/// to one manager only, for the first that shuts down closes it.
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
        RedisNodeBuilder {
            url: url.to_owned(),
            name: None,
            connect_timeout: CONNECT_TIMEOUT,
            certificates: Certificates::default(),
        }
    }

    /// Runs one script once it is polled: `cmd` for the link it goes out on, its answer read by `read`.
    fn command<T: 'static>(
        &self,
        script: &'static Script,
        cmd: impl FnOnce(&Link) -> Cmd + Send + 'static,
        read: impl FnOnce(&Value) -> Result<T, NodeError> + Send + 'static,
    ) -> NodeFuture<Result<T, NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            let mut link = handle.core.link()?;
            let cmd = cmd(&link);
            read(&run(&mut link, script, &cmd).await?)
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

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.handle.core.name
    }

    fn start(&self, context: NodeContext) {
        let core = Arc::clone(&self.handle.core);
        if core.begin() {
            tokio::spawn(listener::listen(Arc::clone(&core)));
            tokio::spawn(connection::supervise(core, context));
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
        let charter = request.charter.clone();
        self.command(
            &scripts::ACQUIRE,
            move |link| scripts::acquire(&request, link.identity()),
            move |answer| answers::read_acquire(answer, charter.as_deref()),
        )
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            if requests.is_empty() {
                return Ok(Vec::new());
            }
            let mut link = handle.core.link()?;
            extend(&mut link, &requests)
                .await
                .map_err(|error| error::failed(&error))
        })
    }

    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        self.command(
            &scripts::RELEASE,
            move |link| scripts::release(&request, link.since()),
            answers::read_release,
        )
    }

    fn raise(&self, request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>> {
        let cmd = move |_: &Link| scripts::raise(&request);
        self.command(&scripts::RAISE, cmd, answers::read_raise)
    }

    fn verify(&self, request: VerifyRequest) -> NodeFuture<Result<VerifyReply, NodeError>> {
        let charter = request.charter.clone();
        self.command(
            &scripts::VERIFY,
            move |link| scripts::verify(&request, link.identity()),
            move |answer| answers::read_verify(answer, charter.as_deref()),
        )
    }

    fn check_in(&self, request: CheckIn) -> NodeFuture<Result<Standing, NodeError>> {
        let cmd = move |link: &Link| scripts::check_in(&request, link.identity());
        self.command(&scripts::CHECK_IN, cmd, answers::read_check_in)
    }

    fn promote(&self, request: Promotion) -> NodeFuture<Result<bool, NodeError>> {
        let cmd = move |link: &Link| scripts::promote(&request, link.identity());
        self.command(&scripts::PROMOTE, cmd, answers::read_promote)
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

/// Builds a [`RedisNode`] with settings of its own. Made by [`RedisNode::builder`].
#[must_use = "a builder does nothing until `build`"]
#[derive(Clone)]
pub struct RedisNodeBuilder {
    url: String,
    name: Option<String>,
    connect_timeout: Duration,
    certificates: Certificates,
}

impl RedisNodeBuilder {
    /// How the node is called in logs and errors. Unless set: `host:port`, with `/database` unless that is 0, or
    /// the path of the socket.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long one attempt to connect may take, handshakes and checks included. Unless set: 1 s.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// The certificate (PEM) of the authority that vouches for the server, in place of the public ones.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.root = Some(pem.into());
        self
    }

    /// The certificate and private key (PEM) that we show to a server that asks for them.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.client = Some((certificate.into(), key.into()));
        self
    }

    /// The node.
    ///
    /// # Errors
    ///
    /// [`NodeUrlError`] if the URL or the certificates cannot be used.
    pub fn build(self) -> Result<RedisNode, NodeUrlError> {
        let target = Target::parse(&self.url, &self.certificates)?;
        let name = self.name.unwrap_or_else(|| target.name.clone());
        Ok(RedisNode {
            handle: Arc::new(Handle {
                core: Arc::new(Core::new(name, target, self.connect_timeout)),
            }),
        })
    }
}

impl fmt::Debug for RedisNodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL, nor the certificates: they are secret.
        f.debug_struct("RedisNodeBuilder")
            .field("name", &self.name)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

/// What nodes and their commands hold. The supervisor holds only the core, so when the last of these is gone it ends.
struct Handle {
    core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.stop();
    }
}

/// Runs one script, and loads it first where the server has lost it.
async fn run(link: &mut Link, script: &Script, cmd: &Cmd) -> Result<Value, NodeError> {
    let answer = match link.call(cmd).await {
        Err(error) if is_unknown_script(error.kind()) => match link.call(&script.load()).await {
            Ok(_) => link.call(cmd).await,
            Err(error) => Err(error),
        },
        result => result,
    };
    answer.map_err(|error| error::failed(&error))
}

const fn is_unknown_script(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Server(ServerErrorKind::NoScript))
}

/// Extends in chunks, all in one message. An error of one chunk is the error of each of its locks.
async fn extend(
    link: &mut Link,
    requests: &[ExtendRequest],
) -> Result<Vec<Result<ExtendReply, NodeError>>, RedisError> {
    let chunks: Vec<&[ExtendRequest]> = scripts::chunks(requests).collect();
    let mut pipeline = redis::pipe();
    for chunk in &chunks {
        pipeline.add_command(scripts::extend(chunk, link.identity()));
    }
    let mut answers = link.call_all(&pipeline).await?;
    if answers.iter().any(is_lost_script) {
        // All of it again: to extend twice does no harm.
        link.call(&scripts::EXTEND.load()).await?;
        answers = link.call_all(&pipeline).await?;
    }
    let mut replies = Vec::with_capacity(requests.len());
    let mut answers = answers.into_iter();
    for chunk in chunks {
        let answer = answers.next().unwrap_or(Value::Nil).extract_error();
        let read = answer
            .map_err(|error| {
                link.look_at(&error);
                error::failed(&error)
            })
            .and_then(|answer| {
                let ours = chunk.first().and_then(|request| request.charter.as_deref());
                answers::read_extend(&answer, chunk.len(), ours)
            });
        match read {
            Ok(items) => {
                link.look_at_locks(&items);
                replies.extend(items);
            }
            Err(error) => replies.extend(chunk.iter().map(|_| Err(error.clone()))),
        }
    }
    Ok(replies)
}

fn is_lost_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}
