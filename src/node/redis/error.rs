//! Errors of the client and the server, without secrets.

use std::borrow::Cow;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::node::{NodeError, NodeErrorKind, unmarked};

const LONGEST_TEXT: usize = 200;

const UNMARKED: &str = "NOMARK ";

pub(crate) fn garbled(command: &str) -> NodeError {
    NodeError::new(
        NodeErrorKind::Garbled,
        format!("it answered {command} with something that makes no sense"),
    )
}

pub(super) fn unavailable(detail: impl Into<Cow<'static, str>>) -> NodeError {
    NodeError::new(NodeErrorKind::Unavailable, detail)
}

pub(crate) fn rejected(text: &str) -> NodeError {
    if text.contains(UNMARKED) {
        return unmarked();
    }
    let cause = scrub(text);
    if text.contains("WRONGTYPE") {
        return NodeError::new(NodeErrorKind::WrongType, WRONG_TYPE);
    }
    if text.contains("OOM ") {
        let detail = format!("it is out of memory; raise `maxmemory` or make room: {cause}");
        return NodeError::new(NodeErrorKind::Full, detail);
    }
    let detail = if is_missing_right(text) {
        format!(
            "its ACL does not allow what locks need (see the rule in `docs::several_servers`; `ACL LOG` on the server shows the command): {cause}"
        )
    } else if is_read_only(text) {
        format!("it is no longer a master: {cause}")
    } else if is_elsewhere(text) {
        format!("its slot is on another server or is being moved, or the cluster is down: {cause}")
    } else {
        format!("it refused the command: {cause}")
    };
    NodeError::new(NodeErrorKind::Rejected, detail)
}

pub(super) fn is_elsewhere(text: &str) -> bool {
    ELSEWHERE.iter().any(|code| text.contains(code))
}

const ELSEWHERE: [&str; 4] = ["MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN "];
const WRONG_TYPE: &str = "the key, or a key that belongs to it, holds a value that is not a lock or its data; remove that value or use another namespace";

pub(crate) fn failed(error: &RedisError) -> NodeError {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => rejected(&server_text(error)),
        ErrorKind::Io => {
            let cause = scrub(&error.to_string());
            NodeError::new(
                NodeErrorKind::Interrupted,
                format!("the connection broke before the reply to a command: {cause}"),
            )
        }
        _ => {
            let cause = scrub(&error.to_string());
            NodeError::new(
                NodeErrorKind::Garbled,
                format!("its answer made no sense: {cause}"),
            )
        }
    }
}

/// Whether the error says that another server has the key now.
pub(super) fn is_not_there(text: &str) -> bool {
    is_read_only(text) || text.contains("MOVED ")
}

fn is_read_only(text: &str) -> bool {
    // Search the whole text, because older servers wrap errors of calls in a script.
    text.contains("READONLY")
}

/// Whether the server will probably answer soon, for example because it is loading data.
pub(super) fn is_not_ready(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown | ServerErrorKind::TryAgain
        )
    ) || error.code() == Some("BUSY")
        || error
            .detail()
            .is_some_and(|text| text.contains("max number of clients"))
}

pub(crate) fn is_missing_right(text: &str) -> bool {
    // Servers of different versions report a missing right in scripts by different sentences.
    let texts = [
        "NOPERM",
        "The user executing the script can't",
        "ACL failure in script",
    ];
    texts.iter().any(|missing| text.contains(missing))
}

pub(crate) fn server_text(error: &RedisError) -> String {
    let code = error.code().unwrap_or("ERR");
    match error.detail() {
        Some(detail) => format!("{code} {detail}"),
        None => code.to_owned(),
    }
}

pub(super) fn clean(text: &str, secrets: &[String]) -> String {
    let hide = |text: String, secret: &String| text.replace(secret, "…");
    scrub(&secrets.iter().fold(text.to_owned(), hide))
}

/// Removes tokens and control characters from a server's text, because servers quote arguments.
pub(super) fn scrub(text: &str) -> String {
    let text = text
        .split_once("with args beginning")
        .map_or(text, |(before, _)| before)
        .trim_end_matches([',', ' ']);
    let mut clean = String::new();
    let mut digits = String::new();
    for character in text.chars().take(LONGEST_TEXT).chain([' ']) {
        if character.is_ascii_hexdigit() {
            digits.push(character);
            continue;
        }
        // Numbers of this length are probably tokens or their hashes.
        if digits.len() >= 16 {
            clean.push('…');
        } else {
            clean.push_str(&digits);
        }
        digits.clear();
        let is_control = character.is_control();
        clean.push(if is_control { ' ' } else { character });
    }
    clean.truncate(clean.trim_end().len());
    clean
}

pub(super) enum ConnectFailure {
    /// The server can come back without any action.
    Down(NodeError),
    /// An operator has to fix this.
    Refused(NodeError),
    /// The server must be checked again immediately, because of a reply on this connection.
    Changed,
    /// The server must be checked again immediately, because of a reply on another connection.
    Warned,
    /// The server was demoted, received another server's data, and was promoted again.
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
                // The client recognises only one of two forms in which servers quote the name.
                misconfigured(NO_RESP3.to_owned())
            } else if is_missing_right(&text) {
                misconfigured(format!(
                    "its ACL does not allow us to {act}; see the rule in `docs::several_servers`: {cause}"
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

#[cfg(feature = "tls")]
fn is_tls(error: &RedisError) -> bool {
    use std::error::Error;

    // The client wraps the cause in an `Arc`, and `source` returns the `Arc`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_arguments_and_tokens_do_not_reach_the_logs() {
        let token = "00112233445566778899aabbccddeeff00112233";
        let quoted =
            format!("ERR unknown command 'EVALSHA', with args beginning with: '{token}' 's3cret' ");
        assert_eq!(scrub(&quoted), "ERR unknown command 'EVALSHA'");
        assert_eq!(scrub(&format!("bad {token}.")), "bad ….");
        assert_eq!(scrub(&format!("bad {token}")), "bad …");
        assert_eq!(
            scrub("deadbeef is short\r\nand stays"),
            "deadbeef is short  and stays"
        );
        assert!(scrub(&"x".repeat(10_000)).chars().count() <= LONGEST_TEXT);
    }

    #[test]
    fn a_refusal_says_what_to_change() {
        let of = |text| rejected(text).to_string();
        assert!(
            of("NOPERM User locks has no permissions to run the 'pttl' command").contains("ACL")
        );
        let valkey =
            of("ERR ACL failure in script: User locks has no permissions to run the 'del'");
        assert!(valkey.contains("its ACL does not allow"), "{valkey}");
        let unnamed = of("ERR The user executing the script can't run this command");
        assert!(unnamed.contains("`ACL LOG` on the server"), "{unnamed}");
        assert!(of("WRONGTYPE Operation against a key").contains("not a lock"));
        assert!(of("OOM command not allowed").contains("maxmemory"));
        let older = "ERR Error running script (call to f_0): NOMARK the marker";
        assert!(of("NOMARK the marker").contains("delete that key") && of(older) == of("NOMARK x"));
        assert!(of("MISCONF Redis is configured").contains("MISCONF"));
        assert_eq!(rejected("OOM x").kind(), NodeErrorKind::Full);
        assert_eq!(rejected("WRONGTYPE x").kind(), NodeErrorKind::WrongType);
    }
}
