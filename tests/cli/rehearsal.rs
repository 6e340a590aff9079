//! The tasks of the runbook, by its steps and the program alone, while two processes of the service ask for some hundred
//! locks a second: no two holders of a key are valid at once, and nothing is granted for no longer than the runbook says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use tower_redlock::{
    AcquireError, LockGuard, LockHandle, LockKey, LockManager, LockScope, Settings,
};

use crate::support::eventually;
use crate::support::redis_cluster::RedisCluster;
use crate::support::server::{Kind, Server};
use crate::support::stalls::{Stopwatch, undisturbed};
use crate::{Fleet, PASSWORD, held};

const SECOND: Duration = Duration::from_secs(1);
/// How often each process asks for a lock.
const EVERY: Duration = Duration::from_millis(5);
/// How long it works under it.
const WORK: Duration = Duration::from_millis(5);
/// Few enough that requests meet.
const KEYS: u64 = 8;

/// The locks of one call, one for each list of nodes that its process has.
type Locks = Vec<LockHandle>;

fn is_lost(locks: &Locks) -> bool {
    locks.iter().any(LockHandle::is_lost)
}

/// What the calls of all processes come to.
struct Load {
    inside: Mutex<BTreeMap<u64, Locks>>,
    overlaps: Arc<Mutex<Vec<String>>>,
    calls: Mutex<Calls>,
}

struct Calls {
    granted: u32,
    /// Because too few nodes voted or answered.
    refused: Vec<String>,
    last: Stopwatch,
    longest_pause: Duration,
}

impl Calls {
    fn begin() -> Self {
        let (last, longest_pause) = (Stopwatch::start(), Duration::ZERO);
        Self {
            granted: 0,
            refused: Vec::new(),
            last,
            longest_pause,
        }
    }

    fn grant(&mut self) {
        self.longest_pause = self.longest_pause.max(self.last.elapsed());
        self.last = Stopwatch::start();
        self.granted += 1;
    }
}

impl Load {
    async fn call(&self, lists: Vec<LockManager>, key: u64) {
        let (scope, mut guards) = (LockScope::new(), Vec::new());
        for locks in lists {
            let name = LockKey::new(format!("order:{key}")).unwrap();
            match locks.acquire_in(&scope, name.into(), Duration::ZERO).await {
                Ok(guard) => guards.push(guard),
                Err(AcquireError::NoQuorum(error)) => {
                    self.calls.lock().unwrap().refused.push(error.to_string());
                    return;
                }
                Err(_) => return,
            }
        }
        self.work(key, guards).await;
    }

    async fn work(&self, key: u64, mut guards: Vec<LockGuard>) {
        self.calls.lock().unwrap().grant();
        let ours: Locks = guards.iter().map(LockGuard::handle).collect();
        let before = self.inside.lock().unwrap().insert(key, ours.clone());
        // In this order: the one that is lost by now may have been valid before.
        if let Some(other) = before
            && !is_lost(&ours)
            && !is_lost(&other)
        {
            let text = format!("{key}: {other:?} and {ours:?}");
            self.overlaps.lock().unwrap().push(text);
        }
        sleep(WORK).await;
        let mut inside = self.inside.lock().unwrap();
        let is_last = |last: &Locks| last[0].owner_hash() == ours[0].owner_hash();
        if inside.get(&key).is_some_and(is_last) {
            inside.remove(&key);
        }
        drop(inside);
        // As layers do: the lock that was acquired last first.
        while guards.pop().is_some() {}
    }

    /// Waits until the load has gone on for a while.
    async fn goes_on(&self) {
        let granted = || self.calls.lock().unwrap().granted;
        let before = granted();
        eventually("locks are granted", || granted() > before + 100).await;
    }
}

/// A process of the service. It ends with this value.
struct Process {
    locks: Vec<LockManager>,
    load: JoinSet<()>,
}

impl Process {
    /// With the settings as they are in the file now.
    async fn start(fleet: &Fleet, load: &Arc<Load>) -> Self {
        Self::on(&[fleet.settings()], load).await
    }

    /// One that locks on all of these lists of nodes, in this order.
    async fn on(lists: &[Settings], load: &Arc<Load>) -> Self {
        let mut locks = Vec::new();
        for list in lists {
            locks.push(list.clone().connect().await.unwrap());
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(calling(locks.clone(), Arc::clone(load)));
        Self { locks, load: tasks }
    }

    async fn two(fleet: &Fleet, load: &Arc<Load>) -> Vec<Self> {
        let one = Self::start(fleet, load).await;
        vec![one, Self::start(fleet, load).await]
    }

    /// As the recipe of the guide ends it.
    async fn stop(mut self) {
        self.load.abort_all();
        for locks in self.locks {
            let report = locks.shutdown(SECOND).await;
            assert_eq!((report.lost, report.held), (0, 0), "{report:?}");
        }
    }
}

async fn calling(locks: Vec<LockManager>, load: Arc<Load>) {
    let mut ticks = interval(EVERY);
    for number in 0_u64.. {
        ticks.tick().await;
        let (locks, load) = (locks.clone(), Arc::clone(&load));
        tokio::spawn(async move { load.call(locks, number % KEYS).await });
    }
}

/// What is done, and what the runbook says of it.
struct Task {
    name: &'static str,
    servers: usize,
    /// And `max_ttl`, at the beginning.
    ttl: &'static str,
    /// How long nothing is granted.
    pause: Duration,
}

impl Task {
    const fn unnoticed(name: &'static str, servers: usize) -> Self {
        let (ttl, pause) = ("3s", UNNOTICED);
        Self {
            name,
            servers,
            ttl,
            pause,
        }
    }

    /// One that stops the service, with a `max_ttl` of so many seconds after it: the quarantine, and two seconds; and two
    /// to stop all processes, and to start them.
    const fn with_a_stop(name: &'static str, servers: usize, max_ttl: u64) -> Self {
        let (ttl, pause) = ("1s", Duration::from_secs(max_ttl + 4));
        Self {
            name,
            servers,
            ttl,
            pause,
        }
    }

    async fn rehearse(self, steps: impl AsyncFn(&mut Fleet, &Arc<Load>, Vec<Process>)) {
        // Also of a scene that is run again.
        let overlaps = Arc::new(Mutex::new(Vec::new()));
        undisturbed(async || {
            let mut fleet = Fleet::of(self.servers);
            fleet.write(self.ttl, self.ttl);
            fleet.run("bootstrap --yes").await.with(0);
            let load = Arc::new(Load {
                inside: Mutex::default(),
                overlaps: Arc::clone(&overlaps),
                calls: Mutex::new(Calls::begin()),
            });
            let processes = Process::two(&fleet, &load).await;
            load.goes_on().await;
            *load.calls.lock().unwrap() = Calls::begin();
            steps(&mut fleet, &load, processes).await;
            self.judge(&load);
        })
        .await;
        let overlaps = overlaps.lock().unwrap();
        assert!(overlaps.is_empty(), "{}: {overlaps:#?}", self.name);
    }

    #[allow(clippy::print_stdout, reason = "it is for people who read the run")]
    fn judge(&self, load: &Load) {
        let mut calls = std::mem::replace(&mut *load.calls.lock().unwrap(), Calls::begin());
        calls.grant();
        let (name, most, longest) = (self.name, self.pause, calls.longest_pause);
        let (granted, refused) = (calls.granted, calls.refused);
        println!(
            "\n{name}: {granted} locks, {} calls refused, none granted for {longest:.1?}; {most:.1?} at most",
            refused.len()
        );
        assert!(longest <= most, "{name}: {longest:?}, {refused:#?}");
        let is_unnoticed = refused.is_empty() || most > UNNOTICED;
        assert!(is_unnoticed, "{name}: {refused:#?}");
    }
}

fn another_server() -> Server {
    Server::start(Kind::Redis, &["--requirepass", PASSWORD])
}

/// Much less than the quarantine of the node, and more than a call may take that waits for an answer of it.
const UNNOTICED: Duration = SECOND;

/// "Restart servers". None of these has a file.
#[tokio::test]
async fn servers_are_restarted_one_by_one_and_nobody_notices() {
    let task = Task::unnoticed("three servers are restarted", 3);
    task.rehearse(async |fleet, load, processes| {
        let guard = held(fleet, &processes[0].locks[0], "held").await;
        for server in 0..3 {
            fleet.servers[server].restart();
            fleet.run("wait").await.with(0);
        }
        load.goes_on().await;
        assert!(!guard.is_lost());
    })
    .await;
}

/// "Another server for a node": the old name, and another address.
#[tokio::test]
async fn a_node_gets_another_server_and_nobody_notices() {
    let task = Task::unnoticed("another server for a node", 3);
    task.rehearse(async |fleet, load, processes| {
        fleet.servers[2].kill();
        fleet.servers[2] = another_server();
        fleet.write("3s", "3s");
        let mut next = Vec::new();
        for process in processes {
            next.push(Process::start(fleet, load).await);
            process.stop().await;
        }
        fleet.run("wait").await.with(0);
        load.goes_on().await;
    })
    .await;
}

/// The steps of "Another list of nodes", with the settings as they are in the file now.
async fn adopt(fleet: &Fleet, load: &Arc<Load>, processes: Vec<Process>) -> Vec<Process> {
    for process in processes {
        process.stop().await;
    }
    fleet.run("nodes adopt --yes").await.with(0);
    let processes = Process::two(fleet, load).await;
    load.goes_on().await;
    processes
}

#[tokio::test]
async fn a_longer_max_ttl_takes_as_long_as_the_runbook_says() {
    let task = Task::with_a_stop("a longer max_ttl", 3, 2);
    task.rehearse(async |fleet, load, processes| {
        fleet.write("1s", "2s");
        let processes = adopt(fleet, load, processes).await;
        let longer = processes[0].locks[0].with_ttl(2 * SECOND).unwrap();
        let guard = longer.acquire("long").await.unwrap();
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn one_node_becomes_three_in_the_time_that_the_runbook_says() {
    let task = Task::with_a_stop("one node becomes three", 1, 1);
    task.rehearse(async |fleet, load, processes| {
        fleet.servers.extend([another_server(), another_server()]);
        fleet.write("1s", "1s");
        let _processes = adopt(fleet, load, processes).await;
        // That is what it was for.
        fleet.servers[0].kill();
        load.goes_on().await;
    })
    .await;
}

/// "Moving", without a stop: each process in turn locks on both lists, and then on the new one.
async fn move_to(
    old: Settings,
    new: Settings,
    load: &Arc<Load>,
    mut processes: Vec<Process>,
) -> Vec<Process> {
    for lists in [vec![old, new.clone()], vec![new]] {
        let mut next = Vec::new();
        for process in processes {
            next.push(Process::on(&lists, load).await);
            process.stop().await;
            load.goes_on().await;
        }
        processes = next;
    }
    processes
}

#[tokio::test]
async fn one_redis_moves_to_three_others_and_nobody_notices() {
    let task = Task::unnoticed("one Redis moves to three others", 1);
    task.rehearse(async |fleet, load, processes| {
        let new = Fleet::of(3);
        new.write("3s", "3s");
        new.run("bootstrap --yes").await.with(0);
        let _processes = move_to(fleet.settings(), new.settings(), load, processes).await;
        // A process that was forgotten is told where to go.
        let late = fleet.settings().connect().await.unwrap();
        let retired = fleet.run("nodes retire the-three --yes").await.with(0);
        retired.shows("no lock on these nodes is valid");
        let refused = late.try_acquire("order:1").await.unwrap_err().to_string();
        let status = fleet.run("status").await.with(78).out;
        for text in [refused, late.snapshot().verdict, status] {
            assert!(text.contains("retired in favour of `the-three`"), "{text}");
        }
        load.goes_on().await;
    })
    .await;
}

#[tokio::test]
async fn one_redis_moves_to_a_cluster_and_nobody_notices() {
    let task = Task::unnoticed("one Redis moves to a cluster", 1);
    // It would hold up the load.
    let cluster = RedisCluster::start(Kind::Redis, 3, 0);
    task.rehearse(async |fleet, load, processes| {
        let new = LockManager::builder().cluster(cluster.urls());
        let new = new.namespace("lm").ttl(3 * SECOND).max_ttl(3 * SECOND);
        let new = new.node_timeout(SECOND / 2);
        let first = new.clone().connect_lazy().unwrap();
        first.bootstrap().await.unwrap();
        let _processes = move_to(fleet.settings(), new, load, processes).await;
        fleet.run("nodes retire the-cluster --yes").await.with(0);
        load.goes_on().await;
    })
    .await;
}

/// The nodes stay, and the namespace is another list of nodes as far as locks go.
#[tokio::test]
async fn a_longer_max_ttl_with_another_namespace_is_unnoticed() {
    let task = Task::unnoticed("a longer max_ttl by another namespace", 3);
    task.rehearse(async |fleet, load, processes| {
        let old = fleet.settings();
        fleet.write("3s", "20s");
        let new = || fleet.settings().namespace("lm");
        let bootstrap = new().connect_lazy().unwrap();
        bootstrap.bootstrap().await.unwrap();
        let processes = move_to(old, new(), load, processes).await;
        let longer = processes[0].locks[0].with_ttl(20 * SECOND).unwrap();
        let guard = longer.acquire("long").await.unwrap();
        guard.release().await.unwrap();
    })
    .await;
}

/// "Moving", with a stop: the old nodes are retired under load, and the new ones are used after that.
#[tokio::test]
async fn nodes_that_are_retired_grant_nothing_and_their_locks_end() {
    let task = Task::with_a_stop("one Redis is retired, and three others are used", 1, 1);
    task.rehearse(async |fleet, load, processes| {
        let new = Fleet::of(3);
        new.write("1s", "1s");
        new.run("bootstrap --yes").await.with(0);
        let guard = processes[0].locks[0].acquire("held").await.unwrap();
        fleet.run("nodes retire three-others --yes").await.with(0);
        assert!(guard.is_lost());
        let _next = Process::two(&new, load).await;
        load.goes_on().await;
        drop(processes);
    })
    .await;
}
