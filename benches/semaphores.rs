//! Semaphores on three nodes, ours beside those of others: how fast, how long the longest wait, and how many hold a key at
//! once while something happens to a node. Redisson's are on the first node alone.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::{nanos, sleep_until};
use crate::contest::{Order, PERMITS, most_at_once, now};
use crate::fleet::{self, present};
use crate::measure::{Spread, ratio, seconds};
use crate::scenes::Frozen;
use crate::support::server::{Kind, Server};

const LIBRARIES: [&str; 4] = [
    PERMITS,
    "redis-semaphore",
    "redisson-permits",
    "redisson-semaphore",
];
const LIMIT: u32 = 2;
const TASKS: usize = 4;
/// The processes, by the names under which nodes know them.
pub(crate) const USERS: [&str; 3] = ["p0", "p1", "p2"];

/// What happens halfway.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Nothing,
    Frozen,
    Killed,
    /// A node loses all that it has.
    Forgetful,
    /// Each process is cut off from another node.
    Parted,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [
        Self::Nothing,
        Self::Frozen,
        Self::Killed,
        Self::Forgetful,
        Self::Parted,
    ];
}

pub(crate) fn run() {
    fleet::build();
    let length = seconds(6);
    println!(
        "\nsemaphores: {} processes x {TASKS} tasks, {LIMIT} permits, sections of 1 ms, 3 nodes; halfway of {length:?} a fault\n\
         {:28} {:10} | {:>10} | {:>14} | {:>16} | {:>8}",
        USERS.len(),
        "",
        "fault",
        "sections/s",
        "after fault, /s",
        "longest wait, ms",
        "at once"
    );
    for library in present(&LIBRARIES) {
        for fault in Fault::ALL {
            measure(library, fault, length);
        }
    }
}

fn measure(library: &str, fault: Fault, length: Duration) {
    let mut servers = servers();
    let orders = USERS.map(|user| order(library, &servers, user));
    let happened = Cell::new(0);
    let (nodes, at) = (servers.as_mut_slice(), &happened);
    let outcomes = fleet::together(&orders, length, move || {
        sleep_until(now() + nanos(length / 2));
        at.set(now());
        happen(fault, nodes)
    });
    let most = most_at_once(&outcomes);
    assert!(
        library != PERMITS || most <= LIMIT as usize,
        "{most} HOLDERS AT ONCE"
    );
    let turns = || outcomes.iter().flat_map(|outcome| &outcome.turns);
    let before = turns().filter(|turn| turn.began < happened.get()).count();
    let after = turns().count() - before;
    let rate = |turns: usize| ratio(u64::try_from(turns).unwrap(), 1) / (length / 2).as_secs_f64();
    let waits = turns().map(|turn| crate::clock::millis(turn.asked, turn.began));
    println!(
        "{library:28} {:10} | {:>10.0} | {:>14.0} | {:>16.1} | {most:>8}",
        format!("{fault:?}"),
        rate(before),
        rate(after),
        Spread::of(waits.collect()).part(1.0)
    );
}

pub(crate) fn servers() -> Vec<Server> {
    let servers = Server::start_many(Kind::Redis, 3);
    for server in &servers {
        for user in USERS {
            server.run(&format!("ACL SETUSER {user} on >x ~* &* +@all"));
        }
    }
    servers
}

pub(crate) fn order(library: &str, servers: &[Server], user: &str) -> Order {
    Order {
        library: library.to_owned(),
        urls: servers
            .iter()
            .map(|server| server.url_as(user, "x"))
            .collect(),
        key: "bench:semaphore".to_owned(),
        each: false,
        tasks: TASKS,
        ttl: Duration::from_secs(10),
        work: Duration::from_millis(1),
        limit: LIMIT,
    }
}

/// What stands still is so until the result is dropped.
pub(crate) fn happen(fault: Fault, servers: &mut [Server]) -> Option<Frozen<'_>> {
    match fault {
        Fault::Nothing => None,
        Fault::Frozen => {
            servers[0].freeze();
            Some(Frozen(&servers[0]))
        }
        Fault::Killed => {
            servers[0].kill();
            None
        }
        Fault::Forgetful => {
            servers[0].run("FLUSHALL");
            None
        }
        Fault::Parted => {
            for (server, user) in servers.iter().zip(USERS) {
                server.run(&format!("ACL SETUSER {user} resetkeys"));
            }
            None
        }
    }
}
