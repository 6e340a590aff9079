//! From values to settings: the tables of a configuration, and what a text in place of one means.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};

use super::node::{NodeConfig, TlsConfig};
use super::refusal::Refusal;
use super::secret::Secret;
use super::value::Value;
use crate::manager::{ConfigError, Fencing, HandOff, RestartGuard};

/// What one source says of a [`LockConfig`](super::LockConfig).
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct Given {
    #[serde(deserialize_with = "nodes")]
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
    #[serde(deserialize_with = "either")]
    pub(super) hand_off: Option<HandOff>,
    #[serde(deserialize_with = "either")]
    pub(super) fencing: Option<Fencing>,
    #[serde(deserialize_with = "either")]
    pub(super) restart_guard: Option<RestartGuard>,
    pub(super) bootstrap: Option<bool>,
    pub(super) redact_keys: Option<bool>,
    #[serde(deserialize_with = "either")]
    pub(super) tls: Option<TlsConfig>,
}

impl Given {
    pub(super) fn read(value: Value) -> Result<Self, ConfigError> {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let name = error.path().to_string();
            let path = error.path().clone();
            match is_of_each_node(&name) {
                true => ConfigError::of(&name, OF_EACH_NODE).named(),
                false => error.into_inner().at(&path),
            }
        })
    }
}

/// Whether `name` is a setting that nodes have and the whole has not.
pub(super) fn is_of_each_node(name: &str) -> bool {
    // The readers know their fields, and tell them when they are asked for another.
    let odd = || Value::Table(vec![(String::new(), Value::Nothing)]);
    let has = |refusal: Option<Refusal>| {
        let known = refusal.and_then(|refusal| refusal.known());
        known.is_some_and(|known| known.contains(&name))
    };
    has(NodeTable::deserialize(odd()).err()) && !has(Given::deserialize(odd()).err())
}

/// The fields of a [`NodeConfig`].
#[derive(Deserialize)]
#[serde(
    remote = "NodeConfig",
    default = "NodeConfig::default",
    deny_unknown_fields
)]
struct NodeTable {
    url: Option<String>,
    sentinels: Vec<String>,
    master: Option<String>,
    name: Option<String>,
    user: Option<String>,
    password: Option<Secret>,
    password_file: Option<PathBuf>,
    database: Option<u32>,
    #[serde(with = "humantime_serde")]
    connect_timeout: Option<Duration>,
    require: Option<u32>,
    #[serde(with = "humantime_serde")]
    within: Option<Duration>,
    connections: Option<usize>,
    #[serde(with = "humantime_serde")]
    confirm_within: Option<Duration>,
    expect_replicas: bool,
    accept_eviction: bool,
    #[serde(with = "TlsTable")]
    tls: TlsConfig,
}

/// The fields of a [`TlsConfig`].
#[derive(Deserialize)]
#[serde(
    remote = "TlsConfig",
    default = "TlsConfig::default",
    deny_unknown_fields
)]
#[serde(expecting = "a table with root_certificate")]
struct TlsTable {
    root_certificate: Option<String>,
    client_certificate: Option<String>,
    client_key: Option<Secret>,
}

/// A setting that is a text or a table.
trait TextOrTable: Sized {
    /// What it must be.
    const WANTED: &'static str;

    fn of_text(text: &str) -> Option<Self>;

    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error>;
}

impl TextOrTable for NodeConfig {
    const WANTED: &'static str = "a URL in quotes or a table with `url`";

    fn of_text(url: &str) -> Option<Self> {
        Some(Self::new(url))
    }

    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        NodeTable::deserialize(table)
    }
}

impl TextOrTable for TlsConfig {
    const WANTED: &'static str = "a table with root_certificate";

    fn of_text(_: &str) -> Option<Self> {
        None
    }

    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        TlsTable::deserialize(table)
    }
}

impl TextOrTable for HandOff {
    const WANTED: &'static str = "\"off\" or a table with max_passes and max_time";

    fn of_text(text: &str) -> Option<Self> {
        (text == "off").then_some(Self::OFF)
    }

    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Table {
            max_passes: Option<u32>,
            #[serde(with = "humantime_serde")]
            max_time: Option<Duration>,
        }
        let (table, usual) = (Table::deserialize(table)?, Self::default());
        Ok(Self::new(
            table.max_passes.unwrap_or(usual.max_passes()),
            table.max_time.unwrap_or(usual.max_time()),
        ))
    }
}

impl TextOrTable for Fencing {
    const WANTED: &'static str = "\"off\" or a table with keep";

    fn of_text(text: &str) -> Option<Self> {
        (text == "off").then_some(Self::OFF)
    }

    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Table {
            #[serde(with = "humantime_serde")]
            keep: Option<Duration>,
        }
        let keep = Table::deserialize(table)?.keep;
        Ok(keep.map_or_else(Self::default, Self::keep))
    }
}

impl TextOrTable for RestartGuard {
    const WANTED: &'static str = "\"off\" or a table with max_clock_skew";

    fn of_text(text: &str) -> Option<Self> {
        (text == "off").then_some(Self::OFF)
    }

    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Table {
            #[serde(with = "humantime_serde")]
            max_clock_skew: Option<Duration>,
        }
        let skew = Table::deserialize(table)?.max_clock_skew;
        Ok(skew.map_or_else(Self::default, Self::max_clock_skew))
    }
}

/// Reads a [`TextOrTable`].
struct Either<T>(PhantomData<T>);

impl<'de, T: TextOrTable> Visitor<'de> for Either<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WANTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::of_text(text).ok_or_else(|| E::invalid_type(Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<T, A::Error> {
        T::of_table(MapAccessDeserializer::new(table))
    }
}

fn one<'de, T: TextOrTable, D: Deserializer<'de>>(value: D) -> Result<T, D::Error> {
    value.deserialize_any(Either(PhantomData))
}

fn either<'de, T: TextOrTable, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    one(value).map(Some)
}

fn nodes<'de, D: Deserializer<'de>>(list: D) -> Result<Option<Vec<NodeConfig>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Item(#[serde(deserialize_with = "one")] NodeConfig);
    let items = Vec::<Item>::deserialize(list)?;
    Ok(Some(items.into_iter().map(|Item(node)| node).collect()))
}

const OF_EACH_NODE: &str =
    "is a setting of each node, not of all at once; put it into the table of each node";
