//! `INFO`: what a server tells of itself. Of the lines of real servers, those that somebody reads.

use std::fmt::Write as _;

use super::commands::{Call, SYNTAX};
use super::resp::Reply;
use super::{Dialect, Server};

/// Appends a section.
type Section = fn(&Server, &mut String);

const SECTIONS: [(&str, Section); 6] = [
    ("server", server),
    ("memory", memory),
    ("stats", stats),
    ("replication", replication),
    ("cluster", cluster),
    ("keyspace", keyspace),
];

pub(super) fn info(server: &mut Server, call: &Call<'_>) -> Reply {
    let asked = &call.words[1..];
    if asked.len() > 1 && server.settings.dialect == Dialect::Redis62 {
        return SYNTAX;
    }
    let named = |name: &str| {
        asked
            .iter()
            .any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let all = asked.is_empty() || ["default", "all", "everything"].into_iter().any(named);
    let mut text = String::new();
    for (name, write) in SECTIONS {
        if all || named(name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            write(server, &mut text);
        }
    }
    Reply::Verbatim(text.into_bytes())
}

/// Appends lines of a name and a value.
macro_rules! lines {
    ($text:expr, $title:literal $(, $name:literal => $value:expr)* $(,)?) => {{
        $text.push_str(concat!("# ", $title, "\r\n"));
        $(write!($text, concat!($name, ":{}\r\n"), $value).unwrap();)*
    }};
}

fn server(server: &Server, text: &mut String) {
    let uptime = server.now.saturating_sub(server.started) / 1_000_000;
    let dialect = server.settings.dialect;
    lines!(text, "Server", "redis_version" => dialect.redis_version());
    if dialect.is_valkey() {
        write!(
            text,
            "server_name:valkey\r\nvalkey_version:{}\r\n",
            dialect.version()
        )
        .unwrap();
    }
    write!(
        text,
        "redis_mode:{}\r\nrun_id:{}\r\ntcp_port:{}\r\nserver_time_usec:{}\r\nuptime_in_seconds:{uptime}\r\n",
        server.mode(), server.run_id, server.settings.port, server.now
    )
    .unwrap();
}

fn memory(server: &Server, text: &mut String) {
    lines!(
        text, "Memory",
        "maxmemory" => u8::from(server.trouble.out_of_memory),
        "maxmemory_policy" => server.settings.policy,
    );
}

fn stats(server: &Server, text: &mut String) {
    lines!(text, "Stats", "evicted_keys" => server.evicted_keys);
}

fn replication(server: &Server, text: &mut String) {
    let replication = &server.replication;
    let offset = server.data.offset();
    text.push_str("# Replication\r\n");
    match &replication.master {
        None => text.push_str("role:master\r\n"),
        Some(master) => {
            let link = if master.up { "up" } else { "down" };
            let (host, port) = (&master.host, master.port);
            write!(
                text,
                "role:slave\r\nmaster_host:{host}\r\nmaster_port:{port}\r\nmaster_link_status:{link}\r\nslave_repl_offset:{offset}\r\nslave_read_only:1\r\n"
            )
            .unwrap();
        }
    }
    write!(
        text,
        "connected_slaves:{}\r\n",
        replication.replicas().count()
    )
    .unwrap();
    for (number, (host, port, acknowledged)) in replication.replicas().enumerate() {
        write!(
            text,
            "slave{number}:ip={host},port={port},state=online,offset={acknowledged},lag=0\r\n"
        )
        .unwrap();
    }
    let zeros = "0".repeat(40);
    let former = replication.former.as_ref();
    let former_id = former.map_or(zeros.as_str(), |former| &former.id);
    write!(
        text,
        "master_failover_state:no-failover\r\nmaster_replid:{}\r\nmaster_replid2:{former_id}\r\nmaster_repl_offset:{offset}\r\n",
        replication.id
    )
    .unwrap();
    match former {
        Some(former) => write!(text, "second_repl_offset:{}\r\n", former.offset).unwrap(),
        None => text.push_str("second_repl_offset:-1\r\n"),
    }
    write!(
        text,
        "repl_backlog_active:{}\r\n",
        u8::from(replication.backlog)
    )
    .unwrap();
}

fn cluster(server: &Server, text: &mut String) {
    lines!(text, "Cluster", "cluster_enabled" => u8::from(server.cluster.is_some()));
}

fn keyspace(server: &Server, text: &mut String) {
    text.push_str("# Keyspace\r\n");
    for (base, keys) in server.data.bases() {
        let expires = keys.values().filter(|entry| entry.until.is_some()).count();
        if !keys.is_empty() {
            write!(
                text,
                "db{base}:keys={},expires={expires},avg_ttl=0\r\n",
                keys.len()
            )
            .unwrap();
        }
    }
}
