//! `INFO`: what a server tells of itself. Of the lines of real servers, those that somebody reads.

use super::commands::{Call, SYNTAX};
use super::resp::Reply;
use super::{Dialect, Server};

/// The lines of a section.
type Section = fn(&Server) -> Vec<String>;

const SECTIONS: [(&str, Section); 6] = [
    ("Server", server),
    ("Memory", memory),
    ("Stats", stats),
    ("Replication", replication),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

pub(super) fn info(server: &mut Server, call: &Call<'_>) -> Reply {
    let asked = &call.words[1..];
    if asked.len() > 1 && server.settings.dialect == Dialect::Redis62 {
        return SYNTAX;
    }
    let named = |name: &str| {
        let mut words = asked.iter();
        words.any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let all = asked.is_empty() || ["default", "all", "everything"].into_iter().any(named);
    let wanted = SECTIONS.iter().filter(|(title, _)| all || named(title));
    let section = |(title, lines): &(&str, Section)| {
        let mut lines = lines(server);
        lines.insert(0, format!("# {title}"));
        lines.join("\r\n") + "\r\n"
    };
    let sections: Vec<String> = wanted.map(section).collect();
    Reply::Verbatim(sections.join("\r\n").into_bytes())
}

fn server(server: &Server) -> Vec<String> {
    let dialect = server.settings.dialect;
    let mut lines = vec![format!("redis_version:{}", dialect.redis_version())];
    if dialect.is_valkey() {
        lines.push("server_name:valkey".to_owned());
        lines.push(format!("valkey_version:{}", dialect.version()));
    }
    let uptime = server.now.saturating_sub(server.started) / 1_000_000;
    lines.extend([
        format!("redis_mode:{}", server.mode()),
        format!("run_id:{}", server.run_id),
        format!("tcp_port:{}", server.settings.port),
        format!("server_time_usec:{}", server.now),
        format!("uptime_in_seconds:{uptime}"),
    ]);
    lines
}

fn memory(server: &Server) -> Vec<String> {
    let is_full = u8::from(server.trouble.out_of_memory);
    vec![
        format!("maxmemory:{is_full}"),
        format!("maxmemory_policy:{}", server.settings.policy),
    ]
}

fn stats(server: &Server) -> Vec<String> {
    vec![format!("evicted_keys:{}", server.evicted_keys)]
}

fn replication(server: &Server) -> Vec<String> {
    let replication = &server.replication;
    let offset = server.data.offset();
    let mut lines = match &replication.master {
        None => vec!["role:master".to_owned()],
        Some(master) => vec![
            "role:slave".to_owned(),
            format!("master_host:{}", master.host),
            format!("master_port:{}", master.port),
            format!(
                "master_link_status:{}",
                if master.up { "up" } else { "down" }
            ),
            format!("slave_repl_offset:{offset}"),
            "slave_read_only:1".to_owned(),
        ],
    };
    let count = replication.replicas().count();
    lines.push(format!("connected_slaves:{count}"));
    for (number, (host, port, acknowledged)) in replication.replicas().enumerate() {
        lines.push(format!(
            "slave{number}:ip={host},port={port},state=online,offset={acknowledged},lag=0"
        ));
    }
    let (former, since) = match &replication.former {
        Some(former) => (former.id.clone(), former.offset.to_string()),
        None => ("0".repeat(40), "-1".to_owned()),
    };
    lines.extend([
        "master_failover_state:no-failover".to_owned(),
        format!("master_replid:{}", replication.id),
        format!("master_replid2:{former}"),
        format!("master_repl_offset:{offset}"),
        format!("second_repl_offset:{since}"),
        format!("repl_backlog_active:{}", u8::from(replication.backlog)),
    ]);
    lines
}

fn cluster(server: &Server) -> Vec<String> {
    let is_enabled = u8::from(server.cluster.is_some());
    vec![format!("cluster_enabled:{is_enabled}")]
}

fn keyspace(server: &Server) -> Vec<String> {
    let bases = server.data.bases().iter();
    let bases = bases.filter(|(_, keys)| !keys.is_empty());
    let lines = bases.map(|(base, keys)| {
        let expires = keys.values().filter(|entry| entry.until.is_some()).count();
        let count = keys.len();
        format!("db{base}:keys={count},expires={expires},avg_ttl=0")
    });
    lines.collect()
}
