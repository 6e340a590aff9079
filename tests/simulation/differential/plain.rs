//! Replies without what differs from server to server by nature.

use std::fmt;

use tower_redlock_simulated::server::resp::Reply;

/// The lines of `INFO` that are compared.
const LINES: [&str; 9] = [
    "role",
    "connected_slaves",
    "master_failover_state",
    "master_replid2",
    "second_repl_offset",
    "evicted_keys",
    "maxmemory_policy",
    "cluster_enabled",
    "run_id",
];

/// A reply that is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Plain {
    Status(String),
    Error(String),
    Int(i64),
    Bulk(Bytes),
    Nil,
    NilArray,
    Array(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Push(Vec<Self>),
    Verbatim(Vec<String>),
    /// The server has ended the connection.
    Ended,
}

/// Bytes that are shown as text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bytes(Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Plain {
    /// The reply to the call of `asked`. Nothing was asked for a message.
    pub(super) fn of(reply: Reply, asked: &[Vec<u8>]) -> Self {
        let asked: Vec<String> = asked
            .iter()
            .take(2)
            .map(|word| String::from_utf8_lossy(word).to_ascii_uppercase())
            .collect();
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        let mut plain = Self::read(reply);
        match (asked.as_slice(), &mut plain) {
            (["CLIENT", "ID"], Self::Int(id)) => *id = 0,
            (["INFO", ..], Self::Bulk(text)) => {
                plain = Self::Verbatim(lines(&String::from_utf8_lossy(&text.0)));
            }
            (["KEYS", ..] | ["PUBSUB", "CHANNELS"], Self::Array(items)) => items.sort(),
            // As a script passes it on.
            (["EVAL", script, ..], Self::Array(items)) if script.contains("CHANNELS") => {
                items.sort()
            }
            (["HGETALL" | "HELLO", ..], Self::Array(items)) => {
                let pairs = items.chunks_exact(2);
                let pairs = pairs.map(|pair| (pair[0].clone(), pair[1].clone()));
                plain = Self::Map(pairs.collect());
            }
            _ => {}
        }
        if let Self::Map(pairs) = &mut plain {
            match asked.first() {
                Some(&"HGETALL") => pairs.sort(),
                Some(&"HELLO") => {
                    let differing = ["version", "id", "modules"].map(bulk);
                    pairs.retain(|(name, _)| !differing.contains(name));
                }
                _ => {}
            }
        }
        plain
    }

    fn read(reply: Reply) -> Self {
        let all = |items: Vec<Reply>| items.into_iter().map(Self::read).collect();
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        match reply {
            Reply::Status(status) => Self::Status(text(&status)),
            Reply::Error(error) => Self::Error(text(&error)),
            Reply::Int(number) => Self::Int(number),
            Reply::Bulk(bytes) => Self::Bulk(Bytes(bytes)),
            Reply::Nil => Self::Nil,
            Reply::NilArray => Self::NilArray,
            Reply::Array(items) | Reply::Many(items) => Self::Array(all(items)),
            Reply::Push(items) => Self::Push(all(items)),
            Reply::Map(pairs) => {
                let pair = |(key, value)| (Self::read(key), Self::read(value));
                Self::Map(pairs.into_iter().map(pair).collect())
            }
            Reply::Verbatim(bytes) => Self::Verbatim(lines(&text(&bytes))),
        }
    }
}

fn bulk(text: &str) -> Plain {
    Plain::Bulk(Bytes(text.into()))
}

fn lines(info: &str) -> Vec<String> {
    let is_compared = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        LINES.contains(&name) || name.starts_with("slave") && name != "slave_expires_tracked_keys"
    };
    let mut lines: Vec<String> = info
        .lines()
        .filter(is_compared)
        .map(str::to_owned)
        .collect();
    // Sections stand in any order.
    lines.sort();
    lines
}

/// A field of a reply to `INFO`.
pub(super) fn field(info: &Reply, name: &str) -> Option<String> {
    let (Reply::Bulk(text) | Reply::Verbatim(text)) = info else {
        return None;
    };
    let text = String::from_utf8_lossy(text);
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields
        .find(|(field, _)| *field == name)
        .map(|(_, value)| value.to_owned())
}

/// The strings in a list that came alone.
pub(super) fn strings(replies: &[Plain]) -> Vec<Vec<u8>> {
    let [Plain::Array(items)] = replies else {
        panic!("no list: {replies:?}");
    };
    let texts = items.iter().map(|item| match item {
        Plain::Bulk(text) => text.0.clone(),
        other => panic!("no string: {other:?}"),
    });
    texts.collect()
}

/// What kind of replies came: the number with which a list of a script begins, or the code of an error.
pub(super) fn outcome(replies: &[Plain]) -> String {
    // Messages may come with it.
    let reply = replies
        .iter()
        .rfind(|reply| !matches!(reply, Plain::Push(_)));
    match reply {
        Some(Plain::Array(items)) => match items.first() {
            Some(first) => format!("{first:?}"),
            None => "[]".to_owned(),
        },
        Some(Plain::Error(text)) => text.split(' ').next().unwrap_or_default().to_owned(),
        other => format!("{other:?}"),
    }
}

/// Replaces each `from` by `to`.
pub(super) fn replace(text: &[u8], from: &str, to: &str) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        match rest.strip_prefix(from.as_bytes()) {
            Some(after) if !from.is_empty() => {
                replaced.extend_from_slice(to.as_bytes());
                rest = after;
            }
            _ => {
                replaced.push(first);
                rest = after;
            }
        }
    }
    replaced
}
