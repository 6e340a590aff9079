//! [`ConnectFailure`]: why there is no connection.

use std::borrow::Cow;

use redis::{ErrorKind, RedisError};

use crate::node::redis::error::{clean, is_missing_right, is_not_ready, server_text, unavailable};
use crate::node::{NodeError, NodeErrorKind};

/// Why there is no connection, or no longer.
pub(super) enum ConnectFailure {
    /// It may come back any time.
    Down(NodeError),
    /// An operator has to fix it.
    Refused(NodeError),
    /// The server must be looked at again at once, because of a reply on this connection.
    Changed,
    /// The same, because of a reply on another connection.
    Warned,
    /// The server was demoted, got another server's data, and was promoted again.
    Promoted,
}

impl ConnectFailure {
    pub(super) fn down(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Down(unavailable(detail))
    }

    pub(super) fn misconfigured(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(NodeError::new(NodeErrorKind::Misconfigured, detail))
    }
}

/// A random number for pauses: processes that lost a server together must not come back together.
pub(super) fn random() -> u64 {
    // Without a random source (which stops the manager elsewhere) the pause is the whole bound.
    crate::random::u64().unwrap_or(u64::MAX)
}

/// The failure for an error of the attempt to `act`. Its text does not contain the `secrets`.
pub(super) fn failure(secrets: &[String], error: &RedisError, act: &str) -> ConnectFailure {
    let text = match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => server_text(error),
        _ => error.to_string(),
    };
    let cause = clean(&text, secrets);
    let misconfigured = |detail: String| ConnectFailure::misconfigured(detail);
    let down = |detail: String| ConnectFailure::down(detail);
    match error.kind() {
        _ if is_not_ready(error) => down(format!("it is not ready: {cause}")),
        ErrorKind::AuthenticationFailed => misconfigured(wrong_password(&cause)),
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let code = error.code().unwrap_or_default();
            if matches!(code, "WRONGPASS" | "NOAUTH") {
                misconfigured(wrong_password(&cause))
            } else if text.contains("unknown command") && text.contains("HELLO") {
                // The client knows only one of the two ways servers quote the name.
                misconfigured(NO_RESP3.to_owned())
            } else if is_missing_right(&text) {
                misconfigured(format!(
                    "its ACL does not allow to {act}; see the rule in `docs::nodes`: {cause}"
                ))
            } else {
                misconfigured(format!("it refused to let us {act}: {cause}"))
            }
        }
        ErrorKind::RESP3NotSupported => misconfigured(NO_RESP3.to_owned()),
        ErrorKind::Io if is_tls(error) => misconfigured(format!(
            "TLS failed: {cause}; check that it speaks TLS at this port, that `root_certificate` is its authority's, and that it accepts our `client_certificate` if it asks for one"
        )),
        ErrorKind::Io => down(format!("cannot connect: {cause}")),
        ErrorKind::Parse => misconfigured(format!(
            "it does not speak the Redis protocol; check the address, and use `rediss://` if it expects TLS: {cause}"
        )),
        _ => misconfigured(format!("cannot {act}: {cause}")),
    }
}

const NO_RESP3: &str = "it does not speak RESP3 (`HELLO 3`); locks need Redis 6.2 or later, or Valkey, with `HELLO` not renamed and no proxy in front";

fn wrong_password(cause: &str) -> String {
    format!(
        "it refused the credentials; check the user and password of the node, of its URL, or for all nodes: {cause}"
    )
}

/// Whether the error came out of a TLS handshake that took place.
#[cfg(feature = "tls")]
fn is_tls(error: &RedisError) -> bool {
    use std::error::Error;

    // The client keeps its cause in an `Arc`, and shows that one.
    error
        .source()
        .and_then(|source| source.downcast_ref::<std::sync::Arc<dyn Error + Send + Sync>>())
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .and_then(std::io::Error::get_ref)
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

#[cfg(not(feature = "tls"))]
const fn is_tls(_error: &RedisError) -> bool {
    false
}
