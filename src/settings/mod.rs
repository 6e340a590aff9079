//! The settings of a manager.

pub(crate) mod checked;
mod connect;
pub(crate) mod constants;
pub(crate) mod error;
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, unreachable_pub, reason = "only servers need all of it")
)]
pub(crate) mod server;
mod value;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};

use self::checked::Given;
use self::constants::Constants;
#[cfg(any(test, tower_redlock_tests))]
use self::constants::HandOff;
use self::error::ConfigError;
#[cfg(feature = "redis")]
use self::server::CredentialsSource;
use self::server::Secret;
use self::value::Value;
use crate::clock::Clock;
#[cfg(feature = "test-util")]
use crate::clock::TokioClock;
use crate::node::Node;
#[cfg(any(test, tower_redlock_tests))]
use crate::protocol::quorum::Drift;

/// The nodes and all settings of a [`LockManager`](crate::LockManager).
///
/// They come from setters, from TOML, JSON and other formats through `serde`, or from the
/// [environment](Self::with_env). You can combine these sources. Only the nodes are required.
///
/// In a file, the settings have the names of the setters, and durations are texts: `"10s"`, `"250ms"`, `"1m30s"`. To
/// change a setting for some locks only, use [`with_ttl`](crate::LockManager::with_ttl),
/// [`with_max_hold`](crate::LockManager::with_max_hold) or [`with_max_wait`](crate::LockManager::with_max_wait).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_redlock::Settings;
///
/// let text = r#"
///     memory = 1                # Or `nodes = "redis://10.0.0.1"`.
///     ttl = "30s"
/// "#;
/// // Only the `message`, because the whole error may quote passwords.
/// let settings: Settings = toml::from_str(text).map_err(|error| error.message().to_owned())?;
/// // For example the variables `REDLOCK_PASSWORD` or `REDLOCK_PASSWORD_FILE`.
/// let locks = settings.with_env("REDLOCK")?.connect().await?;
/// let guard = locks.acquire("order:42").await?;
/// # drop(guard);
/// # Ok(()) }
/// ```
///
/// All settings, with their defaults or usual values:
///
/// ```
/// # #[cfg(feature = "tls")] fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let text = r#"
/// namespace = "lk"
/// instance = "web-1@4711"
/// ttl = "10s"
/// max_ttl = "10s"
/// node_timeout = "100ms"
/// connect_timeout = "5s"
/// groups = 1
/// mask_losses = 0
/// max_hold = "1m"
/// max_wait = "5s"
/// max_waiters_per_key = 64
/// max_waiters = 10000
/// bootstrap = false
/// redact_keys = false
/// hand_off = true
/// fencing = true
/// restart_guard = true
/// user = "locks"                          # for all nodes that have no user
/// password = "secret"                     # or password_file = "/run/secrets/redis"
///
/// ## Or `nodes` is a URL, or a list of URLs.
/// [[nodes]]
/// url = "redis://:secret@10.0.0.1:6379/0"
/// name = "first"                          # host and port
/// expect_replicas = false
/// durable = false
///
/// [[nodes]]
/// url = "rediss://10.0.0.2"
/// user = "other"                          # overrides the URL
/// password = "other"                      # or password_file
/// database = 0
/// ## Paths, or the PEM text. For all nodes, put the table `tls` next to `ttl`.
/// ## tls = { root_certificate = "ca.pem", client_certificate = "client.pem", client_key = "client.key" }
///
/// [[nodes]]
/// sentinels = ["redis://10.0.0.3:26379", "redis://10.0.0.4:26379", "redis://10.0.0.5:26379"]
/// master = "mymaster"
/// require = 2                             # replicas
/// confirm_within = "3s"
///
/// [[nodes]]
/// cluster = ["redis://10.0.0.6", "redis://10.0.0.7"]     # each slot is a node, and `name` is the prefix of its name
/// slots = 3
/// # "#;
/// # toml::from_str::<tower_redlock::Settings>(text)?.check()?;
/// # Ok(()) }
/// # #[cfg(not(feature = "tls"))] fn main() {}
/// ```
///
/// # Errors
///
/// An error begins with the field: `nodes[1].require: is a text; it must be a whole number ..`. An unknown or repeated
/// field is an error.
///
/// Neither `Debug` nor an error of this crate shows a password or key. The error of a format can show the text of the
/// file: for `toml`, print only its `message()`.
#[derive(Clone, Default)]
#[must_use = "settings do nothing before `connect` or `connect_lazy`"]
pub struct Settings {
    given: Given,
    // Nodes of other kinds, which follow the listed nodes.
    others: Vec<Arc<dyn Node>>,
    // For nodes that have no callback of their own.
    #[cfg(feature = "redis")]
    credentials: Option<CredentialsSource>,
    clock: Option<Arc<dyn Clock>>,
    constants: Constants,
    observes: bool,
}

impl Settings {
    /// Adds `count` nodes in the memory of this process, for development and for services of one process. They cannot
    /// be combined with other nodes.
    pub fn memory(mut self, count: usize) -> Self {
        self.given.memory = Some(count);
        self
    }

    /// Adds nodes of any kind.
    #[cfg(tower_redlock_tests)]
    pub fn nodes<N: Node>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        let nodes = nodes.into_iter();
        self.others
            .extend(nodes.map(|node| Arc::new(node) as Arc<dyn Node>));
        self
    }

    /// The user for all servers that have no user in their settings or URL. Sentinels use only the credentials in their
    /// own URLs.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.given.user = Some(user.into());
        self
    }

    /// The password for all servers that have none of their own.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.given.password = Some(Secret(password.into()));
        self
    }

    /// The prefix of all keys on the nodes. Default: `lk`. All contenders for a lock must use the same namespace. Other
    /// Redlock libraries use the empty one.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.given.namespace = Some(namespace.into());
        self
    }

    /// The name of this process for operators, which the nodes store with each of its locks. At most 64 ASCII letters,
    /// digits, `-`, `_`, `.` and `@`. Default: host name and process id, for example `web-1@4711`. If it is empty, the
    /// nodes store only the owner token, as with other libraries.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.given.instance = Some(instance.into());
        self
    }

    /// How long a node keeps a lock that nobody extends, and so how long a lock outlives a crashed holder.
    ///
    /// The ttl does not limit the work, because the watchdog extends a held lock every third of the ttl. From 10 ms to
    /// 24 h, in whole milliseconds; default: 10 s. Use less than a second only in tests. A ttl above 10 s also raises
    /// [`max_ttl`](Self::max_ttl), which all processes must share.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.given.ttl = Some(ttl);
        self
    }

    /// The longest ttl that *any* process uses with these nodes, and the length of every quarantine.
    ///
    /// All processes must have the same value. From 10 ms to 24 h, and at least the [`ttl`](Self::ttl). Default: the
    /// longer of the `ttl` and 10 s. A node's vote counts if it comes within a tenth of `max_ttl` or within a second,
    /// whichever is longer, but never after `max_ttl`.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.given.max_ttl = Some(max_ttl);
        self
    }

    /// How long a node may take to reply. Default: a hundredth of the ttl, but at least 20 ms (or half the ttl, if that
    /// is less) and at most 200 ms.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.given.node_timeout = Some(timeout);
        self
    }

    /// The number of groups of equal size into which the nodes are divided, in their order. Default: 1. All processes
    /// must have the same value.
    ///
    /// Each key belongs to one group, so `n` groups carry `n` times as many locks. If a key has a text in braces, such
    /// as `{shop-7}:cart`, only that text selects the group. Keep keys that are locked together in one group. In a
    /// Redis Cluster, each group has slots of its own.
    pub fn groups(mut self, groups: usize) -> Self {
        self.given.groups = Some(groups);
        self
    }

    /// How many nodes may lose all their locks without being noticed by the restart guard. The quorum becomes
    /// `ceil((nodes + losses + 1) / 2)`. Default: 0, a majority.
    pub fn mask_losses(mut self, losses: usize) -> Self {
        self.given.mask_losses = Some(losses);
        self
    }

    /// The longest time that a lock may be held. After that, the lock is lost. At least the ttl; default: 60 s, or the
    /// ttl if that is longer.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.given.max_hold = Some(max_hold);
        self
    }

    /// The longest time that a caller waits for a busy lock. Default: 5 s. With zero, no caller waits.
    ///
    /// A layer waits only if its own [`max_wait`](crate::RedlockLayer::max_wait) or `max_wait_with` is set. This
    /// setting also limits the wait that a layer takes from a request.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.given.max_wait = Some(max_wait);
        self
    }

    /// How many callers of this manager may wait for one key, in addition to the caller that holds or acquires it. The
    /// next caller is refused with [`QueueFull`](crate::AcquireError::QueueFull). Adjacent readers count as at most one
    /// waiter. At least 1; default: 64.
    pub fn max_waiters_per_key(mut self, count: usize) -> Self {
        self.given.max_waiters_per_key = Some(count);
        self
    }

    /// How many callers of this manager may wait for locks in total. At least 1; default: 10,000.
    pub fn max_waiters(mut self, count: usize) -> Self {
        self.given.max_waiters = Some(count);
        self
    }

    /// Whether a released lock passes to the next waiting caller of this process without a command to the nodes, at
    /// most 32 times in a row and within 250 ms after the grant. Default: `true`. Switch it off if other libraries use
    /// the same keys.
    pub fn hand_off(mut self, hand_off: bool) -> Self {
        self.given.hand_off = Some(hand_off);
        self
    }

    /// Gives holders no [fencing tokens](crate::FencingToken), which saves a round trip for some locks
    /// (`docs::one_effect`).
    ///
    /// In a file: `fencing = false`. All processes must have the same value.
    pub fn without_fencing(mut self) -> Self {
        self.given.fencing = Some(false);
        self
    }

    /// Lets a node that may have forgotten its locks grant new locks immediately, so two requests may hold a key after
    /// the node restarts. By default, such a node grants nothing until these locks have ended (`docs::promises`).
    ///
    /// In a file: `restart_guard = false`. All processes must have the same value.
    ///
    /// If [fencing is off](Self::without_fencing) too, a lock is a plain `SET NX PX` on each node, which takes a server
    /// about half the time. A command that was left in a broken connection may then set the key after its release,
    /// until its ttl ends.
    pub fn without_restart_guard(mut self) -> Self {
        self.given.restart_guard = Some(false);
        self
    }

    /// Declares that no lock is held on any node, so that nodes need not wait before they grant. Default: `false`.
    ///
    /// Use it for tests, and for the first start of a deployment. A program that always sets it undoes the restart
    /// guard at each start. It is in effect until [`connect`](Self::connect) returns, or for the connect time-out after
    /// [`connect_lazy`](Self::connect_lazy).
    pub fn bootstrap(mut self, no_lock_is_held: bool) -> Self {
        self.given.bootstrap = Some(no_lock_is_held);
        self
    }

    /// Whether events, [snapshots](crate::LockManager::snapshot) and the `Debug` of guards and handles show the
    /// [redacted](crate::LockKey::redacted) lock key, because a key may name people. Default: `false`.
    pub fn redact_keys(mut self, redact: bool) -> Self {
        self.given.redact_keys = Some(redact);
        self
    }

    /// How long [`connect`](Self::connect) waits for a quorum of nodes, in addition to quarantines. Default: 5 s. One
    /// attempt to connect to a node may take a fifth of this time, but at least 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.given.connect_timeout = Some(timeout);
        self
    }

    /// For tools: looks whether nodes vote, but neither begins nor ends a quarantine.
    #[doc(hidden)]
    pub fn observing(mut self) -> Self {
        self.observes = true;
        self
    }

    /// Whether the nodes are in the memory of this process.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_in_memory(&self) -> bool {
        self.given.memory.is_some()
    }

    /// Measures leases with tokio's clock, so that a test with [paused time](tokio::time::pause) can end them.
    #[cfg(feature = "test-util")]
    pub fn tokio_clock(mut self) -> Self {
        self.clock = Some(Arc::new(TokioClock::new()));
        self
    }

    /// The limits of [`hand_off`](Self::hand_off).
    #[cfg(any(test, tower_redlock_tests))]
    pub fn hand_off_limits(mut self, max_passes: u32, max_time: Duration) -> Self {
        self.constants.hand_off = HandOff::new(max_passes, max_time);
        self
    }

    /// How long nodes keep the counters of fencing tokens.
    #[cfg(any(test, tower_redlock_tests))]
    pub fn fencing_keep(mut self, keep: Duration) -> Self {
        self.constants.keep = keep;
        self
    }

    /// The largest difference between the clocks of two processes.
    #[cfg(any(test, tower_redlock_tests))]
    pub fn max_clock_skew(mut self, skew: Duration) -> Self {
        self.constants.max_clock_skew = skew;
        self
    }

    /// The part of the ttl that is given up for clocks that run at different speeds, from 0.0 to 0.5.
    #[cfg(any(test, tower_redlock_tests))]
    pub fn drift_factor(mut self, factor: f64) -> Self {
        self.constants.drift = Drift::new(factor).unwrap_or_default();
        self
    }

    /// The clock that leases are measured with.
    #[cfg(any(test, tower_redlock_tests))]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Replaces settings with environment variables that begin with `prefix` and `_`: `REDLOCK_TTL=30s`,
    /// `REDLOCK_NODES=redis://10.0.0.1`, or several URLs with commas. For nodes with more settings, use
    /// `REDLOCK_NODES_0_URL`, `REDLOCK_NODES_0_PASSWORD` and so on. Write a comma in a URL's password as `%2C`.
    ///
    /// Lists and tables are replaced as a whole. Servers replace `memory`, but `memory` in place of servers is refused.
    ///
    /// Any other variable with the prefix is refused, except `_CONFIG`, `_FENCE`, `_KEY` and `_SLOT` of the program
    /// `redlock`. Kubernetes sets variables that begin with `REDLOCK_` if a service is called `redlock`: use another
    /// prefix there.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the field and the variable. Only [`check`](Self::check) finds values out of bounds, and it
    /// names the field alone.
    pub fn with_env(self, prefix: &str) -> Result<Self, ConfigError> {
        self.with_vars(prefix, value::variables(prefix)?)
    }

    /// Like [`with_env`](Self::with_env), but with the given variables.
    #[doc(hidden)]
    pub fn with_vars<K: Into<String>, V: Into<String>>(
        mut self,
        prefix: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError> {
        let variables = variables.into_iter();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        self.given.replace(value::given(prefix, variables)?);
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(Self {
            given: value::read(value).map_err(D::Error::custom)?,
            ..Self::default()
        })
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("given", &self.given)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}
