//! Servers that are killed while locks are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tower_redlock::node::NodeState;
use tower_redlock::{AcquireError, LockManager};

use crate::support::eventually;
use crate::support::server::Server;
use crate::support::stalls::Stopwatch;
use crate::{Cluster, MS, all_up, connected, is_contended, seen_by_all};

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

    /// Ends the load and asserts that no two intervals between grant and release overlap.
    async fn assert_exclusive(self) -> usize {
        self.assert_at_most(1).await
    }

    /// The same with at most so many at once.
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
        let guard = match locks.acquire("order:1").await {
            Ok(guard) => guard,
            Err(error) => {
                assert!(is_contended(&error), "only contention: {error}");
                continue;
            }
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
    assert!(load.assert_exclusive().await >= 60);

    for node in [1, 3] {
        cluster.servers[node].restart();
    }
    all_up(&managers[0]).await;
    let guard = managers[0].acquire("order:2").await.unwrap();
    eventually("the new ones hold it too", || {
        cluster.holding("order:2") == 5
    })
    .await;
    guard.release().await.unwrap();
    cluster.settle_free("after the restart").await;
}

#[tokio::test]
async fn a_server_that_comes_back_is_topped_up_while_a_lock_is_held() {
    let mut cluster = Cluster::start();
    let builder = cluster.short(Duration::from_secs(1));
    let locks = connected(builder).await;
    cluster.servers[0].kill();
    let guard = locks.acquire("order:1").await.unwrap();
    cluster.servers[0].restart();
    eventually("topped up", || cluster.holding("order:1") == 5).await;
    guard.release().await.unwrap();
    cluster.settle_free("the one that came back, too").await;
}

#[tokio::test]
async fn a_server_that_refused_is_topped_up_soon_and_not_only_by_a_renewal() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let leaving = ["SET", "lk:order:1", "another", "PX", "50"];
    cluster.servers[0].command(&leaving);
    let guard = locks.acquire("order:1").await.unwrap();
    let token = cluster.token("order:1");
    let ours = || cluster.servers[0].run("GET lk:order:1") == token;
    // The first renewal of so long a lease would come after the test has failed.
    eventually("topped up", ours).await;
    guard.release().await.unwrap();
    cluster.settle_free("the one that refused, too").await;
}

#[tokio::test]
async fn three_of_five_killed_fail_fast_and_come_back_without_a_restart() {
    let mut cluster = Cluster::start();
    let locks = connected(cluster.builder().without_restart_guard()).await;
    let held = locks.try_acquire("order:1").await.unwrap();
    for node in [0, 2, 4] {
        cluster.servers[node].kill();
    }
    let began = Stopwatch::start();
    let error = locks.try_acquire("order:2").await.unwrap_err();
    let AcquireError::NoQuorum(none) = &error else {
        panic!("{error}");
    };
    assert!(began.elapsed() < locks.node_timeout(), "fails fast");
    assert_eq!((none.needed(), none.nodes()), (3, 5));
    let mut named: Vec<_> = none.failures().iter().map(|f| f.node.clone()).collect();
    let killed = [0, 2, 4].map(|n| cluster.servers[n].url().replace("redis://", ""));
    named.sort_unstable();
    assert_eq!(named, sorted(killed), "each is named");
    // The lock that was held is not lost for it: its validity goes on.
    assert!(!held.is_lost());

    // Whoever waits is told at once, too: waiting is for locks that are held.
    eventually("known to be down", || {
        let down = |node: &NodeState| matches!(node, NodeState::Down(_));
        let nodes = locks.snapshot().nodes;
        nodes.iter().filter(|node| down(&node.state)).count() == 3
    })
    .await;
    let began = Stopwatch::start();
    let error = locks.acquire("order:2").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
    assert!(began.elapsed() < 50 * MS, "no time-out is waited for");

    for node in [0, 2, 4] {
        cluster.servers[node].restart();
    }
    all_up(&locks).await;
    let guard = locks.try_acquire("order:2").await.unwrap();
    guard.release().await.unwrap();
    drop(held);
    cluster.settle_free("after the recovery").await;
}

fn sorted<const N: usize>(mut names: [String; N]) -> Vec<String> {
    names.sort_unstable();
    names.to_vec()
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
