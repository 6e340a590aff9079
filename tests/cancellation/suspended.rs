//! A host that was suspended: the clock has gone on, and no timer has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tower_redlock::clock::{Clock, Moment, TokioClock};
use tower_redlock::error::{LossReason, ReleaseError};
use tower_redlock::idempotency::{IdempotentRun, RunGuard};
use tower_redlock::node::MemoryNode;
use tower_redlock::{AcquireError, LockManager};

use super::scene::{KEY, MS, NODES, RUN, SECOND, TTL, meet};

/// Longer than any lease.
const NIGHT: Duration = Duration::from_secs(8 * 60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

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
    nodes: Vec<MemoryNode>,
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
            nodes,
            watch,
            locks,
            other,
        }
    }

    fn holders(&self) -> Vec<Option<Vec<u8>>> {
        let name = format!("lk:{KEY}");
        self.nodes.iter().map(|node| node.holder(&name)).collect()
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

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn guards_see_their_loss_at_once_and_their_release_harms_nobody() {
    let scene = Scene::new().await;
    let guard = scene.locks.try_acquire(KEY).await.unwrap();
    let waiting = tokio::spawn(guard.lost());
    settle().await;
    let woke = Instant::now();
    scene.watch.suspend(NIGHT);
    assert!(guard.is_lost());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(waiting.await.unwrap(), LossReason::Expired);
    assert_eq!(guard.lost().await, LossReason::Expired);

    let theirs = scene.other.try_acquire(KEY).await.unwrap();
    assert!(theirs.fence() > guard.fence());
    let held = scene.holders();
    assert!(held.iter().all(Option::is_some));
    let outcome = guard.release().await;
    assert_eq!(outcome, Err(ReleaseError::Lost(LossReason::Expired)));
    settle().await;
    assert_eq!(scene.holders(), held, "theirs is theirs");
    assert!(!theirs.is_lost());
    assert_eq!(woke.elapsed(), Duration::ZERO);
    scene.assert_free().await;
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
async fn a_guard_that_is_dropped_after_the_night_harms_nobody_either() {
    let scene = Scene::new().await;
    let guard = scene.locks.try_acquire(KEY).await.unwrap();
    scene.watch.suspend(NIGHT);
    let theirs = scene.other.try_acquire(KEY).await.unwrap();
    let held = scene.holders();
    drop(guard);
    settle().await;
    assert_eq!(scene.holders(), held);
    drop(theirs);
    scene.assert_free().await;
}

#[tokio::test(start_paused = true)]
async fn who_waited_through_the_night_is_answered_and_the_queue_goes_on() {
    let scene = Scene::new().await;
    let guard = scene.locks.try_acquire(KEY).await.unwrap();
    let wait = || {
        let locks = scene.locks.clone();
        tokio::spawn(async move { locks.acquire(KEY).await })
    };
    let (first, second) = (wait(), wait());
    settle().await;
    assert_eq!(scene.locks.snapshot().waiting, 2);
    scene.watch.suspend(NIGHT);
    drop(guard);
    let began = Instant::now();
    for waiter in [first, second] {
        let outcome = waiter.await.unwrap();
        assert!(
            matches!(outcome, Err(AcquireError::WaitTimeout { .. })),
            "{outcome:?}"
        );
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
    let locks = scene.locks.clone();
    let waiter = tokio::spawn(async move { locks.acquire(KEY).await });
    tokio::time::sleep(20 * MS).await;
    scene.watch.suspend(NIGHT);
    // Its timers go on from where they were.
    let began = Instant::now();
    let outcome = waiter.await.unwrap();
    assert!(
        matches!(outcome, Err(AcquireError::WaitTimeout { .. })),
        "{outcome:?}"
    );
    assert!(began.elapsed() <= SECOND, "{:?}", began.elapsed());
    drop(theirs);
    drop(scene.locks.try_acquire(KEY).await.unwrap());
    scene.assert_free().await;
}

async fn begin(locks: &LockManager) -> IdempotentRun {
    let begun = locks.begin_idempotent(RUN, DAY, Duration::ZERO).await;
    begun.unwrap()
}

async fn run(locks: &LockManager) -> RunGuard {
    match begin(locks).await {
        IdempotentRun::Execute(run) => run,
        other => panic!("nobody has done it: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_slept_through_its_end_does_not_replace_what_was_done_meanwhile() {
    let scene = Scene::new().await;
    let ours = run(&scene.locks).await;
    scene.watch.suspend(NIGHT);
    assert!(ours.handle().is_lost());
    let theirs = run(&scene.other).await;
    assert!(theirs.fence() > ours.fence());
    theirs.complete("theirs").await.unwrap();
    ours.complete("ours").await.unwrap_err();
    for locks in [&scene.locks, &scene.other] {
        match begin(locks).await {
            IdempotentRun::Replay(result) => assert_eq!(result, "theirs"),
            other => panic!("it was done: {other:?}"),
        }
    }
    scene.assert_free().await;
}

#[tokio::test(start_paused = true)]
async fn work_that_slept_and_was_not_missed_stores_its_result() {
    let scene = Scene::new().await;
    let ours = run(&scene.locks).await;
    scene.watch.suspend(2 * TTL);
    assert!(ours.handle().is_lost());
    ours.complete("ours").await.unwrap();
    match begin(&scene.other).await {
        IdempotentRun::Replay(result) => assert_eq!(result, "ours"),
        other => panic!("it was done: {other:?}"),
    }
    scene.assert_free().await;
}
