//! Clusters of three masters, 0 to 2, and a replica of each, 3 to 5, in which the test carries the packets.

use std::collections::{BTreeSet, VecDeque};

use super::cluster::{Cluster, Member, Packet, Step};
use super::{Dialect, Output, Server};

/// The clock at the begin, in microseconds since 1970.
const BEGIN: u64 = 1_763_816_000_000_000;
const TIMEOUT: u64 = 500;
/// A key of the first, the second and the third master.
const KEYS: [&str; 3] = ["k2", "k0", "k1"];

struct Bus {
    servers: Vec<Server>,
    now: u64,
    dead: BTreeSet<Member>,
    /// The servers on one side; the others do not see them.
    apart: BTreeSet<Member>,
    on_their_way: VecDeque<(Member, Packet)>,
    /// What clients were told of that they had not asked for.
    told: Vec<Output>,
}

impl Bus {
    fn new() -> Self {
        let address = |member| (format!("h{member}"), 6379);
        let all: Vec<_> = (0..6)
            .map(|member: Member| (address(member), member.checked_sub(3)))
            .collect();
        let server = |member: Member| {
            let mut server = Server::new(Dialect::Redis70, member as u64, BEGIN);
            server.join_cluster(Cluster::new(member, &all, TIMEOUT, BEGIN));
            if member >= 3 {
                server.follow();
            }
            server.connect(0);
            server
        };
        Self {
            servers: (0..6).map(server).collect(),
            now: BEGIN,
            dead: BTreeSet::new(),
            apart: BTreeSet::new(),
            on_their_way: VecDeque::new(),
            told: Vec::new(),
        }
    }

    /// Lets so many milliseconds pass, in which whatever is sent arrives at once.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis / 100 {
            self.now += 100_000;
            for member in 0..6 {
                if !self.dead.contains(&member) {
                    let steps = self.servers[member].tick_cluster(self.now);
                    self.take(member, steps);
                    self.deliver();
                }
            }
        }
    }

    fn take(&mut self, member: Member, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Tell(to, packet) => self.on_their_way.push_back((to, packet)),
                Step::Promote(_) => self.servers[member].promote(),
                Step::Follow(_) => self.told.extend(self.servers[member].follow()),
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((to, packet)) = self.on_their_way.pop_front() {
            let is_seen = self.apart.contains(&to) == self.apart.contains(&packet.from);
            if is_seen && !self.dead.contains(&to) {
                let steps = self.servers[to].hear(&packet, self.now);
                self.take(to, steps);
            }
        }
    }

    fn ask(&mut self, member: Member, line: &str) -> String {
        let line = format!("{line}\r\n");
        text(self.servers[member].receive(0, line.as_bytes(), self.now))
    }

    /// What becomes of a command on the key of each master.
    fn asks(&mut self, member: Member) -> [String; 3] {
        KEYS.map(|key| self.ask(member, &format!("SET {key} v")))
    }

    /// Who has the first range of slots, as these say, and since which epoch.
    fn named(&mut self, by: &[Member]) -> Vec<(String, String)> {
        let owner = |member: &Member| {
            let nodes = self.ask(*member, "CLUSTER NODES");
            let line = nodes.lines().find(|line| line.ends_with(" 0-5460"))?;
            let words: Vec<&str> = line.split(' ').collect();
            Some((words[1].to_owned(), words[6].to_owned()))
        };
        by.iter().filter_map(owner).collect()
    }
}

fn text(outputs: Vec<Output>) -> String {
    let bytes = outputs.into_iter().flat_map(|output| match output {
        Output::Send(_, bytes) => bytes,
        Output::Close(_) => Vec::new(),
    });
    String::from_utf8(bytes.collect()).unwrap()
}

fn owner(member: Member, epoch: u64) -> (String, String) {
    (format!("h{member}:6379@16379"), epoch.to_string())
}

const OK: &str = "+OK\r\n";
const DOWN: &str = "-CLUSTERDOWN The cluster is down\r\n";

#[test]
fn a_replica_is_elected_when_most_masters_do_not_hear_its_master() {
    let mut bus = Bus::new();
    bus.run(1_000);
    assert_eq!(bus.named(&[0, 1, 2, 3, 4, 5]), vec![owner(0, 1); 6]);
    assert_eq!(bus.asks(3)[0], "-MOVED 449 h0:6379\r\n");
    bus.dead.insert(0);
    bus.run(400);
    assert!(bus.ask(1, "CLUSTER NODES").contains(" master - 0 0 1 "));
    bus.run(200);
    assert!(
        bus.ask(1, "CLUSTER NODES")
            .contains(" master,fail - 0 0 1 ")
    );
    assert_eq!(bus.named(&[1, 2, 3, 4, 5]), vec![owner(0, 1); 5]);
    bus.run(1_200);
    assert_eq!(bus.named(&[1, 2, 3, 4, 5]), vec![owner(3, 4); 5]);
    assert_eq!(bus.asks(3)[0], OK);
    // The old master goes on until it hears of it.
    bus.dead.clear();
    assert_eq!(bus.asks(0)[0], OK);
    bus.ask(0, "HELLO 3");
    assert_eq!(bus.ask(0, "SSUBSCRIBE k2").lines().last(), Some(":1"));
    bus.now += 100_000;
    let steps = bus.servers[3].tick_cluster(bus.now);
    bus.take(3, steps);
    bus.deliver();
    let told = text(std::mem::take(&mut bus.told));
    assert_eq!(told, ">3\r\n$12\r\nsunsubscribe\r\n$2\r\nk2\r\n:0\r\n");
    assert!(bus.asks(0)[0].ends_with(" h3:6379\r\n"));
    assert!(!bus.servers[0].is_master());
}

#[test]
fn a_master_that_does_not_reach_most_others_refuses_after_the_timeout() {
    let mut bus = Bus::new();
    bus.run(1_000);
    bus.apart = [0, 3].into();
    bus.run(500);
    assert_eq!(bus.asks(0)[0], OK);
    bus.run(5_000);
    assert_eq!(bus.asks(0)[0], DOWN);
    assert_eq!(bus.asks(1)[1], OK);
    // Nor is anybody elected, or marked as failed, by less than most masters.
    let steps = bus.servers[3].demand_failover(bus.now);
    bus.take(3, steps);
    bus.run(1_000);
    assert_eq!(bus.named(&[0, 1, 2, 3]), vec![owner(0, 1); 4]);
    let nodes = bus.ask(0, "CLUSTER NODES");
    assert!(nodes.contains(",fail? ") && !nodes.contains(",fail "));
    assert!(bus.ask(1, "CLUSTER NODES").contains(",fail "));
    bus.apart.clear();
    bus.run(200);
    assert_eq!(bus.asks(0)[0], OK);
    // For twice the timeout its slots would have been free for the replica.
    bus.run(1_100);
    assert!(!bus.ask(1, "CLUSTER NODES").contains(",fail"));
}

#[test]
fn two_masters_that_never_hear_the_outcome_of_a_vote_go_on_without_the_new_one() {
    let mut bus = Bus::new();
    bus.run(1_000);
    let asks = bus.servers[3].demand_failover(bus.now);
    for step in asks {
        if let Step::Tell(to @ 1..=2, ask) = step {
            let vote = bus.servers[to].hear(&ask, bus.now);
            bus.take(to, vote);
        }
    }
    bus.apart = [0, 1].into();
    // The votes were sent before.
    for (to, vote) in std::mem::take(&mut bus.on_their_way) {
        let won = bus.servers[to].hear(&vote, bus.now);
        bus.take(to, won);
    }
    bus.run(10_000);
    assert_eq!(bus.named(&[0, 1]), vec![owner(0, 1); 2]);
    assert_eq!(bus.named(&[2, 3, 4, 5]), vec![owner(3, 4); 4]);
    assert_eq!((bus.asks(0)[0].as_str(), bus.asks(3)[0].as_str()), (OK, OK));
    bus.apart.clear();
    bus.run(1_000);
    assert_eq!(bus.named(&[0, 1, 2, 3, 4, 5]), vec![owner(3, 4); 6]);
}

#[test]
fn a_master_votes_once_in_an_epoch() {
    let mut bus = Bus::new();
    bus.run(1_000);
    let ask = |bus: &mut Bus, member: Member| {
        let asks = bus.servers[member].demand_failover(bus.now);
        let to = |step: &Step| match step {
            Step::Tell(1, ask) => Some(*ask),
            _ => None,
        };
        asks.iter().find_map(to).unwrap()
    };
    let (one, other) = (ask(&mut bus, 3), ask(&mut bus, 5));
    assert_eq!(bus.servers[1].hear(&one, bus.now).len(), 1);
    assert!(bus.servers[1].hear(&one, bus.now).is_empty());
    assert!(bus.servers[1].hear(&other, bus.now).is_empty());
}
