//! Servers, six processes that take locks, and what happens to them.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::contender::{BRIEF, LONG};
use super::counters::Counters;
use super::part::{KEYS, Part, TTL};
use super::process::Process;
use super::records::Records;
use super::scene::Scene;
use crate::dice::{chance, choose, millis};
use crate::forwarder::{Flow, Forwarder};
use crate::run::BOUND;
use crate::support::PATIENCE;
use crate::support::clocks::{Clocks, raw_now};
use crate::support::server::{Kind, Server};

const PROCESSES: usize = 6;
/// How many locks others get at most before each process gets one.
const PASSED: usize = 500;
/// For how long processes are cut off in the same way while nodes are waited for.
const CUT: Duration = Duration::from_secs(1);
/// A server looks at its clock now and then, ten times a second at least.
const NOTICED: Duration = Duration::from_millis(150);

/// How often what was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) stops: usize,
    pub(crate) kills: usize,
    /// One process from one node.
    pub(crate) cuts: usize,
    pub(crate) steps: usize,
    pub(crate) restarts: usize,
}

/// All of one run.
pub(crate) struct Site {
    scene: Scene,
    guarded: bool,
    // They end before the servers, in whose directories their files are.
    processes: Vec<Process>,
    /// For each process the way to each node.
    ways: Vec<Vec<Forwarder>>,
    servers: Vec<Server>,
    /// By how many seconds the wall clock of each server is ahead.
    ahead: Vec<i64>,
    pub(crate) records: Arc<Records>,
    pub(crate) counters: Counters,
    pub(crate) faults: Faults,
}

impl Site {
    /// Starts everything, and waits until each process has held a lock.
    pub(crate) async fn open(scene: Scene, guarded: bool) -> Self {
        let servers = start(scene);
        let dir = servers[0].file("processes");
        fs::create_dir(&dir).unwrap();
        let database = dir.join("counters.sqlite");
        let mut site = Self {
            scene,
            guarded,
            processes: Vec::new(),
            ways: Vec::new(),
            ahead: vec![0; servers.len()],
            servers,
            records: Arc::default(),
            counters: Counters::create(&database),
            faults: Faults::default(),
        };
        drop(scene.settings(guarded).first(&site.servers).await);
        let library = Clocks::library(&dir);
        for number in 0..PROCESSES {
            let clocks = Clocks::new(dir.join(format!("clocks-{number}")), library.clone());
            site.add(number, &database, clocks).await;
        }
        site.all_hold("each process holds a lock").await;
        site.tell(LONG).await;
        site
    }

    async fn add(&mut self, number: usize, database: &Path, clocks: Clocks) {
        let mut ways = Vec::new();
        for server in &self.servers {
            ways.push(Forwarder::start(server.port()).await);
        }
        let part = Part {
            ways: ways.iter().map(Forwarder::url).collect(),
            settings: self.scene.settings(self.guarded),
            database: database.to_owned(),
            rate: self.scene.rate_of_process(number),
        };
        clocks.set_rate(part.rate);
        let process = Process::start(number, part, clocks, Arc::clone(&self.records));
        self.processes.push(process);
        self.ways.push(ways);
    }

    /// Goes on for that long, and then for what is not there yet, within a bound. At the end all is well again, and
    /// each process gets a lock.
    pub(crate) async fn torment(&mut self, time: Duration, is_enough: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while begin.elapsed() < time || begin.elapsed() < time + BOUND && !is_enough(self) {
            self.cut();
            match self.scene {
                Scene::Rates => sleep(millis(400..=600)).await,
                Scene::Pauses | Scene::Suspends => self.stop().await,
                Scene::Steps | Scene::Forgets => {
                    // What a process cannot reach any more has ended there. And what was lost on one server is back, or
                    // has ended, before another loses something.
                    sleep(TTL + NOTICED + millis(0..=200)).await;
                    if self.guarded {
                        self.all_vote().await;
                    }
                    self.stop().await;
                }
            }
        }
        for way in self.ways.iter().flatten() {
            way.set(Flow::Open);
        }
        self.all_hold("each process holds a lock again").await;
    }

    /// Tells all processes something.
    async fn tell(&mut self, what: &str) {
        for process in &mut self.processes {
            process.program.player.tell(what).await;
        }
    }

    /// Waits until each process has got a lock: it is not passed over again and again. From then on all of them hold
    /// locks briefly.
    async fn all_hold(&mut self, what: &str) {
        self.tell(BRIEF).await;
        let (begin, now, before) = (Instant::now(), raw_now(), self.records.count());
        let mut lack: Vec<usize> = (0..PROCESSES).collect();
        while !lack.is_empty() {
            let passed = self.records.count() - before;
            assert!(
                passed < PASSED && begin.elapsed() < 2 * BOUND,
                "waited in vain: {what}, but not {lack:?}; meanwhile {passed} locks were held; {:?}",
                self.faults
            );
            sleep(Duration::from_millis(5)).await;
            lack.retain(|process| !self.records.is_later(*process, now));
        }
    }

    /// Cuts processes off, each from other nodes than the next.
    fn cut(&mut self) {
        for ways in &self.ways {
            let count = self.scene.cuts();
            let cut = choose(count, ways.len());
            for (node, way) in ways.iter().enumerate() {
                way.set(if cut.contains(&node) {
                    Flow::cut()
                } else {
                    Flow::Open
                });
            }
            self.faults.cuts += count;
        }
    }

    /// Stops processes for a while, and has something happen to servers meanwhile.
    async fn stop(&mut self) {
        let count = match self.scene {
            // Those that hold a lock do not set it again where it was lost, and others are there to take it.
            Scene::Steps | Scene::Forgets => PROCESSES / 2,
            _ => 1 + fastrand::usize(..2),
        };
        let stopped = choose(count, PROCESSES);
        for number in &stopped {
            self.processes[*number].program.stop();
        }
        self.faults.stops += count;
        match self.scene {
            Scene::Steps => self.step(),
            Scene::Forgets => self.forget(),
            _ => {}
        }
        sleep(millis(150..=900)).await;
        for number in &stopped {
            let program = &mut self.processes[*number].program;
            if self.scene == Scene::Suspends {
                program.wake();
            } else {
                program.go_on();
            }
        }
        if self.scene == Scene::Pauses && chance(1, 4) {
            let killed = fastrand::usize(..PROCESSES);
            self.processes[killed].replace().await;
            self.faults.kills += 1;
        }
        sleep(millis(50..=300)).await;
    }

    /// Sets the wall clock of one server forward, and that of a process to whatever comes.
    fn step(&mut self) {
        let server = self.weakest();
        let seconds = [1, 60, 3_600];
        self.ahead[server] += seconds[fastrand::usize(..seconds.len())];
        self.servers[server].step_clock(self.ahead[server]);
        let process = fastrand::usize(..PROCESSES);
        let hours = fastrand::i64(-2..=2);
        self.processes[process].clocks.step(hours * 3_600);
        self.faults.steps += 1;
    }

    /// Has one server restart with nothing, or, where there is no promise to keep, a majority.
    fn forget(&mut self) {
        let (first, nodes) = (self.weakest(), self.servers.len());
        let count = if self.guarded { 1 } else { nodes / 2 + 1 };
        tokio::task::block_in_place(|| {
            for number in first..first + count {
                self.servers[number % nodes].restart();
            }
        });
        self.faults.restarts += count;
    }

    /// One of the servers that hold a lock which is on as few of them as possible: where it hurts most.
    fn weakest(&self) -> usize {
        let nodes = self.servers.len();
        let mut all: Vec<usize> = (0..nodes).collect();
        for key in KEYS {
            let get = format!("GET lk:{key}");
            let owners: Vec<String> = self.servers.iter().map(|one| one.run(&get)).collect();
            for owner in owners.iter().filter(|owner| *owner != "(nil)") {
                let on = (0..nodes).filter(|node| owners[*node] == *owner);
                let on: Vec<usize> = on.collect();
                if on.len() > nodes / 2 && on.len() < all.len() {
                    all = on;
                }
            }
        }
        all[fastrand::usize(..all.len())]
    }

    /// Waits until the markers of all nodes say that they vote, which is the work of processes.
    async fn all_vote(&mut self) {
        let votes = |server: &Server| server.run("HEXISTS lk!node identity") == "1";
        let begin = Instant::now();
        let mut cut = begin;
        while !self.servers.iter().all(votes) {
            assert!(begin.elapsed() < 2 * PATIENCE, "they do not vote again");
            if cut.elapsed() > CUT {
                // It may be that no process reaches what it takes.
                self.cut();
                cut = Instant::now();
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends all processes. What they have counted and told is complete then.
    pub(crate) async fn close(&mut self) {
        for process in self.processes.drain(..) {
            process.end().await;
        }
    }
}

fn start(scene: Scene) -> Vec<Server> {
    if !scene.sets_servers() {
        return Server::start_many(Kind::Redis, scene.nodes());
    }
    let servers: Vec<Server> = thread::scope(|scope| {
        let starts = (0..scene.nodes()).map(|_| scope.spawn(|| Server::start_clocked(Kind::Redis)));
        // All of them are under way before the first is waited for.
        let starts: Vec<_> = starts.collect();
        let servers = starts.into_iter().map(|start| start.join().unwrap());
        servers.collect()
    });
    for (number, server) in servers.iter().enumerate() {
        server.clocks().set_rate(scene.rate_of_server(number));
    }
    servers
}
