//! From a [`LockConfig`] to a builder, with the name of the field in every error.

use super::{LockConfig, TlsConfig};
use crate::builder::LockManagerBuilder;
use crate::manager::{ConfigError, LockManager};

impl LockConfig {
    /// A builder with these settings, to add some that a configuration cannot have.
    ///
    /// It checks what formats and the fields' types do not: URLs, ranges, and settings that exclude each other.
    /// Passwords and certificates that are given as paths are read.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an invalid setting; its text begins with the name of the field, and [`ConfigError::field`]
    /// has the name, too.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_redlock::LockConfig;
    ///
    /// let mut config = LockConfig::default();
    /// config.memory = Some(5);
    /// config.ttl = Duration::from_millis(5);
    ///
    /// let error = config.builder().unwrap_err();
    /// assert_eq!(error.to_string(), "ttl is 5ms; it must be at least 10ms");
    /// assert_eq!(error.field(), Some("ttl"));
    /// ```
    pub fn builder(&self) -> Result<LockManagerBuilder, ConfigError> {
        self.assemble().map_err(ConfigError::named)
    }

    fn assemble(&self) -> Result<LockManagerBuilder, ConfigError> {
        let builder = LockManager::builder().settings(self.settings());
        let builder = match (self.memory, self.nodes.is_empty()) {
            (None, true) => return Err(ConfigError::of("nodes", NO_NODE)),
            (Some(_), false) => return Err(ConfigError::of("memory", BOTH)),
            (Some(_), true) if self.has_credentials() => {
                return Err(ConfigError::of("memory", NO_SERVER));
            }
            (Some(0), true) => return Err(ConfigError::of("memory", NO_MEMORY)),
            (Some(count), true) => builder.memory(count),
            (None, false) => self.listed(builder)?,
        };
        let options = builder.inspect().map_err(|error| match error.field() {
            Some("nodes") if self.memory.is_some() => error.moved("memory"),
            _ => error,
        })?;
        for (index, node) in self.nodes.iter().enumerate() {
            // The node itself checks it only once it is started.
            let Some(within) = node.within.filter(|within| *within >= options.node_timeout) else {
                continue;
            };
            let limit = options.node_timeout;
            let text = format!(
                "replicas may take {within:?}, but the manager waits for a node no longer than {limit:?}; choose a shorter `within` or a longer `node_timeout`"
            );
            return Err(ConfigError::of(format!("nodes[{index}].within"), text));
        }
        Ok(builder)
    }

    /// Whether there is anything that only servers need.
    fn has_credentials(&self) -> bool {
        let (user, password) = (self.user.is_some(), self.password.is_some());
        user || password || self.password_file.is_some() || self.tls != TlsConfig::default()
    }

    #[cfg(feature = "redis")]
    fn listed(&self, mut builder: LockManagerBuilder) -> Result<LockManagerBuilder, ConfigError> {
        for (index, node) in self.nodes.iter().enumerate() {
            let node = super::redis_node::build(node, &format!("nodes[{index}]"), self)?;
            builder = builder.redis_nodes([node]);
        }
        Ok(builder)
    }

    #[cfg(not(feature = "redis"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    fn listed(&self, _builder: LockManagerBuilder) -> Result<LockManagerBuilder, ConfigError> {
        Err(ConfigError::of("nodes[0]", NO_REDIS))
    }
}

const NO_NODE: &str =
    "there is no node: list their URLs, or say `memory = 5` for nodes inside this process";
const BOTH: &str =
    "nodes in memory and listed nodes do not go together; leave out `memory` or `nodes`";
const NO_SERVER: &str = "nodes in memory have neither credentials nor certificates; leave out `memory`, or those of servers";
const NO_MEMORY: &str = "must be at least 1; 5 are usual";
#[cfg(not(feature = "redis"))]
const NO_REDIS: &str =
    "servers need the feature `redis` of `tower-redlock`; enable it in Cargo.toml, or use `memory`";
