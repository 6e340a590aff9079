//! The scenes in which libraries are compared.

use std::time::Duration;

use crate::contest::{CLUSTER, Outcome};
use crate::fleet::{self, LIBRARIES, NO_HAND_OFF, OURS, Row, Task, measure, order, present};
use crate::measure::{Spread, seconds};
use crate::proxy::Proxies;
use crate::support::redis_cluster::RedisCluster;
use crate::support::server::{Kind, Server};

/// What happens to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Frozen,
    Down(usize),
}

/// What was measured in one scene, library by library.
pub(crate) struct Scene {
    pub(crate) name: String,
    pub(crate) rows: Vec<Row>,
}

/// What clients of two kinds had of one lock.
pub(crate) struct Mixed {
    pub(crate) ours: &'static str,
    pub(crate) theirs: String,
    /// Sections a second, and the longest time without one, in ms.
    pub(crate) shares: [(f64, f64); 2],
}

const UNCONTENDED: Task = Task {
    processes: 1,
    tasks: 1,
    each: true,
    work: Duration::ZERO,
    length: Duration::ZERO,
};
/// A crowd that wants one key.
const CROWD: Task = Task {
    tasks: 16,
    each: false,
    work: Duration::from_millis(1),
    ..UNCONTENDED
};
/// Those that use the first node alone.
const ONE_NODE: [&str; 2] = ["redisson-rlock", "rueidislock"];

/// All scenes with all libraries that are there.
pub(crate) fn run() -> Vec<Scene> {
    fleet::build();
    let libraries = present(&LIBRARIES);
    let redlocks: Vec<_> = (libraries.iter().copied())
        .filter(|name| !ONE_NODE.contains(name))
        .collect();
    let mut scenes = alike(&libraries, 1);
    scenes.extend(alike(&redlocks, 5));
    for (name, fault) in [
        ("one of 5 nodes frozen", Fault::Frozen),
        ("one of 5 nodes down", Fault::Down(1)),
        ("two of 5 nodes down", Fault::Down(2)),
    ] {
        scenes.push(scene(name.to_owned(), &redlocks, UNCONTENDED, 5, fault));
    }
    for nodes in [3, 7, 9] {
        let name = format!("uncontended, 1 task, {nodes} nodes");
        scenes.push(scene(name, &redlocks, UNCONTENDED, nodes, Fault::None));
    }
    scenes.push(far(&redlocks));
    let majorities = present(&[CLUSTER, "rueidislock-majority"]);
    scenes.extend(tasks().map(|(name, task)| on_cluster(&name, &majorities, task)));
    scenes
}

/// What is measured on one node, and on five.
fn tasks() -> impl Iterator<Item = (String, Task)> {
    let uncontended = [1, 16, 64].map(|tasks| {
        let plural = if tasks == 1 { "" } else { "s" };
        let task = Task {
            tasks,
            ..UNCONTENDED
        };
        (format!("uncontended, {tasks} task{plural}"), task)
    });
    let crowds = [1, 4].map(|processes| {
        let name = format!("one key, {processes} processes x 16 tasks, sections of 1 ms");
        (name, Task { processes, ..CROWD })
    });
    uncontended.into_iter().chain(crowds)
}

fn alike(libraries: &[&str], nodes: usize) -> Vec<Scene> {
    let plural = if nodes == 1 { "" } else { "s" };
    let scenes = tasks().map(|(name, task)| {
        let name = format!("{name}, {nodes} node{plural}");
        scene(name, libraries, task, nodes, Fault::None)
    });
    scenes.collect()
}

/// On the masters of one cluster, of which each has some of a lock's three keys.
fn on_cluster(name: &str, libraries: &[&str], task: Task) -> Scene {
    let name = format!("{name}, a cluster of 3 masters");
    let task = Task {
        length: seconds(3),
        ..task
    };
    head(&name);
    let rows = libraries.iter().map(|library| {
        let cluster = RedisCluster::start(Kind::Redis, 3, 0);
        let row = measure(library, &task, &cluster.servers, &cluster.urls(), || {});
        print(&row);
        row
    });
    let rows = rows.collect();
    Scene { name, rows }
}

/// One library after the other.
fn scene(name: String, libraries: &[&str], task: Task, nodes: usize, fault: Fault) -> Scene {
    let task = Task {
        length: seconds(3),
        ..task
    };
    head(&name);
    let rows = libraries.iter().map(|library| {
        let mut servers = Server::start_many(Kind::Redis, nodes);
        let urls: Vec<_> = servers.iter().map(Server::url).collect();
        let row = match fault {
            Fault::None => measure(library, &task, &servers, &urls, || {}),
            Fault::Frozen => frozen(library, &task, &servers, &urls),
            Fault::Down(count) => {
                let (down, up) = servers.split_at_mut(count);
                measure(library, &task, up, &urls, || {
                    down.iter_mut().for_each(Server::kill)
                })
            }
        };
        print(&row);
        row
    });
    let rows = rows.collect();
    Scene { name, rows }
}

/// With one node that stands still until the time is over: a client without a time-out would wait for it for ever.
fn frozen(library: &str, task: &Task, servers: &[Server], urls: &[String]) -> Row {
    let (frozen, others) = servers.split_first().unwrap();
    measure(library, task, others, urls, || {
        frozen.freeze();
        Frozen(frozen)
    })
}

/// A server that stands still until this is dropped.
pub(crate) struct Frozen<'a>(pub(crate) &'a Server);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

/// Nodes half a millisecond away.
fn far(libraries: &[&str]) -> Scene {
    let name = "uncontended, 1 task, 5 nodes 0.5 ms away each way".to_owned();
    let task = Task {
        length: seconds(3),
        ..UNCONTENDED
    };
    head(&name);
    let rows = libraries.iter().map(|library| {
        let servers = Server::start_many(Kind::Redis, 5);
        let ports: Vec<_> = servers.iter().map(Server::port).collect();
        let proxies = Proxies::start(&ports, Duration::from_micros(500));
        let row = measure(library, &task, &servers, &proxies.urls(), || {});
        print(&row);
        row
    });
    let rows = rows.collect();
    Scene { name, rows }
}

/// Ours beside each library that stores a lock as we do, and each beside a copy of itself.
pub(crate) fn mixed() -> Vec<Mixed> {
    fleet::build();
    let plain = ["rslock", "redlock", "node-redlock", "redsync", "redlock-py"];
    println!(
        "\none key, two processes x 4 tasks, sections of 1 ms, 5 nodes: sections/s, longest gap in ms"
    );
    let mut pairs = Vec::new();
    for theirs in present(&plain) {
        pairs.extend([(theirs, theirs), (OURS, theirs), (NO_HAND_OFF, theirs)]);
    }
    pairs.extend([(OURS, OURS), (NO_HAND_OFF, NO_HAND_OFF)]);
    let mixed = pairs.into_iter().map(|(ours, theirs)| {
        let shares = beside([ours, theirs]);
        let [(a, b), (c, d)] = shares;
        println!("{ours:28} {a:>8.1} {b:>8.1} | {theirs:28} {c:>8.1} {d:>8.1}");
        Mixed {
            ours,
            theirs: theirs.to_owned(),
            shares,
        }
    });
    mixed.collect()
}

fn beside(libraries: [&str; 2]) -> [(f64, f64); 2] {
    let servers = Server::start_many(Kind::Redis, 5);
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let task = Task {
        tasks: 4,
        each: false,
        work: Duration::from_millis(1),
        length: seconds(10),
        ..UNCONTENDED
    };
    let orders = libraries.map(|library| {
        let mut order = order(library, &urls, &task);
        "bench:mixed".clone_into(&mut order.key);
        // What others leave on nodes is gone after that.
        order.ttl = Duration::from_secs(5);
        order
    });
    let outcomes = fleet::together(&orders, task.length, || {});
    fleet::assert_alone(&outcomes);
    [0, 1].map(|client: usize| share(&outcomes[client], task.length))
}

#[allow(clippy::cast_precision_loss, reason = "some thousands")]
fn share(outcome: &Outcome, length: Duration) -> (f64, f64) {
    let mut times: Vec<_> = outcome.turns.iter().map(|turn| turn.began).collect();
    times.sort_unstable();
    let gaps = times
        .windows(2)
        .map(|pair| crate::clock::millis(pair[0], pair[1]));
    let rate = outcome.turns.len() as f64 / length.as_secs_f64();
    (rate, Spread::of(gaps.collect()).part(1.0))
}

fn head(name: &str) {
    println!("\n{name}");
    println!(
        "{:28} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>6} {:>8}",
        "",
        "locks/s",
        "p50 µs",
        "p99 µs",
        "max µs",
        "release",
        "commands",
        "bytes",
        "least",
        "failures"
    );
}

fn print(row: &Row) {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| row.acquire.part(part));
    println!(
        "{:28} {:>10.1} {p50:>10.0} {p99:>10.0} {max:>10.0} {:>10.0} {:>9.1} {:>9.0} {:>6.2} {:>8}",
        row.library,
        row.rate,
        row.release.part(0.5),
        row.commands,
        row.bytes,
        row.least,
        row.failures
    );
}
