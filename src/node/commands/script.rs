//! Runs commands as Lua scripts on a Redis server, and reads the parts of their replies.
//!
//! Scripts work with Redis 6.2 and later. They have no flags line, so that they run even if the server is out of
//! memory.

use std::io::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{
    Cmd, ErrorKind, Pipeline, RedisError, RedisWrite, ServerErrorKind, ToRedisArgs, Value,
};

use crate::node::commands::ClusterConfig;
use crate::node::redis::connection::Connection;
use crate::node::redis::error::{failed, garbled};
use crate::node::redis::link::{Link, Replicas};
use crate::node::{NodeError, quarantined};
use crate::token::Holder;
use crate::token::{FencingToken, OwnerHash};

const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

/// In place of the server's identity if lost data does not matter.
const ANY: &str = "any";

/// A script and its hash. Each line `-- use name` is replaced by one of [`PIECES`]. Pieces with functions are included
/// where they are needed, because defining functions costs time in each run.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    hash: OnceLock<String>,
}

const PIECES: [(&str, &str); 10] = [
    // In this order, because some pieces use a later one.
    ("-- use admit\n", include_str!("lua/admit.lua")),
    ("-- use take\n", include_str!("lua/take.lua")),
    ("-- use number\n", include_str!("lua/number.lua")),
    ("-- use identity\n", include_str!("lua/identity.lua")),
    ("-- use is_told\n", include_str!("lua/is_told.lua")),
    ("-- use refused\n", include_str!("lua/refused.lua")),
    ("-- use record\n", include_str!("lua/record.lua")),
    ("-- use readers\n", include_str!("lua/readers.lua")),
    ("-- use let_go\n", include_str!("lua/let_go.lua")),
    ("-- use counted\n", include_str!("lua/counted.lua")),
];

impl Script {
    pub(crate) const fn of(source: &'static str) -> Self {
        Self {
            source,
            hash: OnceLock::new(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let with = |text: String, (line, piece): &(&str, &str)| text.replace(line, piece);
        PIECES.iter().fold(self.source.to_owned(), with)
    }

    fn hash(&self) -> &str {
        let hash = || redis::Script::new(&self.text()).get_hash().to_owned();
        self.hash.get_or_init(hash)
    }

    pub(crate) fn load(&self) -> Cmd {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(self.text());
        cmd
    }

    pub(crate) fn run(&self, keys: usize, capacity: usize) -> Cmd {
        self.run_with(keys, capacity, 0)
    }

    pub(crate) fn run_with(&self, keys: usize, capacity: usize, room: usize) -> Cmd {
        let mut cmd = Cmd::with_capacity(3 + capacity, 64 + 40 * capacity + room);
        cmd.arg("EVALSHA").arg(self.hash()).arg(keys);
        cmd
    }
}

pub(crate) struct Parts<'a>(pub(crate) &'a [&'a str]);

impl ToRedisArgs for Parts<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let mut writer = out.writer_for_next_arg();
        for part in self.0 {
            let _ = writer.write_all(part.as_bytes());
        }
    }
}

impl redis::ToSingleRedisArg for Parts<'_> {}

/// A fencing token as nineteen digits, which compare as text. Empty without one.
pub(crate) struct Digits(pub(crate) Option<u64>);

pub(crate) const fn digits(token: FencingToken) -> Digits {
    Digits(Some(token.get()))
}

impl ToRedisArgs for Digits {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let Some(number) = self.0 else {
            return out.write_arg(&[]);
        };
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number);
        let zeros = "0000000000000000000".get(digits.len()..);
        Parts(&[zeros.unwrap_or_default(), digits]).write_redis_args(out);
    }
}

impl redis::ToSingleRedisArg for Digits {}

pub(crate) fn life(keep: Duration) -> u64 {
    millis(keep.min(FOREVER))
}

/// Whole milliseconds, rounded up, because a server must not keep a key for less than the ttl.
pub(crate) fn millis(ttl: Duration) -> u64 {
    let millis = ttl.as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

pub(crate) const fn flag(yes: bool) -> &'static str {
    if yes { "1" } else { "" }
}

pub(crate) const fn identity_for<'a>(config: &ClusterConfig, identity: &'a str) -> &'a str {
    if config.guarded { identity } else { ANY }
}

pub(crate) fn standing(cmd: &mut Cmd, config: Option<&ClusterConfig>, identity: &str) {
    match config {
        Some(config) => cmd.arg(Parts(&[
            &config.digest,
            " ",
            identity_for(config, identity),
        ])),
        None => cmd.arg(""),
    };
}

pub(crate) async fn run(
    connection: &mut Connection,
    script: &Script,
    cmd: &Cmd,
) -> Result<Value, NodeError> {
    let value = match connection.call(cmd).await {
        Err(error) if is_unknown_script(error.kind()) => {
            match connection.call(&script.load()).await {
                Ok(_) => connection.call(cmd).await,
                Err(error) => Err(error),
            }
        }
        result => result,
    };
    value.map_err(|error| failed(&error))
}

const fn is_unknown_script(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Server(ServerErrorKind::NoScript))
}

pub(crate) async fn run_and_wait(
    link: &Link,
    connection: &mut Connection,
    script: &Script,
    cmd: Cmd,
) -> Result<(Value, Result<(), NodeError>), NodeError> {
    let explained = |error| link.memory.explain(error);
    match &link.replicas {
        None => match run(connection, script, &cmd).await {
            Ok(value) => Ok((value, Ok(()))),
            Err(error) => Err(explained(error)),
        },
        // Box this future, so that those of nodes without replicas stay small.
        Some(replicas) => {
            let called = Box::pin(call_and_wait(connection, replicas, script, cmd)).await;
            called.map_err(explained)
        }
    }
}

/// Runs a script and waits for the replicas. A connection has one such wait at a time, because `WAIT` blocks everything
/// behind it.
async fn call_and_wait(
    connection: &mut Connection,
    replicas: &Replicas,
    script: &Script,
    cmd: Cmd,
) -> Result<(Value, Result<(), NodeError>), NodeError> {
    let signals = Arc::clone(connection.signals());
    let _turn = signals.turn().await;
    let mut pipeline = redis::pipe();
    pipeline.add_command(cmd);
    pipeline.add_command(replicas.wait());
    let values = call_all(connection, &[script], &pipeline).await;
    let mut values = values.map_err(|error| failed(&error))?.into_iter();
    let value = next_value(connection, &mut values)?;
    Ok((value, replicas.judge(values.next())))
}

pub(crate) fn next_value(
    connection: &Connection,
    values: &mut impl Iterator<Item = Value>,
) -> Result<Value, NodeError> {
    let value = values.next().unwrap_or(Value::Nil).extract_error();
    value.map_err(|error| {
        connection.signals().look_at(&error);
        failed(&error)
    })
}

pub(crate) async fn call_all(
    connection: &mut Connection,
    scripts: &[&Script],
    pipeline: &Pipeline,
) -> Result<Vec<Value>, RedisError> {
    let values = connection.call_all(pipeline).await?;
    if !values.iter().any(is_lost_script) {
        return Ok(values);
    }
    // Run the whole pipeline again, which does no harm.
    for script in scripts {
        connection.call(&script.load()).await?;
    }
    connection.call_all(pipeline).await
}

fn is_lost_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

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
    let number = |sum: u64, digit: &u8| sum * 10 + u64::from(digit - b'0');
    is_plain.then(|| FencingToken::new(digits.iter().fold(0, number)))?
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

/// Reads a holder from its remaining milliseconds (-1 without an expiry) and its hash.
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

/// Values that are not a reply to any command, except the `1`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_rounded_up_and_never_zero() {
        assert_eq!(millis(Duration::ZERO), 1);
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
        assert_eq!(millis(Duration::from_secs(3)), 3_000);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_script_is_loaded_only_where_the_server_lacks_it() {
        assert!(is_unknown_script(ErrorKind::Server(
            ServerErrorKind::NoScript
        )));
        for kind in [
            ErrorKind::Io,
            ErrorKind::Server(ServerErrorKind::BusyLoading),
        ] {
            assert!(!is_unknown_script(kind), "{kind:?}");
        }
    }

    #[test]
    fn the_scripts_know_how_long_a_digest_is() {
        let config = ClusterConfig::new("");
        assert_eq!(config.digest.len(), 40);
    }

    #[test]
    fn the_scripts_know_the_last_usable_fencing_token() {
        let last = format!("'{}'", FencingToken::LAST_COUNTED);
        assert!(include_str!("lua/counted.lua").contains(&last), "{last}");
    }
}
