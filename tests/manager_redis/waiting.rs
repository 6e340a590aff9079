//! Waiting for a lock: woken by releases over pub/sub, and none the worse when those fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::task::JoinSet;
use tower_redlock::LockManager;

use crate::support::eventually;
use crate::support::stalls::{Stopwatch, undisturbed};
use crate::{Cluster, MS, connected, is_contended};

/// Longer than any wait in these tests.
const PATIENT: Duration = Duration::from_secs(20);
/// What a lost notice may cost: the longest pause between two looks, and some more for a busy machine.
const ONE_POLL: Duration = Duration::from_millis(1_500);

impl Cluster {
    /// One more manager whose callers wait for as long as it takes.
    async fn patient(&self) -> LockManager {
        connected(self.builder().max_wait(PATIENT)).await
    }

    /// How many servers somebody listens on for the releases of `key`.
    pub(crate) fn listened_to(&self, key: &str) -> usize {
        let channels = self.run(&format!("PUBSUB CHANNELS lk!free:{key}"));
        channels.iter().filter(|names| !names.is_empty()).count()
    }

    async fn nobody_listens(&self) {
        let is_silent = || self.run("PUBSUB CHANNELS").iter().all(String::is_empty);
        eventually("all subscriptions ended", is_silent).await;
    }
}

fn is_idle(locks: &LockManager) -> bool {
    let snapshot = locks.snapshot();
    (snapshot.held, snapshot.keys, snapshot.waiting) == (0, 0, 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_die_while_people_wait_delay_nobody() {
    undisturbed(async || {
        let mut cluster = Cluster::start();
        let (ours, theirs) = (cluster.patient().await, cluster.patient().await);
        while cluster.servers.len() > 3 {
            let guard = ours.acquire("order:1").await.unwrap();
            let mut waiting = JoinSet::new();
            for _ in 0..4 {
                let theirs = theirs.clone();
                waiting.spawn(async move {
                    let guard = theirs.acquire("order:1").await.unwrap();
                    guard.release().await.unwrap();
                });
            }
            let alive = cluster.servers.len();
            eventually("it listens", || cluster.listened_to("order:1") == alive).await;
            drop(cluster.servers.pop());
            let begin = Stopwatch::start();
            guard.release().await.unwrap();
            waiting.join_all().await;
            assert!(begin.elapsed() < ONE_POLL, "{:?}", begin.elapsed());
            cluster.nobody_listens().await;
        }
        assert!(is_idle(&theirs));
    })
    .await;
}

/// Kills all subscribing connections on all servers, every five milliseconds, until the other end is dropped.
fn kill_subscriptions(cluster: &Cluster, stop: Receiver<()>) -> std::thread::JoinHandle<u64> {
    let mut raws: Vec<_> = cluster.servers.iter().map(|server| server.raw()).collect();
    std::thread::spawn(move || {
        let mut killed = 0;
        while stop.recv_timeout(5 * MS) == Err(RecvTimeoutError::Timeout) {
            for raw in &mut raws {
                let answer = raw.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
                killed += answer.parse::<u64>().unwrap();
            }
        }
        killed
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_that_are_killed_again_and_again_cost_no_turn_and_no_answer() {
    let cluster = Cluster::start();
    let mut managers = Vec::new();
    for _ in 0..4 {
        managers.push(cluster.patient().await);
    }
    // A key that is held all the time: whoever is granted it was given another command's answer.
    let held = managers[0].acquire("order:held").await.unwrap();
    let (stop, inside) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let (killing, stopped) = mpsc::channel();
    let killer = kill_subscriptions(&cluster, stopped);
    let mut workers = JoinSet::new();
    for n in 0..8 {
        let (locks, stop, inside) = (managers[n % 4].clone(), stop.clone(), inside.clone());
        workers.spawn(async move {
            let (mut longest, mut turns) = (Duration::ZERO, 0_u32);
            while !stop.load(Ordering::SeqCst) {
                let guard = locks.acquire("order:1").await.unwrap();
                longest = longest.max(guard.waited());
                turns += 1;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                tokio::time::sleep(MS).await;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two holders");
                guard.release().await.unwrap();
                if n > 0 {
                    let refused = locks.try_acquire("order:held").await.unwrap_err();
                    assert!(is_contended(&refused), "{refused}");
                }
            }
            (longest, turns)
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::SeqCst);
    drop(killing);
    let outcomes = workers.join_all().await;
    let killed = killer.join().unwrap();
    assert!(killed > 20, "only {killed} connections were there");
    for (longest, turns) in outcomes {
        assert!(turns > 0);
        assert!(longest < ONE_POLL, "somebody waited for {longest:?}");
    }
    held.release().await.unwrap();
    cluster.settle_free("all turns").await;
}
