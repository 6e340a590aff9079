//! Commands about the connection itself.

use std::borrow::Cow;

use super::clients::Client;
use super::commands::{Call, NO_INTEGER, SYNTAX, shown, wrong_arity};
use super::numbers::integer;
use super::resp::Reply;
use super::{ConnectionId, Dialect, Server};

const WRONG_PASSWORD: Reply =
    Reply::error("WRONGPASS invalid username-password pair or user is disabled.");
/// How many databases there are.
const BASES: i64 = 16;

pub(super) fn ping(server: &mut Server, call: &Call<'_>) -> Reply {
    let message = call.words.get(1);
    if call.words.len() > 2 {
        return wrong_arity("ping");
    }
    let client = &server.clients[&call.connection];
    if !client.resp3 && !client.channels.is_empty() {
        let message = message.copied().unwrap_or_default();
        return Reply::Array(vec![Reply::bulk("pong"), Reply::bulk(message)]);
    }
    message.map_or(Reply::Status(Cow::Borrowed(b"PONG")), Reply::bulk)
}

pub(super) fn echo(_: &mut Server, call: &Call<'_>) -> Reply {
    Reply::bulk(call.words[1])
}

pub(super) fn time(server: &mut Server, _: &Call<'_>) -> Reply {
    let (seconds, micros) = (server.now / 1_000_000, server.now % 1_000_000);
    Reply::Array(vec![
        Reply::bulk(seconds.to_string()),
        Reply::bulk(micros.to_string()),
    ])
}

pub(super) fn quit(server: &mut Server, call: &Call<'_>) -> Reply {
    server.client(call).closing = true;
    Reply::OK
}

pub(super) fn select(server: &mut Server, call: &Call<'_>) -> Reply {
    match integer(call.words[1]) {
        Some(base) if i32::try_from(base).is_err() => {
            Reply::error("ERR value is out of range, value must between -2147483648 and 2147483647")
        }
        Some(base @ 0..BASES) => {
            server.client(call).base = usize::try_from(base).unwrap();
            Reply::OK
        }
        Some(_) => Reply::error("ERR DB index is out of range"),
        None => NO_INTEGER,
    }
}

/// Whether the user may come in, and then lets it in.
fn let_in(server: &mut Server, call: &Call<'_>, user: &[u8], password: &[u8]) -> bool {
    let wanted = server.settings.password.as_deref();
    // Without a password, every password of the default user is right.
    let right = user == b"default" && wanted.is_none_or(|wanted| wanted.as_bytes() == password);
    server.client(call).authenticated |= right;
    right
}

pub(super) fn auth(server: &mut Server, call: &Call<'_>) -> Reply {
    let (user, password) = match call.words[1..] {
        [_] if server.settings.password.is_none() => {
            return Reply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            );
        }
        [password] => (&b"default"[..], password),
        [user, password] => (user, password),
        _ => return SYNTAX,
    };
    if let_in(server, call, user, password) {
        Reply::OK
    } else {
        WRONG_PASSWORD
    }
}

pub(super) fn hello(server: &mut Server, call: &Call<'_>) -> Reply {
    let resp3 = match call.words.get(1) {
        None => None,
        Some(version) => match integer(version) {
            None => return Reply::error("ERR Protocol version is not an integer or out of range"),
            Some(version @ 2..=3) => Some(version == 3),
            Some(_) => return Reply::error("NOPROTO unsupported protocol version"),
        },
    };
    let mut words = call.words.get(2..).unwrap_or_default();
    let mut name = None;
    while let Some(option) = words.first() {
        words = match (option.to_ascii_lowercase().as_slice(), words) {
            (b"auth", [_, user, password, rest @ ..]) => {
                if !let_in(server, call, user, password) {
                    return WRONG_PASSWORD;
                }
                rest
            }
            (b"setname", [_, new, rest @ ..]) => {
                name = Some(new.to_vec());
                rest
            }
            _ => {
                let begin = b"ERR Syntax error in HELLO option '";
                return Reply::failure([begin, shown(option, usize::MAX), b"'"].concat());
            }
        };
    }
    let dialect = server.settings.dialect;
    let client = server.client(call);
    if !client.authenticated {
        let newer = dialect > Dialect::Redis70;
        let protocol = if newer { "<proto> " } else { "" };
        return Reply::failure(format!(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO {protocol}AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
        ));
    }
    client.resp3 = resp3.unwrap_or(client.resp3);
    client.name = name.unwrap_or_else(|| client.name.clone());
    let (resp3, id) = (client.resp3, client.id);
    let role = ["replica", "master"][usize::from(server.is_master())];
    let pair = |name: &str, value| (Reply::bulk(name), value);
    Reply::Map(vec![
        pair("server", Reply::bulk(dialect.pick(&["redis", "valkey"]))),
        pair("version", Reply::bulk(dialect.version())),
        pair("proto", Reply::Int(if resp3 { 3 } else { 2 })),
        pair("id", Reply::Int(id)),
        pair("mode", Reply::bulk(server.mode())),
        pair("role", Reply::bulk(role)),
        pair("modules", Reply::Array(Vec::new())),
    ])
}

pub(super) fn id(server: &mut Server, call: &Call<'_>) -> Reply {
    Reply::Int(server.clients[&call.connection].id)
}

pub(super) fn set_name(server: &mut Server, call: &Call<'_>) -> Reply {
    let name = call.words[2];
    if !is_plain(name) {
        return Reply::error(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        );
    }
    server.client(call).name = name.to_vec();
    Reply::OK
}

pub(super) fn get_name(server: &mut Server, call: &Call<'_>) -> Reply {
    let name = &server.clients[&call.connection].name;
    Reply::optional((!name.is_empty()).then_some(name))
}

pub(super) fn set_info(_: &mut Server, call: &Call<'_>) -> Reply {
    let (attribute, value) = (call.words[2], call.words[3]);
    let mut known = [b"lib-name", &b"lib-ver"[..]].into_iter();
    let name = shown(attribute, usize::MAX);
    if !known.any(|known| known.eq_ignore_ascii_case(attribute)) {
        Reply::failure([b"ERR Unrecognized option '", name, b"'"].concat())
    } else if is_plain(value) {
        Reply::OK
    } else {
        Reply::failure([b"ERR ", name, NOT_PLAIN].concat())
    }
}

const NOT_PLAIN: &[u8] = b" cannot contain spaces, newlines or special characters.";

/// Whether it has no characters that a list of clients could not show.
fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// Of filters it knows `ID`.
pub(super) fn kill(server: &mut Server, call: &Call<'_>) -> Reply {
    let words = &call.words[2..];
    if words.len() == 1 {
        return Reply::error("ERR No such client");
    }
    let dialect = server.settings.dialect;
    let wanted = match dialect.is_valkey() {
        true => all_ids(words),
        false => last_id(words, dialect),
    };
    let close = |wanted: Vec<i64>| {
        // It skips the one that asks.
        let is_wanted = |(connection, client): &(&ConnectionId, &Client)| {
            **connection != call.connection && wanted.contains(&client.id)
        };
        let found = server.clients.iter().filter(is_wanted);
        let found: Vec<_> = found.map(|(connection, _)| *connection).collect();
        found.iter().for_each(|it| server.close(*it));
        Reply::count(found.len())
    };
    wanted.map_or_else(|error| error, close)
}

const NO_ID: Reply = Reply::error("ERR client-id should be greater than 0");

/// Each filter has one id, and the last one counts.
fn last_id(mut words: &[&[u8]], dialect: Dialect) -> Result<Vec<i64>, Reply> {
    let mut wanted = Vec::new();
    while let [filter, value, rest @ ..] = words {
        if !filter.eq_ignore_ascii_case(b"id") {
            return Err(SYNTAX);
        }
        let id = match integer(value) {
            None if dialect == Dialect::Redis62 => return Err(NO_INTEGER),
            id => id.filter(|id| *id > 0).ok_or(NO_ID)?,
        };
        wanted = vec![id];
        words = rest;
    }
    if words.is_empty() {
        Ok(wanted)
    } else {
        Err(SYNTAX)
    }
}

/// A filter has as many ids as there are numbers behind it, and all count.
fn all_ids(mut words: &[&[u8]]) -> Result<Vec<i64>, Reply> {
    let mut wanted = Vec::new();
    while let [filter, rest @ ..] = words {
        if !filter.eq_ignore_ascii_case(b"id") || rest.is_empty() {
            return Err(SYNTAX);
        }
        words = rest;
        while let [value, rest @ ..] = words
            && let Some(id) = integer(value)
        {
            if id < 1 {
                return Err(NO_ID);
            }
            wanted.push(id);
            words = rest;
        }
    }
    Ok(wanted)
}
