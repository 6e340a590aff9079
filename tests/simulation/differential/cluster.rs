//! A server of a real cluster and of a simulated one refuse the same calls in the same words, and see the same cluster.

use super::wire::packed;
use super::words::texts;
use super::{BEGIN, dialects};
use crate::support::redis_cluster::{NODE_TIMEOUT, RedisCluster};
use crate::support::server::Kind;
use tower_redlock_simulated::server::{Cluster, Output, Server};

/// Words, parted by bars. Of the keys `k2` belongs to the first master, `k0` and `k1` to the others.
const CALLS: [&str; 18] = [
    "GET|k2",
    "GET|k0",
    "SET|{k1}x|v",
    "SET|k2{}{k1}|v",
    "MGET|k2|k0",
    "MGET|k0|k1",
    "DEL|k0|{k0}other",
    "HMGET|k0|f",
    "EVAL|return 1|0",
    "EVAL|return 1|1|k0",
    "EVAL|return 1|1|k2|k0",
    "EVAL|return 1|2|k2|k0",
    "EVAL|return redis.call('GET','k0')|1|k2",
    "EVAL|return redis.call('SPUBLISH','{k0}c','')|1|k2",
    "EVAL|return redis.call('GET','k0')|0",
    "SPUBLISH|{k0}channel|x",
    "SPUBLISH|{k2}channel|x",
    "KEYS|*",
];

/// What is told of an error, without the name of the script.
fn error(reply: &str) -> Option<String> {
    let line = reply.lines().next().filter(|line| line.starts_with('-'))?;
    let words = line.trim_end().split(' ');
    let is_name = |word: &&str| !(word.starts_with("script:") || word.len() > 39);
    Some(words.filter(is_name).collect::<Vec<_>>().join(" "))
}

/// The lines of `CLUSTER NODES`, as far as clients read them: addresses, flags, epochs and slots.
fn nodes(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let address = fields[1].split(['@', ',']).next().unwrap().to_owned();
        format!("{address} {} {} {:?}", fields[2], fields[6], &fields[8..])
    };
    let mut lines: Vec<String> = text
        .lines()
        .filter(|text| text.contains('@'))
        .map(line)
        .collect();
    lines.sort_unstable();
    lines
}

#[test]
fn what_is_elsewhere_is_refused_in_the_same_words() {
    for kind in Kind::ALL {
        let cluster = RedisCluster::start(kind, 3, 0);
        let real = &cluster.servers[0];
        let (dialect, _) = dialects::of(&real.run("INFO"));
        let mut simulated = Server::new(dialect, 1, BEGIN);
        let addresses = cluster.servers.iter();
        let addresses = addresses.map(|server| (("127.0.0.1".to_owned(), server.port()), None));
        let all: Vec<_> = addresses.collect();
        simulated.join_cluster(Cluster::new(0, &all, NODE_TIMEOUT, BEGIN));
        simulated.connect(0);
        let mut ask = |words: &[&str]| {
            let outputs = simulated.receive(0, &packed(&texts(words)), BEGIN);
            let sent = outputs.into_iter().filter_map(|output| match output {
                Output::Send(_, bytes) => String::from_utf8(bytes).ok(),
                Output::Close(_) => None,
            });
            sent.collect::<String>()
        };
        for call in CALLS {
            let words: Vec<&str> = call.split('|').collect();
            let (ours, theirs) = (error(&ask(&words)), error(&real.command(&words)));
            assert_eq!(ours, theirs, "{dialect:?}, {call}: simulated, then real");
        }
        let words = ["CLUSTER", "NODES"];
        assert_eq!(nodes(&ask(&words)), nodes(&real.command(&words)));
    }
}
