//! Libraries side by side, each in processes of its own: what they did in one scene, and what that cost the servers.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::children::{MARK, orders};
use crate::contest::{self, Client, Locks, Order, Outcome, Turn, nanos, now};
use crate::cost::Calls;
use crate::measure::{Spread, ratio};
use crate::support::server::Server;

/// The argument that makes a process one with a library that is written in Rust.
pub(crate) const ROLE: &str = "fleet";
pub(crate) const OURS: &str = "tower-redlock";
/// Ours without fencing tokens and restart guard: what others promise, and no more.
pub(crate) const BARE: &str = "tower-redlock, bare";
/// Ours without hand-off.
pub(crate) const NO_HAND_OFF: &str = "tower-redlock, no hand-off";

/// All libraries.
pub(crate) const LIBRARIES: [&str; 12] = [
    OURS,
    BARE,
    "rslock",
    "redlock",
    "node-redlock",
    "redsync",
    "rueidislock",
    "pottery",
    "redlock-py",
    "redisson-rlock",
    "redisson-multilock",
    "redisson-redlock",
];

/// What is asked of each library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    /// Each task has a key of its own.
    pub(crate) each: bool,
    pub(crate) work: Duration,
    pub(crate) length: Duration,
}

/// What a library did.
pub(crate) struct Row {
    pub(crate) library: String,
    /// From the question to the lock, in µs.
    pub(crate) acquire: Spread,
    pub(crate) release: Spread,
    /// Locks a second.
    pub(crate) rate: f64,
    /// Commands that the servers ran for each lock, those in scripts included; bytes on the network.
    pub(crate) commands: f64,
    pub(crate) bytes: f64,
    /// The part of the process with the fewest locks, of an even share.
    pub(crate) least: f64,
    pub(crate) failures: usize,
}

/// The command of a library; or why there is none.
fn command(library: &str) -> Result<Command, String> {
    if contest::PROGRAMS.iter().any(|(name, _)| *name == library) {
        return contest::program(library);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([MARK, ROLE, library]);
    Ok(command)
}

/// Those of `libraries` that are there; the others are told.
pub(crate) fn present(libraries: &[&'static str]) -> Vec<&'static str> {
    let is_there = |library: &&&str| match command(library) {
        Ok(_) => true,
        Err(absent) => {
            println!("{absent}");
            false
        }
    };
    libraries.iter().filter(is_there).copied().collect()
}

/// Builds the programs whose tools are installed.
pub(crate) fn build() {
    let root = env!("CARGO_MANIFEST_DIR");
    let made = Command::new("make")
        .args(["-s", "-C", root, "peers"])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("`make peers` failed: what it did not build is absent");
    }
}

/// Clients, each of which does as its order says, at the same time, while `during` happens.
pub(crate) fn together<T>(
    orders: &[Order],
    length: Duration,
    during: impl FnOnce() -> T,
) -> Vec<Outcome> {
    let mut clients: Vec<_> = orders
        .iter()
        .map(|order| Client::start(command(&order.library).unwrap(), order))
        .collect();
    let start = now() + nanos(Duration::from_millis(100));
    let end = start + nanos(length);
    for client in &mut clients {
        client.run_from(start, end);
    }
    crate::clock::sleep_until(start);
    let lasting = during();
    crate::clock::sleep_until(end);
    drop(lasting);
    thread::scope(|scope| {
        let outcomes: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(|| client.outcome()))
            .collect();
        outcomes
            .into_iter()
            .map(|outcome| outcome.join().unwrap())
            .collect()
    })
}

/// An order of `library` for `task`.
pub(crate) fn order(library: &str, urls: &[String], task: &Task) -> Order {
    Order {
        library: library.to_owned(),
        urls: urls.to_vec(),
        key: format!("bench:{}", library.replace([' ', ','], "")),
        each: task.each,
        tasks: task.tasks,
        ttl: Duration::from_secs(10),
        work: task.work,
        limit: 1,
    }
}

/// What `library` does with `task` on the nodes at `urls`, which are `servers`, while `during` happens to them. What it
/// returns is dropped when the time is over.
pub(crate) fn measure<T>(
    library: &str,
    task: &Task,
    servers: &[Server],
    urls: &[String],
    during: impl FnOnce() -> T,
) -> Row {
    let orders: Vec<_> = (0..task.processes)
        .map(|process| {
            let mut order = order(library, urls, task);
            if task.each {
                order.key = format!("{}:{process}", order.key);
            }
            order
        })
        .collect();
    let before = (Calls::of(servers), bytes(servers));
    let outcomes = together(&orders, task.length, during);
    let after = (Calls::of(servers), bytes(servers));
    if !task.each {
        assert_alone(&outcomes);
    }
    let turns: Vec<Turn> = outcomes
        .iter()
        .flat_map(|outcome| &outcome.turns)
        .copied()
        .collect();
    let micros = |from: u64, to: u64| crate::clock::millis(from, to) * 1e3;
    let fewest = outcomes
        .iter()
        .map(|outcome| outcome.turns.len())
        .min()
        .unwrap_or_default();
    let count = u64::try_from(turns.len()).unwrap();
    let fewest = u64::try_from(fewest * task.processes).unwrap();
    Row {
        library: library.to_owned(),
        acquire: Spread::of(
            turns
                .iter()
                .map(|turn| micros(turn.asked, turn.began))
                .collect(),
        ),
        release: Spread::of(
            turns
                .iter()
                .map(|turn| micros(turn.ended, turn.released))
                .collect(),
        ),
        rate: ratio(count, 1) / task.length.as_secs_f64(),
        commands: ratio(after.0.since(&before.0).executed(), count),
        bytes: ratio(after.1.saturating_sub(before.1), count),
        least: ratio(fewest, count),
        failures: outcomes.iter().map(|outcome| outcome.failures.len()).sum(),
    }
}

/// What the servers have received and sent.
pub(crate) fn bytes(servers: &[Server]) -> u64 {
    servers
        .iter()
        .map(|server| {
            field(server, "stats", "total_net_input_bytes")
                + field(server, "stats", "total_net_output_bytes")
        })
        .sum()
}

/// A number in the `section` of a server's account of itself.
pub(crate) fn field(server: &Server, section: &str, name: &str) -> u64 {
    let info = server.run(&format!("INFO {section}"));
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().trim().parse().unwrap()
}

/// # Panics
///
/// If two sections overlap: then it was no lock, and its speed is worth nothing.
pub(crate) fn assert_alone(outcomes: &[Outcome]) {
    let turns = outcomes.iter().flat_map(|outcome| &outcome.turns);
    let mut times: Vec<_> = turns.map(|turn| (turn.began, turn.ended)).collect();
    times.sort_unstable();
    for pair in times.windows(2) {
        assert!(pair[1].0 >= pair[0].1, "TWO HOLDERS AT ONCE: {pair:?}");
    }
}

/// One of the processes.
pub(crate) async fn child(words: &[String]) {
    let order = Arc::new(Order::of(words));
    let hand_off = order.library != NO_HAND_OFF;
    let bare = order.library == BARE;
    let locks = Locks::connect(&order, |builder| {
        let builder = builder.hand_off(hand_off);
        match bare {
            true => builder
                .bootstrap(false)
                .without_fencing()
                .without_restart_guard(),
            false => builder,
        }
    })
    .await;
    let warm = format!("{}:warm:{}", order.key, std::process::id());
    locks.section(&order, &warm).await.unwrap();
    let mut orders = orders();
    println!("ready");
    let Some(line) = orders.recv().await else {
        return;
    };
    let (start, end) = line.split_once(' ').unwrap();
    let outcome = locks
        .run(order, start.parse().unwrap(), end.parse().unwrap())
        .await;
    for Turn {
        asked,
        began,
        ended,
        released,
    } in outcome.turns
    {
        println!("turn {asked} {began} {ended} {released}");
    }
    for failure in outcome.failures {
        println!("failure {}", failure.replace('\n', " "));
    }
    println!("done");
}
