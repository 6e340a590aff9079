//! Commands on keys of any type: whether they are there, and until when.

use std::borrow::Cow;

use super::Server;
use super::commands::{Call, NO_INTEGER, SYNTAX, shown};
use super::data::{Change, End, Entry, KeyChange, Told, Value};
use super::numbers::integer;
use super::resp::Reply;
use super::strings::invalid_expire;

pub(super) fn del(server: &mut Server, call: &Call<'_>) -> Reply {
    let mut removed = 0;
    for key in &call.words[1..] {
        if server.entry(call.base, key).is_some() {
            server.remove(call.base, key);
            removed += 1;
        }
    }
    Reply::Int(removed)
}

pub(super) fn exists(server: &mut Server, call: &Call<'_>) -> Reply {
    let is_there = |key: &&&[u8]| server.entry(call.base, key).is_some();
    Reply::count(call.words[1..].iter().filter(is_there).count())
}

pub(super) fn kind(server: &mut Server, call: &Call<'_>) -> Reply {
    let name: &[u8] = match server.value(call.base, call.words[1]) {
        Some(Value::Text(_)) => b"string",
        Some(Value::Hash(_)) => b"hash",
        None => b"none",
    };
    Reply::Status(Cow::Borrowed(name))
}

/// What is told of a key's end: -2 without a key, -1 without an end, else what `tell` makes of it and the time.
fn end(server: &mut Server, call: &Call<'_>, tell: fn(i64, i64) -> i64) -> Reply {
    let now = server.millis();
    Reply::Int(match server.entry(call.base, call.words[1]) {
        None => -2,
        Some(entry) => entry.until.map_or(-1, |until| tell(until, now)),
    })
}

pub(super) fn pttl(server: &mut Server, call: &Call<'_>) -> Reply {
    end(server, call, |until, now| (until - now).max(0))
}

pub(super) fn ttl(server: &mut Server, call: &Call<'_>) -> Reply {
    end(server, call, |until, now| {
        ((until - now).max(0) + 500) / 1_000
    })
}

pub(super) fn pexpiretime(server: &mut Server, call: &Call<'_>) -> Reply {
    end(server, call, |until, _| until)
}

pub(super) fn pexpire(server: &mut Server, call: &Call<'_>) -> Reply {
    let now = server.millis();
    set_end(server, call, "pexpire", 1, now)
}

pub(super) fn expire(server: &mut Server, call: &Call<'_>) -> Reply {
    let now = server.millis();
    set_end(server, call, "expire", 1_000, now)
}

pub(super) fn pexpireat(server: &mut Server, call: &Call<'_>) -> Reply {
    set_end(server, call, "pexpireat", 1, 0)
}

pub(super) fn expireat(server: &mut Server, call: &Call<'_>) -> Reply {
    set_end(server, call, "expireat", 1_000, 0)
}

/// When an end is set, by the end before; a key without one ends last.
#[derive(Default)]
struct Conditions {
    absent: bool,
    present: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn read(words: &[&[u8]]) -> Result<Self, Reply> {
        let mut all = Self::default();
        for word in words {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" => all.absent = true,
                b"xx" => all.present = true,
                b"gt" => all.later = true,
                b"lt" => all.earlier = true,
                _ => {
                    let word = shown(word, usize::MAX);
                    let text = [b"ERR Unsupported option ", word].concat();
                    return Err(Reply::failure(text));
                }
            }
        }
        if all.absent && (all.present || all.later || all.earlier) {
            return Err(Reply::error(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if all.later && all.earlier {
            return Err(Reply::error(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(all)
    }

    fn hold(&self, before: Option<i64>, end: i64) -> bool {
        !(self.absent && before.is_some()
            || self.present && before.is_none()
            || self.later && before.is_none_or(|before| end <= before)
            || self.earlier && before.is_some_and(|before| end >= before))
    }
}

/// Sets when a key ends: so many `unit`s after `begin`.
fn set_end(server: &mut Server, call: &Call<'_>, name: &str, unit: i64, begin: i64) -> Reply {
    let conditions = match Conditions::read(&call.words[3..]) {
        Ok(conditions) => conditions,
        Err(error) => return error,
    };
    let Some(number) = integer(call.words[2]) else {
        return NO_INTEGER;
    };
    let end = number
        .checked_mul(unit)
        .and_then(|millis| millis.checked_add(begin));
    let Some(end) = end else {
        return invalid_expire(server, name);
    };
    let (base, key) = (call.base, call.words[1]);
    let Some(entry) = server.entry(base, key) else {
        return Reply::Int(0);
    };
    if !conditions.hold(entry.until, end) {
        return Reply::Int(0);
    }
    if end <= server.millis() {
        server.remove(base, key);
    } else {
        let told = match begin {
            0 => Told::Time,
            _ => server.settings.dialect.tells_spans(),
        };
        let until = Some(end);
        server.change_key(base, key, KeyChange::Expire(End { until, told }));
    }
    Reply::Int(1)
}

pub(super) fn persist(server: &mut Server, call: &Call<'_>) -> Reply {
    let (base, key) = (call.base, call.words[1]);
    let ends = |entry: &Entry| entry.until.is_some();
    if !server.entry(base, key).is_some_and(ends) {
        return Reply::Int(0);
    }
    let (until, told) = (None, Told::Time);
    server.change_key(base, key, KeyChange::Expire(End { until, told }));
    Reply::Int(1)
}

pub(super) fn keys(server: &mut Server, call: &Call<'_>) -> Reply {
    let now = server.millis();
    let all = server.data.keys(call.base);
    let wanted = all.filter(|(key, entry)| !entry.has_expired(now) && matches(call.words[1], key));
    Reply::Array(wanted.map(|(key, _)| Reply::bulk(key)).collect())
}

/// Of what patterns may have it knows `*` and `?`.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| matches(rest, &text[skip..])),
        ([b'?', rest @ ..], [_, after @ ..]) => matches(rest, after),
        ([first, rest @ ..], [same, after @ ..]) => first == same && matches(rest, after),
        _ => false,
    }
}

pub(super) fn flushall(server: &mut Server, call: &Call<'_>) -> Reply {
    if !is_mode(&call.words[1..]) {
        return SYNTAX;
    }
    server.change(Change::RemoveAll);
    Reply::OK
}

/// Whether this is how a server may flush something.
pub(super) fn is_mode(words: &[&[u8]]) -> bool {
    let is = |known: &[u8]| words.len() == 1 && words[0].eq_ignore_ascii_case(known);
    words.is_empty() || is(b"sync") || is(b"async")
}
