//! An orderly shutdown that says that all was given back: then no key is on any server, and what was done stays done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::sync::Barrier;
use tower_redlock::idempotency::{IdempotentRun, RunGuard};
use tower_redlock::snapshot::NodeStatus;

use crate::support::wrapper::{Between, Call, Reply, Wrapped};
use crate::*;

/// Far more than any of it takes.
const GRACE: Duration = Duration::from_secs(30);

/// A server whose callers are held up: their thread is taken from them as they prepare to give a lock back.
#[derive(Debug)]
struct Held(LiveNode);

impl Between for Held {
    type Node = LiveNode;

    fn node(&self) -> &LiveNode {
        &self.0
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        if matches!(call, Call::Release | Call::Complete) {
            thread::yield_now();
        }
        reply
    }
}

/// Threads that do nothing, as fast as they can.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn cores() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..cores {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(over)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn manager(cluster: &Cluster) -> LockManager {
    let node = |url: String| Wrapped(Held(RedisNode::new(&url).build().unwrap()));
    let nodes = cluster.urls().into_iter().map(node);
    let builder = LockManager::builder().nodes(nodes).without_restart_guard();
    connected(builder.ttl(LONG).max_ttl(LONG).node_timeout(1_000 * MS)).await
}

fn three() -> Cluster {
    Cluster {
        servers: Server::start_many(Kind::Redis, 3),
    }
}

/// Goes for the work called `key`.
async fn begin(locks: &LockManager, key: String) -> Result<IdempotentRun, AcquireError> {
    locks.begin_idempotent(key, LONG, Duration::ZERO).await
}

/// What begins or ends as the manager shuts down.
enum Work {
    Acquiring(LockManager, String),
    Dropped(LockGuard),
    Released(LockGuard),
    Done(RunGuard),
}

impl Work {
    async fn begin(locks: &LockManager, round: usize) -> Self {
        let key = round.to_string();
        match round % 4 {
            3 => Self::Acquiring(locks.clone(), key),
            0 => Self::Dropped(locks.acquire(key).await.unwrap()),
            1 => Self::Released(locks.acquire(key).await.unwrap()),
            _ => match begin(locks, key).await.unwrap() {
                IdempotentRun::Execute(run) => Self::Done(run),
                other => panic!("nobody has done it: {other:?}"),
            },
        }
    }

    /// Tells whether it was said that it went well.
    async fn end(self) -> bool {
        match self {
            Self::Acquiring(locks, key) => {
                drop(locks.try_acquire(key).await);
                true
            }
            Self::Dropped(guard) => {
                drop(guard);
                true
            }
            Self::Released(guard) => guard.release().await.is_ok(),
            Self::Done(run) => run.complete("done").await.is_ok(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_orderly_shutdown_on_busy_cores_leaves_no_key_and_no_work_to_be_done_again() {
    let cluster = three();
    let next = manager(&cluster).await;
    let _busy = Busy::cores();
    let (mut left, mut failed, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..40 {
        let locks = manager(&cluster).await;
        let work = Work::begin(&locks, round).await;
        let is_run = matches!(work, Work::Done(_));
        let barrier = Arc::new(Barrier::new(2));
        let ending = tokio::spawn({
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                work.end().await
            }
        });
        barrier.wait().await;
        let report = locks.shutdown(GRACE).await;
        // No settling here: what the shutdown waited for is done.
        if cluster.holding(&round.to_string()) > 0 {
            left.push(round);
        }
        assert!(report.is_all_released() && report.lost == 0, "{report:?}");
        if !ending.await.unwrap() {
            failed.push(round);
        }
        let repeat = begin(&next, round.to_string());
        if is_run && !matches!(repeat.await, Ok(IdempotentRun::Replay(_))) {
            again.push(round);
        }
    }
    assert!(
        left.is_empty() && failed.is_empty() && again.is_empty(),
        "left: {left:?}, failed: {failed:?}, done again: {again:?}"
    );
}

#[tokio::test]
async fn what_a_frozen_server_has_is_told_and_released_when_it_goes_on() {
    let cluster = three();
    let locks = connected(cluster.builder().node_timeout(100 * MS)).await;
    let guard = locks.acquire("order:1").await.unwrap();
    eventually("all servers have granted", || cluster.keys().len() == 3).await;
    cluster.each([0], Server::freeze);
    drop(guard);
    let report = locks.shutdown(100 * MS).await;
    cluster.each([0], Server::thaw);
    assert_eq!((report.lost, report.held, report.acquiring), (0, 0, 0));
    assert_eq!((report.unconfirmed, report.expiring), (1, 0));
    let is_open = |node: &NodeStatus| node.state != NodeState::Closed;
    assert!(locks.snapshot().nodes.iter().all(is_open), "it goes on");
    let report = locks.shutdown(GRACE).await;
    assert_eq!(cluster.keys(), []);
    assert!(report.is_all_released(), "{report:?}");
}
