//! `INFO`: what a server tells of itself. Of the lines of real servers, those that somebody reads.

use super::Server;
use super::commands::Call;
use super::resp::Reply;

/// The lines of a section.
type Section = fn(&Server) -> Vec<String>;

const SECTIONS: [(&str, Section); 5] = [
    ("Server", server),
    ("Memory", memory),
    ("Stats", stats),
    ("Replication", replication),
    ("Cluster", cluster),
];

/// All sections, or the one that is named.
pub(super) fn info(server: &mut Server, call: &Call<'_>) -> Reply {
    let named = call.words.get(1);
    let is_wanted =
        |title: &str| named.is_none_or(|name| name.eq_ignore_ascii_case(title.as_bytes()));
    let wanted = SECTIONS.iter().filter(|(title, _)| is_wanted(title));
    let section = |(title, lines): &(&str, Section)| {
        let mut lines = lines(server);
        lines.insert(0, format!("# {title}"));
        lines.join("\r\n") + "\r\n"
    };
    let sections: Vec<String> = wanted.map(section).collect();
    Reply::Verbatim(sections.join("\r\n").into_bytes())
}

fn server(server: &Server) -> Vec<String> {
    vec![
        format!("redis_version:{}", server.dialect.redis_version()),
        format!("run_id:{}", server.run_id),
        format!("server_time_usec:{}", server.now),
    ]
}

fn memory(server: &Server) -> Vec<String> {
    let is_full = u8::from(server.trouble.out_of_memory);
    vec![
        format!("maxmemory:{is_full}"),
        format!("maxmemory_policy:{}", server.policy),
    ]
}

fn stats(server: &Server) -> Vec<String> {
    vec![format!("evicted_keys:{}", server.evicted_keys)]
}

fn replication(server: &Server) -> Vec<String> {
    let replication = &server.replication;
    let role = ["slave", "master"][usize::from(server.is_master())];
    let mut lines = vec![format!("role:{role}")];
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
        format!("master_replid2:{former}"),
        format!("second_repl_offset:{since}"),
    ]);
    lines
}

fn cluster(server: &Server) -> Vec<String> {
    let is_enabled = u8::from(server.cluster.is_some());
    vec![format!("cluster_enabled:{is_enabled}")]
}
