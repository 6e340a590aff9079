//! [`RedisNodeBuilder`]: the settings of a Redis node.

use std::error::Error;
use std::time::Duration;

use crate::node::redis::RedisNode;
use crate::node::redis::access::{Access, Certificates};
use crate::node::redis::discovery::witnesses::CONFIRM_WITHIN;
use crate::node::redis::discovery::{self, Target};
use crate::node::redis::link::{Link, Replicas};
use crate::settings::error::{ConfigError, within};
#[cfg(feature = "tls")]
use crate::settings::server::Pem;
use crate::settings::server::{Credentials, CredentialsSource, NodeSettings, Secret, Url};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const CONNECTIONS: usize = 4;
const MOST_CONNECTIONS: usize = 32;

/// The settings of a [`RedisNode`]. Made by [`RedisNode::builder`].
#[must_use = "settings of a node do nothing unless a manager is given them"]
#[derive(Clone, Debug)]
pub struct RedisNodeBuilder(NodeSettings);

impl From<RedisNodeBuilder> for NodeSettings {
    fn from(builder: RedisNodeBuilder) -> Self {
        builder.0
    }
}

impl RedisNodeBuilder {
    /// The node's name in logs and errors. Unless set: `host:port`, with `/database` unless that is 0, or
    /// the path of the socket, or `sentinel:` and the name of the master.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// How long one attempt to connect may take, handshakes and checks included. At least 1 ms; unless set: 1 s.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.0.connect_timeout = Some(limit);
        self
    }

    /// The user on the server, in place of the one in the URL.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.0.user = Some(user.into());
        self
    }

    /// The password on the server, in place of the one in the URL. It is taken as it is, without percent-encoding.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.0.password = Some(Secret(password.into()));
        self
    }

    /// A callback for user and password that change, in place of [`user`](Self::user), [`password`](Self::password) and
    /// those in the URL.
    ///
    /// It has 10 s. A panic in it counts as an error. `docs::several_servers`, "Credentials that change", says when it is called,
    /// and what follows from an error.
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
    /// # Ok::<(), tower_redlock::error::ConfigError>(())
    /// ```
    pub fn credentials<F, Fut, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.0.credentials = Some(CredentialsSource::new(source));
        self
    }

    /// The database on the server, in place of the one in the URL.
    pub const fn database(mut self, database: u32) -> Self {
        self.0.database = Some(database);
        self
    }

    /// How many replicas must acknowledge a lock before it counts as granted or extended, at least 1.
    ///
    /// Each acquire and each extension is followed by a `WAIT` for that number of replicas, [`within`](Self::within) a
    /// time. If fewer acknowledge, the node has not granted
    /// ([`NotReplicated`](crate::node::NodeErrorKind::NotReplicated)), and the key is released; an extension of that
    /// kind does not count.
    ///
    /// It proves that the replicas had received the lock, in memory. A failover may choose another replica, unless all
    /// that can be chosen are required. So require *all*, and lose the node with the first of them; or accept that a
    /// failover may lose locks, which the restart guard covers.
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
    ///     nodes.push(node);
    /// }
    /// let locks = LockManager::builder().redis_nodes(nodes).connect().await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    pub const fn require(mut self, replicas: u32) -> Self {
        self.0.require = Some(replicas);
        self
    }

    /// How long the [required](Self::require) replicas may take to acknowledge, at least 1 ms; parts of a millisecond
    /// are dropped. It must be less than the manager's
    /// [`node_timeout`](crate::Settings::node_timeout), or the node is refused. Unless set: a third of that.
    pub const fn within(mut self, limit: Duration) -> Self {
        self.0.within = Some(limit);
        self
    }

    /// How many connections carry the commands of callers, from 1 to 32. Unless set: 4 if replicas are [required](Self::require), else
    /// 1, which is best then. With replicas each carries one acquire at a time: 4 connections and 1 ms to the server
    /// and on to its replica make 4,000 locks a second.
    pub const fn connections(mut self, count: usize) -> Self {
        self.0.connections = Some(count);
        self
    }

    /// How long a statement of a Sentinel counts: a server is this node only while more than half of the listed
    /// Sentinels named it when they were asked no longer ago than this. From 100 ms to 1 min; unless set: 3 s. With a
    /// shorter time the node goes down sooner when most Sentinels cannot be reached; with a longer one its quarantine
    /// after a failover takes that much longer.
    ///
    /// # Both sides of a partition
    ///
    /// A master that is cut off, and one that was promoted in its place, both serve the processes that reach them. A
    /// process that uses the old one stops `confirm_within` after its last question to Sentinels of which most still
    /// named the old one; its grants end a ttl later. Two majorities of one list have a Sentinel in common. So a
    /// process learns of the new one after that question, and only then does the quarantine begin: for `max_ttl` and
    /// `confirm_within`. No lock is held on both sides.
    ///
    /// # Assumptions
    ///
    /// * All processes have the same list and the same `confirm_within`. Host and port are compared as they are
    ///   written.
    /// * No Sentinel forgets: it keeps the configuration file that it writes, and nobody has it monitor a former master
    ///   by hand before those locks have ended.
    /// * Each address of the master that Sentinels give leads to one server at a time.
    ///
    /// Sentinels number their failovers (`config-epoch`), and that number is part of the server's identity.
    pub const fn confirm_within(mut self, limit: Duration) -> Self {
        self.0.confirm_within = Some(limit);
        self
    }

    /// Has each script read the server's identity from the beginning, so that a server that was demoted and promoted
    /// again does not vote even for a moment (`docs::several_servers`, "The identity of a server"). Unless set, a node begins
    /// with that when a check sees a replica or a promotion. Set it for every instance with a stand-by, also where the
    /// stand-by cannot be seen.
    pub const fn expect_replicas(mut self, expect: bool) -> Self {
        self.0.expect_replicas = expect;
        self
    }

    /// Says that the server loses no write that it has acknowledged, whichever server takes its place: that the marker is
    /// there proves then that the locks are, and a restart or failover costs no quarantine. A node whose marker is missing,
    /// as after a flush, is quarantined all the same. For services with a transaction log, such as AWS MemoryDB; **not** for
    /// servers that acknowledge a write before a replica or a disk has it, whose failovers would make two holders.
    ///
    /// All processes must say the same of a node. Data of an earlier time brings its marker along: after a snapshot
    /// was restored, delete the key `lk!node` before the first process starts.
    pub const fn durable(mut self, durable: bool) -> Self {
        self.0.durable = durable;
        self
    }

    /// Accepts the server although its `maxmemory-policy` lets it evict keys when it is full. Unless set: such a server
    /// is refused. Every evicted lock can be granted a second time, unnoticed. For managed servers whose policy cannot
    /// be set and which are never full; a quorum that [masks losses](crate::Settings::mask_losses) tolerates some
    /// evictions.
    pub const fn accept_eviction(mut self, accept: bool) -> Self {
        self.0.accept_eviction = accept;
        self
    }

    /// The share of the server's `maxmemory`, in percent from 1 to 100, beyond which no request with an idempotency key
    /// begins; the rest is for locks. Unless set: 75. The node refuses it
    /// ([`Rejected`](crate::node::NodeErrorKind::Rejected)) before the handler runs; stored responses are found. All
    /// memory in use counts, as of a check every second. Half of the rest is for handlers that run by then, and what this
    /// process has stored since the check counts; beyond that the layer stores only that they ran (`not-replayable`).
    pub const fn records_full_at(mut self, percent: u32) -> Self {
        self.0.records_full_at = Some(percent);
        self
    }

    /// The certificate of the authority that vouches for the server, in place of the public ones: the path of a PEM
    /// file, or the PEM text itself (`-----BEGIN CERTIFICATE-----` ..).
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificate(mut self, certificate: impl Into<String>) -> Self {
        self.0.tls.root_certificate = Some(Pem(certificate.into()));
        self
    }

    /// The certificate and private key that we show to a server that asks for them: paths of PEM files, or PEM texts.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<String>,
        key: impl Into<String>,
    ) -> Self {
        self.0.tls.client_certificate = Some(Pem(certificate.into()));
        self.0.tls.client_key = Some(Secret(key.into()));
        self
    }

    /// How many nodes a [cluster](RedisNode::cluster) is: 1, 3, 5, .. 15; unless set: 3.
    pub const fn slots(mut self, nodes: u16) -> Self {
        self.0.slots = Some(nodes);
        self
    }

    /// The node.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the URLs, the certificates or the numbers cannot be used, or if it is a cluster of several
    /// nodes: give that to [`redis_nodes`](crate::Settings::redis_nodes).
    pub fn build(self) -> Result<RedisNode, ConfigError> {
        let mut nodes = RedisNode::build(&self.0, "", &NodeSettings::default(), 1)?;
        match (nodes.pop(), nodes.is_empty()) {
            (Some(node), true) => Ok(node),
            _ => Err(ConfigError::of("slots", SEVERAL)),
        }
    }
}

impl RedisNode {
    /// The node of the setting `place`, or the nodes of a cluster, for so many groups. They have the user, the password, the credentials and
    /// the certificates of `all` where they have none of their own.
    pub(crate) fn build(
        node: &NodeSettings,
        place: &str,
        all: &NodeSettings,
        groups: usize,
    ) -> Result<Vec<Self>, ConfigError> {
        let at = |field: &str| within(place, field);
        let refuse = |field, text: &str| Err(ConfigError::of(at(field), text));
        match (node.require, node.within) {
            (Some(0), _) => return refuse("require", NO_REPLICAS),
            (_, Some(within)) if within < MILLISECOND => return refuse("within", NO_TIME),
            (None, Some(_)) => return refuse("within", WITHIN_ALONE),
            _ => {}
        }
        let requires = node.require.is_some();
        let usual = if requires { CONNECTIONS } else { 1 };
        let connections = node.connections.unwrap_or(usual);
        if !(1..=MOST_CONNECTIONS).contains(&connections) {
            return refuse("connections", BAD_CONNECTIONS);
        }
        let connect_timeout = node.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        if connect_timeout < MILLISECOND {
            return refuse("connect_timeout", NO_TIME_TO_CONNECT);
        }
        if node.name.as_ref().is_some_and(String::is_empty) {
            return refuse("name", NO_NAME);
        }
        let records_full_at = node.records_full_at.unwrap_or(RECORDS_FULL_AT);
        if !(1..=100).contains(&records_full_at) {
            return refuse("records_full_at", BAD_SHARE);
        }
        let access = Access::of(node, place, all)?;
        let certificates = match node.tls.is_empty() {
            true => Certificates::read(&all.tls, "tls")?,
            false => Certificates::read(&node.tls, &at("tls"))?,
        };
        let targets = targets(node, place, groups, &access, &certificates)?;
        let link = |target: Target| {
            // Replicas that must acknowledge are expected, and without replicas there is no server to promote.
            let is_watched = target.way.witnesses().is_some();
            let expects_replicas = node.expect_replicas || requires || is_watched;
            let own_name = node.name.as_ref().filter(|_| target.tag.is_none());
            let name = own_name.unwrap_or(&target.name).clone();
            Link::new(
                name,
                target,
                connect_timeout,
                node.require
                    .map(|require| Replicas::new(require, node.within)),
                connections,
                (node.accept_eviction, expects_replicas, node.durable),
                records_full_at,
            )
        };
        Ok(targets
            .into_iter()
            .map(|target| Self::of(link(target)))
            .collect())
    }
}

const SLOTS: u16 = 3;
const MOST_SLOTS: u16 = 15;
const SEVERAL: &str = "the cluster is several nodes, and this is to be one; set `slots` to 1, or give the builder to `redis_nodes`";
const NO_CLUSTER: &str = "is for clusters; give the URLs of its servers with `cluster`";
const BAD_SLOTS: &str = "must be odd, from 1 to 15: then any two numbers have a slot in common, and processes that differ are refused; 3 are usual, each on a master of its own";
const MASTER_TOO: &str = "is for servers in cluster mode, and this one has a `master` that Sentinels know; leave out one of them";

/// Where the node is, or the nodes of a cluster.
fn targets(
    node: &NodeSettings,
    place: &str,
    groups: usize,
    access: &Access,
    certificates: &Certificates,
) -> Result<Vec<Target>, ConfigError> {
    let at = |field: &str| within(place, field);
    let refuse = |field, text: &str| Err(ConfigError::of(at(field), text));
    let confirmed = node.confirm_within.unwrap_or(CONFIRM_WITHIN);
    let (sentinels, cluster) = (&node.sentinels, &node.cluster);
    match (&node.url, &node.master) {
        _ if node.slots.is_some() && cluster.is_empty() => refuse("slots", NO_CLUSTER),
        (Some(_), _) if !cluster.is_empty() => refuse("cluster", URL_TOO),
        (_, Some(_)) if !cluster.is_empty() => refuse("cluster", MASTER_TOO),
        (None, None) if !cluster.is_empty() && sentinels.is_empty() => {
            let count = node.slots.unwrap_or(SLOTS);
            if count.is_multiple_of(2) || count > MOST_SLOTS {
                return refuse("slots", BAD_SLOTS);
            }
            let slots = discovery::slots::spread(count, groups);
            let named = (node.name.as_deref().unwrap_or("cluster"), &*slots);
            discovery::in_cluster(cluster, named, confirmed, place, access, certificates)
        }
        (Some(_), Some(_)) => refuse("master", URL_TOO),
        (Some(_), None) if !sentinels.is_empty() => refuse("sentinels", URL_TOO),
        (Some(_), None) if node.confirm_within.is_some() => refuse("confirm_within", NO_SENTINELS),
        (Some(url), None) => {
            let target = Target::parse(&url.0, &at("url"), access, certificates);
            target.map(|target| vec![target])
        }
        (None, Some(master)) => {
            let target = discovery::behind_sentinels(
                sentinels,
                master,
                confirmed,
                place,
                access,
                certificates,
            );
            target.map(|target| vec![target])
        }
        (None, None) if sentinels.is_empty() => refuse("url", NOWHERE),
        (None, None) => refuse("master", NO_MASTER),
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
const NO_REPLICAS: &str = "`require` was given 0 replicas; it must be at least 1, or use `RedisNode::builder`, which asks for none";
const NO_TIME: &str = "`within` must be at least 1 ms: replicas need time to acknowledge";
const NO_TIME_TO_CONNECT: &str =
    "`connect_timeout` must be at least 1 ms; 1 s is usual, handshakes and checks included";
const WITHIN_ALONE: &str = "`within` was given but no number of replicas; set it with `require`";
const NO_SENTINELS: &str =
    "`confirm_within` is for nodes that are found through Sentinels or in a cluster; leave it out";
const BAD_CONNECTIONS: &str = "`connections` must be from 1 to 32";
const RECORDS_FULL_AT: u32 = 75;
const BAD_SHARE: &str = "`records_full_at` must be from 1 to 100, in percent of `maxmemory`";
const NO_NAME: &str = "is empty; leave it out for host and port";
const URL_TOO: &str = "tells where the node is, and so does its `url`; leave out one of them";
const NOWHERE: &str = "is missing; give a URL, `sentinels` and `master`, or `cluster`; environment variables for nodes replace the whole list of a file";
const NO_MASTER: &str = "is missing: by which name do the Sentinels know the server?";

impl RedisNode {
    /// The node at `url`: `redis://[[user]:password@]host[:port][/database]`, `rediss://..` for TLS (feature
    /// `tls`), or `unix:///path[?user=..&pass=..&db=..]`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the URL cannot be used. Whether there is a server is not looked at.
    pub fn new(url: &str) -> Result<Self, ConfigError> {
        Self::builder(url).build()
    }

    /// A node at `url` with settings of its own.
    pub fn builder(url: &str) -> RedisNodeBuilder {
        RedisNodeBuilder(NodeSettings {
            url: Some(Url(url.to_owned())),
            ..NodeSettings::default()
        })
    }

    /// A node at `url` with replicas, which must acknowledge what is granted here: by default
    /// [one](RedisNodeBuilder::require), in a [third](RedisNodeBuilder::within) of the manager's node time-out.
    pub fn replicated(url: &str) -> RedisNodeBuilder {
        Self::builder(url).require(1)
    }

    /// The node whose server is the one that the Sentinels at `urls` call `master`.
    ///
    /// A URL is `redis://[[user]:password@]host:port`, or `rediss://..` for TLS to the Sentinels and to the server. Its
    /// credentials are those for the Sentinel, with the right `+sentinel`; those for the server are set with
    /// [`user`](RedisNodeBuilder::user) and [`password`](RedisNodeBuilder::password). List every Sentinel, in all
    /// processes alike.
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
    /// # Ok::<(), tower_redlock::error::ConfigError>(())
    /// ```
    pub fn sentinel<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        master: &str,
    ) -> RedisNodeBuilder {
        let urls = urls.into_iter().map(|url| Url(url.as_ref().to_owned()));
        RedisNodeBuilder(NodeSettings {
            sentinels: urls.collect(),
            master: Some(master.to_owned()),
            ..NodeSettings::default()
        })
    }

    /// The nodes that are slots of the Redis Cluster with these servers: three, unless set with
    /// [`slots`](RedisNodeBuilder::slots).
    ///
    /// Any server of the cluster will do for a URL; the others are found. A URL is `redis://[[user]:password@]host:port`,
    /// or `rediss://..` for TLS; the credentials of the first are those for all servers. The slots are spread evenly, so
    /// that each is on another master where the masters have even ranges; two on one master are logged. All processes
    /// must have the same number of slots, and the same [name](RedisNodeBuilder::name) (`cluster` unless set).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tower_redlock::LockManager;
    /// use tower_redlock::node::redis::RedisNode;
    ///
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = RedisNode::cluster(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"]);
    /// let locks = LockManager::builder().redis_nodes([cluster.slots(3)]).connect().await?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    pub fn cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> RedisNodeBuilder {
        let urls = urls.into_iter().map(|url| Url(url.as_ref().to_owned()));
        RedisNodeBuilder(NodeSettings {
            cluster: urls.collect(),
            ..NodeSettings::default()
        })
    }
}
