//! From values to settings: those of one source.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::node::{NodeConfig, TlsConfig};
use super::refusal::Refusal;
use super::secret::Secret;
use super::value::Value;
use crate::manager::{ConfigError, Fencing, HandOff, RestartGuard};

/// The settings of a [`LockConfig`](super::LockConfig) that one source has.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct Given {
    pub(super) nodes: Option<Vec<NodeConfig>>,
    pub(super) memory: Option<usize>,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) namespace: Option<String>,
    #[serde(with = "humantime_serde")]
    pub(super) ttl: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub(super) max_ttl: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub(super) node_timeout: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub(super) connect_timeout: Option<Duration>,
    pub(super) drift_factor: Option<f64>,
    pub(super) mask_losses: Option<usize>,
    #[serde(with = "humantime_serde")]
    pub(super) max_hold: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub(super) max_wait: Option<Duration>,
    pub(super) max_waiters_per_key: Option<usize>,
    pub(super) max_waiters: Option<usize>,
    pub(super) hand_off: Option<HandOffTable>,
    pub(super) fencing: Option<FencingTable>,
    pub(super) restart_guard: Option<RestartGuardTable>,
    pub(super) bootstrap: Option<bool>,
    pub(super) start_on_quorum: Option<bool>,
    pub(super) redact_keys: Option<bool>,
    pub(super) tls: Option<TlsConfig>,
}

impl Given {
    pub(super) fn read(value: Value) -> Result<Self, ConfigError> {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().clone();
            match path.to_string() {
                name if is_of_each_node(&name) => ConfigError::of(name, OF_EACH_NODE).named(),
                _ => error.into_inner().at(&path),
            }
        })
    }
}

/// Whether `name` is a setting of nodes and not of the whole.
pub(super) fn is_of_each_node(name: &str) -> bool {
    // No field accepts nothing, and an unknown field is refused as such.
    let table = || Value::Table(vec![(name.to_owned(), Value::Nothing)]);
    let is_known = |refusal: Option<Refusal>| refusal.is_some_and(|refusal| !refusal.is_unknown());
    is_known(NodeConfig::deserialize(table()).err()) && !is_known(Given::deserialize(table()).err())
}

/// A table, or the text `off`, which is read as the field of that name.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[serde(expecting = "\"off\" or a table with max_passes and max_time")]
pub(super) struct HandOffTable {
    max_passes: Option<u32>,
    #[serde(with = "humantime_serde")]
    max_time: Option<Duration>,
    off: bool,
}

impl From<HandOffTable> for HandOff {
    fn from(table: HandOffTable) -> Self {
        if table.off {
            return Self::OFF;
        }
        let usual = Self::default();
        Self::new(
            table.max_passes.unwrap_or(usual.max_passes()),
            table.max_time.unwrap_or(usual.max_time()),
        )
    }
}

#[derive(Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "\"off\" or a table with keep"
)]
pub(super) struct FencingTable {
    #[serde(with = "humantime_serde")]
    keep: Option<Duration>,
    off: bool,
}

impl From<FencingTable> for Fencing {
    fn from(table: FencingTable) -> Self {
        match table.off {
            true => Self::OFF,
            false => table.keep.map_or_else(Self::default, Self::keep),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[serde(expecting = "\"off\" or a table with max_clock_skew")]
pub(super) struct RestartGuardTable {
    #[serde(with = "humantime_serde")]
    max_clock_skew: Option<Duration>,
    off: bool,
}

impl From<RestartGuardTable> for RestartGuard {
    fn from(table: RestartGuardTable) -> Self {
        match table.off {
            true => Self::OFF,
            false => table
                .max_clock_skew
                .map_or_else(Self::default, Self::max_clock_skew),
        }
    }
}

const OF_EACH_NODE: &str =
    "is a setting of each node, not of all at once; put it into the table of each node";
