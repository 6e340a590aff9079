//! A manager's settings: [`LockConfig`] has them all as data, from a file or the environment; the types of single
//! settings are those that [`LockManagerBuilder`](crate::LockManagerBuilder) takes, too.

mod build;
mod env;
mod node;
mod read;
#[cfg(feature = "redis")]
mod redis_node;
mod refusal;
mod secret;
mod value;

use std::path::PathBuf;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};

pub use self::node::{NodeConfig, TlsConfig};
use self::read::Given;
pub use self::secret::Secret;
use self::value::Value;
use crate::manager::{ConfigError, ConnectError, LockManager, Settings};
pub use crate::manager::{Fencing, HandOff, RestartGuard};

/// All settings of a [`LockManager`] as data: from TOML, JSON and the like through `serde`, or from the
/// [environment](Self::from_env).
///
/// Only the nodes are required; the other settings have the defaults of the setters of the same names of
/// [`LockManagerBuilder`](crate::LockManagerBuilder). Durations are texts of numbers with units (`d`, `h`, `m`, `s`,
/// `ms` and the others of the crate `humantime`): `"10s"`, `"250ms"`, `"1m30s"`.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_redlock::{LockConfig, LockManager};
///
/// let text = r#"
///     memory = 5                # Or `nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]`.
///     ttl = "30s"
///     max_wait = "2s"
///     hand_off = { max_passes = 8, max_time = "50ms" }        # Or "off".
/// "#;
/// // Its `message`, and not the whole error, which may quote passwords.
/// let config: LockConfig = toml::from_str(text).map_err(|error| error.message().to_owned())?;
/// let locks = LockManager::from_config(&config).await?;
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
/// ttl = "10s"
/// max_ttl = "1m"                          # of all processes
/// node_timeout = "100ms"                  # a hundredth of the ttl, from 20ms to 200ms
/// connect_timeout = "5s"
/// drift_factor = 0.01
/// mask_losses = 0
/// max_hold = "1m"                         # or the ttl, if that is longer
/// max_wait = "5s"
/// max_waiters_per_key = 64
/// max_waiters = 10000
/// bootstrap = false
/// start_on_quorum = false
/// redact_keys = false
/// hand_off = { max_passes = 32, max_time = "250ms" }     # or "off"
/// fencing = { keep = "5m" }                                   # or "off"
/// restart_guard = { max_clock_skew = "1s" }                   # or "off"
/// user = "locks"                          # for all nodes that have none
/// password = "secret"                     # likewise; or password_file = "/run/secrets/redis"
///
/// ## A node is a URL, in `nodes = ["redis://10.0.0.1", ..]`, or a table.
/// [[nodes]]
/// url = "redis://:secret@10.0.0.1:6379/0"
/// name = "first"                          # host and port
/// connect_timeout = "1s"
/// expect_replicas = false
/// accept_eviction = false
///
/// [[nodes]]
/// url = "rediss://10.0.0.2"
/// user = "other"                          # in place of those in the URL, and of those for all nodes
/// password = "other"                      # or password_file
/// database = 0
/// ## These, or those of the table `tls` beside `ttl`, which are for all nodes. Paths, or the PEM text.
/// ## tls = { root_certificate = "ca.pem", client_certificate = "client.pem", client_key = "client.key" }
///
/// [[nodes]]
/// sentinels = ["redis://10.0.0.3:26379", "redis://10.0.0.4:26379", "redis://10.0.0.5:26379"]
/// master = "mymaster"
/// require = 2                             # replicas
/// within = "30ms"                         # a third of the node_timeout
/// connections = 4
/// confirm_within = "3s"
/// # "#;
/// # let config: tower_redlock::LockConfig = toml::from_str(text)?;
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # let _runtime = rt.enter();
/// # config.builder()?.lazy()?;
/// # Ok(()) }
/// # #[cfg(not(feature = "tls"))] fn main() {}
/// ```
///
/// # Errors
///
/// An error begins with the field: `nodes[1].require: is a text; it must be a whole number ..`. A field that does not
/// exist is an error, and so are a repeated field, `null`, and a number for a duration. Names and types are checked
/// when the text is read; values (URLs, ranges, files), when [`builder`](Self::builder) or [`LockManager::from_config`]
/// is called.
///
/// # Passwords
///
/// `user`, and `password` or `password_file`, are for all nodes; each node may have its own, in its table or its URL.
/// So the nodes may be in a file and the password in the environment:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_redlock::LockConfig;
///
/// let file = r#"nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]"#;
/// let config: LockConfig = toml::from_str(file)?;
/// // `REDLOCK_PASSWORD`, or `REDLOCK_PASSWORD_FILE`.
/// let config = config.with_env("REDLOCK")?;
/// # let _ = config;
/// # Ok(()) }
/// ```
///
/// Neither `Debug` nor any error shows a password or key. A configuration cannot be serialised: its passwords must
/// not be written out, and without them it would be another configuration.
///
/// A format's own error may show the text, which this crate cannot prevent. That of `toml` shows all of it in `Debug`,
/// which `main` prints, and lines of it in `Display`. Its `message()` is the error of this crate and nothing else.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LockConfig {
    /// The servers that are the nodes. 3 or 5 are usual, at most 32.
    pub nodes: Vec<NodeConfig>,
    /// In place of `nodes`: the number of nodes in the memory of this process, for development and for services of one
    /// process.
    pub memory: Option<usize>,
    /// The user on all servers that have none of their own, in their [`NodeConfig`] or URL. Sentinels get the
    /// credentials in their own URLs.
    pub user: Option<String>,
    /// The password on all servers that have none of their own.
    pub password: Option<Secret>,
    /// In place of `password`: the path of a file with the password; a line break at its end does not count. It is read
    /// by [`builder`](Self::builder).
    pub password_file: Option<PathBuf>,
    /// The prefix of all keys on the nodes. Default: `lk`.
    pub namespace: String,
    /// The time to live of a lock on the nodes. From 10 ms to `max_ttl`; default: 10 s.
    pub ttl: Duration,
    /// The longest ttl that any process uses with these nodes, see
    /// [`LockManagerBuilder::max_ttl`](crate::LockManagerBuilder::max_ttl). At least the ttl, at most 24 h; default: 60
    /// s.
    pub max_ttl: Duration,
    /// How long a node may take to reply. At least 1 ms, and at most the ttl; default: a hundredth of the ttl, from
    /// 20 ms to 200 ms.
    pub node_timeout: Option<Duration>,
    /// How long connecting waits for a quorum of nodes. From 1 ms to 24 h; default: 5 s.
    pub connect_timeout: Duration,
    /// Which part of the ttl is given up for clocks that do not run alike. From 0.0 to 0.5; default: 0.01.
    pub drift_factor: f64,
    /// How many nodes may lose everything they hold without two holders at once. Default: 0.
    pub mask_losses: usize,
    /// The longest a lock may be held. At least the ttl; default: 60 s, or the ttl if that is longer.
    pub max_hold: Option<Duration>,
    /// The longest time that a caller waits for a busy lock. Zero: no caller waits. Default: 5 s.
    pub max_wait: Duration,
    /// How many callers may wait for one key. At least 1; default: 64.
    pub max_waiters_per_key: usize,
    /// How many callers may wait in all. At least 1; default: 10,000.
    pub max_waiters: usize,
    /// How often, and for how long, a lock may pass from caller to caller: `"off"`, or a table with `max_passes` and
    /// `max_time`. Default: 32 times, for 250 ms.
    pub hand_off: HandOff,
    /// Whether holders get fencing tokens: `"off"`, or a table with the time to `keep` the counters, at least the ttl.
    /// Default: 5 min, or the ttl if that is longer.
    pub fencing: Fencing,
    /// Whether nodes that may have forgotten their locks are kept from granting them again: `"off"`, or a table with
    /// `max_clock_skew`. Default: 1 s.
    pub restart_guard: RestartGuard,
    /// Declares that no lock is held on any node, see
    /// [`LockManagerBuilder::bootstrap`](crate::LockManagerBuilder::bootstrap). Default: `false`; `true` does not
    /// belong into a permanent configuration.
    pub bootstrap: bool,
    /// [`LockManagerBuilder::start_on_quorum`](crate::LockManagerBuilder::start_on_quorum). Default: `false`.
    pub start_on_quorum: bool,
    /// [`LockManagerBuilder::redact_keys`](crate::LockManagerBuilder::redact_keys). Default: `false`.
    pub redact_keys: bool,
    /// The certificates for all nodes that have none of their own; they must be reached by TLS then.
    pub tls: TlsConfig,
}

impl Default for LockConfig {
    /// No nodes, and the default of every other setting.
    fn default() -> Self {
        let defaults = Settings::default();
        Self {
            nodes: Vec::new(),
            memory: None,
            user: None,
            password: None,
            password_file: None,
            namespace: defaults.namespace,
            ttl: defaults.ttl,
            max_ttl: defaults.max_ttl,
            node_timeout: defaults.node_timeout,
            connect_timeout: defaults.connect_timeout,
            drift_factor: defaults.drift_factor,
            mask_losses: defaults.masked,
            max_hold: defaults.max_hold,
            max_wait: defaults.max_wait,
            max_waiters_per_key: defaults.max_waiters_per_key,
            max_waiters: defaults.max_waiters,
            hand_off: defaults.hand_off,
            fencing: defaults.fencing,
            restart_guard: defaults.guard,
            bootstrap: defaults.bootstrap,
            start_on_quorum: defaults.start_on_quorum,
            redact_keys: defaults.redact_keys,
            tls: TlsConfig::default(),
        }
    }
}

impl LockConfig {
    /// Reads environment variables that begin with `prefix` and `_`: `REDLOCK_TTL=30s`.
    ///
    /// | settings | variables with the prefix `REDLOCK` |
    /// |---|---|
    /// | nodes by their URLs | `REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2` |
    /// | nodes with more settings | `REDLOCK_NODES_0_URL`, `REDLOCK_NODES_0_PASSWORD`, .. `REDLOCK_NODES_1_URL`, .. |
    /// | credentials of all nodes | `REDLOCK_USER`, `REDLOCK_PASSWORD` or `REDLOCK_PASSWORD_FILE` |
    /// | Sentinels | `REDLOCK_NODES_0_SENTINELS=redis://10.0.0.3:26379,..`, `REDLOCK_NODES_0_MASTER` |
    /// | what can be off | `REDLOCK_HAND_OFF=off`, or `REDLOCK_HAND_OFF_MAX_PASSES` and `REDLOCK_HAND_OFF_MAX_TIME` |
    /// | all others | `REDLOCK_MEMORY=5`, `REDLOCK_TTL=30s`, `REDLOCK_TLS_ROOT_CERTIFICATE`, .. |
    ///
    /// A comma in a URL's password is `%2C`. A variable with the prefix that is no setting is refused. Kubernetes sets
    /// variables with this prefix for a service called `redlock`: choose another name for one of the two.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the field and the variable.
    pub fn from_env(prefix: &str) -> Result<Self, ConfigError> {
        Self::default().with_env(prefix)
    }

    /// The same from variables that are not those of the process.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the field and the variable.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_redlock::LockConfig;
    ///
    /// let config = LockConfig::from_vars("REDLOCK", [("REDLOCK_MEMORY", "5"), ("HOME", "/home/me")])?;
    /// assert_eq!(config.memory, Some(5));
    ///
    /// let error = LockConfig::from_vars("REDLOCK", [("REDLOCK_TTL", "10")]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "ttl: must be a duration with units, as in \"10s\", \"250ms\" or \"1m30s\" (environment variable REDLOCK_TTL)"
    /// );
    /// # Ok::<(), tower_redlock::error::ConfigError>(())
    /// ```
    pub fn from_vars<K: Into<String>, V: Into<String>>(
        prefix: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError> {
        Self::default().with_vars(prefix, variables)
    }

    /// The same configuration with the settings of environment variables, as for [`from_env`](Self::from_env), in place
    /// of its own. Lists and tables are replaced as a whole; `memory` also replaces `nodes`, `password` also replaces
    /// `password_file`, and the reverse.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the field and the variable.
    pub fn with_env(self, prefix: &str) -> Result<Self, ConfigError> {
        self.with_vars(prefix, env::variables(prefix)?)
    }

    /// The same from variables that are not those of the process.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the field and the variable.
    pub fn with_vars<K: Into<String>, V: Into<String>>(
        mut self,
        prefix: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError> {
        let variables = variables.into_iter();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        self.apply(env::read(prefix, variables)?);
        Ok(self)
    }

    /// Replaces the settings that are in `given`.
    fn apply(&mut self, given: Given) {
        // Of two fields for one setting, that of `given` stays.
        if given.nodes.is_some() || given.memory.is_some() {
            (self.nodes, self.memory) = (Vec::new(), None);
        }
        if given.password.is_some() || given.password_file.is_some() {
            (self.password, self.password_file) = (None, None);
        }
        macro_rules! replace {
            ($($field:ident)*) => {
                // All fields by name, so that none is left out.
                let Given { $($field),* } = given;
                $(if let Some(value) = $field {
                    self.$field = value.into();
                })*
            };
        }
        replace! {
            nodes memory user password password_file namespace ttl max_ttl node_timeout connect_timeout drift_factor
            mask_losses max_hold max_wait max_waiters_per_key max_waiters hand_off fencing restart_guard bootstrap
            start_on_quorum redact_keys tls
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            namespace: self.namespace.clone(),
            ttl: self.ttl,
            max_ttl: self.max_ttl,
            node_timeout: self.node_timeout,
            drift_factor: self.drift_factor,
            masked: self.mask_losses,
            max_hold: self.max_hold,
            max_wait: self.max_wait,
            max_waiters_per_key: self.max_waiters_per_key,
            max_waiters: self.max_waiters,
            hand_off: self.hand_off,
            fencing: self.fencing,
            guard: self.restart_guard,
            bootstrap: self.bootstrap,
            start_on_quorum: self.start_on_quorum,
            redact_keys: self.redact_keys,
            connect_timeout: self.connect_timeout,
        }
    }
}

impl<'de> Deserialize<'de> for LockConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let given = Given::read(value).map_err(D::Error::custom)?;
        let mut config = Self::default();
        config.apply(given);
        Ok(config)
    }
}

impl LockManager {
    /// Makes the manager that `config` describes and waits until a quorum of nodes takes commands, as
    /// [`connect`](crate::LockManagerBuilder::connect) does.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] for an invalid setting, with the name of its field; else those of
    /// [`connect`](crate::LockManagerBuilder::connect).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the connections are closed.
    pub async fn from_config(config: &LockConfig) -> Result<Self, ConnectError> {
        config.builder()?.connect().await
    }
}
