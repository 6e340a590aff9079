//! Commands on keys of any type: whether they are there, and until when.

use std::borrow::Cow;

use super::Server;
use super::commands::{Call, NO_INTEGER};
use super::data::{Change, End, KeyChange, Value};
use super::numbers::integer;
use super::resp::Reply;
use super::strings::invalid_expire;

pub(super) fn del(server: &mut Server, call: &Call<'_>) -> Reply {
    let mut removed = 0;
    for key in &call.words[1..] {
        if server.entry(key).is_some() {
            server.remove(key);
            removed += 1;
        }
    }
    Reply::Int(removed)
}

pub(super) fn kind(server: &mut Server, call: &Call<'_>) -> Reply {
    let name: &[u8] = match server.value(call.words[1]) {
        Some(Value::Text(_)) => b"string",
        Some(Value::Hash(_)) => b"hash",
        None => b"none",
    };
    Reply::Status(Cow::Borrowed(name))
}

/// What is told of a key's end: -2 without a key, -1 without an end, else what `tell` makes of it and the time.
fn end(server: &mut Server, call: &Call<'_>, tell: fn(i64, i64) -> i64) -> Reply {
    let now = server.millis();
    Reply::Int(match server.entry(call.words[1]) {
        None => -2,
        Some(entry) => entry.until.map_or(-1, |until| tell(until, now)),
    })
}

pub(super) fn pttl(server: &mut Server, call: &Call<'_>) -> Reply {
    end(server, call, |until, now| (until - now).max(0))
}

pub(super) fn pexpiretime(server: &mut Server, call: &Call<'_>) -> Reply {
    end(server, call, |until, _| until)
}

pub(super) fn pexpire(server: &mut Server, call: &Call<'_>) -> Reply {
    let (key, now) = (call.words[1], server.millis());
    let Some(span) = integer(call.words[2]) else {
        return NO_INTEGER;
    };
    let Some(end) = span.checked_add(now) else {
        return invalid_expire(server, "pexpire");
    };
    if server.entry(key).is_none() {
        return Reply::Int(0);
    }
    if end <= now {
        server.remove(key);
    } else {
        let told = server.dialect.tells_spans();
        let until = Some(end);
        server.change_key(key, KeyChange::Expire(End { until, told }));
    }
    Reply::Int(1)
}

/// Whatever the pattern, it is taken for `*`.
pub(super) fn keys(server: &mut Server, _: &Call<'_>) -> Reply {
    let now = server.millis();
    let living = (server.data.keys().iter()).filter(|(_, entry)| !entry.has_expired(now));
    Reply::Array(living.map(|(key, _)| Reply::bulk(key)).collect())
}

pub(super) fn flushall(server: &mut Server, _: &Call<'_>) -> Reply {
    server.change(Change::RemoveAll);
    Reply::OK
}
