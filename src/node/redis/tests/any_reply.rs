//! Properties that hold for any reply of a server or a Sentinel. Inputs are in `tests/fuzz/corpus`.

use std::fmt::Debug;

use redis::Value;

use super::discovery::asking::AskError;
use super::discovery::confirmation::Confirmation;
use super::discovery::{cluster, sentinel};
use super::info::Info;
use crate::fuzzed::replay;
use crate::moment::Moment;
use crate::node::commands::{acquire, extend, raise, records, release, voting};
use crate::node::{AcquireReply, CheckInReply, ClusterConfig, NodeError};
use crate::token::FencingToken;

/// The number of locks in the extend.
const LOCKS: usize = 2;

/// Reads `input` as the reply to every command. Returns whether it makes sense as any.
fn reply(input: &[u8]) -> bool {
    let Ok(value) = redis::parse_redis_value(input) else {
        return false;
    };
    let config = ClusterConfig::new("ours");
    let mut sense = [
        acquired(&value, &config),
        extended(&value, &config),
        judged(
            &value,
            records::on_redis::read_completion(&value, Some(&config)),
        ),
        judged(&value, raise::on_redis::read(&value, None)),
        judged(&value, release::on_redis::read(&value)),
        judged(&value, voting::on_redis::read_promotion(&value)),
        checked_in(&value),
        server(&value),
        view(vec![value.clone()]),
    ]
    .contains(&true);
    if let Value::Array(replies) = value {
        sense |= sentinel(replies);
    }
    sense
}

/// Grants, holders and records are read as they are written.
fn acquired(value: &Value, config: &ClusterConfig) -> bool {
    let read = records::on_redis::read_recall(value.clone(), Some(config))
        .or_else(|_| acquire::on_redis::read(value, None, Some(config)));
    let items = match (value, &read) {
        (Value::Array(items), _) => items,
        (Value::BulkString(kept), Ok(AcquireReply::Recorded(record))) => {
            let head = format!("{} {} ", record.ballot, record.until);
            assert_eq!(*kept, [head.as_bytes(), &record.body[..]].concat());
            return judged(value, read);
        }
        _ => return judged(value, read),
    };
    match (&read, items.as_slice()) {
        (Ok(AcquireReply::Granted { fence }), [Value::Int(1), token])
        | (Ok(AcquireReply::Promised { fence, .. }), [Value::Int(3), token, ..]) => {
            assert_token(*fence, token);
        }
        (Ok(AcquireReply::Held(holder)), [Value::Int(0), ..]) => assert!(holder.key.is_some()),
        (Ok(other), _) => panic!("{value:?} is no {other:?}"),
        (Err(_), _) => {}
    }
    judged(value, read)
}

/// There is a reply for each lock, or an error for all.
fn extended(value: &Value, config: &ClusterConfig) -> bool {
    let read = extend::on_redis::read(value, LOCKS, Some(config));
    if let Ok(replies) = &read {
        assert_eq!(replies.len(), LOCKS);
        for error in replies.iter().filter_map(|reply| reply.as_ref().err()) {
            assert_harmless(error);
        }
    }
    judged(value, read)
}

/// The highest fencing token leaves room for more.
fn checked_in(value: &Value) -> bool {
    let read = voting::on_redis::read_check_in(value);
    if let Ok(CheckInReply::Voting { high_water, .. }) = &read {
        assert!(high_water.is_none_or(|mark| mark.get() <= FencingToken::LAST_COUNTED));
    }
    judged(value, read)
}

fn server(value: &Value) -> bool {
    let Ok(text) = redis::from_redis_value::<String>(value.clone()) else {
        return false;
    };
    let info = Info::parse(&text);
    assert!(info.is_still(&info.identity()), "{text:?}");
    judged(value, info.check(false))
}

fn sentinel(replies: Vec<Value>) -> bool {
    let statement = match sentinel::read_replies(replies) {
        Ok(statement) => statement,
        Err(AskError::Unknown(_) | AskError::Failed(_)) => return false,
    };
    let mut known = Confirmation::new(["the first"]);
    known.note(0, Moment::from_nanos(2), Ok(statement));
    for since in [1, 3] {
        let text = known.describe(Moment::from_nanos(since));
        assert_short(&text);
    }
    true
}

fn view(replies: Vec<Value>) -> bool {
    let asked = ("the first".to_owned(), 7_000);
    cluster::read_replies(replies, &[2_731, 8_192, 13_654], &asked, true).is_ok()
}

fn assert_token(token: Option<FencingToken>, value: &Value) {
    let text = token.map(|token| token.to_string()).unwrap_or_default();
    assert_eq!(*value, Value::BulkString(text.into_bytes()));
}

/// Returns whether `read` succeeded. If not, the error contains nothing harmful.
fn judged<T: Debug>(value: &Value, read: Result<T, NodeError>) -> bool {
    match read {
        Ok(reply) => assert!(*value != Value::Nil, "{reply:?}"),
        Err(error) => {
            assert_harmless(&error);
            return false;
        }
    }
    true
}

fn assert_harmless(error: &NodeError) {
    assert_short(&error.to_string());
}

fn assert_short(text: &str) {
    let is_line = !text.chars().any(char::is_control);
    assert!(is_line && text.chars().count() < 1_600, "{text:?}");
}

#[test]
fn what_a_fuzzer_found_and_what_is_like_it_is_a_reply_or_none() {
    replay("reply", reply);
}
