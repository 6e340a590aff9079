//! Waiting for a lock: woken by releases over pub/sub, and none the worse when those fail.

use tokio::task::JoinSet;

use crate::support::stalls::undisturbed;
use crate::*;

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
