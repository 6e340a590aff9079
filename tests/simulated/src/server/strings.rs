//! Commands on strings.

use super::commands::{Call, NO_INTEGER, SYNTAX, WRONG_TYPE};
use super::data::{End, KeyChange, Told, Value};
use super::numbers::integer;
use super::resp::Reply;
use super::{Dialect, Server};

pub(super) fn get(server: &mut Server, call: &Call<'_>) -> Reply {
    match server.value(call.words[1]) {
        Some(Value::Text(text)) => Reply::bulk(text),
        Some(Value::Hash(_)) => WRONG_TYPE,
        None => Reply::Nil,
    }
}

/// A key of another type looks absent.
pub(super) fn mget(server: &mut Server, call: &Call<'_>) -> Reply {
    let value = |key: &&[u8]| match server.value(key) {
        Some(Value::Text(text)) => Reply::bulk(text),
        Some(Value::Hash(_)) | None => Reply::Nil,
    };
    Reply::Array(call.words[1..].iter().map(value).collect())
}

/// The options of `SET`.
#[derive(Default)]
struct Options<'a> {
    absent: bool,
    present: bool,
    /// The number of milliseconds, and whether it counts from now.
    expiry: Option<(&'a [u8], bool)>,
}

impl<'a> Options<'a> {
    fn read(words: &[&'a [u8]]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let word = word.to_ascii_lowercase();
            match word.as_slice() {
                b"nx" if !options.present => options.absent = true,
                b"xx" if !options.absent => options.present = true,
                b"px" | b"pxat" => {
                    let from_now = word == b"px";
                    // The last of several of one kind counts.
                    if options.expiry.is_some_and(|(_, other)| other != from_now) {
                        return None;
                    }
                    options.expiry = Some((*words.next()?, from_now));
                }
                _ => return None,
            }
        }
        Some(options)
    }
}

pub(super) fn set(server: &mut Server, call: &Call<'_>) -> Reply {
    let (key, value) = (call.words[1], call.words[2]);
    let Some(options) = Options::read(&call.words[3..]) else {
        return SYNTAX;
    };
    let mut until = None;
    if let Some((text, from_now)) = options.expiry {
        let Some(number) = integer(text) else {
            return NO_INTEGER;
        };
        let begin = if from_now { server.millis() } else { 0 };
        let end = number.checked_add(begin);
        until = end.filter(|_| number > 0);
        if until.is_none() {
            return invalid_expire(server, "set");
        }
    }
    let found = server.entry(key).is_some();
    if options.absent && found || options.present && !found {
        return Reply::Nil;
    }
    let ended = until.is_some_and(|until| until <= server.millis());
    let dialect = server.dialect;
    if ended && dialect.is_valkey() {
        // Redis keeps it for the rest of the millisecond.
        if found {
            server.remove(key);
        }
        return Reply::OK;
    }
    let told = match options.expiry {
        Some((_, true)) => dialect.tells_spans(),
        _ => Told::Time,
    };
    let change = KeyChange::Set(value.to_vec(), End { until, told });
    server.change_key(key, change);
    Reply::OK
}

pub(super) fn invalid_expire(server: &Server, name: &str) -> Reply {
    Reply::failure(match server.dialect {
        Dialect::Redis62 => format!("ERR invalid expire time in {name}"),
        _ => format!("ERR invalid expire time in '{name}' command"),
    })
}
