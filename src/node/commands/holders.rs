//! The commands for operators.

use std::time::Duration;

use crate::lock_key::LockKey;
use crate::moment::Moment;
use crate::namespace::{Namespace, NodeKey, NodeKeys};
use crate::node::memory::keyed::Now;
use crate::node::memory::store::Store;
use crate::token::{FencingToken, OwnerHash, OwnerToken};

/// Extra ttl after a takeover, in which the key is released and announced.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);

/// The state of a key on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReply {
    /// The holder, if the key is held.
    pub holding: Option<Holding>,
    /// Whether the key exists but is not a lock.
    pub is_other: bool,
    /// How much longer the node stores the result of this idempotency key, if there is one.
    pub stored_for: Option<Duration>,
}

/// The holder of a key on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The hash of the owner token.
    pub owner: OwnerHash,
    /// The label of the holder's process, or empty. For readers, it is `shared: ` and all their labels.
    pub label: String,
    /// The counter of the key, if it has one.
    pub fence: Option<FencingToken>,
    /// The remaining ttl, or `None` if the key does not expire.
    pub remaining: Option<Duration>,
}

/// A request for some of the held keys.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The namespace of the keys.
    pub namespace: Namespace,
    /// The prefix of the keys.
    pub prefix: String,
    /// Zero, or the [`next`](ScanReply::next) of the last reply.
    pub cursor: u64,
}

/// Some held keys. A scan can return a key more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanReply {
    /// The keys.
    pub keys: Vec<LockKey>,
    /// The cursor of the next request, or zero at the end.
    pub next: u64,
}

/// A request to replace the owner of a key.
#[derive(Clone, Debug)]
pub struct TakeOverRequest {
    /// The key. There must be only one.
    pub keys: NodeKeys,
    /// The present owner. Nothing is changed if the key has another one.
    pub from: OwnerHash,
    /// The new owner.
    pub to: OwnerToken,
    /// For how long the present owner cannot set the key again. A key that did not expire gets this ttl.
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

    const NO_SCAN: &str = "its ACL user may not run `SCAN`, which only lists need; add `+scan` to the user's rule, or use a user with the rule that `redlock acl --read-only` prints";

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

    /// `PTTL` without a key.
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
        // Skip names of other programs.
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
        // A script needs the names of all its keys, and the tombstone's name depends on the owner.
        let mut look = redis::cmd("MGET");
        let found = connection.call(look.arg(key.as_str())).await;
        let found = found.map_err(|error| failed(&error))?;
        let Some([Value::BulkString(value)]) = items(&found) else {
            return Ok(None);
        };
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
