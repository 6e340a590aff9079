//! The settings of a Redis node, and its credentials.

use std::error::Error;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::node::NodeFuture;

/// The settings of a Redis node, for which `RedisNode` has setters. `None` is the default.
///
/// In a file, a node is a URL, or a table with these fields. It needs `url`, `sentinels` and `master`, or `cluster`.
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
    pub(crate) cluster: Vec<Url>,
    pub(crate) slots: Option<u16>,
    pub(crate) name: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) database: Option<u32>,
    pub(crate) require: Option<u32>,
    #[serde(with = "humantime_serde")]
    pub(crate) confirm_within: Option<Duration>,
    pub(crate) expect_replicas: bool,
    pub(crate) durable: bool,
    pub(crate) tls: TlsSettings,
    #[serde(skip)]
    pub(crate) credentials: Option<CredentialsSource>,
    // The limit of one attempt. Only the settings for all nodes, and tests, have it.
    #[serde(skip)]
    pub(crate) connect_timeout: Option<Duration>,
    // Only tests set these two fields.
    #[serde(skip)]
    pub(crate) within: Option<Duration>,
    #[serde(skip)]
    pub(crate) connections: Option<usize>,
}

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
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A password or a private key. Neither `Debug` nor an error shows it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The path of a PEM file, or its text. The text can contain a private key.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Pem(pub(crate) String);

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if is_pem(&self.0) { HIDDEN } else { &self.0 })
    }
}

pub(crate) fn is_pem(text: &str) -> bool {
    text.contains("-----BEGIN")
}

const HIDDEN: &str = "..";

/// A user and a password, and how long they are valid. `Debug` does not show the password.
///
/// See [`RedisNode::credentials`](crate::node::RedisNode::credentials).
#[derive(Clone, PartialEq, Eq)]
#[must_use = "credentials do nothing unless a callback returns them"]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
    pub(crate) valid_for: Option<Duration>,
}

impl Credentials {
    /// Makes credentials with this password. They are for the node's user, or the default user, unless you call
    /// [`user`](Self::user).
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
            valid_for: None,
        }
    }

    /// Sets the user to which the password belongs.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets how long the credentials are valid, beginning now. Default: until the connection ends.
    ///
    /// The callback is called again after three quarters of this time, but not before 100 ms.
    pub const fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("valid_for", &self.valid_for)
            .finish_non_exhaustive()
    }
}

type Callback = dyn Fn() -> NodeFuture<Result<Credentials, String>> + Send + Sync;

#[derive(Clone)]
pub(crate) struct CredentialsSource(
    // Unwind safe, because a panic in the callback ends the connection's task, and each connection calls it once at a
    // time.
    pub(crate) Arc<AssertUnwindSafe<Box<Callback>>>,
);

impl CredentialsSource {
    pub(crate) fn new<F, Fut, E>(source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self(Arc::new(AssertUnwindSafe(Box::new(move || {
            let credentials = source();
            Box::pin(async move {
                let credentials = credentials.await;
                credentials.map_err(|error| error.into().to_string())
            })
        }))))
    }
}

impl fmt::Debug for CredentialsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialsSource(..)")
    }
}

/// The URL of a server. `Debug` shows only the part that certainly contains no password.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Url(pub(crate) String);

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&harmless(&self.0))
    }
}

/// Shows less of a malformed URL, in which the password can be anywhere.
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
            // The password itself may contain any of these characters.
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

/// Whether the text has the form `host[:port][/database]`.
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
