//! Commands about the connection itself.

use std::borrow::Cow;

use super::Server;
use super::commands::{Call, NO_INTEGER, SYNTAX, shown};
use super::numbers::integer;
use super::resp::Reply;

pub(super) fn ping(server: &mut Server, call: &Call<'_>) -> Reply {
    let client = &server.clients[&call.connection];
    if !client.resp3 && !client.channels.is_empty() {
        return Reply::Array(vec![Reply::bulk("pong"), Reply::bulk("")]);
    }
    Reply::Status(Cow::Borrowed(b"PONG"))
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

pub(super) fn hello(server: &mut Server, call: &Call<'_>) -> Reply {
    let resp3 = match call.words.get(1) {
        None => None,
        Some(version) => match integer(version) {
            None => return Reply::error("ERR Protocol version is not an integer or out of range"),
            Some(version @ 2..=3) => Some(version == 3),
            Some(_) => return Reply::error("NOPROTO unsupported protocol version"),
        },
    };
    // It knows no options.
    if let Some(option) = call.words.get(2) {
        let begin = b"ERR Syntax error in HELLO option '";
        return Reply::failure([begin, shown(option, usize::MAX), b"'"].concat());
    }
    let dialect = server.dialect;
    let client = server.client(call);
    client.resp3 = resp3.unwrap_or(client.resp3);
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

/// Nobody asks for the name again.
pub(super) fn set_name(_: &mut Server, _: &Call<'_>) -> Reply {
    Reply::OK
}

/// Of filters it knows `ID`.
pub(super) fn kill(server: &mut Server, call: &Call<'_>) -> Reply {
    let (filter, id) = (call.words[2], call.words[3]);
    if !filter.eq_ignore_ascii_case(b"id") {
        return SYNTAX;
    }
    let Some(id) = integer(id) else {
        return NO_INTEGER;
    };
    let mut clients = server.clients.iter();
    let found = clients.find(|(_, client)| client.id == id);
    // It skips the one that asks.
    match found.map(|(connection, _)| *connection) {
        Some(connection) if connection != call.connection => {
            server.close(connection);
            Reply::Int(1)
        }
        _ => Reply::Int(0),
    }
}
