//! The commands: what is sent for each, and how the answer is read.
//!
//! A command on locks is one script run by its hash. The scripts use nothing newer than Redis 6.2, carry no flags
//! line, and therefore run even when the server is out of memory; only setting a new key is refused then.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Value};

use super::error::{garbled, rejected};
use crate::node::{
    AcquireReply, AcquireRequest, ExtendReply, ExtendRequest, Holder, NodeError, ReleaseReply,
    ReleaseRequest,
};

/// How many locks one run of the extend script covers. A script holds up everybody else on the server, so a big
/// batch goes out as several short runs (in one pipeline).
pub(super) const EXTEND_CHUNK: usize = 100;

/// One script: its text and the hash it is run by.
#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    hash: LazyLock<String>,
}

macro_rules! script {
    ($file:literal) => {
        Script {
            source: include_str!($file),
            hash: LazyLock::new(|| {
                redis::Script::new(include_str!($file))
                    .get_hash()
                    .to_owned()
            }),
        }
    };
}

pub(super) static ACQUIRE: Script = script!("acquire.lua");
pub(super) static EXTEND: Script = script!("extend.lua");
pub(super) static RELEASE: Script = script!("release.lua");

impl Script {
    /// The command that makes the script known to the server.
    pub(super) fn load(&self) -> Cmd {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(self.source);
        cmd
    }

    /// The start of a run over `keys` keys; keys and arguments are to be added.
    fn run(&self, keys: usize, capacity: usize) -> Cmd {
        let mut cmd = Cmd::with_capacity(3 + capacity, 64 + 64 * capacity);
        cmd.arg("EVALSHA").arg(self.hash.as_str()).arg(keys);
        cmd
    }
}

/// The command for an acquire.
pub(super) fn acquire(request: &AcquireRequest) -> Cmd {
    let mut cmd = ACQUIRE.run(1, 3);
    cmd.arg(request.key.as_str())
        .arg(request.token.expose())
        .arg(millis(request.ttl));
    cmd
}

/// The command for a release.
pub(super) fn release(request: &ReleaseRequest) -> Cmd {
    let mut cmd = RELEASE.run(1, 3);
    cmd.arg(request.key.as_str()).arg(request.token.expose());
    if request.announce {
        cmd.arg(request.key.channel());
    } else {
        cmd.arg("");
    }
    cmd
}

/// The command for one chunk of an extend.
pub(super) fn extend(requests: &[ExtendRequest]) -> Cmd {
    let mut cmd = EXTEND.run(requests.len(), 4 * requests.len());
    for request in requests {
        cmd.arg(request.key.as_str());
    }
    for request in requests {
        cmd.arg(request.token.expose())
            .arg(millis(request.ttl))
            .arg(u8::from(request.refill));
    }
    cmd
}

/// Reads the answer to an acquire.
pub(super) fn read_acquire(answer: &Value) -> Result<AcquireReply, NodeError> {
    match items(answer) {
        Some([Value::Int(1)]) => Ok(AcquireReply::Granted),
        Some([Value::Int(0), remaining, tag]) => holder(remaining, tag)
            .map(AcquireReply::Held)
            .ok_or_else(|| garbled("an acquire")),
        _ => Err(garbled("an acquire")),
    }
}

/// Reads the answer to a release.
pub(super) fn read_release(answer: &Value) -> Result<ReleaseReply, NodeError> {
    match items(answer) {
        Some([Value::Int(0)]) => Ok(ReleaseReply::NotOwner),
        Some([Value::Int(1), Value::Int(listeners)]) => Ok(ReleaseReply::Released {
            listeners: u32::try_from((*listeners).max(0)).unwrap_or(u32::MAX),
        }),
        _ => Err(garbled("a release")),
    }
}

/// Reads the answer to one chunk of an extend, which must have `expected` items.
pub(super) fn read_extend(
    answer: &Value,
    expected: usize,
) -> Result<Vec<Result<ExtendReply, NodeError>>, NodeError> {
    let answers = items(answer)
        .filter(|answers| answers.len() == expected)
        .ok_or_else(|| garbled("an extend"))?;
    Ok(answers.iter().map(read_one_extend).collect())
}

fn read_one_extend(answer: &Value) -> Result<ExtendReply, NodeError> {
    match answer {
        Value::Int(0) => Ok(ExtendReply::Absent),
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

fn items(answer: &Value) -> Option<&[Value]> {
    match answer {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

/// The holder behind an answer's remaining milliseconds (-1: no expiry) and hash.
fn holder(remaining: &Value, tag: &Value) -> Option<Holder> {
    let (Value::Int(remaining), Value::BulkString(tag)) = (remaining, tag) else {
        return None;
    };
    let tag = std::str::from_utf8(tag.get(..16)?).ok()?;
    let tag = u64::from_str_radix(tag, 16).ok()?;
    let remaining = match *remaining {
        -1 => None,
        millis => Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
    };
    Some(Holder::new(tag, remaining))
}

/// Whole milliseconds, rounded up: the server must never keep a key for less than was asked for.
fn millis(ttl: Duration) -> u64 {
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
        let tag = || Value::BulkString(b"0123456789abcdef0123".to_vec());
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
        ];
        for value in &nonsense {
            let acquire = read_acquire(value).unwrap_err();
            assert_eq!(acquire.kind(), NodeErrorKind::Garbled, "{value:?}");
            let release = read_release(value).unwrap_err();
            assert_eq!(release.kind(), NodeErrorKind::Garbled, "{value:?}");
            let extend = read_extend(value, 2).unwrap_err();
            assert_eq!(extend.kind(), NodeErrorKind::Garbled, "{value:?}");
        }
        let odd = Value::Array(vec![Value::Int(1), Value::Nil]);
        let answers = read_extend(&odd, 2).unwrap();
        assert_eq!(answers[0], Ok(ExtendReply::Extended));
        assert_eq!(
            answers[1].as_ref().unwrap_err().kind(),
            NodeErrorKind::Garbled
        );
    }

    #[test]
    fn a_holder_is_read_with_its_tag_and_time() {
        let tag = || Value::BulkString(b"00000000000000ff99999999".to_vec());
        let of = |remaining| {
            let answer = Value::Array(vec![Value::Int(0), Value::Int(remaining), tag()]);
            read_acquire(&answer).unwrap()
        };
        let held = |remaining| AcquireReply::Held(Holder::new(255, remaining));
        assert_eq!(of(1_500), held(Some(Duration::from_millis(1_500))));
        assert_eq!(of(-1), held(None));
        assert_eq!(of(-2), held(Some(Duration::ZERO)));
    }
}
