//! [`NodeConfig`] and [`TlsConfig`]: the address and the settings of a node.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::secret::Secret;

/// A Redis or Valkey server in a [`LockConfig`](crate::LockConfig). Each field is the setting of the same name of
/// `RedisNodeBuilder` (feature `redis`); `None` stands for the default.
///
/// In a configuration it is a URL, or a table with these fields, of which either `url` or `sentinels` and `master`
/// are needed.
///
/// `Debug` shows neither passwords nor keys, and no error does where it is read as a part of a `LockConfig`. Read it
/// there: alone, the format's own errors may quote it, and a duration whose parts have no sum panics in `humantime`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a URL in quotes or a table with `url`"
)]
#[non_exhaustive]
pub struct NodeConfig {
    /// The address of the server: `redis://[[user]:password@]host[:port][/database]`, `rediss://..` for TLS (feature
    /// `tls`), or `unix:///path`.
    pub url: Option<String>,
    /// In place of `url`: the URLs of the Sentinels that know the address of the server.
    pub sentinels: Vec<String>,
    /// The name of the server in the Sentinels.
    pub master: Option<String>,
    /// The name of the node in logs and errors. Default: `host:port`, or `sentinel:` and the name of the master.
    pub name: Option<String>,
    /// The user on the server, in place of the one in the URL. Default: [`LockConfig::user`](crate::LockConfig::user).
    pub user: Option<String>,
    /// The password on the server, in place of the one in the URL, without percent-encoding. Default: that of all
    /// nodes, [`LockConfig::password`](crate::LockConfig::password).
    pub password: Option<Secret>,
    /// In place of `password`: the path of a file with the password; a line break at its end does not count.
    pub password_file: Option<PathBuf>,
    /// The database on the server, in place of the one in the URL.
    pub database: Option<u32>,
    /// How long one attempt to connect may take. At least 1 ms; default: 1 s.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Option<Duration>,
    /// How many replicas must acknowledge a lock before it counts. At least 1; default: none.
    pub require: Option<u32>,
    /// How long they may take. At least 1 ms, and less than the manager's node time-out; default: a third of that.
    #[serde(with = "humantime_serde")]
    pub within: Option<Duration>,
    /// How many connections carry commands. From 1 to 32; default: 4 with `require`, else 1.
    pub connections: Option<usize>,
    /// How long an answer of the Sentinels is valid. From 100 ms to 1 min; default: 3 s.
    #[serde(with = "humantime_serde")]
    pub confirm_within: Option<Duration>,
    /// Whether replicas are expected from the beginning, though none is required. Default: `false`: once one is seen.
    pub expect_replicas: bool,
    /// Whether a server is accepted that may evict keys when it is full. Default: `false`.
    pub accept_eviction: bool,
    /// The certificates for this node. Default: those of [`LockConfig::tls`](crate::LockConfig::tls).
    pub tls: TlsConfig,
}

impl NodeConfig {
    /// The node at `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: Some(url.into()),
            ..Self::default()
        }
    }

    /// The node on the server that the Sentinels at `urls` call `master`.
    #[must_use]
    pub fn sentinel<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
        master: impl Into<String>,
    ) -> Self {
        Self {
            sentinels: urls.into_iter().map(Into::into).collect(),
            master: Some(master.into()),
            ..Self::default()
        }
    }
}

/// The certificates of TLS connections. Each is the path of a PEM file, or the PEM text itself
/// (`-----BEGIN CERTIFICATE-----` ..).
///
/// `Debug` shows no key, and no error does where it is read as a part of a `LockConfig`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a table with root_certificate"
)]
#[non_exhaustive]
pub struct TlsConfig {
    /// The certificate of the authority that signs those of the servers. Default: the public authorities.
    pub root_certificate: Option<String>,
    /// The certificate of this client, for servers that require one. It needs `client_key`.
    pub client_certificate: Option<String>,
    /// The private key of `client_certificate`.
    pub client_key: Option<Secret>,
}

impl TlsConfig {
    /// Whether there are no certificates.
    #[cfg(feature = "redis")]
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentinels: Vec<_> = self.sentinels.iter().map(|url| harmless(url)).collect();
        f.debug_struct("NodeConfig")
            .field("url", &self.url.as_deref().map(harmless))
            .field("sentinels", &sentinels)
            .field("master", &self.master)
            .field("name", &self.name)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("password_file", &self.password_file)
            .field("database", &self.database)
            .field("connect_timeout", &self.connect_timeout)
            .field("require", &self.require)
            .field("within", &self.within)
            .field("connections", &self.connections)
            .field("confirm_within", &self.confirm_within)
            .field("expect_replicas", &self.expect_replicas)
            .field("accept_eviction", &self.accept_eviction)
            .field("tls", &self.tls)
            .finish()
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some keep certificate and key in one text.
        let path = |place: &Option<String>| match place {
            Some(text) if is_pem(text) => Some(HIDDEN.to_owned()),
            other => other.clone(),
        };
        f.debug_struct("TlsConfig")
            .field("root_certificate", &path(&self.root_certificate))
            .field("client_certificate", &path(&self.client_certificate))
            .field("client_key", &self.client_key)
            .finish()
    }
}

const HIDDEN: &str = "..";

/// Whether it is a PEM text, and no path.
pub(super) fn is_pem(text: &str) -> bool {
    text.contains("-----BEGIN")
}

/// The part of a URL that certainly holds no password. A malformed URL may have one anywhere.
fn harmless(url: &str) -> String {
    let shown = || {
        let (scheme, rest) = url.split_once("://")?;
        let is_path = matches!(scheme, "unix" | "redis+unix" | "valkey+unix");
        if !(is_path || matches!(scheme, "redis" | "rediss" | "valkey" | "valkeys")) {
            return None;
        }
        let (place, query) = match rest.find(['?', '#']) {
            Some(end) => (rest.get(..end)?, "?.."),
            None => (rest, ""),
        };
        let (hidden, address) = match rest.rsplit_once('@') {
            // Any of these characters may be a part of a password.
            Some(_) if is_path || !query.is_empty() => return None,
            Some((_, address)) => ("..@", address),
            None => ("", place),
        };
        let fits = if is_path {
            address.starts_with('/')
        } else {
            is_address(address)
        };
        fits.then(|| format!("{scheme}://{hidden}{address}{query}"))
    };
    shown().unwrap_or_else(|| HIDDEN.to_owned())
}

/// Whether it reads `host[:port][/database]`.
fn is_address(text: &str) -> bool {
    let (place, database) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (place, ""),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !host.is_empty()
        && (host.starts_with('[') || !host.contains(':'))
        && digits(port)
        && digits(database)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_a_password() {
        for (url, shown) in [
            ("redis://h", "redis://h"),
            ("redis://h:1/2", "redis://h:1/2"),
            ("rediss://u:s3cret@h:1/2", "rediss://..@h:1/2"),
            ("valkey://:s3@cret@[::1]:7", "valkey://..@[::1]:7"),
            (
                "unix:///run/r.sock?pass=s3cret&db=2",
                "unix:///run/r.sock?..",
            ),
            ("redis+unix:///run/r.sock", "redis+unix:///run/r.sock"),
            ("redis://:s3/cret@h", "redis://..@h"),
            ("redis://:s3cret", ".."),
            ("redis://u:s3cret", ".."),
            ("redis://u:s3cret/h", ".."),
            ("redis://h?pass=s3@cret", ".."),
            ("redis://h?pass=s3cret", "redis://h?.."),
            ("redis://:s3?cret@h", ".."),
            ("unix://s3cret", ".."),
            ("unix://:s3cret@/run", ".."),
            ("s3cret", ".."),
            ("s3cret://h", ".."),
            ("", ".."),
        ] {
            assert_eq!(harmless(url), shown, "{url}");
        }
    }
}
