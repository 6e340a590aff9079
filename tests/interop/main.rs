//! Beside other Redlock libraries on the same servers and the same key: ours and each of those that store a lock as a
//! plain string exclude each other, and neither starves, for a few seconds, or a minute each if
//! `REDLOCK_SOAK_SECONDS` is 60 or more. And of semaphores on several nodes, which keeps to its limit.
//!
//! The programs in other languages come from `make peers`. One that is missing fails its test, unless
//! `INTEROP_ABSENT_PEERS` names it.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a panic is how a test fails, in its helpers too; what is absent and what was counted is told"
)]

#[path = "../support/contest.rs"]
#[allow(dead_code, unreachable_pub, reason = "the benchmarks use the rest")]
mod contest;
#[path = "../support/mod.rs"]
mod support;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use contest::{Client, Locks, Order, Outcome, nanos, now};
use support::server::{Kind, Server};
use tokio::runtime::Builder;

/// Longer than any pause of a machine, and short enough for what the others leave on servers.
const TTL: Duration = Duration::from_secs(5);
const WORK: Duration = Duration::from_millis(1);
const TASKS: usize = 4;
const OURS: &str = "tower-redlock";

/// One test at a time wants the whole machine.
static ALONE: Mutex<()> = Mutex::new(());

/// For how long locks are contended.
fn length() -> Duration {
    let wish = std::env::var("REDLOCK_SOAK_SECONDS").ok();
    let seconds: u64 = wish.map_or(5, |wish| wish.parse().unwrap());
    Duration::from_secs(seconds.clamp(1, 60))
}

/// Clients of these libraries, at work at the same time on one key: what each did.
fn contend(servers: &[Server], libraries: &[&str], key: &str) -> Vec<Outcome> {
    let clients = libraries.iter().map(|library| {
        let order = Order {
            library: (*library).to_owned(),
            urls: servers.iter().map(Server::url).collect(),
            // It puts a word of its own before each key.
            key: key
                .trim_start_matches(if *library == "pottery" {
                    "redlock:"
                } else {
                    ""
                })
                .to_owned(),
            each: false,
            tasks: TASKS,
            ttl: TTL,
            work: WORK,
            limit: 1,
        };
        connect(order)
    });
    // All of them are connected before any begins.
    let clients: Vec<_> = clients.collect();
    let start = now() + nanos(Duration::from_millis(100));
    let end = start + nanos(length());
    let running: Vec<_> = clients
        .into_iter()
        .map(|client| client(start, end))
        .collect();
    running
        .into_iter()
        .map(|client| client.join().unwrap())
        .collect()
}

type Run = Box<dyn FnOnce(u64, u64) -> JoinHandle<Outcome>>;

/// A connected client, with a thread of its own if it is no process.
fn connect(order: Order) -> Run {
    if contest::PROGRAMS
        .iter()
        .any(|(name, _)| *name == order.library)
    {
        let command = contest::program(&order.library).unwrap();
        let mut client = Client::start(command, &order);
        return Box::new(move |start, end| {
            client.run_from(start, end);
            thread::spawn(move || client.outcome())
        });
    }
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let locks = runtime.block_on(Locks::connect(&order, |builder| {
        // A busy machine does not reach the time-out.
        builder.hand_off(false).node_timeout(TTL / 5)
    }));
    Box::new(move |start, end| {
        thread::spawn(move || runtime.block_on(locks.run(Arc::new(order), start, end)))
    })
}

/// Asserts that no two sections of any two clients overlap.
fn assert_excluded(outcomes: &[Outcome]) {
    let turns = outcomes.iter().enumerate();
    let mut turns: Vec<_> = turns
        .flat_map(|(client, outcome)| {
            outcome
                .turns
                .iter()
                .map(move |turn| (turn.began, turn.ended, client))
        })
        .collect();
    turns.sort_unstable();
    for pair in turns.windows(2) {
        let ((_, ended, first), (began, _, second)) = (pair[0], pair[1]);
        assert!(
            began >= ended,
            "clients {first} and {second} were in the section at once: {pair:?}"
        );
    }
}

/// The longest time up to `end` in which a client had no section; no turn, no time.
fn gap(outcome: &Outcome, end: u64) -> Duration {
    let mut times: Vec<_> = outcome.turns.iter().map(|turn| turn.began).collect();
    times.push(end);
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    Duration::from_nanos(gaps.max().unwrap_or_default())
}

/// Whether `library` is absent, for want of a tool that is known to be missing.
fn is_absent(library: &str) -> bool {
    let program = contest::PROGRAMS.iter().find(|(name, _)| *name == library);
    let Some((_, tool)) = program else {
        return false;
    };
    let Err(absent) = contest::program(library) else {
        return false;
    };
    let known = std::env::var("INTEROP_ABSENT_PEERS").unwrap_or_default();
    let is_known = known.split([',', ' ', '\n']).any(|name| name == *tool);
    assert!(
        is_known,
        "{absent}. To do without it, set INTEROP_ABSENT_PEERS={tool}"
    );
    println!("\n{absent}");
    true
}

/// Ours and `library` want one key for a while, and exclude each other without starving.
fn beside(library: &str) {
    if is_absent(library) {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let servers = Server::start_many(Kind::Redis, 5);
    let outcomes = contend(&servers, &[OURS, library], "redlock:mixed");
    let turns = outcomes.iter().flat_map(|outcome| &outcome.turns);
    let end = turns.map(|turn| turn.ended).max().unwrap_or_default();
    assert_excluded(&outcomes);
    let [ours, theirs] = [0, 1].map(|client: usize| outcomes[client].turns.len());
    println!(
        "\n{library}: {theirs} sections, longest gap {:?}; beside it ours: {ours}, longest gap {:?}",
        gap(&outcomes[1], end),
        gap(&outcomes[0], end)
    );
    for outcome in &outcomes {
        println!("failures: {:?}", outcome.failures.first());
    }
    assert!(ours > 0 && theirs > 0, "one of them starved");
}

macro_rules! beside {
    ($($name:ident: $library:literal;)*) => {$(
        #[test]
        fn $name() {
            beside($library);
        }
    )*};
}

beside! {
    rslock_and_we_exclude_each_other_and_neither_starves: "rslock";
    the_crate_redlock_and_we_exclude_each_other_and_neither_starves: "redlock";
    node_redlock_and_we_exclude_each_other_and_neither_starves: "node-redlock";
    redsync_and_we_exclude_each_other_and_neither_starves: "redsync";
    pottery_and_we_exclude_each_other_and_neither_starves: "pottery";
    redlock_py_and_we_exclude_each_other_and_neither_starves: "redlock-py";
}

/// Where each node has room for two holders, three of them find two nodes each: of the three processes each is cut off
/// from another node. We count the votes for each permit.
#[test]
fn redis_semaphore_admits_three_holders_of_two_permits_and_we_do_not() {
    if is_absent("redis-semaphore") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let [theirs, ours] = ["redis-semaphore", contest::PERMITS].map(holders_of_two_permits);
    assert_eq!((theirs, ours), (3, 2));
}

fn holders_of_two_permits(library: &str) -> usize {
    let servers = Server::start_many(Kind::Redis, 3);
    let (users, length) = (["p0", "p1", "p2"], Duration::from_secs(1));
    let clients = users.map(|user| {
        let process = |server: &Server| {
            server.run(&format!("ACL SETUSER {user} on >x ~* &* +@all"));
            server.url_as(user, "x")
        };
        connect(Order {
            library: library.to_owned(),
            urls: servers.iter().map(process).collect(),
            key: "semaphore".to_owned(),
            each: false,
            tasks: 1,
            ttl: TTL,
            work: length,
            limit: 2,
        })
    });
    for (server, user) in servers.iter().zip(users) {
        server.run(&format!("ACL SETUSER {user} resetkeys"));
    }
    let start = now() + nanos(Duration::from_millis(100));
    // Time for one section each.
    let clients = clients.map(|client| client(start, start + nanos(length)));
    let outcomes = clients.map(|client| client.join().unwrap());
    for outcome in &outcomes {
        assert_eq!(outcome.turns.len(), 1, "{:?}", outcome.failures);
    }
    contest::most_at_once(&outcomes)
}
