//! How the parts of replies of Redis servers are read.

use std::time::Duration;

use redis::Value;

use crate::node::commands::terms::ClusterConfig;
use crate::node::redis::error::garbled;
use crate::node::{NodeError, quarantined};
use crate::protocol::round::Holder;
use crate::token::{FencingToken, OwnerHash};

pub(crate) fn refusal(
    reply: Option<&[Value]>,
    ours: Option<&ClusterConfig>,
    command: &str,
) -> NodeError {
    match (reply, ours) {
        (Some([Value::Int(-1)]), _) => quarantined(),
        (
            Some(
                [
                    Value::Int(-2),
                    Value::BulkString(theirs),
                    Value::BulkString(digest),
                ],
            ),
            Some(ours),
        ) => NodeError::foreign(&text(theirs), text(digest), &ours.text),
        _ => garbled(command),
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn token_of(value: &Value, command: &str) -> Result<Option<FencingToken>, NodeError> {
    let Value::BulkString(digits) = value else {
        return Err(garbled(command));
    };
    if digits.is_empty() {
        return Ok(None);
    }
    token_in(digits).map(Some).ok_or_else(|| garbled(command))
}

pub(crate) fn token_in(digits: &[u8]) -> Option<FencingToken> {
    let is_plain = digits.len() == 19 && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_plain)?;
    FencingToken::new(text.parse().ok()?)
}

pub(crate) fn count(listeners: i64) -> u32 {
    u32::try_from(listeners.max(0)).unwrap_or(u32::MAX)
}

pub(crate) fn items(reply: &Value) -> Option<&[Value]> {
    match reply {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

/// The holder behind a reply's remaining milliseconds (-1: no expiry) and hash.
pub(crate) fn holder(remaining: &Value, tag: &Value) -> Option<Holder> {
    let (Value::Int(remaining), Value::BulkString(tag)) = (remaining, tag) else {
        return None;
    };
    let tag = OwnerHash::parse(tag)?.tag();
    let remaining = match *remaining {
        -1 => None,
        millis => Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
    };
    Some(Holder {
        tag,
        remaining,
        key: None,
    })
}

/// Values that make sense as a reply to no command, but for the first number.
#[cfg(test)]
pub(crate) fn nonsense() -> Vec<Value> {
    let tag = || Value::BulkString(b"0123456789abcdef0123456789abcdef01234567".to_vec());
    vec![
        Value::Nil,
        Value::Okay,
        Value::Int(1),
        Value::Array(vec![]),
        Value::Array(vec![Value::Int(7)]),
        Value::Array(vec![Value::Int(0), tag(), tag()]),
        Value::Array(vec![
            Value::Int(0),
            Value::Int(5),
            Value::BulkString(b"short".to_vec()),
        ]),
        Value::Array(vec![
            Value::Int(0),
            Value::Int(5),
            Value::BulkString(vec![0xFF; 40]),
        ]),
        Value::Array(vec![Value::Int(1), Value::Int(1), Value::Int(1)]),
        Value::BulkString(b"7".to_vec()),
        Value::BulkString(b"7 8".to_vec()),
        Value::BulkString(b"7 8 body".to_vec()),
        Value::BulkString(b"0000000000000000007  body".to_vec()),
    ]
}
