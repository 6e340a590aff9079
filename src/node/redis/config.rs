//! [`RedisNode`]: the settings of a Redis node.

use std::error::Error;
use std::time::Duration;

use crate::node::redis::LiveNode;
use crate::node::redis::access::{Access, Certificates};
use crate::node::redis::discovery::witnesses::CONFIRM_WITHIN;
use crate::node::redis::discovery::{self, Target};
use crate::node::redis::link::{Link, Replicas};
use crate::settings::error::{ConfigError, within};
#[cfg(feature = "tls")]
use crate::settings::server::Pem;
use crate::settings::server::{Credentials, CredentialsSource, NodeSettings, Secret, Url};

/// The settings of a Redis or Valkey server that serves as a node. Pass them to
/// [`Settings::redis_nodes`](crate::Settings::redis_nodes).
///
/// # Examples
///
/// ```
/// use tower_redlock::Settings;
/// use tower_redlock::node::RedisNode;
///
/// let nodes = [
///     RedisNode::new("redis://10.0.0.1/2").password("secret"),
///     RedisNode::new("redis://10.0.0.2").require(1),
///     RedisNode::new("unix:///run/redis.sock").name("local"),
/// ];
/// Settings::default().redis_nodes(nodes).check()?;
/// # Ok::<(), tower_redlock::error::ConfigError>(())
/// ```
#[must_use = "a node does nothing unless a manager is given it"]
#[derive(Clone, Debug)]
pub struct RedisNode(NodeSettings);

impl From<RedisNode> for NodeSettings {
    fn from(node: RedisNode) -> Self {
        node.0
    }
}

impl RedisNode {
    /// A node at the given URL: `redis://[[user]:password@]host[:port][/database]`, `rediss://..` for TLS (feature
    /// `tls`), or `unix:///path[?user=..&pass=..&db=..]`.
    pub fn new(url: &str) -> Self {
        Self(NodeSettings {
            url: Some(Url(url.to_owned())),
            ..NodeSettings::default()
        })
    }

    /// A node whose server is the one that Sentinels know as `master`. List all Sentinels, and the same list in every
    /// process.
    ///
    /// Each URL is `redis://[[user]:password@]host:port`, or `rediss://..` to use TLS for the Sentinels and the server.
    /// The user and password in it are for that Sentinel. For the server, use [`user`](Self::user) and
    /// [`password`](Self::password).
    pub fn sentinel<U: AsRef<str>>(urls: impl IntoIterator<Item = U>, master: &str) -> Self {
        Self(NodeSettings {
            sentinels: list(urls),
            master: Some(master.to_owned()),
            ..NodeSettings::default()
        })
    }

    /// The nodes of a Redis Cluster. Each node is one hash slot of the cluster. There are three nodes by default; see
    /// [`slots`](Self::slots).
    ///
    /// List one or more servers of the cluster; the others are found through them. Each URL is
    /// `redis://[[user]:password@]host:port`, or `rediss://..` for TLS. The user and password of the first URL are used
    /// for all servers. All processes must have the same number of slots and the same [name](Self::name), which is
    /// `cluster` unless set.
    pub fn cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self(NodeSettings {
            cluster: list(urls),
            ..NodeSettings::default()
        })
    }

    /// Sets the name of the node in logs and errors. Default: `host:port` or the path of the socket, followed by
    /// `/database` unless that is 0; with Sentinels, `sentinel:` and the name of the master.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets the user on the server. It replaces the one in the URL.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.0.user = Some(user.into());
        self
    }

    /// Sets the password on the server, without percent-encoding. It replaces the one in the URL.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.0.password = Some(Secret(password.into()));
        self
    }

    /// Sets a callback that returns the current user and password. It replaces all other credentials, and must return
    /// within 10 s. The guide says when it is called and what happens if it fails: see `docs::several_servers`,
    /// "Credentials that change".
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Error;
    /// use std::time::Duration;
    /// use tower_redlock::node::{Credentials, RedisNode};
    ///
    /// /// Signs a token that is valid for fifteen minutes.
    /// async fn token() -> Result<String, Error> {
    ///     Ok("token".to_owned())
    /// }
    ///
    /// let node = RedisNode::new("redis://10.0.0.1").credentials(|| async {
    ///     let credentials = Credentials::password(token().await?).user("locks");
    ///     Ok::<_, Error>(credentials.valid_for(Duration::from_secs(900)))
    /// });
    /// # let _ = node;
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

    /// Sets the database on the server. It replaces the one in the URL.
    pub const fn database(mut self, database: u32) -> Self {
        self.0.database = Some(database);
        self
    }

    /// Sets how many replicas, at least 1, must acknowledge a lock before it counts as granted or extended. Default:
    /// none.
    ///
    /// Each acquire and each extension then waits for the replicas with `WAIT`, for at most a third of the manager's
    /// [`node_timeout`](crate::Settings::node_timeout). If too few replicas acknowledge an acquire, the node releases
    /// the key and reports [`NotReplicated`](crate::node::NodeErrorKind::NotReplicated). If too few acknowledge an
    /// extension, the extension does not count.
    ///
    /// A failover can promote a replica that has not acknowledged. Either rely on the restart guard, or require *all*
    /// replicas that can be promoted. The node then fails as soon as one of them fails.
    pub const fn require(mut self, replicas: u32) -> Self {
        self.0.require = Some(replicas);
        self
    }

    /// Sets how long a report that names the node's server counts. The server is used only while more than half of the
    /// Sentinels, or of the cluster's servers, have named it within this time. From 100 ms to 1 min; default: 3 s.
    ///
    /// With a shorter time, the node goes down sooner when most Sentinels cannot be reached. A longer time extends its
    /// quarantine after a failover.
    ///
    /// # Assumptions
    ///
    /// No lock is held on both sides of a partition (`docs::promises`) under these conditions:
    ///
    /// * All processes have the same list and the same `confirm_within`. Host and port are compared as they are
    ///   written.
    /// * Sentinels keep the configuration files that they write, and nobody points a Sentinel at a former master before
    ///   the locks on that server have ended.
    /// * Each address that Sentinels report for the master leads to one server at a time.
    pub const fn confirm_within(mut self, limit: Duration) -> Self {
        self.0.confirm_within = Some(limit);
        self
    }

    /// Makes each script read the server's identity, so that a server that was demoted and promoted again never votes,
    /// even for a moment. Set it for every instance with a stand-by. Default: `false`. Scripts then read the identity
    /// only once a check has seen a replica or a promotion. See `docs::several_servers`, "The identity of a server".
    pub const fn expect_replicas(mut self, expect: bool) -> Self {
        self.0.expect_replicas = expect;
        self
    }

    /// Declares that the server, and any server that replaces it, keeps every write that it has acknowledged. Restarts
    /// and failovers then cause no quarantine. Default: `false`. All processes must have the same setting for a node.
    ///
    /// Use this for services with a transaction log, such as AWS MemoryDB. Do **not** use it for servers that
    /// acknowledge a write before a replica or a disk has it, because after a failover of such a server, a lock can
    /// have two holders. After you restore a snapshot, delete the key `lk!node` before the first process starts.
    pub const fn durable(mut self, durable: bool) -> Self {
        self.0.durable = durable;
        self
    }

    /// Sets the certificate of the authority that signed the server's certificate. It replaces the public authorities.
    /// Give the path of a PEM file or the PEM text (`-----BEGIN CERTIFICATE-----` ..).
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificate(mut self, certificate: impl Into<String>) -> Self {
        self.0.tls.root_certificate = Some(Pem(certificate.into()));
        self
    }

    /// Sets our certificate and private key, for servers that ask for them. Give paths of PEM files or PEM texts.
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

    /// Sets how many nodes a [cluster](Self::cluster) has: 1, 3, 5 and so on up to 15. Default: 3.
    pub const fn slots(mut self, nodes: u16) -> Self {
        self.0.slots = Some(nodes);
        self
    }
}

fn list<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Vec<Url> {
    let urls = urls.into_iter();
    urls.map(|url| Url(url.as_ref().to_owned())).collect()
}

/// For our own tests.
#[cfg(tower_redlock_tests)]
impl RedisNode {
    /// Limits one attempt to connect.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.0.connect_timeout = Some(limit);
        self
    }

    /// Sets how long the required replicas may take.
    pub const fn within(mut self, limit: Duration) -> Self {
        self.0.within = Some(limit);
        self
    }

    /// Sets how many connections carry the commands of callers.
    pub const fn connections(mut self, count: usize) -> Self {
        self.0.connections = Some(count);
        self
    }

    /// Builds the node without a manager.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an invalid setting.
    pub fn build(self) -> Result<LiveNode, ConfigError> {
        let mut nodes = LiveNode::build(&self.0, "", &NodeSettings::default(), 1)?;
        match (nodes.pop(), nodes.is_empty()) {
            (Some(node), true) => Ok(node),
            _ => Err(ConfigError::of("slots", "the cluster is several nodes")),
        }
    }
}

/// The number of connections for callers if replicas are required. `WAIT` lets each carry only one acquire at a time.
const CONNECTIONS: usize = 4;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

impl LiveNode {
    /// Builds the node, or all nodes of a cluster. Errors begin with `place`. `all` has the defaults of all nodes.
    pub(crate) fn build(
        node: &NodeSettings,
        place: &str,
        all: &NodeSettings,
        groups: usize,
    ) -> Result<Vec<Self>, ConfigError> {
        let at = |field: &str| within(place, field);
        let refuse = |field, text: &str| Err(ConfigError::of(at(field), text));
        if node.require == Some(0) {
            return refuse("require", NO_REPLICAS);
        }
        if node.name.as_ref().is_some_and(String::is_empty) {
            return refuse("name", NO_NAME);
        }
        let access = Access::of(node, place, all)?;
        let certificates = match node.tls.is_empty() {
            true => Certificates::read(&all.tls, "tls")?,
            false => Certificates::read(&node.tls, &at("tls"))?,
        };
        let targets = targets(node, place, groups, &access, &certificates)?;
        let link = |target: Target| {
            let is_watched = target.way.witnesses().is_some();
            let own_name = node.name.as_ref().filter(|_| target.tag.is_none());
            let usual = node.require.map_or(1, |_| CONNECTIONS);
            let limit = node.connect_timeout.or(all.connect_timeout);
            Link::new(
                own_name.unwrap_or(&target.name).clone(),
                limit.unwrap_or(CONNECT_TIMEOUT),
                node.require
                    .map(|require| Replicas::new(require, node.within)),
                node.connections.unwrap_or(usual),
                // Where witnesses can promote a server, there are replicas.
                node.expect_replicas || node.require.is_some() || is_watched,
                node.durable,
                target,
            )
        };
        let targets = targets.into_iter();
        Ok(targets.map(|target| Self::of(link(target))).collect())
    }
}

const SLOTS: u16 = 3;
const MOST_SLOTS: u16 = 15;
const NO_CLUSTER: &str = "is for clusters; give the URLs of its servers with `cluster`";
const BAD_SLOTS: &str = "must be odd, from 1 to 15; any two odd numbers have a slot in common, so that a process with another number is refused; 3 is usual, each on a master of its own";
const MASTER_TOO: &str = "is for servers in cluster mode, and this one has a `master` that Sentinels know; leave out one of them";

/// The target of a node, or all targets of a cluster.
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

const NO_REPLICAS: &str = "`require` was given 0 replicas; it must be at least 1, or leave it out";
const NO_SENTINELS: &str =
    "`confirm_within` is for nodes that are found through Sentinels or in a cluster; leave it out";
const NO_NAME: &str = "is empty; leave it out for host and port";
const URL_TOO: &str = "says where the node is, and so does its `url`; leave out one of them";
const NOWHERE: &str = "is missing; give a URL, `sentinels` and `master`, or `cluster`; environment variables for nodes replace the whole list of a file";
const NO_MASTER: &str = "is missing; give the name by which the Sentinels know the server";
