//! How many grants need a second round trip for their number: where the counters of keys are there, and where the
//! highest number of each node stands in for them, which is so for every key that is new or was not used for a while.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tower_redlock::clock::{Clock, SystemClock};
use tower_redlock::{LockManager, Moment};

use crate::measure::{ratio, seconds};
use crate::support::server::{Kind, Server};

/// How many processes there are.
const PROCESSES: u64 = 2;

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
    let limit = seconds(2);
    let begin = Instant::now();
    let work = processes
        .iter()
        .zip(0..PROCESSES)
        .flat_map(|(locks, process)| {
            (0..crowd).map(move |task| async move {
                let mut turn = 0_u64;
                while begin.elapsed() < limit {
                    // Nobody contends: the keys of a process and a task are its own.
                    let key = if new { turn } else { turn % 4 };
                    let key = format!("bench:{process}:{task}:{key}");
                    let guard = locks.try_acquire(key).await.unwrap();
                    guard.release().await.unwrap();
                    turn += 1;
                }
            })
        });
    join_all(work).await;
    let shares: Vec<(f64, u64)> = processes.iter().map(share).collect();
    let grants: u64 = shares.iter().map(|(_, grants)| grants).sum();
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
        100.0 * shares[0].0,
        100.0 * shares[1].0,
        ratio(grants, 1) / begin.elapsed().as_secs_f64(),
    );
}

/// Which part of the grants of a process took a second round trip, and how many there were.
fn share(locks: &LockManager) -> (f64, u64) {
    let snapshot = locks.snapshot();
    let grants = snapshot.numbers_agreed + snapshot.numbers_written_back;
    (ratio(snapshot.numbers_written_back, grants), grants)
}
