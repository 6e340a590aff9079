//! Commands on strings.

use super::commands::{Call, NO_INTEGER, SYNTAX, WRONG_TYPE};
use super::data::{End, KeyChange, Told, Value};
use super::numbers::integer;
use super::resp::Reply;
use super::{Dialect, Server};

pub(super) fn get(server: &mut Server, call: &Call<'_>) -> Reply {
    match server.value(call.base, call.words[1]) {
        Some(Value::Text(text)) => Reply::bulk(text),
        Some(Value::Hash(_)) => WRONG_TYPE,
        None => Reply::Nil,
    }
}

/// A key of another type looks absent.
pub(super) fn mget(server: &mut Server, call: &Call<'_>) -> Reply {
    let value = |key: &&[u8]| match server.value(call.base, key) {
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
    get: bool,
    keep: bool,
    /// The number, how many milliseconds it counts, and whether it counts from now.
    expiry: Option<(&'a [u8], i64, bool)>,
}

impl<'a> Options<'a> {
    fn read(words: &[&'a [u8]], dialect: Dialect) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            // The last of several of one kind counts.
            let same = |unit, from_now| {
                let other = |(_, other, now)| (other, now) != (unit, from_now);
                !options.keep && !options.expiry.is_some_and(other)
            };
            let mut expiry = |unit, from_now| {
                let fits = same(unit, from_now);
                fits.then(|| Some((*words.next()?, unit, from_now)))?
            };
            match word.to_ascii_lowercase().as_slice() {
                b"nx" if !options.present => options.absent = true,
                b"xx" if !options.absent => options.present = true,
                b"get" => options.get = true,
                b"keepttl" if options.expiry.is_none() => options.keep = true,
                b"px" => options.expiry = Some(expiry(1, true)?),
                b"ex" => options.expiry = Some(expiry(1_000, true)?),
                b"pxat" => options.expiry = Some(expiry(1, false)?),
                b"exat" => options.expiry = Some(expiry(1_000, false)?),
                _ => return None,
            }
        }
        let both = dialect != Dialect::Redis62 || !options.get || !options.absent;
        both.then_some(options)
    }
}

pub(super) fn set(server: &mut Server, call: &Call<'_>) -> Reply {
    let (key, value) = (call.words[1], call.words[2]);
    let Some(options) = Options::read(&call.words[3..], server.settings.dialect) else {
        return SYNTAX;
    };
    let mut until = None;
    if let Some((text, unit, from_now)) = options.expiry {
        let Some(number) = integer(text) else {
            return NO_INTEGER;
        };
        let begin = if from_now { server.millis() } else { 0 };
        let end = number
            .checked_mul(unit)
            .and_then(|millis| millis.checked_add(begin));
        until = end.filter(|end| number > 0 && *end > 0);
        if until.is_none() {
            return invalid_expire(server, "set");
        }
    }
    let before = server.value(call.base, key);
    let found = before.is_some();
    let old = match before {
        Some(Value::Text(text)) => options.get.then(|| Reply::bulk(text)),
        Some(Value::Hash(_)) if options.get => return WRONG_TYPE,
        _ => options.get.then_some(Reply::Nil),
    };
    if options.absent && found || options.present && !found {
        return old.unwrap_or(Reply::Nil);
    }
    let ended = until.is_some_and(|until| until <= server.millis());
    let dialect = server.settings.dialect;
    if ended && dialect.is_valkey() {
        // Redis keeps it for the rest of the millisecond.
        if found {
            server.remove(call.base, key);
        }
        return old.unwrap_or(Reply::OK);
    }
    let told = match options.expiry {
        Some((_, _, true)) => dialect.tells_spans(),
        _ if options.keep => Told::Kept,
        _ => Told::Time,
    };
    let change = KeyChange::Set(value.to_vec(), End { until, told });
    server.change_key(call.base, key, change);
    old.unwrap_or(Reply::OK)
}

pub(super) fn invalid_expire(server: &Server, name: &str) -> Reply {
    Reply::failure(match server.settings.dialect {
        Dialect::Redis62 => format!("ERR invalid expire time in {name}"),
        _ => format!("ERR invalid expire time in '{name}' command"),
    })
}
