//! Waiting for a lock: woken by releases over pub/sub, and none the worse when those fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tower_redlock::snapshot::Snapshot;
use tower_redlock::{AcquireError, LockManager};

use crate::support::eventually;
use crate::support::stalls::{Stopwatch, undisturbed};
use crate::{Cluster, MS, connected};

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
        let ask = format!("PUBSUB CHANNELS lk!free:{key}");
        let servers = self.servers.iter();
        let heard = servers.filter(|server| !server.run(&ask).is_empty());
        heard.count()
    }

    /// How many keys somebody listens for on any server.
    fn channels(&self) -> usize {
        let servers = self.servers.iter();
        let names = servers.map(|server| server.run("PUBSUB CHANNELS"));
        names.map(|names| names.lines().count()).max().unwrap_or(0)
    }

    async fn nobody_listens(&self) {
        eventually("all subscriptions ended", || self.channels() == 0).await;
    }
}

fn is_idle(locks: &LockManager) -> bool {
    let Snapshot {
        held,
        keys,
        waiting,
        ..
    } = locks.snapshot();
    (held, keys, waiting) == (0, 0, 0)
}

/// A task that waits for `key` and tells how long.
fn waiter(locks: &LockManager, key: &str) -> tokio::task::JoinHandle<Duration> {
    let (locks, key) = (locks.clone(), key.to_owned());
    tokio::spawn(async move {
        let begin = Instant::now();
        let guard = locks.acquire(key).await.unwrap();
        let waited = begin.elapsed();
        guard.release().await.unwrap();
        waited
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_in_another_process_is_woken_by_the_release() {
    let cluster = Cluster::start();
    let (ours, theirs) = (cluster.patient().await, cluster.patient().await);
    for _ in 0..5 {
        let guard = ours.acquire("order:1").await.unwrap();
        let waiting = waiter(&theirs, "order:1");
        eventually("it listens", || cluster.listened_to("order:1") == 5).await;
        // By now only notices can wake it soon: the next look without one is up to a second away.
        let sent =
            |c: &Cluster| -> u64 { c.servers.iter().map(crate::commands::scripts_run).sum() };
        tokio::time::sleep(50 * MS).await;
        let before = sent(&cluster);
        guard.release().await.unwrap();
        waiting.await.unwrap();
        // The release, its one successful round, and its release, of which stragglers may be under way; seldom a
        // round more.
        let asked = sent(&cluster) - before;
        assert!((9..=25).contains(&asked), "{asked} commands");
        cluster.nobody_listens().await;
    }
    assert!(is_idle(&ours) && is_idle(&theirs));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_thousand_waiters_for_a_thousand_keys_all_get_their_turn() {
    let cluster = Cluster::start();
    // They all come at once, and a busy machine is no dead node.
    let builder = cluster.builder().max_wait(3 * PATIENT);
    let locks = connected(builder.node_timeout(Duration::from_secs(6))).await;
    let inside: Arc<Vec<AtomicUsize>> = Arc::new((0..1_000).map(|_| AtomicUsize::new(0)).collect());
    let mut waiters = JoinSet::new();
    for n in 0..8_000 {
        let (locks, inside) = (locks.clone(), Arc::clone(&inside));
        waiters.spawn(async move {
            let key = n % 1_000;
            let guard = locks.acquire(format!("order:{key}")).await.unwrap();
            assert_eq!(inside[key].fetch_add(1, Ordering::SeqCst), 0, "two holders");
            tokio::task::yield_now().await;
            assert_eq!(inside[key].fetch_sub(1, Ordering::SeqCst), 1, "two holders");
            drop(guard);
        });
    }
    assert_eq!(waiters.join_all().await.len(), 8_000);
    eventually("nothing is left", || is_idle(&locks)).await;
    cluster.settle_free("all turns").await;
    assert_eq!(
        cluster.channels(),
        0,
        "who waits in the queue does not listen"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_die_while_people_wait_delay_nobody() {
    undisturbed(async || {
        let mut cluster = Cluster::start();
        let (ours, theirs) = (cluster.patient().await, cluster.patient().await);
        while cluster.servers.len() > 3 {
            let guard = ours.acquire("order:1").await.unwrap();
            let waiting: Vec<_> = (0..4).map(|_| waiter(&theirs, "order:1")).collect();
            let alive = cluster.servers.len();
            eventually("it listens", || cluster.listened_to("order:1") == alive).await;
            drop(cluster.servers.pop());
            let begin = Stopwatch::start();
            guard.release().await.unwrap();
            for waiting in waiting {
                waiting.await.unwrap();
            }
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
        Arc::new(AtomicUsize::new(0)),
    );
    let (killing, stopped) = mpsc::channel();
    let killer = kill_subscriptions(&cluster, stopped);
    let mut workers = JoinSet::new();
    for n in 0..8 {
        let (locks, stop, inside) = (
            managers[n % 4].clone(),
            Arc::clone(&stop),
            Arc::clone(&inside),
        );
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
                    assert!(
                        matches!(refused, AcquireError::Contended { .. }),
                        "{refused}"
                    );
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
    assert!(
        killed > 20,
        "only {killed} connections were there to be killed"
    );
    for (longest, turns) in outcomes {
        assert!(turns > 0);
        assert!(longest < ONE_POLL, "somebody waited for {longest:?}");
    }
    held.release().await.unwrap();
    cluster.settle_free("all turns").await;
}
