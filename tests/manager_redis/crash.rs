//! Servers that are killed while locks are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use crate::*;

/// Many workers on one key, and what they saw.
struct Load {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicUsize>,
    workers: JoinSet<Vec<(Instant, Instant)>>,
}

impl Load {
    fn start(managers: &[LockManager]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        for n in 0..16 {
            let locks = managers[n % managers.len()].clone();
            workers.spawn(work(locks, Arc::clone(&stop), Arc::clone(&turns)));
        }
        Self {
            stop,
            turns,
            workers,
        }
    }

    /// Waits for that many more turns.
    async fn goes_on(&self, turns: usize) {
        let goal = self.turns.load(Ordering::SeqCst) + turns;
        let done = || self.turns.load(Ordering::SeqCst) >= goal;
        eventually("the work goes on", done).await;
    }

    /// Ends the load and asserts that no more than `limit` intervals between grant and release overlap.
    async fn assert_at_most(self, limit: usize) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        let intervals: Vec<_> = self.workers.join_all().await.concat();
        for (granted, _) in &intervals {
            let held = |(from, to): &&(Instant, Instant)| from <= granted && granted < to;
            let holders = intervals.iter().filter(held).count();
            assert!(holders <= limit, "{holders} holders");
        }
        intervals.len()
    }
}

/// Takes the lock again and again. Returns from when until when it was held.
async fn work(
    locks: LockManager,
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicUsize>,
) -> Vec<(Instant, Instant)> {
    let mut intervals = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let Some(guard) = acquired(&locks).await else {
            continue;
        };
        let granted = Instant::now();
        tokio::task::yield_now().await;
        assert!(!guard.is_lost());
        intervals.push((granted, Instant::now()));
        turns.fetch_add(1, Ordering::SeqCst);
        // With servers killed half-way, a release may be confirmed by too few: then it goes on in the background.
        let _ = guard.release().await;
    }
    intervals
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_killed_under_load_lose_nothing() {
    let mut cluster = Cluster::start();
    // What two servers forget, a holder of three may need: a lock that is left behind must end within the test.
    let short = || cluster.short(Duration::from_secs(2));
    let managers = [connected(short()).await, connected(short()).await];
    let load = Load::start(&managers);
    load.goes_on(20).await;
    cluster.servers[1].kill();
    load.goes_on(20).await;
    cluster.servers[3].kill();
    load.goes_on(20).await;
    assert!(load.assert_at_most(1).await >= 60);

    for node in [1, 3] {
        cluster.servers[node].restart();
    }
    all_vote(&managers[0]).await;
    let guard = managers[0].acquire("order:2").await.unwrap();
    let held = || cluster.holding("order:2") == 5;
    eventually("the new ones hold it too", held).await;
    guard.release().await.unwrap();
    cluster.settle_free("after the restart").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_the_permits_are_held_while_servers_die_and_come_back_empty() {
    let mut cluster = Cluster::start();
    let short = || cluster.short(Duration::from_secs(2));
    let permits = |locks: LockManager| locks.permits(3).unwrap();
    let managers = [connected(short()).await, connected(short()).await].map(permits);
    let load = Load::start(&managers);
    load.goes_on(50).await;
    for node in [1, 3] {
        cluster.servers[node].kill();
        load.goes_on(50).await;
        cluster.servers[node].restart();
        seen_by_all(&managers, node).await;
        load.goes_on(50).await;
    }
    cluster.each([0, 2], Server::freeze);
    load.goes_on(20).await;
    cluster.each([0, 2], Server::thaw);
    assert!(load.assert_at_most(3).await >= 270);
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(managers[0].acquire("order:1").await.unwrap());
    }
    assert!(managers[1].try_acquire("order:1").await.is_err());
}
