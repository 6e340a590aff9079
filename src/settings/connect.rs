//! Makes a manager and its nodes from [`Settings`].

use std::collections::HashSet;
#[cfg(feature = "redis")]
use std::error::Error;
use std::sync::Arc;
#[cfg(feature = "redis")]
use std::time::Duration;

use crate::clock::SystemClock;
use crate::manager::{ConnectError, LockManager};
#[cfg(feature = "redis")]
use crate::node::{LiveNode, RedisNode};
use crate::node::{MemoryNode, Node};
use crate::settings::Settings;
use crate::settings::checked::Checked;
use crate::settings::error::{ConfigError, ensure};
#[cfg(feature = "redis")]
use crate::settings::server::{Credentials, CredentialsSource, NodeSettings};

impl LockManager {
    /// Returns settings without nodes. [`Settings`] has an example.
    pub fn builder() -> Settings {
        Settings::default()
    }
}

/// The argument of [`Settings::redis`]. `Kind` keeps the implementations apart.
#[cfg(feature = "redis")]
#[allow(unnameable_types, reason = "nobody else is to implement it")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither the URL of a server, nor a pair of a node's name and its URL, nor a list of these",
    label = "give a text, as in `\"redis://10.0.0.1\"`, or a list of texts"
)]
pub trait Servers<Kind> {
    fn nodes(self) -> Vec<RedisNode>;
}

#[cfg(feature = "redis")]
impl<U: AsRef<str>> Servers<String> for U {
    fn nodes(self) -> Vec<RedisNode> {
        vec![RedisNode::new(self.as_ref())]
    }
}

#[cfg(feature = "redis")]
impl<N: Into<String>, U: AsRef<str>> Servers<(String, String)> for (N, U) {
    fn nodes(self) -> Vec<RedisNode> {
        vec![RedisNode::new(self.1.as_ref()).name(self.0)]
    }
}

#[cfg(feature = "redis")]
impl<I: IntoIterator<Item: Servers<Kind>>, Kind> Servers<Vec<Kind>> for I {
    fn nodes(self) -> Vec<RedisNode> {
        self.into_iter().flat_map(Servers::nodes).collect()
    }
}

impl Settings {
    /// Adds [nodes in memory](crate::node::MemoryNode) that a test can make fail.
    #[cfg(feature = "test-util")]
    pub fn memory_nodes(mut self, nodes: impl IntoIterator<Item = MemoryNode>) -> Self {
        let nodes = nodes.into_iter();
        self.others
            .extend(nodes.map(|node| Arc::new(node) as Arc<dyn Node>));
        self
    }

    /// Adds Redis or Valkey servers as nodes.
    ///
    /// Give one or several URLs, or pairs of a node's name and its URL. Without a name, a node is called by its host
    /// and port, so a new address makes it another node.
    ///
    /// A URL is `redis://[user[:password]@]host[:port][/db]`, `rediss://…` for TLS (feature `tls`), or `unix:///path`.
    /// For more settings, use [`redis_nodes`](Self::redis_nodes).
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_redlock::Settings;
    ///
    /// let one = Settings::default().redis("redis://10.0.0.1");
    /// let named = Settings::default().redis([("main", "redis://10.0.0.1")]);
    /// let three = Settings::default().redis(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]);
    /// # for settings in [one, named, three] { settings.check()? }
    /// # Ok::<(), tower_redlock::error::ConfigError>(())
    /// ```
    #[cfg(feature = "redis")]
    pub fn redis<Kind>(self, servers: impl Servers<Kind>) -> Self {
        self.redis_nodes(servers.nodes())
    }

    /// Adds three nodes, each a slot of the Redis Cluster to which these servers belong. For more settings, use
    /// [`RedisNode::cluster`].
    #[cfg(feature = "redis")]
    pub fn cluster<U: AsRef<str>>(self, urls: impl IntoIterator<Item = U>) -> Self {
        self.redis_nodes([RedisNode::cluster(urls)])
    }

    /// Adds Redis nodes.
    #[cfg(feature = "redis")]
    pub fn redis_nodes(mut self, nodes: impl IntoIterator<Item = RedisNode>) -> Self {
        let listed = self.given.nodes.get_or_insert_default();
        listed.extend(nodes.into_iter().map(NodeSettings::from));
        self
    }

    /// Sets a callback that returns the user and password for all Redis nodes, for credentials that change. A node's
    /// own [callback](crate::node::RedisNode::credentials) overrides it.
    ///
    /// Name the error type, as in `Ok::<_, std::io::Error>(..)`, because the compiler cannot infer it (E0283).
    #[cfg(feature = "redis")]
    pub fn credentials<F, Fut, E>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.credentials = Some(CredentialsSource::new(source));
        self
    }

    /// Checks the settings, and the files that they name, without connecting.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.assemble().map(|_| ())
    }

    /// For tools: the ACL rule for the user on each kind of server, with the nodes that need it. With `reads_only`, the
    /// rule is for a manager that is [`observing`](Self::observing).
    #[cfg(feature = "redis")]
    #[doc(hidden)]
    pub fn acl(&self, reads_only: bool) -> Result<Vec<(String, String)>, ConfigError> {
        let (_, checked) = self.assemble()?;
        let mut found: Vec<(String, String)> = Vec::new();
        for node in self.servers()? {
            for (place, rule) in node.rules(&checked.namespace, reads_only) {
                match found.iter_mut().find(|(_, other)| *other == rule) {
                    Some((places, _)) => *places += &format!(", {place}"),
                    None => found.push((place, rule)),
                }
            }
        }
        Ok(found)
    }

    /// Makes the manager, and waits until a quorum of nodes votes. All other nodes are logged, and connected in the
    /// background. It waits through quarantines, too, so it does not return while the servers of a quorum lose their data
    /// again and again.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] for an invalid setting.
    ///
    /// [`ConnectError::Misconfigured`] if a node replies but cannot serve, and [`ConnectError::NoQuorum`] if too few
    /// nodes reply within the connect time-out, or cannot be made to vote after their quarantine. Both name each node
    /// and its fault.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the connections are closed.
    pub async fn connect(self) -> Result<LockManager, ConnectError> {
        let (nodes, checked) = self.assemble()?;
        let limit = checked.connect_timeout;
        let locks = self.start(&nodes, &checked)?;
        locks.connected(limit).await?;
        Ok(locks)
    }

    /// Makes the manager without waiting for any node. Until a quorum is connected, locks fail with
    /// [`NoQuorum`](crate::AcquireError::NoQuorum).
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an invalid setting, or outside a tokio runtime.
    pub fn connect_lazy(self) -> Result<LockManager, ConfigError> {
        let (nodes, checked) = self.assemble()?;
        self.start(&nodes, &checked)
    }

    fn start(self, nodes: &[Arc<dyn Node>], checked: &Checked) -> Result<LockManager, ConfigError> {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        LockManager::start(nodes, &clock, checked)
    }

    fn assemble(&self) -> Result<(Vec<Arc<dyn Node>>, Checked), ConfigError> {
        let given = &self.given;
        let mut nodes = Vec::new();
        if let Some(count) = given.memory {
            let alone = given.nodes.is_none() && self.others.is_empty();
            ensure(alone, "memory", || BOTH)?;
            let servers = given.user.is_some()
                || given.password.is_some()
                || given.password_file.is_some()
                || given.tls.as_ref().is_some_and(|tls| !tls.is_empty());
            #[cfg(feature = "redis")]
            let servers = servers || self.credentials.is_some();
            ensure(!servers, "memory", || NO_SERVER)?;
            ensure(count > 0, "memory", || NO_MEMORY)?;
            // If there are too many nodes, the check below refuses them, so do not make them all.
            let names = (0..count.min(MANY)).map(|index| format!("memory-{index}"));
            nodes.extend(names.map(|name| Arc::new(MemoryNode::new(name)) as Arc<dyn Node>));
        }
        #[cfg(feature = "redis")]
        nodes.extend(
            self.servers()?
                .into_iter()
                .map(|node| Arc::new(node) as Arc<dyn Node>),
        );
        #[cfg(not(feature = "redis"))]
        ensure(
            given.nodes.iter().flatten().count() == 0,
            "nodes[0]",
            || NO_REDIS,
        )?;
        nodes.extend(self.others.iter().cloned());
        let checked = Checked {
            observes: self.observes,
            ..given.check(nodes.len(), &self.constants)?
        };
        let mut names = HashSet::new();
        for (index, node) in nodes.iter().enumerate() {
            let name = node.name();
            ensure(names.insert(name), &format!("nodes[{index}].name"), || {
                format!("two nodes are called {name}; give each a name of its own")
            })?;
        }
        Ok((nodes, checked))
    }

    #[cfg(feature = "redis")]
    fn servers(&self) -> Result<Vec<LiveNode>, ConfigError> {
        let given = &self.given;
        let all = NodeSettings {
            user: given.user.clone(),
            password: given.password.clone(),
            password_file: given.password_file.clone(),
            tls: given.tls.clone().unwrap_or_default(),
            credentials: self.credentials.clone(),
            connect_timeout: given.connect_timeout.map(|limit| (limit / 5).max(SECOND)),
            ..NodeSettings::default()
        };
        let (mut nodes, mut addresses) = (Vec::new(), HashSet::new());
        let groups = given.groups()?;
        let listed = given.nodes.iter().flatten();
        let clusters = listed.clone().filter(|node| !node.cluster.is_empty());
        let is_alone = clusters.count() == 0 || listed.count() + self.others.len() == 1;
        ensure(groups == 1 || is_alone, "groups", || NOT_ALONE)?;
        for (index, node) in given.nodes.iter().flatten().enumerate() {
            let place = format!("nodes[{index}]");
            for node in LiveNode::build(node, &place, &all, groups)? {
                let address = node.address().to_owned();
                let text = format!(
                    "the server {address} is listed twice; every node must be a server of its own"
                );
                ensure(addresses.insert(address), &place, || text)?;
                nodes.push(node);
            }
        }
        Ok(nodes)
    }
}

#[cfg(feature = "redis")]
const SECOND: Duration = Duration::from_secs(1);
#[cfg(feature = "redis")]
const NOT_ALONE: &str =
    "a cluster in groups cannot be combined with other nodes; remove the other nodes, or `groups`";
const BOTH: &str =
    "nodes in memory cannot be combined with other nodes; remove `memory`, or the other nodes";
const NO_SERVER: &str = "nodes in memory have neither credentials nor certificates; remove `memory`, or remove the user, password and certificates";
#[cfg(not(feature = "redis"))]
const NO_REDIS: &str =
    "servers need the feature `redis` of `tower-redlock`; enable it in Cargo.toml, or use `memory`";
const NO_MEMORY: &str = "must be at least 1; 5 are usual";
const MANY: usize = 1_000;
