//! [`NodeSettings`]: where a server is, and how it is used.

#[cfg(feature = "redis")]
use std::path::{Path, PathBuf};
#[cfg(feature = "redis")]
use std::time::Duration;

use serde::Deserialize;

#[cfg(feature = "redis")]
use crate::settings::credentials::CredentialsSource;
#[cfg(feature = "redis")]
use crate::settings::secret::Url;
use crate::settings::secret::{Pem, Secret};

/// The settings of a Redis node, which `RedisNodeBuilder` has setters for. `None` stands for the default.
///
/// In a file it is a URL, or a table with these fields, of which either `url` or `sentinels` and `master` are needed.
#[cfg(feature = "redis")]
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a URL in quotes or a table with `url`"
)]
pub(crate) struct NodeSettings {
    pub(crate) url: Option<Url>,
    pub(crate) sentinels: Vec<Url>,
    pub(crate) master: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) database: Option<u32>,
    #[serde(with = "humantime_serde")]
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) require: Option<u32>,
    #[serde(with = "humantime_serde")]
    pub(crate) within: Option<Duration>,
    pub(crate) connections: Option<usize>,
    #[serde(with = "humantime_serde")]
    pub(crate) confirm_within: Option<Duration>,
    pub(crate) expect_replicas: bool,
    pub(crate) accept_eviction: bool,
    pub(crate) tls: TlsSettings,
    #[serde(skip)]
    pub(crate) credentials: Option<CredentialsSource>,
}

/// The certificates of TLS connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a table with root_certificate"
)]
pub(crate) struct TlsSettings {
    pub(crate) root_certificate: Option<Pem>,
    pub(crate) client_certificate: Option<Pem>,
    pub(crate) client_key: Option<Secret>,
}

impl TlsSettings {
    /// Whether there are no certificates.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What nodes have that have none of their own: the settings of all nodes.
#[cfg(feature = "redis")]
#[derive(Clone, Copy)]
pub(crate) struct ForAll<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) password: Option<&'a Secret>,
    pub(crate) password_file: Option<&'a Path>,
    pub(crate) tls: Option<&'a TlsSettings>,
    pub(crate) credentials: Option<&'a CredentialsSource>,
}

#[cfg(feature = "redis")]
pub(crate) type Listed = NodeSettings;

#[cfg(not(feature = "redis"))]
#[derive(Clone, Debug)]
pub(crate) enum Listed {}

#[cfg(not(feature = "redis"))]
impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom(
            "servers need the feature `redis` of `tower-redlock`; enable it in Cargo.toml, or use `memory`",
        ))
    }
}
