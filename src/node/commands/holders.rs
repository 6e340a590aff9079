//! For operators: who holds keys; a scan for keys that are held; and a takeover, which puts an owner in the place of
//! another one.

use std::time::Duration;

use crate::lock_key::LockKey;
use crate::moment::Moment;
use crate::namespace::{Namespace, NodeKey, NodeKeys};
use crate::node::memory::keyed::Now;
use crate::node::memory::store::Store;
use crate::token::{FencingToken, OwnerHash, OwnerToken};

/// Time to free a key that was taken, and to announce that.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);

/// One key on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReply {
    /// Its holder.
    pub holding: Option<Holding>,
    /// Whether the node has something else there, which is not a lock.
    pub is_other: bool,
    /// For how much longer the node stores the result of this idempotency key, if it has one.
    pub stored_for: Option<Duration>,
}

/// Who holds a key on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The hash of its owner token.
    pub owner: OwnerHash,
    /// The label of its process; empty if it has none. For readers: `shared: `, and the labels of all of them.
    pub label: String,
    /// The counter of the key: its fencing token, if it has one.
    pub fence: Option<FencingToken>,
    /// For how much longer, unless it is extended. `None`: without an end.
    pub remaining: Option<Duration>,
}

/// A request for some keys that are held.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The namespace of the keys.
    pub namespace: Namespace,
    /// How the keys begin.
    pub prefix: String,
    /// Zero, or [`next`](ScanReply::next) of the reply before.
    pub cursor: u64,
}

/// Some keys; the same one may come again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanReply {
    /// The keys.
    pub keys: Vec<LockKey>,
    /// Where to go on; zero if these were the last.
    pub next: u64,
}

/// A request to put an owner in the place of another one.
#[derive(Clone, Debug)]
pub struct TakeOverRequest {
    /// The key, alone.
    pub keys: NodeKeys,
    /// Its present owner. Nothing is changed where it is another one.
    pub from: OwnerHash,
    /// The next owner, for the rest of the ttl.
    pub to: OwnerToken,
    /// How long the present owner cannot set it again; and how long the next one has a key that had no end.
    pub void: Duration,
}

#[cfg(feature = "redis")]
pub(crate) mod on_redis {
    use redis::Value;

    use super::*;
    use crate::node::commands::script::{Parts, Script, items, life, millis, run, text, token_in};
    use crate::node::redis::error::{failed, garbled, is_missing_right, server_text};
    use crate::node::redis::link::Link;
    use crate::node::{NodeError, NodeErrorKind};
    use crate::token::Label;

    pub(crate) static HOLDERS: Script = Script::of(include_str!("holders.lua"));
    pub(crate) static TAKE_OVER: Script = Script::of(include_str!("take_over.lua"));

    const NO_SCAN: &str = "its ACL user may not run `SCAN`, which is needed for lists alone; add `+scan` to the user's rule, or use one of the rule that `redlock acl --read-only` prints";

    /// How many keys the server looks at for one reply.
    const AT_ONCE: usize = 1_000;

    pub(crate) async fn holders(link: &Link, keys: &NodeKeys) -> Result<Vec<KeyReply>, NodeError> {
        let mut connection = link.background()?;
        let keys = keys.as_slice();
        let mut cmd = HOLDERS.run(3 * keys.len(), 3 * keys.len());
        for key in keys {
            cmd.arg(key.as_str()).arg(Parts(&key.counter()));
            cmd.arg(Parts(&key.record()));
        }
        read_holders(&run(&mut connection, &HOLDERS, &cmd).await?)
    }

    pub(crate) fn read_holders(reply: &Value) -> Result<Vec<KeyReply>, NodeError> {
        let replies = items(reply).and_then(|replies| replies.iter().map(read_key).collect());
        replies.ok_or_else(|| garbled("a question for holders"))
    }

    fn read_key(reply: &Value) -> Option<KeyReply> {
        let [
            Value::BulkString(owner),
            Value::BulkString(label),
            Value::Int(remaining),
            Value::BulkString(fence),
            Value::Int(stored),
        ] = items(reply)?
        else {
            return None;
        };
        let time = |millis: i64| u64::try_from(millis).ok().map(Duration::from_millis);
        let holding = match owner.is_empty() {
            true => None,
            false => Some(Holding {
                owner: OwnerHash::parse(owner)?,
                label: read_label(text(label))?,
                fence: token_in(fence),
                remaining: time(*remaining),
            }),
        };
        Some(KeyReply {
            is_other: holding.is_none() && *remaining != GONE,
            holding,
            stored_for: time(*stored),
        })
    }

    /// What `PTTL` replies where nothing is.
    const GONE: i64 = -2;

    fn read_label(label: String) -> Option<String> {
        let mut parts = label.split([':', ',', ' ']);
        let is_one = parts.all(|part| Label::new(part).is_ok());
        is_one.then_some(label)
    }

    pub(crate) async fn scan(link: &Link, request: &ScanRequest) -> Result<ScanReply, NodeError> {
        let mut connection = link.background()?;
        let start = request.namespace.start();
        let pattern = escaped(&[&*start, &request.prefix].concat()) + "*";
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(request.cursor).arg("MATCH").arg(pattern);
        cmd.arg("COUNT").arg(AT_ONCE);
        let reply = connection.call(&cmd).await;
        let reply = reply.map_err(|error| match is_missing_right(&server_text(&error)) {
            true => NodeError::new(NodeErrorKind::Rejected, NO_SCAN),
            false => failed(&error),
        })?;
        read_scan(&reply, &request.namespace).ok_or_else(|| garbled("a SCAN"))
    }

    /// A text that is no pattern.
    fn escaped(text: &str) -> String {
        let special = |char| matches!(char, '*' | '?' | '[' | ']' | '^' | '\\');
        let mut escaped = String::new();
        for char in text.chars() {
            escaped.extend(special(char).then_some('\\'));
            escaped.push(char);
        }
        escaped
    }

    pub(crate) fn read_scan(reply: &Value, namespace: &Namespace) -> Option<ScanReply> {
        let [Value::BulkString(next), Value::Array(names)] = items(reply)? else {
            return None;
        };
        // Not every name is that of a lock: other programs may write beside us.
        let key = |name: &Value| match name {
            Value::BulkString(name) => namespace.lock_key(std::str::from_utf8(name).ok()?),
            _ => None,
        };
        Some(ScanReply {
            keys: names.iter().filter_map(key).collect(),
            next: text(next).parse().ok()?,
        })
    }

    pub(crate) async fn take_over(
        link: &Link,
        request: &TakeOverRequest,
    ) -> Result<Option<Duration>, NodeError> {
        let mut connection = link.background()?;
        let key = request.keys.first();
        // A script must be given its keys, and only the server knows the name of the tombstone.
        let mut look = redis::cmd("MGET");
        let found = connection.call(look.arg(key.as_str())).await;
        let found = found.map_err(|error| failed(&error))?;
        let Some([Value::BulkString(value)]) = items(&found) else {
            return Ok(None);
        };
        // Readers stand behind a blank.
        let owner = value.split(|byte| *byte == b' ').next();
        let owner = owner.unwrap_or_default();
        let digits = owner.get(..OwnerToken::DIGITS);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let mut cmd = TAKE_OVER.run(1 + usize::from(digits.is_some()), 7);
        cmd.arg(key.as_str());
        if owner == key.owners().expose() {
            cmd.arg(Parts(&key.taken()));
        } else if let Some(digits) = digits {
            let namespace = key.namespace();
            cmd.arg(Parts(&[namespace.root(), "!dead:", &text(digits)]));
        }
        cmd.arg(owner)
            .arg(request.from.as_str())
            .arg(request.to.expose())
            .arg(life(request.void))
            .arg(millis(MOMENT));
        read_takeover(&run(&mut connection, &TAKE_OVER, &cmd).await?)
    }

    pub(crate) fn read_takeover(reply: &Value) -> Result<Option<Duration>, NodeError> {
        match reply {
            Value::Int(-1) => Ok(None),
            Value::Int(rest @ 0..) => Ok(Some(Duration::from_millis(rest.unsigned_abs()))),
            _ => Err(garbled("a takeover")),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::node::commands::script::nonsense;

        #[test]
        fn nonsense_is_no_reply() {
            let namespace = Namespace::default();
            for value in nonsense() {
                let none = value == Value::Array(vec![]);
                assert!(read_holders(&value).is_err() || none, "{value:?}");
                assert_eq!(read_scan(&value, &namespace), None, "{value:?}");
                let rest = value == Value::Int(1);
                assert!(read_takeover(&value).is_err() || rest, "{value:?}");
            }
        }

        #[test]
        fn a_prefix_is_no_pattern() {
            assert_eq!(escaped("lk:a*[b]?^\\é"), "lk:a\\*\\[b\\]\\?\\^\\\\é");
        }
    }
}

impl Store {
    pub(crate) fn holders(&self, keys: &NodeKeys, now: Now) -> Vec<KeyReply> {
        let holding = |key: &NodeKey| {
            let entry = self.live(key, now.moment)?;
            let readers = entry.readers.iter().filter(|(_, ends)| *ends > now.moment);
            let names = readers.map(|(reader, _)| match reader.label() {
                "" => "unnamed",
                label => label,
            });
            let names = names.collect::<Vec<_>>().join(", ");
            let sign = if names.is_empty() { "" } else { ": " };
            Some(Holding {
                owner: OwnerHash::of(&entry.token),
                label: [entry.token.label(), sign, &names].concat(),
                fence: self.data.counters.token(key, now.moment),
                remaining: Some(entry.expires.since(now.moment)),
            })
        };
        let reply = |key: &NodeKey| KeyReply {
            holding: holding(key),
            is_other: false,
            #[cfg(feature = "idempotency")]
            stored_for: self.stored_for(key, now),
            #[cfg(not(feature = "idempotency"))]
            stored_for: None,
        };
        keys.as_slice().iter().map(reply).collect()
    }

    pub(crate) fn scan(&self, request: &ScanRequest, now: Moment) -> ScanReply {
        let live = self.data.entries.iter();
        let live = live.filter(|(_, entry)| entry.expires > now);
        let keys = live.filter_map(|(key, _)| request.namespace.lock_key(key.as_str()));
        ScanReply {
            keys: keys
                .filter(|key| key.as_str().starts_with(&request.prefix))
                .collect(),
            next: 0,
        }
    }

    pub(crate) fn take_over(&mut self, request: &TakeOverRequest, now: Moment) -> Option<Duration> {
        let entry = self.live(request.keys.first(), now)?;
        if OwnerHash::of(&entry.token) != request.from {
            return None;
        }
        let rest = entry.expires.since(now);
        let key = request.keys.first().clone();
        self.data.void.retain(|(.., until)| *until > now);
        self.data.void.push((request.from, key, now + request.void));
        self.set(&request.keys, request.to, rest + MOMENT, now);
        Some(rest)
    }
}
