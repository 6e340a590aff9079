//! [`RedisNodeBuilder`]: the settings of a Redis node.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::node::redis::credentials::{Credentials, Source};
use crate::node::redis::discovery::Target;
use crate::node::redis::discovery::url::{Access, Certificates};
use crate::node::redis::discovery::{self, sentinel};
use crate::node::redis::error::NodeUrlError;
use crate::node::redis::node::RedisNode;
use crate::node::redis::replicas::Replicas;
use crate::node::redis::shared::Shared;

/// How long one attempt to connect may take, unless set.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The connections of a node with replicas, unless set.
const CONNECTIONS: usize = 4;
/// The most connections that carry commands.
const MOST_CONNECTIONS: usize = 32;

/// Builds a [`RedisNode`] with settings of its own. Made by [`RedisNode::builder`].
#[must_use = "a builder does nothing until `build`"]
#[derive(Clone)]
pub struct RedisNodeBuilder {
    place: Place,
    access: Access,
    credentials: Option<Source>,
    name: Option<String>,
    connect_timeout: Duration,
    certificates: Certificates,
    require: Option<u32>,
    within: Option<Duration>,
    connections: Option<usize>,
    expects_replicas: bool,
    may_evict: bool,
    confirm_within: Option<Duration>,
}

/// Where the server is.
#[derive(Clone)]
enum Place {
    Url(String),
    Sentinels { urls: Vec<String>, master: String },
}

impl RedisNodeBuilder {
    fn at(place: Place) -> Self {
        Self {
            place,
            access: Access::default(),
            credentials: None,
            name: None,
            connect_timeout: CONNECT_TIMEOUT,
            certificates: Certificates::default(),
            require: None,
            within: None,
            connections: None,
            expects_replicas: false,
            may_evict: false,
            confirm_within: None,
        }
    }

    /// The node's name in logs and errors. Unless set: `host:port`, with `/database` unless that is 0, or
    /// the path of the socket, or `sentinel:` and the name of the master.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long one attempt to connect may take, handshakes and checks included. At least 1 ms; unless set: 1 s.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// The user on the server, in place of the one in the URL.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.access.user = Some(user.into());
        self
    }

    /// The password on the server, in place of the one in the URL. It is taken as it is, without percent-encoding.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.access.password = Some(password.into());
        self
    }

    /// Where user and password come from, if they change: tokens of a cloud's identity service, or passwords that are
    /// rotated. In place of [`user`](Self::user), [`password`](Self::password) and those in the URL.
    ///
    /// `source` is called before each connection to the server is made, of which a node has one for commands (or
    /// [more](Self::connections)) and one for notices; and on each of them again when three quarters of the time are
    /// over for which the credentials are [valid](Credentials::valid_for). Then the running connection authenticates
    /// anew (`AUTH`); nothing that is under way notices. If that fails, the connection goes on as it was, the log has a
    /// warning, and it is tried again until it works. Keep what is expensive to make in the callback, and let it return
    /// within 10 s. A panic in it counts as an error.
    ///
    /// Sentinels are asked with the credentials in their own URLs. The guide says why it is not a pool of connections
    /// that is taken: `docs::nodes`, "Credentials that change".
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Error;
    /// use std::time::Duration;
    /// use tower_redlock::node::redis::{Credentials, RedisNode};
    ///
    /// /// Signs a token that is valid for fifteen minutes.
    /// async fn token() -> Result<String, Error> {
    ///     Ok("token".to_owned())
    /// }
    ///
    /// let credentials = || async {
    ///     let credentials = Credentials::password(token().await?).user("locks");
    ///     Ok::<_, Error>(credentials.valid_for(Duration::from_secs(900)))
    /// };
    /// let node = RedisNode::builder("redis://10.0.0.1").credentials(credentials).build()?;
    /// # let _ = node;
    /// # Ok::<(), tower_redlock::node::redis::NodeUrlError>(())
    /// ```
    pub fn credentials<F, Fut, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.credentials = Some(Source::new(source));
        self
    }

    /// The database on the server, in place of the one in the URL.
    pub const fn database(mut self, database: u32) -> Self {
        self.access.database = Some(database);
        self
    }

    /// How many replicas must acknowledge a lock before it counts as granted or renewed, at least 1.
    ///
    /// Each acquire and each renewal is followed, in the same message, by a `WAIT` for so many replicas
    /// [`within`](Self::within) a time. If fewer acknowledge, the node has not granted: the error is
    /// [`NotReplicated`](crate::node::NodeErrorKind::NotReplicated), and the key is released. A renewal of that kind
    /// does not count, and the lock stays where it is.
    ///
    /// # What it proves
    ///
    /// That so many replicas had received the lock, in memory. It is no consensus: a failover may choose another
    /// replica, unless all that can be chosen are required. So either require *all* replicas, and lose the node with
    /// the first of them; or require fewer, and accept that a failover may lose locks. A manager of several such nodes,
    /// or one that [masks losses](crate::LockManagerBuilder::mask_losses), does not depend on any single one.
    ///
    /// Without it, one master with one replica does this (`tests/manager_redis/failover.rs` plays it on real servers):
    ///
    /// | | master has | replica has | who believes to hold the lock |
    /// |---|---|---|---|
    /// | the replica's connection breaks, A acquires: granted | A | – | A |
    /// | the master is killed, the replica takes its place | | – | A |
    /// | B acquires: granted | | B | A and B |
    ///
    /// With `require(1)` A is told "0 of 1 replicas acknowledged" in the first line, and holds nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tower_redlock::LockManager;
    /// use tower_redlock::node::redis::RedisNode;
    ///
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut nodes = Vec::new();
    /// for url in ["redis://10.0.0.1", "redis://10.0.1.1", "redis://10.0.2.1"] {
    ///     let node = RedisNode::replicated(url).require(1).within(Duration::from_millis(20));
    ///     nodes.push(node.build()?);
    /// }
    /// let locks = LockManager::builder().redis_nodes(nodes).connect().await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    pub const fn require(mut self, replicas: u32) -> Self {
        self.require = Some(replicas);
        self
    }

    /// How long the [required](Self::require) replicas may take to acknowledge, at least 1 ms; parts of a millisecond
    /// are dropped. It must be less than the manager's
    /// [`node_timeout`](crate::LockManagerBuilder::node_timeout), or the node is refused. Unless set: a third of that.
    pub const fn within(mut self, limit: Duration) -> Self {
        self.within = Some(limit);
        self
    }

    /// How many connections carry commands, from 1 to 32. Unless set: 4 if replicas are
    /// [required](Self::require), else 1, which is best then.
    ///
    /// With replicas each carries one acquire at a time, so this and the round trips bound how many locks this
    /// process can take in a second: 4 connections and 1 ms to the server and on to its replica make 4,000.
    pub const fn connections(mut self, count: usize) -> Self {
        self.connections = Some(count);
        self
    }

    /// How long a statement of a Sentinel counts: a server is this node only while more than half of the listed
    /// Sentinels named it when they were asked no longer ago than this. From 100 ms to 1 min; unless set: 3 s.
    ///
    /// All are asked at the same time, so one that hangs costs nothing. No reply is no confirmation. With a shorter
    /// time the node goes down sooner when most Sentinels cannot be reached; with a longer one its quarantine after a
    /// failover takes that much longer.
    ///
    /// # Both sides of a partition
    ///
    /// A master that is cut off, and one that was promoted in its place, both serve those who reach them, also with
    /// replicas on either side, so that [`require`](Self::require) does not help. A process that uses the old one stops
    /// `confirm_within` after its last question to Sentinels of which most still named the old one; what it was granted
    /// by then ends a ttl later. Two majorities of one list have a Sentinel in common, which goes from the old master
    /// to the new one and not back. So a process that learns of the new one from most Sentinels learns it after that
    /// question was sent, however long ago the new one was promoted, and only then does its quarantine begin: for the
    /// longest ttl, `confirm_within`, and what the clocks of the two processes may run apart during both (the drift
    /// factor). No lock is held on both sides. The old side is without this node while the partition lasts, the new one
    /// for that wait.
    ///
    /// # Assumptions
    ///
    /// * All processes have the same list and the same `confirm_within`, which are part of what they agree on. Host and
    ///   port are compared as they are written: a name and an address for one Sentinel are two lists, and refused.
    /// * No Sentinel forgets: it keeps the configuration file that it writes, and nobody has it monitor a former master
    ///   by hand (`SENTINEL REMOVE` and `MONITOR`) before those locks have ended.
    /// * Each address of the master that Sentinels give leads to one server at a time. There may be several addresses.
    ///
    /// Sentinels number their failovers (`config-epoch`), and that number is part of the server's identity: one that is
    /// made the master again is quarantined again, even if it never learnt that it was not the master. `SENTINEL RESET`
    /// does not change it; Sentinels that all begin anew do, and the node is quarantined once.
    pub const fn confirm_within(mut self, limit: Duration) -> Self {
        self.confirm_within = Some(limit);
        self
    }

    /// Has each script read the server's identity from the beginning (`docs::nodes` of the guide, "The identity
    /// of a server"), so that a server that was demoted and promoted again does not vote even for a moment. That costs
    /// the server 6 to 10 µs for each command. Unless set, a node begins with that when a check sees that the server
    /// has a replica or was ever promoted; nodes whose replicas are [required](Self::require) or that are found through
    /// [Sentinel](RedisNode::sentinel) do it from the beginning.
    ///
    /// Replicas are not waited for: what the master had not replicated when it died is lost, and the [restart
    /// guard](crate::config::RestartGuard) quarantines the node for that. Set it for every instance with a stand-by,
    /// also where the stand-by cannot be seen.
    pub const fn expect_replicas(mut self, expect: bool) -> Self {
        self.expects_replicas = expect;
        self
    }

    /// Accepts the server although its `maxmemory-policy` lets it evict keys when it is full. Unless set: such a server
    /// is refused.
    ///
    /// Every evicted lock can be granted a second time, and neither the lock's holder nor the [restart
    /// guard](crate::config::RestartGuard) notices: evictions of such a node are not checked. For managed servers whose
    /// policy cannot be set and which are never full; a quorum that [masks
    /// losses](crate::LockManagerBuilder::mask_losses) tolerates some evictions.
    pub const fn accept_eviction(mut self, accept: bool) -> Self {
        self.may_evict = accept;
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
    /// [`NodeUrlError`] if the URLs, the certificates or the numbers cannot be used.
    pub fn build(self) -> Result<RedisNode, NodeUrlError> {
        let replicas = match (self.require, self.within) {
            (Some(0), _) => return Err(NodeUrlError::of("require", NO_REPLICAS)),
            (_, Some(within)) if within < Duration::from_millis(1) => {
                return Err(NodeUrlError::of("within", NO_TIME));
            }
            (None, Some(_)) => return Err(NodeUrlError::of("within", WITHIN_ALONE)),
            (require, within) => require.map(|require| Replicas::new(require, within)),
        };
        let usual = if replicas.is_some() { CONNECTIONS } else { 1 };
        let connections = self.connections.unwrap_or(usual);
        if !(1..=MOST_CONNECTIONS).contains(&connections) {
            return Err(NodeUrlError::of("connections", BAD_CONNECTIONS));
        }
        if self.connect_timeout < Duration::from_millis(1) {
            return Err(NodeUrlError::of("connect_timeout", NO_TIME_TO_CONNECT));
        }
        let (access, certificates) = (&self.access, &self.certificates);
        let target = match &self.place {
            Place::Url(_) if self.confirm_within.is_some() => {
                return Err(NodeUrlError::of("confirm_within", NO_SENTINELS));
            }
            Place::Url(url) => Target::parse(url, access, certificates)?,
            Place::Sentinels { urls, master } => {
                let within = self.confirm_within.unwrap_or(sentinel::CONFIRM_WITHIN);
                discovery::target(urls, master, within, access, certificates)?
            }
        };
        if let Some(source) = self.credentials {
            target.rotation.begin(source);
        }
        // Replicas that must acknowledge are expected, and without replicas Sentinels have no server to promote.
        let watched = matches!(self.place, Place::Sentinels { .. });
        let expects_replicas = self.expects_replicas || replicas.is_some() || watched;
        let name = self.name.unwrap_or_else(|| target.name.clone());
        let shared = Shared::new(
            name,
            target,
            self.connect_timeout,
            replicas,
            connections,
            (self.may_evict, expects_replicas),
        );
        Ok(RedisNode::of(shared))
    }
}

impl fmt::Debug for RedisNodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URLs, nor the credentials and certificates: they are secret.
        f.debug_struct("RedisNodeBuilder")
            .field("name", &self.name)
            .field("connect_timeout", &self.connect_timeout)
            .field("require", &self.require)
            .field("within", &self.within)
            .field("connections", &self.connections)
            .field("confirm_within", &self.confirm_within)
            .finish_non_exhaustive()
    }
}

const NO_REPLICAS: &str = "`require` was given 0 replicas; it must be at least 1, or use `RedisNode::builder`, which asks for none";
const NO_TIME: &str = "`within` must be at least 1 ms: replicas need time to acknowledge";
const NO_TIME_TO_CONNECT: &str =
    "`connect_timeout` must be at least 1 ms; 1 s is usual, handshakes and checks included";
const WITHIN_ALONE: &str = "`within` was given but no number of replicas; set it with `require`";
const NO_SENTINELS: &str =
    "`confirm_within` is for nodes that are found through Sentinels; leave it out";
const BAD_CONNECTIONS: &str = "`connections` must be from 1 to 32";

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
        RedisNodeBuilder::at(Place::Url(url.to_owned()))
    }

    /// A node at `url` with replicas, which must acknowledge what is granted here: by default one of them, in a third
    /// of the manager's node time-out. See [Replicas](super#replicas).
    pub fn replicated(url: &str) -> RedisNodeBuilder {
        Self::builder(url).require(1)
    }

    /// The node that is whatever server the Sentinels at `urls` call `master`. See [Sentinel](super#sentinel).
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
        RedisNodeBuilder::at(Place::Sentinels {
            urls: urls.collect(),
            master: master.to_owned(),
        })
    }
}
