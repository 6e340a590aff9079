//! Contenders, each with a manager and connections of its own, as if it were a process. One process runs them all, so
//! that one clock stamps what they see.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_redlock::error::LossReason;
use tower_redlock::{LockGuard, LockManager, Settings};

use crate::checker::Interval;
use crate::cluster::Cluster;
use crate::dice::{chance, millis};
use crate::order::Acquisition;
use crate::scene::Scene;
use crate::support::clocks::raw_now;
use crate::support::{AheadClock, connected};

/// The ttl of all contenders, except where they differ.
const TTL: Duration = Duration::from_millis(300);
/// The ttls where they differ.
const TTLS: [Duration; 3] = [Duration::from_millis(200), TTL, Duration::from_millis(700)];
const KEYS: [&str; 2] = ["order:1", "order:2"];
/// How many contenders there are.
pub(crate) const COUNT: usize = 8;
/// How often a holder looks whether it still holds.
const LOOK: Duration = Duration::from_millis(2);

/// Contenders at work.
pub(crate) struct Clients {
    work: Arc<Work>,
    tasks: JoinSet<()>,
}

/// What contenders do.
#[derive(Default)]
pub(crate) struct Work {
    stop: AtomicBool,
    /// When which locks were held that are no more.
    intervals: Mutex<Vec<Interval>>,
}

impl Work {
    /// Who held what when, as far as it has ended.
    pub(crate) fn intervals(&self) -> Vec<Interval> {
        self.intervals.lock().unwrap().clone()
    }

    /// How many locks were held, and are no more.
    pub(crate) fn holds(&self) -> usize {
        self.intervals.lock().unwrap().len()
    }
}

/// What one contender is like in this scene.
fn contender(cluster: &Cluster, client: usize) -> Settings {
    let scene = cluster.scene();
    let mixed = scene == Scene::CutsAndForgetting;
    let (ttl, longest) = if mixed {
        (TTLS[client % TTLS.len()], TTLS[TTLS.len() - 1])
    } else {
        (TTL, TTL)
    };
    let seconds = match scene {
        Scene::OldData => client as u64,
        _ => 0,
    };
    LockManager::builder()
        .nodes(cluster.nodes_of(client))
        .clock(AheadClock(Duration::from_secs(seconds)))
        .ttl(ttl)
        .max_ttl(longest)
        // Enough for a busy machine, and what is left of the ttl is enough for a lock.
        .node_timeout(Duration::from_millis(60))
}

impl Clients {
    /// Connects all of them and then lets them go.
    pub(crate) async fn start(cluster: &Cluster, mode: impl Fn(Settings) -> Settings) -> Self {
        let work = Arc::new(Work::default());
        let blocks = cluster.scene() == Scene::BlockedThreads;
        let mut tasks = JoinSet::new();
        let mut connecting = JoinSet::new();
        for client in 0..COUNT {
            let connected = connected(mode(contender(cluster, client)));
            connecting.spawn(async move { (client, connected.await) });
        }
        for (client, locks) in connecting.join_all().await {
            tasks.spawn(contend(client, locks, Arc::clone(&work), blocks));
        }
        Self { work, tasks }
    }

    /// What they have done so far.
    pub(crate) fn work(&self) -> Arc<Work> {
        Arc::clone(&self.work)
    }

    /// Ends the work, and tells who held what when.
    pub(crate) async fn stop(self) -> Vec<Interval> {
        self.work.stop.store(true, Ordering::SeqCst);
        self.tasks.join_all().await;
        self.work.intervals()
    }
}

async fn contend(client: usize, locks: LockManager, work: Arc<Work>, blocks: bool) {
    while !work.stop.load(Ordering::SeqCst) {
        let key = KEYS[fastrand::usize(..KEYS.len())];
        let reads = chance(1, 3);
        let locks = if reads { locks.shared() } else { locks.clone() };
        // Some wait their turn, some ask again and again: they are the first to find what a node has forgotten.
        let outcome = if chance(1, 4) {
            locks.with_max_wait(millis(50..=500)).acquire(key).await
        } else {
            locks.try_acquire(key).await
        };
        // Whatever is wrong with the nodes, it is tried again.
        if let Ok(guard) = outcome {
            let start = raw_now();
            let ttl = u64::try_from(locks.ttl().as_millis()).unwrap();
            let most = if chance(1, 3) { ttl / 5 } else { ttl * 4 / 3 };
            let (time, nanos) = (millis(0..=most), |time: Duration| time.as_nanos() as u64);
            let blocked = (blocks && chance(1, 8)).then(|| millis(0..=900));
            let (end, held) = hold(&guard, start, time, nanos, blocked).await;
            let (key, fence) = (key.to_owned(), guard.fence().unwrap().get());
            let lock = Acquisition {
                key,
                fence,
                start,
                end,
                held,
            };
            let interval = Interval {
                client,
                reads,
                lock,
            };
            work.intervals.lock().unwrap().push(interval);
            // It is confirmed by too few while servers are away, and goes on in the background.
            let _ = guard.release().await;
        }
        sleep(millis(2..=12)).await;
    }
}

/// Holds for `time` from the `start`, or until the lock is lost. Returns until when it was held for certain, never a later
/// time, and whether it still is. `span` says how long what the lock has left is by the common clock.
///
/// Before that it blocks its thread, if it is told to.
pub(crate) async fn hold(
    guard: &LockGuard,
    start: u64,
    time: Duration,
    span: impl Fn(Duration) -> u64,
    mut blocked: Option<Duration>,
) -> (u64, bool) {
    let (mut certain, mut promised) = (start, start);
    loop {
        let now = raw_now();
        let left = guard.remaining();
        if left.is_zero() {
            // What was promised holds if nothing but time has ended it.
            let end = match guard.lost().await {
                LossReason::Expired => promised.min(now),
                _ => certain,
            };
            return (end, false);
        }
        (certain, promised) = (now, now + span(left));
        if let Some(time) = blocked.take() {
            // As a call does that knows nothing of async.
            let (_caller, reply) = mpsc::channel::<()>();
            let _ = reply.recv_timeout(time);
        }
        if Duration::from_nanos(now - start) >= time {
            return (certain, true);
        }
        sleep(LOOK).await;
    }
}
