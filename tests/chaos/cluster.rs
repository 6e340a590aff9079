//! Five servers, and the ways in which they forget.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::forwarder::Forwarder;
use crate::support::PATIENCE;
use crate::support::server::{Kind, Server};

const NODES: usize = 5;

/// What happens to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// No node forgets anything.
    Calm,
    /// Killed, and started again with nothing.
    KillRestartEmpty,
    /// Everything is deleted; the process and its connections live on.
    FlushAll,
    /// Killed, and started again with its append-only file: whole, without its end, or gone.
    AofRestart,
    /// It becomes the replica of a server that holds nothing or an old copy of it, and a master again: the same process
    /// on the same connections with other data.
    ReplicaFailover,
    /// Its address leads to another server, which holds nothing.
    EndpointMoved,
}

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

/// How often nodes were made to forget.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// One node.
    pub(crate) single: usize,
    /// A majority at once.
    pub(crate) majority: usize,
}

/// The nodes of one run.
#[derive(Debug)]
pub(crate) struct Cluster {
    scene: Scene,
    nodes: Vec<Node>,
    dice: Dice,
}

impl Cluster {
    pub(crate) async fn start(scene: Scene) -> Self {
        let args: &[&str] = match scene {
            Scene::AofRestart => &["--appendonly", "yes", "--appendfsync", "everysec"],
            Scene::ReplicaFailover => &["--repl-diskless-sync-delay", "0"],
            _ => &[],
        };
        let has_spare = matches!(scene, Scene::ReplicaFailover | Scene::EndpointMoved);
        let start = move || Server::start_many_with(Kind::Redis, NODES, args);
        let mut spares = if has_spare { start() } else { Vec::new() };
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
        Self {
            scene,
            nodes,
            dice: Dice::new(),
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        let url = |node: &Node| match &node.address {
            Some(address) => address.url(),
            None => node.server.url(),
        };
        self.nodes.iter().map(url).collect()
    }

    /// Makes nodes forget, again and again, for that long. Blocks.
    ///
    /// One node at a time leaves a guard a majority that remembers. When three forget at once, nothing may be granted
    /// until no lease from before can be left. Most pauses are long enough for some work in between; some are so short
    /// that the next fault comes before the nodes have recovered.
    pub(crate) fn torment(&mut self, time: Duration) -> Faults {
        let end = Instant::now() + time;
        let mut faults = Faults::default();
        let mut pause = self.dice.millis(400, 600);
        while self.scene != Scene::Calm && Instant::now() + pause < end {
            thread::sleep(pause / 2);
            self.follow();
            thread::sleep(pause / 2);
            let is_majority = self.dice.chance(2, 3);
            if is_majority {
                self.strike(NODES / 2 + 1);
                faults.majority += 1;
            } else {
                self.strike(1);
                faults.single += 1;
            }
            pause = match (is_majority, self.dice.chance(1, 6)) {
                (_, true) => self.dice.millis(50, 350),
                (true, false) => self.dice.millis(700, 1_000),
                (false, false) => self.dice.millis(400, 600),
            };
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
        faults
    }

    /// Has the spares take over what their nodes have at this time, which mostly vote: the next failover brings that
    /// back, with a marker that says so.
    fn follow(&mut self) {
        if self.scene == Scene::ReplicaFailover && self.dice.chance(1, 2) {
            thread::scope(|scope| {
                for node in &self.nodes {
                    scope.spawn(|| copy(&node.server, node.spare.as_ref().unwrap()));
                }
            });
        }
    }

    /// Makes `count` nodes forget, together or in short succession.
    fn strike(&mut self, count: usize) {
        let scene = self.scene;
        let left = match self.dice.below(6) {
            0 => Left::All,
            1 | 2 => Left::Some,
            _ => Left::Nothing,
        };
        // What a log takes in about half a second.
        let cut = 256 + self.dice.below(8 * 1024) as u64;
        let most = if self.dice.chance(1, 3) { 40 } else { 0 };
        let gap = self.dice.millis(0, most);
        let chosen = self.dice.choose(count, NODES);
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
    fn forget(&mut self, scene: Scene, left: Left, cut: u64) {
        match scene {
            Scene::Calm => {}
            Scene::KillRestartEmpty => self.server.restart(),
            Scene::FlushAll => {
                assert_eq!(self.server.run("FLUSHALL SYNC"), "OK");
            }
            Scene::AofRestart => self.restart_from_log(left, cut),
            Scene::ReplicaFailover => self.fail_over(left),
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

    /// The node takes over what the spare has: nothing, or an old copy of what the node had.
    fn fail_over(&self, left: Left) {
        let spare = self.spare.as_ref().unwrap();
        if left == Left::Nothing {
            assert_eq!(spare.run("FLUSHALL SYNC"), "OK");
        }
        copy(spare, &self.server);
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

/// Has `to` follow `from` until it has all of its data, and no longer.
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
