//! Replies without what differs from server to server by nature.

use std::fmt;
use std::io::BufRead;

/// The lines of `INFO` that are compared.
const LINES: [&str; 7] = [
    "role",
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
    /// In the newer protocol.
    Null,
    Nil,
    NilArray,
    Array(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Push(Vec<Self>),
    Verbatim(Bytes),
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
    /// Reads one message; `None` at the end. There is one way to write each: what one side writes in another way than
    /// the other is another message, or none.
    pub(super) fn parse(from: &mut impl BufRead) -> Option<Self> {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line).ok()?;
        let line = line.strip_suffix(b"\r\n")?;
        let (kind, text) = line.split_first()?;
        let text = String::from_utf8_lossy(text).into_owned();
        let number = || {
            let number: i64 = text.parse().unwrap();
            assert_eq!(number.to_string(), text);
            number
        };
        let mut items = |per: i64| {
            let items = (0..number() * per).map(|_| Self::parse(from));
            items.collect::<Option<Vec<_>>>()
        };
        Some(match kind {
            b'+' => Self::Status(text),
            b'-' => Self::Error(text),
            b':' => Self::Int(number()),
            b'_' if text.is_empty() => Self::Null,
            b'$' if text == "-1" => Self::Nil,
            b'*' if text == "-1" => Self::NilArray,
            b'*' => Self::Array(items(1)?),
            b'>' => Self::Push(items(1)?),
            b'%' => Self::Map(pairs(&items(2)?)),
            b'$' | b'=' => {
                let mut bytes = vec![0; usize::try_from(number()).unwrap() + 2];
                from.read_exact(&mut bytes).ok()?;
                let end = bytes.split_off(bytes.len() - 2);
                assert_eq!(end, b"\r\n");
                match kind {
                    b'=' => Self::Verbatim(Bytes(bytes.strip_prefix(b"txt:")?.to_vec())),
                    _ => Self::Bulk(Bytes(bytes)),
                }
            }
            other => panic!("a message of the kind {}", char::from(*other)),
        })
    }

    /// Without what differs, as the reply to the call of `asked`. Nothing was asked for a message.
    pub(super) fn compared(mut self, asked: &[Vec<u8>]) -> Self {
        let asked = asked.iter().take(2);
        let asked = asked.map(|word| String::from_utf8_lossy(word).to_ascii_uppercase());
        let asked: Vec<String> = asked.collect();
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        match (asked.as_slice(), &mut self) {
            (["CLIENT", "ID"], Self::Int(id)) => *id = 0,
            (["INFO", ..], Self::Bulk(text) | Self::Verbatim(text)) => {
                let lines = lines(&String::from_utf8_lossy(&text.0));
                text.0 = lines.join("\n").into();
            }
            (["KEYS", ..], Self::Array(items)) => items.sort(),
            (["HGETALL", ..], reply) => reply.change_pairs(|pairs| pairs.sort()),
            (["HELLO", ..], reply) => reply.change_pairs(|pairs| {
                let differing = ["version", "id", "modules"].map(bulk);
                pairs.retain(|(name, _)| !differing.contains(name));
            }),
            _ => {}
        }
        self
    }

    /// Changes the pairs of a map, which is a list in the older protocol.
    fn change_pairs(&mut self, change: fn(&mut Vec<(Self, Self)>)) {
        match self {
            Self::Map(pairs) => change(pairs),
            Self::Array(items) => {
                let mut all = pairs(items);
                change(&mut all);
                *items = all.into_iter().flat_map(<[_; 2]>::from).collect();
            }
            _ => {}
        }
    }
}

fn pairs(items: &[Plain]) -> Vec<(Plain, Plain)> {
    let pairs = items.chunks_exact(2);
    pairs
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}

pub(super) fn bulk(text: &str) -> Plain {
    Plain::Bulk(Bytes(text.into()))
}

fn lines(info: &str) -> Vec<String> {
    let is_compared = |line: &&str| LINES.contains(&line.split(':').next().unwrap_or_default());
    let lines = info.lines().filter(is_compared);
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    // Sections stand in any order.
    lines.sort();
    lines
}

/// A field of a reply to `INFO`.
pub(super) fn field(info: &Plain, name: &str) -> Option<String> {
    let (Plain::Bulk(text) | Plain::Verbatim(text)) = info else {
        return None;
    };
    let text = String::from_utf8_lossy(&text.0);
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| *field == name)?;
    Some(value.to_owned())
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
    let mut replies = replies.iter();
    match replies.rfind(|reply| !matches!(reply, Plain::Push(_))) {
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
