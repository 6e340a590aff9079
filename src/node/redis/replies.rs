//! How the replies of the scripts are read.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::node::redis::error::{garbled, rejected};
use crate::node::{
    AcquireReply, CheckInReply, ClusterConfig, CompleteReply, ExtendReply, Holder, NodeError,
    NodeErrorKind, RaiseReply, ReleaseReply, quarantined, unmarked,
};
use crate::record::Record;
use crate::token::{FencingToken, OwnerHash};

pub(super) fn read_acquire(
    reply: Value,
    proposed: Option<FencingToken>,
    ours: Option<&ClusterConfig>,
) -> Result<AcquireReply, NodeError> {
    let mut items = match reply {
        Value::Int(1) => return Ok(AcquireReply::Granted { fence: proposed }),
        Value::BulkString(kept) => return record(kept).map(AcquireReply::Recorded),
        Value::Array(items) => items,
        _ => return Err(garbled("an acquire")),
    };
    match items.as_mut_slice() {
        [Value::Int(1), token] => {
            let fence = token_of(token, "an acquire")?;
            Ok(AcquireReply::Granted { fence })
        }
        [Value::Int(0), remaining, tag, Value::Int(key)] => holder(remaining, tag)
            .zip(usize::try_from(*key).ok())
            .map(|(holder, key)| AcquireReply::Held(holder.of_key(key)))
            .ok_or_else(|| garbled("an acquire")),
        [Value::Int(3), token, now] => promised(token, None, now),
        [Value::Int(3), token, now, Value::BulkString(kept)] => {
            let record = record(std::mem::take(kept))?;
            promised(token, Some(record), now)
        }
        [Value::Int(-4)] => Err(NodeError::new(
            NodeErrorKind::Rejected,
            "the attempt was given up before it arrived",
        )),
        other => Err(refusal(Some(other), ours, "an acquire")),
    }
}

pub(super) fn read_set(reply: &Value) -> Result<bool, NodeError> {
    match reply {
        Value::Okay => Ok(true),
        Value::Nil => Ok(false),
        _ => Err(garbled("an acquire")),
    }
}

/// The grant in the reply to a recall.
fn promised(token: &Value, record: Option<Record>, now: &Value) -> Result<AcquireReply, NodeError> {
    let fence = token_of(token, "a recall")?;
    match *now {
        Value::Int(now) => Ok(AcquireReply::Promised {
            fence,
            record,
            now: u64::try_from(now).unwrap_or(0),
        }),
        _ => Err(garbled("a recall")),
    }
}

/// The record in the reply to a recall: its ballot, its end and its body, with a blank between them.
fn record(kept: Vec<u8>) -> Result<Record, NodeError> {
    let head = || {
        let mut parts = kept.splitn(3, |byte| *byte == b' ');
        let (ballot, until, body) = (parts.next()?, parts.next()?, parts.next()?);
        let ballot = token_in(ballot)?;
        Some((ballot, whole(until)?, kept.len() - body.len()))
    };
    let (ballot, until, start) = head().ok_or_else(|| garbled("a recall"))?;
    // The body is not copied.
    let body = Bytes::from(kept).slice(start..);
    Ok(Record::new(ballot, body, until))
}

pub(super) fn read_complete(
    reply: &Value,
    ours: Option<&ClusterConfig>,
) -> Result<CompleteReply, NodeError> {
    match reply {
        Value::Int(-1) => Ok(CompleteReply::Refused),
        Value::Int(listeners @ 0..) => Ok(CompleteReply::Stored {
            listeners: count(*listeners),
        }),
        other => Err(refusal(items(other), ours, "a completion")),
    }
}

pub(super) fn read_raise(
    reply: &Value,
    ours: Option<&ClusterConfig>,
) -> Result<RaiseReply, NodeError> {
    match reply {
        Value::Int(1) => Ok(RaiseReply::Raised),
        Value::Int(0) => Ok(RaiseReply::NotOwner),
        other => Err(refusal(items(other), ours, "a raise")),
    }
}

pub(super) fn read_release(reply: &Value) -> Result<ReleaseReply, NodeError> {
    match reply {
        Value::Int(-1) => Ok(ReleaseReply::NotOwner),
        Value::Int(listeners @ 0..) => Ok(ReleaseReply::Released {
            listeners: count(*listeners),
        }),
        _ => Err(garbled("a release")),
    }
}

pub(super) fn read_extend(
    reply: &Value,
    expected: usize,
    ours: Option<&ClusterConfig>,
) -> Result<Vec<Result<ExtendReply, NodeError>>, NodeError> {
    let replies = items(reply).ok_or_else(|| garbled("an extend"))?;
    let (voting, replies) = match replies {
        [Value::Int(1), replies @ ..] => (true, replies),
        [Value::Int(0), replies @ ..] => (false, replies),
        other => return Err(refusal(Some(other), ours, "an extend")),
    };
    if matches!(replies, [Value::BulkString(text)] if text == b"all") {
        let extended = read_one_extend(&Value::Int(1), voting);
        return Ok(vec![extended; expected]);
    }
    if replies.len() != expected {
        return Err(garbled("an extend"));
    }
    Ok(replies
        .iter()
        .map(|reply| read_one_extend(reply, voting))
        .collect())
}

fn read_one_extend(reply: &Value, voting: bool) -> Result<ExtendReply, NodeError> {
    match reply {
        Value::Int(0) => Ok(ExtendReply::Absent),
        Value::Int(1 | 2) if !voting => Ok(ExtendReply::Quarantined),
        Value::Int(1) => Ok(ExtendReply::Extended),
        Value::Int(2) => Ok(ExtendReply::Refilled),
        Value::BulkString(text) => Err(rejected(&String::from_utf8_lossy(text))),
        other => match items(other) {
            Some([remaining, tag]) => holder(remaining, tag)
                .map(ExtendReply::Held)
                .ok_or_else(|| garbled("an extend")),
            _ => Err(garbled("an extend")),
        },
    }
}

pub(super) fn read_check_in(reply: &Value) -> Result<CheckInReply, NodeError> {
    match items(reply) {
        Some([Value::Int(1), token]) => Ok(CheckInReply::Voting {
            high_water: mark_of(token)?,
        }),
        Some(
            [
                Value::Int(2),
                Value::BulkString(id),
                Value::Int(former),
                Value::Int(accepted),
            ],
        ) => Ok(CheckInReply::Quarantined {
            id: text(id),
            former: Duration::from_millis(u64::try_from(*former).unwrap_or(0)),
            accepted: *accepted == 1,
            // A server cannot tell whether it has had locks before.
            unused: false,
        }),
        Some(
            [
                Value::Int(-2),
                Value::BulkString(config),
                Value::BulkString(digest),
            ],
        ) => Ok(CheckInReply::Foreign {
            config: text(config),
            digest: text(digest),
        }),
        _ => Err(garbled("a check-in")),
    }
}

pub(super) fn read_promote(reply: &Value) -> Result<bool, NodeError> {
    match reply {
        Value::Int(1) => Ok(true),
        Value::Int(0) => Ok(false),
        _ => Err(garbled("a promotion")),
    }
}

fn refusal(reply: Option<&[Value]>, ours: Option<&ClusterConfig>, command: &str) -> NodeError {
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
        ) => NodeError::foreign(&text(theirs), text(digest), ours),
        _ => garbled(command),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn mark_of(value: &Value) -> Result<Option<FencingToken>, NodeError> {
    match (token_of(value, "a check-in"), value) {
        (Ok(Some(mark)), _) if mark.get() > FencingToken::LAST_COUNTED => Err(unmarked()),
        // Not a fencing token at all.
        (Err(_), Value::BulkString(_)) => Err(unmarked()),
        (mark, _) => mark,
    }
}

fn token_of(value: &Value, command: &str) -> Result<Option<FencingToken>, NodeError> {
    let Value::BulkString(digits) = value else {
        return Err(garbled(command));
    };
    if digits.is_empty() {
        return Ok(None);
    }
    token_in(digits).map(Some).ok_or_else(|| garbled(command))
}

fn token_in(digits: &[u8]) -> Option<FencingToken> {
    let is_plain = digits.len() == 19 && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_plain)?;
    FencingToken::new(text.parse().ok()?)
}

fn whole(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let is_plain = text == "0" || !text.starts_with(['+', '0']);
    text.parse().ok().filter(|_| is_plain)
}

fn count(listeners: i64) -> u32 {
    u32::try_from(listeners.max(0)).unwrap_or(u32::MAX)
}

fn items(reply: &Value) -> Option<&[Value]> {
    match reply {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

/// The holder behind a reply's remaining milliseconds (-1: no expiry) and hash.
fn holder(remaining: &Value, tag: &Value) -> Option<Holder> {
    let (Value::Int(remaining), Value::BulkString(tag)) = (remaining, tag) else {
        return None;
    };
    let tag = OwnerHash::parse(tag)?.tag();
    let remaining = match *remaining {
        -1 => None,
        millis => Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
    };
    Some(Holder::new(tag, remaining))
}

/// Whole milliseconds, rounded up: the server must not keep a key for less than asked.
pub(super) fn millis(ttl: Duration) -> u64 {
    let millis = ttl.as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeErrorKind;

    #[test]
    fn a_ttl_is_rounded_up_and_never_zero() {
        assert_eq!(millis(Duration::ZERO), 1);
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
        assert_eq!(millis(Duration::from_secs(3)), 3_000);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }

    #[test]
    fn answers_that_make_no_sense_are_garbled() {
        let tag = || Value::BulkString(b"0123456789abcdef0123456789abcdef01234567".to_vec());
        let nonsense = [
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
        ];
        for value in &nonsense {
            let acquire = read_acquire(value.clone(), None, None);
            assert!(acquire.is_err() || *value == Value::Int(1), "{value:?}");
            assert!(read_set(value).is_err() || matches!(value, Value::Okay | Value::Nil));
            let release = read_release(value);
            assert!(release.is_err() || *value == Value::Int(1));
            let complete = read_complete(value, None);
            assert!(complete.is_err() || *value == Value::Int(1));
            assert!(read_raise(value, None).is_err() || *value == Value::Int(1));
            assert!(read_promote(value).is_err() || *value == Value::Int(1));
            let check_in = read_check_in(value).unwrap_err();
            assert_eq!(check_in.kind(), NodeErrorKind::Garbled, "{value:?}");
            let extend = read_extend(value, 3, None).unwrap_err();
            assert_eq!(extend.kind(), NodeErrorKind::Garbled, "{value:?}");
        }
        let odd = Value::Array(vec![Value::Int(1), Value::Int(1), Value::Nil]);
        let replies = read_extend(&odd, 2, None).unwrap();
        assert_eq!(replies[0], Ok(ExtendReply::Extended));
        assert_eq!(
            replies[1].as_ref().unwrap_err().kind(),
            NodeErrorKind::Garbled
        );
    }

    #[test]
    fn a_mark_that_nothing_can_be_counted_on_from_is_refused() {
        let of = |digits: &str| {
            let mark = Value::BulkString(digits.as_bytes().to_vec());
            read_check_in(&Value::Array(vec![Value::Int(1), mark]))
        };
        let last = FencingToken::LAST_COUNTED;
        for nonsense in [
            "abc",
            "-5",
            "7",
            &(last + 1).to_string(),
            "9223372036854775808",
        ] {
            let error = of(nonsense).unwrap_err();
            assert!(error.to_string().contains("delete that key"), "{error}");
        }
        for (digits, mark) in [
            ("", 0),
            ("0000000000000000007", 7),
            (&last.to_string(), last),
        ] {
            let voting = CheckInReply::Voting {
                high_water: FencingToken::new(mark),
            };
            assert_eq!(of(digits), Ok(voting));
        }
    }

    #[test]
    fn a_holder_is_read_with_its_tag_and_time() {
        let tag = || Value::BulkString(b"00000000000000ff999999999999999999999999".to_vec());
        let of = |remaining| {
            let reply = vec![Value::Int(0), Value::Int(remaining), tag(), Value::Int(2)];
            read_acquire(Value::Array(reply), None, None).unwrap()
        };
        let held = |remaining| AcquireReply::Held(Holder::new(255, remaining).of_key(2));
        assert_eq!(of(1_500), held(Some(Duration::from_millis(1_500))));
        assert_eq!(of(-1), held(None));
        assert_eq!(of(-2), held(Some(Duration::ZERO)));
    }
}
