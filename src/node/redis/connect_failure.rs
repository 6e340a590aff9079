//! Why there is no connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use super::connect::connect;
use super::error::scrub;
use super::hub::Hub;
use super::info::Allowed;
use super::lanes::{Lanes, closed};
use super::link::Link;
use super::look::{LOOK, Looks};
use super::replicas::Replicas;
use super::url::{Target, Way};
use crate::node::{NodeContext, NodeError, NodeErrorKind, NodeState};
use crate::protocol::backoff::{Backoff, jitter};
use crate::token::OwnerToken;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, PushInfo, PushKind, RedisError, Value};
use tokio::sync::watch;
use super::connection::{Core, Setback};
use super::error::{is_missing_right, is_not_ready, server_text};
use super::info::Info;
use super::link::Link;
use super::look::Looks;
use super::scripts;
use super::sentinel::Lead;
use crate::node::{NodeContext, NodeError, NodeErrorKind};

/// Why there is no link, or no longer.
pub(super) enum Setback {
    /// It may come back any time.
    Down(NodeError),
    /// Somebody has to mend it.
    Refused(NodeError),
    /// It must be looked at again at once, because of an answer on this connection.
    Changed,
    /// The same, because of an answer on another connection.
    Warned,
    /// It was demoted, has another's data, and was promoted again.
    Promoted,
}

/// A random number for pauses: processes that lost a server together must not come back together.
pub(super) fn random() -> u64 {
    // Without a random source (which stops the manager elsewhere) the pause is the whole bound.
    getrandom::u64().unwrap_or(u64::MAX)
}

/// What a failure to `act` means for the node.
pub(super) fn setback(core: &Core, error: &RedisError, act: &str) -> Setback {
    let text = match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => server_text(error),
        _ => error.to_string(),
    };
    let cause = core.clean(&text);
    let misconfigured =
        |detail: String| Setback::Refused(NodeError::new(NodeErrorKind::Misconfigured, detail));
    let unavailable =
        |detail: String| Setback::Down(NodeError::new(NodeErrorKind::Unavailable, detail));
    match error.kind() {
        _ if is_not_ready(error) => unavailable(format!("it is not ready: {cause}")),
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
                    "its ACL does not allow to {act}; allow what the docs of `RedisNode` list: {cause}"
                ))
            } else {
                misconfigured(format!("it refused to let us {act}: {cause}"))
            }
        }
        ErrorKind::RESP3NotSupported => misconfigured(NO_RESP3.to_owned()),
        ErrorKind::Io if is_tls(error) => misconfigured(format!(
            "TLS failed: {cause}; check that it speaks TLS at this port, that `root_certificate` is its authority's, and that it accepts our `client_certificate` if it asks for one"
        )),
        ErrorKind::Io => unavailable(format!("cannot connect: {cause}")),
        ErrorKind::Parse => misconfigured(format!(
            "it does not speak the Redis protocol; check the address, and use `rediss://` if it expects TLS: {cause}"
        )),
        _ => misconfigured(format!("cannot {act}: {cause}")),
    }
}
