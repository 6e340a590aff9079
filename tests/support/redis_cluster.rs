//! A real Redis Cluster: masters, each with replicas, as processes on free ports.

use std::thread;
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::server::{Kind, Server};

/// After how many milliseconds without an answer a server counts as failed.
pub const NODE_TIMEOUT: u64 = 1_000;
const SLOTS: usize = 16_384;

/// A cluster whose masters have even ranges of slots. It ends with this value.
#[derive(Debug)]
pub struct RedisCluster {
    /// The masters first, then their replicas in the same order.
    pub servers: Vec<Server>,
}

impl RedisCluster {
    /// Starts so many masters, each with so many replicas, and waits until all of them serve.
    pub fn start(kind: Kind, masters: usize, replicas: usize) -> Self {
        let timeout = NODE_TIMEOUT.to_string();
        let args = [
            "--cluster-enabled",
            "yes",
            // Else a master that is down stops the others, too.
            "--cluster-require-full-coverage",
            "no",
            "--cluster-node-timeout",
            &timeout,
        ];
        let servers = Server::start_many_with(kind, masters * (1 + replicas), &args);
        let cluster = Self { servers };
        for (index, server) in cluster.servers.iter().enumerate() {
            server.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            let first = cluster.servers[0].port();
            server.run(&format!("CLUSTER MEET 127.0.0.1 {first}"));
            if index < masters {
                let slots = index * SLOTS / masters..(index + 1) * SLOTS / masters;
                let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
                server.run(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
            }
        }
        let count = cluster.servers.len();
        cluster.wait(|text| text.contains(&format!("cluster_known_nodes:{count}")));
        for index in masters..count {
            let master = &cluster.servers[index % masters];
            let id = master.run("CLUSTER MYID");
            master.run("CONFIG SET repl-diskless-sync-delay 0");
            cluster.servers[index].run(&format!("CLUSTER REPLICATE {id}"));
        }
        for index in masters..count {
            cluster.servers[index].wait_to_follow(&cluster.servers[index % masters]);
        }
        cluster.wait(|text| text.contains("cluster_state:ok"));
        cluster
    }

    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// Waits until every server that runs says so in `CLUSTER INFO`.
    pub fn wait(&self, says: impl Fn(&str) -> bool) {
        let begin = Instant::now();
        for server in self.servers.iter().filter(|server| server.is_running()) {
            while !says(&server.run("CLUSTER INFO")) {
                let is_late = begin.elapsed() > PATIENCE;
                assert!(!is_late, "{}", server.run("CLUSTER INFO"));
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// The server that has `slot`, as `witness` says.
    pub fn owner(&self, slot: u16, witness: usize) -> Option<usize> {
        let nodes = self.servers[witness].run("CLUSTER NODES");
        let has = |line: &&str| {
            let ranges = line
                .split(' ')
                .skip(8)
                .filter(|range| !range.starts_with('['));
            line.contains("master")
                && ranges.into_iter().any(|range| {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    (first.parse().unwrap()..=last.parse().unwrap()).contains(&slot)
                })
        };
        self.at(nodes.lines().find(has)?)
    }

    /// Waits until all servers, which must answer, agree on who has which slots, and since when. A replica that knows an older
    /// epoch of its master gets no votes once that has failed.
    pub fn agree(&self) {
        let view = |server: &Server| {
            let nodes = server.run("CLUSTER NODES");
            let masters = nodes.lines().filter(|line| line.contains("master"));
            let claim = |line: &str| {
                let words: Vec<&str> = line.split(' ').collect();
                [&words[..1], &words[6..7], &words[8..]].concat().join(" ")
            };
            let mut claims: Vec<String> = masters.map(claim).collect();
            claims.sort();
            claims
        };
        let begin = Instant::now();
        loop {
            let views: Vec<_> = self.servers.iter().map(view).collect();
            if views.windows(2).all(|pair| pair[0] == pair[1]) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "they disagree: {views:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The replica of a master.
    pub fn replica_of(&self, master: usize) -> usize {
        let id = self.servers[master].run("CLUSTER MYID");
        let nodes = self.servers[master].run("CLUSTER NODES");
        let line = nodes
            .lines()
            .find(|line| line.contains(&format!("slave {id} ")));
        self.at(line.unwrap()).unwrap()
    }

    /// The server of a line of `CLUSTER NODES`.
    fn at(&self, line: &str) -> Option<usize> {
        let is_its = |server: &Server| line.contains(&format!(":{}@", server.port()));
        self.servers.iter().position(is_its)
    }

    /// Waits until the former master of `slot` follows the one that has it now. On a slow machine that may be another one
    /// than at first, or the former one again.
    pub fn rejoins(&self, former: usize, slot: u16) {
        let witness = usize::from(former == 0);
        let has_joined =
            |owner: usize| owner == former || self.servers[former].follows(&self.servers[owner]);
        let begin = Instant::now();
        while !self.owner(slot, witness).is_some_and(has_joined) {
            let nodes = || self.servers[witness].run("CLUSTER NODES");
            assert!(begin.elapsed() < PATIENCE, "it is no replica: {}", nodes());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has a replica take its master's place, with the master's consent.
    pub fn fail_over_to(&self, replica: usize) {
        let begin = Instant::now();
        while !self.servers[replica].run("ROLE").starts_with("master") {
            self.servers[replica].run("CLUSTER FAILOVER");
            assert!(begin.elapsed() < PATIENCE, "it is not promoted");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Begins to move `slot` from one master to another.
    pub fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (
            self.servers[from].run("CLUSTER MYID"),
            self.servers[to].run("CLUSTER MYID"),
        );
        self.servers[to].run(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
        self.servers[from].run(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
    }

    /// Moves the keys of `slot`, and the slot.
    pub fn end_migration(&self, slot: u16, from: usize, to: usize) {
        let port = self.servers[to].port();
        let target = self.servers[to].run("CLUSTER MYID");
        let begin = Instant::now();
        for server in [to, from] {
            loop {
                let keys = self.servers[from].run(&format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
                let migrate = |key| format!("MIGRATE 127.0.0.1 {port} {key} 0 5000");
                let mut said: Vec<_> = (keys.lines())
                    .map(|key| self.servers[from].run(&migrate(key)))
                    .collect();
                let set = format!("CLUSTER SETSLOT {slot} NODE {target}");
                said.push(self.servers[server].run(&set));
                if said.last().unwrap() == "OK" {
                    break;
                }
                assert!(begin.elapsed() < PATIENCE, "{slot} does not move: {said:?}");
            }
        }
    }
}
