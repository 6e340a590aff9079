//! The servers, the ways in which they forget, and the ways in which they are cut off.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tower_redlock::node::{LiveNode, RedisNode};

use crate::dice::{chance, choose, millis};
use crate::forwarder::{Flow, Forwarder};
use crate::run::BOUND;
use crate::scene::{NODES, Scene};
use crate::support::PATIENCE;
use crate::support::server::{Kind, Server};

/// How many nodes may have forgotten and not yet vote again, where more would void the order of fencing tokens.
const FEW: usize = 2;
/// For how long processes are cut off in the same way while nodes are waited for.
const CUT: Duration = Duration::from_secs(1);

/// Keeps a server busy for that many milliseconds.
const SLOW: &str = "local function now() local time = redis.call('TIME') return time[1] * 1000 + time[2] / 1000 end
    local start = now() repeat until now() - start >= tonumber(ARGV[1]) return ARGV[1]";

/// How often it is looked whether it is enough.
const STEP: Duration = Duration::from_millis(5);

/// What is left of a node's data, where the scene leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    All,
    Some,
    Nothing,
}

/// One node: its server and, for some scenes, another one behind it and an address in front.
#[derive(Debug)]
struct Node {
    server: Server,
    spare: Option<Server>,
    address: Option<Forwarder>,
}

/// How often nodes were made to forget, and processes were cut off from nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// One node, or a few.
    pub(crate) few: usize,
    /// A majority at once, or all.
    pub(crate) majority: usize,
    /// One process from one node.
    pub(crate) cuts: usize,
}

/// The nodes of one run.
#[derive(Debug)]
pub(crate) struct Cluster {
    scene: Scene,
    nodes: Vec<Node>,
    /// For each process the way to each node, where they can be cut.
    ways: Vec<Vec<Forwarder>>,
}

impl Cluster {
    pub(crate) async fn start(scene: Scene, processes: usize) -> Self {
        let start = move || Server::start_many_with(Kind::Redis, NODES, scene.args());
        let mut spares = if scene.has_spares() {
            start()
        } else {
            Vec::new()
        };
        let mut nodes = Vec::new();
        for server in start() {
            let address = match scene {
                Scene::EndpointMoved => Some(Forwarder::start(server.port()).await),
                _ => None,
            };
            nodes.push(Node {
                server,
                spare: spares.pop(),
                address,
            });
        }
        let mut ways = Vec::new();
        if scene == Scene::CutsAndForgetting {
            for _ in 0..processes {
                let mut of_process = Vec::new();
                for node in &nodes {
                    of_process.push(Forwarder::start(node.server.port()).await);
                }
                ways.push(of_process);
            }
        }
        Self { scene, nodes, ways }
    }

    pub(crate) const fn scene(&self) -> Scene {
        self.scene
    }

    /// The nodes of one of the processes.
    pub(crate) fn nodes_of(&self, process: usize) -> Vec<LiveNode> {
        let node = |(index, node): (usize, &Node)| {
            let url = match (self.ways.get(process), &node.address) {
                (Some(ways), _) => ways[index].url(),
                (None, Some(address)) => address.url(),
                (None, None) => node.server.url(),
            };
            // A name that all processes have in common, whatever way leads there.
            let builder = RedisNode::new(&url).name(format!("node-{index}"));
            builder
                .expect_replicas(self.scene.has_replicas())
                .build()
                .unwrap()
        };
        self.nodes.iter().enumerate().map(node).collect()
    }

    /// Makes nodes forget, again and again, for that long, or for longer, within a bound, until it `is_enough`. Blocks.
    ///
    /// One node at a time leaves a guard a majority that remembers. When three forget at once, or all, nothing may be
    /// granted until no lease from before can be left. Most pauses are long enough for some work in between; some are so short
    /// that the next fault comes before the nodes have recovered.
    pub(crate) fn torment(
        &mut self,
        time: Duration,
        guarded: bool,
        is_enough: impl Fn() -> bool,
    ) -> Faults {
        let end = Instant::now() + time;
        let latest = end + BOUND;
        let mut faults = Faults::default();
        self.prepare(guarded);
        let mut pause = millis(400..=600);
        let goes_on = |pause| {
            let then = Instant::now() + pause;
            then < end || then < latest && !is_enough()
        };
        while self.scene != Scene::Calm && goes_on(pause) {
            faults.cuts += self.cut();
            let then = Instant::now() + pause;
            while Instant::now() < then && goes_on(Duration::ZERO) {
                thread::sleep(STEP);
            }
            if !goes_on(Duration::ZERO) {
                break;
            }
            let is_majority = !self.scene.is_about_few() && chance(2, 3);
            if is_majority {
                let more = fastrand::usize(..NODES - NODES / 2);
                self.strike(NODES / 2 + 1 + more);
                faults.majority += 1;
            } else {
                let count = self.few(guarded);
                self.strike(count);
                faults.few += 1;
            }
            pause = match (is_majority, chance(1, 6)) {
                // Nothing has to recover.
                _ if !guarded => millis(100..=300),
                (_, true) => millis(50..=350),
                (true, false) if self.scene == Scene::CutsAndForgetting => millis(1_100..=1_500),
                (true, false) => millis(700..=1_000),
                (false, false) => millis(400..=600),
            };
            self.prepare(guarded);
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
        while goes_on(Duration::ZERO) {
            thread::sleep(STEP);
        }
        self.heal();
        faults
    }

    /// How many nodes may forget now.
    fn few(&self, guarded: bool) -> usize {
        if !self.scene.is_about_few() {
            return 1;
        }
        if !guarded {
            // There is no promise to keep: it is to be seen what forgetting does.
            return NODES / 2 + 1;
        }
        self.all_vote();
        1 + fastrand::usize(..FEW)
    }

    /// Waits until all nodes vote: what they forget next must not add up.
    fn all_vote(&self) {
        let begin = Instant::now();
        let mut cut = begin;
        while !self.nodes.iter().all(Node::votes) {
            assert!(begin.elapsed() < 2 * PATIENCE, "they do not vote again");
            if cut.elapsed() > CUT {
                // It may be that no process reaches what it takes.
                self.cut();
                cut = Instant::now();
            }
            thread::sleep(STEP);
        }
    }

    /// Lays up what nodes come back with later.
    fn prepare(&self, guarded: bool) {
        if !matches!(self.scene, Scene::OldData | Scene::FailoverToPromoted) {
            return;
        }
        let scene = self.scene;
        thread::scope(|scope| {
            for node in &self.nodes {
                // Not each time, so that some of it is older.
                if chance(1, 2) {
                    scope.spawn(move || {
                        if !guarded || node.votes() {
                            node.save(scene);
                        }
                    });
                }
            }
        });
    }

    /// Cuts each process off from some of the nodes, another from others. Returns how many ways are cut.
    fn cut(&self) -> usize {
        let mut cuts = 0;
        for way in self.ways.iter().flatten() {
            if chance(1, 3) {
                way.set(Flow::cut());
                cuts += 1;
            } else {
                way.set(Flow::Open);
            }
        }
        cuts
    }

    fn heal(&self) {
        for way in self.ways.iter().flatten() {
            way.set(Flow::Open);
        }
    }

    /// Makes `count` nodes forget, together or in short succession.
    fn strike(&mut self, count: usize) {
        let scene = self.scene;
        let left = match fastrand::usize(..6) {
            0 => Left::All,
            1 | 2 => Left::Some,
            _ => Left::Nothing,
        };
        // What a log takes in about half a second.
        let cut = 256 + fastrand::usize(..8 * 1024) as u64;
        let most = if chance(1, 3) { 40 } else { 0 };
        let gap = millis(0..=most);
        let chosen = choose(count, NODES);
        thread::scope(|scope| {
            for (index, node) in self.nodes.iter_mut().enumerate() {
                if let Some(before) = chosen.iter().position(|&chosen| chosen == index) {
                    let wait = gap * u32::try_from(before).unwrap();
                    scope.spawn(move || {
                        thread::sleep(wait);
                        node.forget(scene, left, cut);
                    });
                }
            }
        });
    }
}

impl Node {
    /// Whether its marker says that it does.
    fn votes(&self) -> bool {
        self.server.run("HEXISTS lk!node identity") == "1"
    }

    /// Keeps what the node has now for when it forgets.
    fn save(&self, scene: Scene) {
        match (&self.spare, scene) {
            (Some(spare), Scene::FailoverToPromoted) => copy(&self.server, spare),
            _ => assert_eq!(self.server.run("SAVE"), "OK"),
        }
    }

    fn forget(&mut self, scene: Scene, left: Left, cut: u64) {
        match scene {
            Scene::Calm => {}
            // `OldData`: with what was saved last, if anything was.
            Scene::KillRestartEmpty | Scene::OldData => self.server.restart(),
            Scene::CutsAndForgetting if left == Left::Nothing => self.server.restart(),
            Scene::BlockedThreads if left == Left::All => {
                // Behind it all other clients wait, for longer than any of them waits for a node.
                assert_eq!(self.server.command(&["EVAL", SLOW, "0", "200"]), "200");
            }
            Scene::FlushAll | Scene::CutsAndForgetting | Scene::BlockedThreads => {
                assert_eq!(self.server.run("FLUSHALL SYNC"), "OK");
            }
            Scene::AofRestart => self.restart_from_log(left, cut),
            Scene::ReplicaFailover => self.fail_over(left),
            Scene::FailoverToPromoted => copy(self.spare.as_ref().unwrap(), &self.server),
            Scene::EndpointMoved => self.move_away(),
        }
    }

    fn restart_from_log(&mut self, left: Left, cut: u64) {
        self.server.kill();
        for log in logs(self.server.dir()) {
            match left {
                Left::All => {}
                Left::Some => {
                    let log = fs::File::options().write(true).open(log).unwrap();
                    let length = log.metadata().unwrap().len();
                    log.set_len(length.saturating_sub(cut)).unwrap();
                }
                Left::Nothing => fs::remove_file(log).unwrap(),
            }
        }
        if left == Left::Nothing {
            // The list of the files, without which none of them is looked for.
            let _ = fs::remove_dir_all(self.server.dir().join("appendonlydir"));
        }
        self.server.restart();
    }

    /// The node takes over what the spare has. Afterwards the spare takes over what the node has, for the next time:
    /// then it is an old copy.
    fn fail_over(&self, left: Left) {
        let spare = self.spare.as_ref().unwrap();
        if left == Left::Nothing {
            assert_eq!(spare.run("FLUSHALL SYNC"), "OK");
        }
        copy(spare, &self.server);
        copy(&self.server, spare);
    }

    fn move_away(&mut self) {
        let spare = self.spare.as_mut().unwrap();
        spare.restart();
        std::mem::swap(&mut self.server, spare);
        self.address.as_ref().unwrap().lead_to(self.server.port());
    }
}

/// The append-only files of a server, without what they begin with.
fn logs(dir: &Path) -> Vec<PathBuf> {
    // Redis 7 keeps them in a directory, older servers do not.
    let files = |dir: &Path| fs::read_dir(dir).into_iter().flatten();
    let all = files(dir).chain(files(&dir.join("appendonlydir")));
    let paths = all.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "aof"))
        .collect()
}

/// Has `to` follow `from` until it has all of its data, and no longer: `Server::fail_back_from` takes so long that most
/// locks have ended by then.
fn copy(from: &Server, to: &Server) {
    let mut raw = to.raw();
    let follow = ["REPLICAOF", "127.0.0.1", &from.port().to_string()];
    assert_eq!(raw.command(&follow).unwrap(), "OK");
    let begin = Instant::now();
    while !raw
        .command(&["INFO", "replication"])
        .unwrap()
        .contains("master_link_status:up")
    {
        assert!(begin.elapsed() < PATIENCE, "{from:?} is not copied");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(raw.command(&["REPLICAOF", "NO", "ONE"]).unwrap(), "OK");
}
