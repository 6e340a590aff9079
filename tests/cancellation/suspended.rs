//! A host that was suspended: the clock has gone on, and no timer has. `tests/chaos` suspends real processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower_redlock::clock::{Clock, Moment, TokioClock};
use tower_redlock::error::LossReason;
use tower_redlock::node::MemoryNode;
use tower_redlock::{AcquireError, LockGuard, LockManager};

use super::scene::{KEY, MS, NODES, SECOND, TTL, meet};

/// Longer than any lease.
const NIGHT: Duration = Duration::from_secs(8 * 60 * 60);

/// A clock that counts the nights, too.
#[derive(Clone, Debug)]
struct Watch {
    awake: TokioClock,
    asleep: Arc<AtomicU64>,
}

impl Watch {
    fn suspend(&self, span: Duration) {
        self.asleep.fetch_add(span.as_secs(), Ordering::SeqCst);
    }

    fn asleep(&self) -> Duration {
        Duration::from_secs(self.asleep.load(Ordering::SeqCst))
    }
}

impl Clock for Watch {
    fn follows_runtime(&self) -> bool {
        true
    }

    fn now(&self) -> Moment {
        self.awake.now() + self.asleep()
    }

    fn unix_micros(&self) -> u64 {
        let asleep = u64::try_from(self.asleep().as_micros()).unwrap();
        self.awake.unix_micros() + asleep
    }
}

/// A process that is suspended, and another that is not: its locks are made when the first is awake again.
struct Scene {
    watch: Watch,
    locks: LockManager,
    other: LockManager,
}

impl Scene {
    async fn new() -> Self {
        let nodes = (0..NODES).map(|n| MemoryNode::new(format!("n{n}")));
        let nodes: Vec<_> = nodes.collect();
        let watch = Watch {
            awake: TokioClock::new(),
            asleep: Arc::default(),
        };
        let manager = || {
            let builder = LockManager::builder().nodes(nodes.iter().cloned());
            let builder = builder
                .clock(watch.clone())
                .ttl(TTL)
                .max_ttl(TTL)
                .max_wait(5 * SECOND);
            builder.connect_lazy().unwrap()
        };
        let (locks, other) = (manager(), manager());
        meet(&locks).await;
        meet(&other).await;
        Self {
            watch,
            locks,
            other,
        }
    }

    fn waiter(&self) -> JoinHandle<Result<LockGuard, AcquireError>> {
        let locks = self.locks.clone();
        tokio::spawn(async move { locks.acquire(KEY).await })
    }

    /// Nothing is left of the suspended process: all was released without any time passing.
    async fn assert_free(&self) {
        let began = Instant::now();
        let report = self.locks.shutdown(SECOND).await;
        assert!(report.is_all_released(), "{report:?}");
        assert_eq!(report.lost, 0);
        assert_eq!(began.elapsed(), Duration::ZERO);
        let snapshot = self.locks.snapshot();
        let left = (snapshot.held, snapshot.keys, snapshot.waiting);
        assert_eq!(left, (0, 0, 0));
    }
}

async fn assert_timed_out(waiter: JoinHandle<Result<LockGuard, AcquireError>>) {
    let outcome = waiter.await.unwrap();
    let is_over = matches!(outcome, Err(AcquireError::WaitTimeout { .. }));
    assert!(is_over, "{outcome:?}");
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Timers go on from where they were, and the next extension is due in ten seconds.
#[tokio::test(start_paused = true)]
async fn a_loss_in_the_night_is_told_within_a_second_to_whoever_waits_for_it() {
    let scene = Scene::new().await;
    let guard = scene.locks.try_acquire(KEY).await.unwrap();
    let waiting = tokio::spawn(guard.lost());
    settle().await;
    let woke = Instant::now();
    scene.watch.suspend(NIGHT);
    assert_eq!(waiting.await.unwrap(), LossReason::Expired);
    assert!(woke.elapsed() <= SECOND + MS, "{:?}", woke.elapsed());
    drop(guard);
    scene.assert_free().await;
}

#[tokio::test(start_paused = true)]
async fn who_waited_through_the_night_is_answered_and_the_queue_goes_on() {
    let scene = Scene::new().await;
    let guard = scene.locks.try_acquire(KEY).await.unwrap();
    let (first, second) = (scene.waiter(), scene.waiter());
    settle().await;
    assert_eq!(scene.locks.snapshot().waiting, 2);
    scene.watch.suspend(NIGHT);
    drop(guard);
    let began = Instant::now();
    for waiter in [first, second] {
        assert_timed_out(waiter).await;
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    let next = scene.locks.try_acquire(KEY).await.unwrap();
    assert!(next.remaining() > TTL / 2);
    drop(next);
    scene.assert_free().await;
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_another_process_through_the_night_is_answered_too() {
    let scene = Scene::new().await;
    let theirs = scene.other.try_acquire(KEY).await.unwrap();
    let waiter = scene.waiter();
    tokio::time::sleep(20 * MS).await;
    scene.watch.suspend(NIGHT);
    // Its timers go on from where they were.
    let began = Instant::now();
    assert_timed_out(waiter).await;
    assert!(began.elapsed() <= SECOND, "{:?}", began.elapsed());
    drop(theirs);
    drop(scene.locks.try_acquire(KEY).await.unwrap());
    scene.assert_free().await;
}
