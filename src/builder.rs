//! [`LockManagerBuilder`]: URLs, memory nodes and settings become a [`LockManager`].

use std::collections::HashSet;
#[cfg(feature = "redis")]
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::manager::{
    ConfigError, ConnectError, Fencing, HandOff, LockManager, Options, RestartGuard, Settings,
};
use crate::node::Node;
use crate::node::memory::MemoryNode;
#[cfg(feature = "redis")]
use crate::node::redis::{Credentials, CredentialsSource, RedisNode};

impl LockManager {
    /// Begins to build a manager.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn connect() -> Result<tower_redlock::LockManager, tower_redlock::error::ConnectError> {
    /// use std::time::Duration;
    /// use tower_redlock::LockManager;
    ///
    /// let locks = LockManager::builder()
    ///     .redis(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])
    ///     .ttl(Duration::from_secs(10))
    ///     .connect()
    ///     .await?;
    /// # Ok(locks) }
    /// ```
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder {
            settings: Settings::default(),
            nodes: Vec::new(),
            #[cfg(feature = "redis")]
            redis: Vec::new(),
            #[cfg(feature = "redis")]
            credentials: None,
            clock: Arc::new(SystemClock::new()),
            problem: None,
        }
    }
}

/// The nodes and settings of a [`LockManager`]. Made by [`LockManager::builder`].
///
/// Mistakes are reported by [`connect`](Self::connect) and [`lazy`](Self::lazy), which check everything before
/// anything is connected.
#[must_use = "a builder does nothing before `connect` or `lazy`"]
pub struct LockManagerBuilder {
    settings: Settings,
    nodes: Vec<Arc<dyn Node>>,
    // The Redis nodes, each with its index among the nodes.
    #[cfg(feature = "redis")]
    redis: Vec<(usize, RedisNode)>,
    // For those without a callback of their own.
    #[cfg(feature = "redis")]
    credentials: Option<CredentialsSource>,
    clock: Arc<dyn Clock>,
    // The first mistake in a list of nodes.
    problem: Option<ConfigError>,
}

impl LockManagerBuilder {
    /// Adds one Redis or Valkey server per URL as a node, named after its host and port.
    ///
    /// `redis://[user[:password]@]host[:port][/db]`, `rediss://…` for TLS (feature `tls`), `unix:///path`.
    /// For names of your own and more settings see [`redis_nodes`](Self::redis_nodes).
    #[cfg(feature = "redis")]
    pub fn redis<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        for (index, url) in urls.into_iter().enumerate() {
            match RedisNode::new(url.as_ref()) {
                Ok(node) => self = self.redis_nodes([node]),
                Err(error) => {
                    let text = format!("the node URL at index {index}: {error}");
                    self.problem
                        .get_or_insert(ConfigError::of(format!("nodes[{index}].url"), text));
                }
            }
        }
        self
    }

    /// Adds Redis nodes.
    #[cfg(feature = "redis")]
    pub fn redis_nodes(mut self, nodes: impl IntoIterator<Item = RedisNode>) -> Self {
        for node in nodes {
            self.redis.push((self.nodes.len(), node.clone()));
            self.nodes.push(Arc::new(node));
        }
        self
    }

    /// Where user and password come from for all Redis nodes of this manager, if they change: as
    /// [`RedisNodeBuilder::credentials`](crate::node::redis::RedisNodeBuilder::credentials), which wins for its node.
    /// Name the error, `Ok::<_, std::io::Error>(..)`: any type fits, so the compiler cannot tell it (E0283).
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

    /// Adds `count` nodes in the memory of this process, for development and for services of one process.
    pub fn memory(self, count: usize) -> Self {
        // More than the most nodes allowed is refused later; there is no need to make them.
        let names = (0..count.min(MANY)).map(|index| format!("memory-{index}"));
        self.nodes(names.map(MemoryNode::new))
    }

    /// Adds nodes of any kind.
    pub fn nodes<N: Node>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.nodes.extend(
            nodes
                .into_iter()
                .map(|node| Arc::new(node) as Arc<dyn Node>),
        );
        self
    }

    /// The prefix of all keys on the nodes. Default: `lk`. All contenders must use the same; an empty one is
    /// what other Redlock libraries use.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.settings.namespace = namespace.into();
        self
    }

    /// The time to live of a lock on the nodes: how long a lock outlives a crashed holder. It is renewed every
    /// third of it, so it does not limit how long a lock can be held. From 10 ms to [`max_ttl`](Self::max_ttl), in
    /// whole milliseconds; default: 10 s. Less than a second is for tests: a busy machine may not come to renew it in
    /// time. For some locks alone: [`with_ttl`](LockManager::with_ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// The longest ttl that *any* process uses with these nodes. From 10 ms to 24 h, and at least the
    /// [`ttl`](Self::ttl); default: 60 s.
    ///
    /// A node that may have forgotten a lock waits for that long before it votes, unless enough other nodes report that
    /// no lease was as long ([`RestartGuard`]). All processes agree on it: one with another value is refused. It is
    /// changed as the list of nodes is ([`adopt_nodes`](LockManager::adopt_nodes)). A node may take a tenth of it to
    /// reply, at least a second and never more than all of it: a later vote does not count.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.settings.max_ttl = max_ttl;
        self
    }

    /// How long a node may take to reply. Default: a hundredth of the ttl, but at least 20 ms, or half the ttl
    /// if that is less, and at most 200 ms.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.settings.node_timeout = Some(timeout);
        self
    }

    /// Which part of the ttl is given up for clocks that do not run alike, besides a constant 2 ms. From 0.0 to
    /// 0.5; default: 0.01. Raise it where clocks are slewed hard (chrony may slew by 8 %).
    pub fn drift_factor(mut self, factor: f64) -> Self {
        self.settings.drift_factor = factor;
        self
    }

    /// How many nodes may lose everything they hold without two holders at once. The quorum becomes
    /// `ceil((nodes + losses + 1) / 2)`. Default: 0, a majority. 4 nodes mask 1 loss with a quorum of 3, 6
    /// nodes with a quorum of 4.
    pub fn mask_losses(mut self, losses: usize) -> Self {
        self.settings.masked = losses;
        self
    }

    /// The longest a lock may be held: it is lost then. At least the ttl; default: 60 s, or the ttl if that is
    /// longer. For some locks alone: [`with_max_hold`](LockManager::with_max_hold).
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.settings.max_hold = Some(max_hold);
        self
    }

    /// The longest time that a caller waits for a busy lock. It also bounds
    /// [`acquire_within`](LockManager::acquire_within) and what a layer's
    /// [`max_wait_with`](crate::RedlockLayer::max_wait_with) says of one request; a layer's own
    /// [`max_wait`](crate::RedlockLayer::max_wait) counts as it is. Default: 5 s. Zero: no caller waits. For some
    /// callers alone: [`with_max_wait`](LockManager::with_max_wait).
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.settings.max_wait = max_wait;
        self
    }

    /// How many callers of this manager may wait for one key, besides the one that holds or acquires it. The next
    /// is refused with [`QueueFull`](crate::AcquireError::QueueFull). At least 1; default: 64.
    pub fn max_waiters_per_key(mut self, count: usize) -> Self {
        self.settings.max_waiters_per_key = count;
        self
    }

    /// How many callers of this manager may wait for locks in all. At least 1; default: 10,000.
    pub fn max_waiters(mut self, count: usize) -> Self {
        self.settings.max_waiters = count;
        self
    }

    /// How often a lock may pass from one caller to the next inside this process before it is released on the
    /// nodes. Default: 32 times, for 250 ms; [`HandOff::OFF`] switches it off. The time is at most
    /// [`max_hold`](Self::max_hold). Beside processes with another library: [`HandOff::OFF`].
    pub fn hand_off(mut self, hand_off: HandOff) -> Self {
        self.settings.hand_off = hand_off;
        self
    }

    /// Whether holders get fencing tokens, and how long the nodes keep the counters. Default: they do, for 5 min after
    /// the last use, or the ttl if that is longer; [`Fencing::OFF`] switches it off.
    pub fn fencing(mut self, fencing: Fencing) -> Self {
        self.settings.fencing = fencing;
        self
    }

    /// Whether nodes that may have forgotten their locks are kept from granting them again, and by how much clocks
    /// differ at most. Default: they are, and by 1 s; [`RestartGuard::OFF`] switches it off.
    pub fn restart_guard(mut self, guard: RestartGuard) -> Self {
        self.settings.guard = guard;
        self
    }

    /// Declares that no lock is held on any node: nodes that remember nothing need not wait for the end of leases that
    /// they may have forgotten. Default: `false`.
    ///
    /// For tests, and for the first start of a deployment. It holds until [`connect`](Self::connect) returns (for
    /// [`lazy`](Self::lazy): for the connect time-out) and for nodes that are seen for the first time. A program that
    /// always sets it undoes the restart guard whenever it starts.
    pub fn bootstrap(mut self, no_lock_is_held: bool) -> Self {
        self.settings.bootstrap = no_lock_is_held;
        self
    }

    /// Whether [`connect`](Self::connect) takes a quorum of nodes for enough where others reply and cannot serve: after
    /// a change of one server's settings or password, say. Default: `false`, so that a mistake in the list of nodes is
    /// found before it matters.
    ///
    /// Each node that cannot serve is told as an error event, and `redlock_node_voting` is 0 for it. It is looked at
    /// again from time to time, and votes once it is repaired. It holds for a list that all of its nodes have accepted
    /// before: a new list needs every node as always, and ends with [`ConnectError::NoQuorum`] otherwise. A node that
    /// serves processes with another list is still an error. It needs the [restart guard](Self::restart_guard), by
    /// which nodes tell what they have accepted. Nodes that do not reply at all never keep a quorum from starting.
    pub fn start_on_quorum(mut self, enough: bool) -> Self {
        self.settings.start_on_quorum = enough;
        self
    }

    /// Whether lock keys, which may name people, are kept out of events and [snapshots](LockManager::snapshot):
    /// [`LockKey::redacted`](crate::LockKey::redacted) stands in their place. Default: `false`.
    pub fn redact_keys(mut self, redact: bool) -> Self {
        self.settings.redact_keys = redact;
        self
    }

    /// How long [`connect`](Self::connect) waits for a quorum of nodes. Default: 5 s. It waits longer while nodes
    /// that reply wait for the end of leases that they may have forgotten ([`RestartGuard`]).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// The clock that leases are measured with. Default: the system's clock that counts suspend.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes the manager and waits until a quorum of nodes takes commands.
    ///
    /// Nodes that do not reply by then are connected in the background; they are named in the log (feature
    /// `tracing`) and by [`LockManager::nodes`].
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] for an invalid setting, [`ConnectError::Misconfigured`] if any node replies and
    /// cannot serve (unless it may [start on a quorum](Self::start_on_quorum)), [`ConnectError::NoQuorum`] if too few
    /// reply within the connect time-out, or cannot be made to vote once their quarantine is over; the last two name
    /// each node and its fault.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the connections are closed.
    pub async fn connect(self) -> Result<LockManager, ConnectError> {
        let limit = self.settings.connect_timeout;
        let on_quorum = self.settings.start_on_quorum;
        let locks = self.lazy()?;
        if let Err(error) = locks.connected(limit, on_quorum).await {
            locks.give_up().await;
            return Err(error);
        }
        locks.stop_trusting_new_nodes();
        Ok(locks)
    }

    /// Makes the manager without waiting for any node. In its first second callers wait until a connection to each node
    /// has been tried. Until a quorum is connected, locks fail with
    /// [`NoQuorum`](crate::AcquireError::NoQuorum).
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an invalid setting, or outside a tokio runtime.
    pub fn lazy(self) -> Result<LockManager, ConfigError> {
        let options = self.inspect()?;
        #[cfg(feature = "redis")]
        for (_, node) in &self.redis {
            if let Some(source) = &self.credentials {
                node.credentials_from(source.clone());
            }
        }
        LockManager::start(self.nodes, self.clock, options)
    }

    /// Checks the settings and the nodes.
    pub(crate) fn inspect(&self) -> Result<Options, ConfigError> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let options = self.settings.check(self.nodes.len())?;
        #[cfg(feature = "redis")]
        let mut addresses = HashSet::new();
        #[cfg(feature = "redis")]
        for (index, node) in &self.redis {
            let address = node.address();
            if !addresses.insert(address) {
                let text = format!(
                    "the server {address} is listed twice; every node must be a server of its own"
                );
                return Err(ConfigError::of(format!("nodes[{index}]"), text));
            }
        }
        let mut names = HashSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let name = node.name();
            if !names.insert(name) {
                let text = format!("two nodes are called {name}; give each a name of its own");
                return Err(ConfigError::of(format!("nodes[{index}].name"), text));
            }
        }
        Ok(options)
    }

    /// Takes all settings at once.
    pub(crate) fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }
}

impl fmt::Debug for LockManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManagerBuilder")
            .field("settings", &self.settings)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// More nodes than are allowed.
const MANY: usize = 1_000;
