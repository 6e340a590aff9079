//! One of five servers stands still: what does a lock cost then, beside the same with all five healthy?

use std::time::{Duration, Instant};

use tower_redlock::LockManager;
use tower_redlock::node::NodeState;

use crate::acquire::{OURS, manager, ours, rslock, theirs};
use crate::measure::{Candidate, Row, print};
use crate::support::eventually;
use crate::support::server::{Kind, Server};

const TURNS: usize = 8;
const SIZE: usize = 200;
const FROZEN: usize = 2;

pub(crate) async fn run() {
    let servers = Server::start_many(Kind::Redis, 5);
    let locks = ours(&servers).await;
    let rows = measure(&servers, &locks).await;
    print("5 nodes, one of them frozen: tower-redlock", &rows, &[0]);
    let slowest = rows.iter().map(Row::slowest).max().unwrap_or_default();
    let limit = locks.node_timeout();
    println!("the slowest cycle took {slowest:.1?}, of a node time-out of {limit:?}");

    let mut theirs = rslock(theirs(&servers));
    let mut rows = [row("healthy"), row("frozen")];
    rows[0].samples = (theirs.batch)(SIZE).await;
    servers[FROZEN].freeze();
    rows[1].samples = (theirs.batch)(5).await;
    servers[FROZEN].thaw();
    print(
        "5 nodes, one of them frozen: rslock 0.10 (5 cycles)",
        &rows,
        &[0],
    );
}

fn row(name: &str) -> Row {
    Row {
        name: name.to_owned(),
        samples: Vec::new(),
    }
}

/// All healthy, one that has just frozen, and one that is known to be down, in turns.
async fn measure(servers: &[Server], locks: &LockManager) -> [Row; 3] {
    let mut candidate: Candidate = manager(OURS, locks.clone());
    let mut rows = [
        row("healthy"),
        row("frozen, not yet noticed"),
        row("frozen, known to be down"),
    ];
    let is_up = || locks.snapshot().nodes[FROZEN].state == NodeState::Up;
    (candidate.batch)(SIZE).await;
    for _ in 0..TURNS {
        rows[0].samples.extend((candidate.batch)(SIZE).await);
        servers[FROZEN].freeze();
        let began = Instant::now();
        while is_up() && began.elapsed() < Duration::from_secs(5) {
            let samples = (candidate.batch)(10).await;
            rows[1].samples.extend(samples);
        }
        rows[2].samples.extend((candidate.batch)(SIZE).await);
        servers[FROZEN].thaw();
        // What was left on it is released in the background, which is not what is measured.
        eventually("it is back and clean", || {
            is_up() && servers[FROZEN].locks().is_empty()
        })
        .await;
    }
    rows
}
