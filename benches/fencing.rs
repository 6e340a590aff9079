//! How many grants need a second round trip for their fencing token: where the counters of keys are there, and where
//! the highest number of each node stands in for them, as for every key that is new or was not used for a while.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tower_redlock::LockManager;
use tower_redlock::clock::Moment;
use tower_redlock::clock::{Clock, SystemClock};
use tower_redlock::snapshot::Snapshot;

use crate::measure::ratio;
use crate::support::server::{Kind, Server};

/// How many processes there are.
const PROCESSES: u64 = 2;
/// How many grants a row is of, by both of them.
const GRANTS: u64 = 6_400;
/// How many keys a task uses that uses them again.
const KEYS: u64 = 4;

/// The clock of a process, so many microseconds ahead.
#[derive(Debug)]
struct AheadClock(u64);

impl Clock for AheadClock {
    fn now(&self) -> Moment {
        SystemClock::new().now()
    }

    fn unix_micros(&self) -> u64 {
        SystemClock::new().unix_micros() + self.0
    }
}

pub(crate) async fn run() {
    println!("\ngrants that need a second round trip, of two processes");
    println!(
        "{:8} | {:20} | {:18} | {:18} | {:>8} | {:>8} | {:>10}",
        "nodes", "clocks", "keys", "each process", "ahead", "behind", "grants/s"
    );
    for count in [3, 5] {
        for apart in [
            Duration::ZERO,
            Duration::from_millis(1),
            Duration::from_secs(1),
        ] {
            for new in [true, false] {
                for crowd in [1, 16] {
                    let servers = Server::start_many(Kind::Redis, count);
                    one(&servers, apart, new, crowd).await;
                }
            }
        }
    }
}

async fn one(servers: &[Server], apart: Duration, new: bool, crowd: u64) {
    let apart_micros = u64::try_from(apart.as_micros()).unwrap();
    let mut processes = Vec::new();
    for number in 0..PROCESSES {
        let builder = LockManager::builder()
            .bootstrap(true)
            .redis(servers.iter().map(Server::url))
            // A busy machine must not look like a node that is down.
            .node_timeout(Duration::from_secs(5))
            .clock(AheadClock(apart_micros * (PROCESSES - 1 - number)));
        processes.push(builder.connect().await.unwrap());
    }
    if !new {
        // From here on each key has its counter.
        work(&processes, crowd, KEYS, new).await;
    }
    let before: Vec<Snapshot> = processes.iter().map(LockManager::snapshot).collect();
    let begin = Instant::now();
    work(&processes, crowd, GRANTS / PROCESSES / crowd, new).await;
    let took = begin.elapsed();
    let shares: Vec<f64> = processes.iter().zip(&before).map(share).collect();
    println!(
        "{:8} | {:20} | {:18} | {:18} | {:>6.2} % | {:>6.2} % | {:>10.0}",
        servers.len(),
        if apart.is_zero() {
            "in step".to_owned()
        } else {
            format!("{apart:?} apart")
        },
        if new {
            "new each time"
        } else {
            "the same again"
        },
        if crowd == 1 {
            "one at a time".to_owned()
        } else {
            format!("{crowd} at a time")
        },
        100.0 * shares[0],
        100.0 * shares[1],
        ratio(GRANTS, 1) / took.as_secs_f64(),
    );
}

/// Has each process take locks, so many tasks at a time and so often each.
async fn work(processes: &[LockManager], crowd: u64, turns: u64, new: bool) {
    let work = processes.iter().zip(0..PROCESSES);
    let work = work.flat_map(|(locks, process)| {
        (0..crowd).map(move |task| async move {
            for turn in 0..turns {
                // Nobody contends: the keys of a process and a task are its own.
                let key = if new { turn } else { turn % KEYS };
                let key = format!("bench:{process}:{task}:{key}");
                let guard = locks.try_acquire(key).await.unwrap();
                guard.release().await.unwrap();
            }
        })
    });
    join_all(work).await;
}

/// Which part of the grants of a process took a second round trip.
fn share((locks, before): (&LockManager, &Snapshot)) -> f64 {
    let after = locks.snapshot();
    let agreed = after.fences_agreed - before.fences_agreed;
    let second = after.fences_written_back - before.fences_written_back;
    ratio(second, agreed + second)
}
