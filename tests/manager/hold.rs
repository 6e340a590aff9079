//! Holding a lock: renewal, loss, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tower_redlock::LockManager;
use tower_redlock::clock::{Clock, Moment};
use tower_redlock::error::{LossReason, ReleaseError, RunError};
use tower_redlock::node::MemoryNode;

use super::{MS, Nodes, TTL, poll_once};

#[tokio::test(start_paused = true)]
async fn a_lock_is_extended_until_it_is_released() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire("order:1").await.unwrap();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!guard.is_lost());
        assert!(guard.remaining() > Duration::from_secs(6));
        assert_eq!(nodes.holding("order:1"), 5);
        b.try_acquire("order:1").await.unwrap_err();
    }
    guard.release().await.unwrap();
    nodes.settle_free("order:1").await;
    let before = nodes.commands();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(nodes.commands(), before, "no renewal outlives the release");
}

/// However slow a node may be: the next try comes before the end.
#[tokio::test(start_paused = true)]
async fn a_lock_outlives_an_outage_over_one_renewal() {
    for node_timeout in [TTL / 50, TTL / 2, TTL] {
        let nodes = Nodes::five();
        let locks = nodes.builder().node_timeout(node_timeout);
        let guard = locks
            .connect_lazy()
            .unwrap()
            .try_acquire("order:1")
            .await
            .unwrap();
        tokio::time::sleep(TTL * 3 / 10).await;
        nodes.each(0..5, MemoryNode::go_down);
        tokio::time::sleep(TTL / 10).await;
        nodes.each(0..5, MemoryNode::come_up);
        tokio::time::sleep(2 * TTL).await;
        assert!(!guard.is_lost(), "{node_timeout:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_locks_are_extended_in_one_batch_per_node() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let mut guards = Vec::new();
    for n in 0..500 {
        guards.push(locks.try_acquire(format!("order:{n}")).await.unwrap());
        tokio::time::sleep(MS / 5).await;
    }
    let before = nodes.commands();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let batches = nodes.commands() - before;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert!(
        guards
            .iter()
            .all(|guard| guard.remaining() > Duration::from_secs(8))
    );
    assert!(
        batches <= 5 * 5,
        "{batches} commands for 500 locks on 5 nodes"
    );
}

#[tokio::test(start_paused = true)]
async fn the_loss_fires_just_before_validity_ends_with_no_node_reachable() {
    let nodes = Nodes::five();
    let guard = nodes.manager().try_acquire("order:1").await.unwrap();
    nodes.each(0..5, MemoryNode::freeze);
    let before = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    let fired = before.elapsed();
    let end = Duration::from_millis(9_898);
    assert!(fired < end && fired >= end - 6 * MS, "{fired:?}");
    assert!(!guard.is_lost(), "the last milliseconds are still ours");
    tokio::time::sleep_until(before + end).await;
    assert!(guard.is_lost());
    assert_eq!(guard.remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_stays_lost_when_the_nodes_come_back() {
    let nodes = Nodes::five();
    let guard = nodes.manager().try_acquire("order:1").await.unwrap();
    nodes.each(0..5, MemoryNode::freeze);
    guard.lost().await;
    // Between the announcement and the end: the extension that is under way must not revive it.
    nodes.each(0..5, MemoryNode::thaw);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(guard.is_lost());
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert_eq!(
        guard.release().await.unwrap_err(),
        ReleaseError::Lost(LossReason::Expired)
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_gives_nothing_up() {
    let nodes = Nodes::five();
    let guard = nodes.manager().try_acquire("order:1").await.unwrap();
    nodes.each([0, 1, 2], MemoryNode::freeze);
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(!guard.is_lost());
    nodes.each([0, 1, 2], MemoryNode::thaw);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        nodes.holding("order:1"),
        5,
        "retried, and nothing was released"
    );
    assert!(guard.remaining() > Duration::from_secs(8));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_forgot_is_refilled() {
    let nodes = Nodes::five();
    let guard = nodes.manager().try_acquire("order:1").await.unwrap();
    nodes.each([1], MemoryNode::forget);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(nodes.holding("order:1"), 5);
    assert!(!guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_lock_taken_by_another_is_lost_at_the_next_renewal() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.forgetful(), nodes.forgetful());
    let guard = a.try_acquire("order:1").await.unwrap();
    nodes.each([0, 1, 2], MemoryNode::forget);
    let _thief = b.try_acquire("order:1").await.unwrap();
    let before = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Taken);
    assert!(before.elapsed() < Duration::from_secs(4));
    assert!(guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_lock_that_is_never_released() {
    let nodes = Nodes::five();
    let locks = nodes
        .builder()
        .max_hold(Duration::from_secs(15))
        .connect_lazy()
        .unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let before = Instant::now();
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    let fired = before.elapsed();
    let end = Duration::from_secs(15);
    assert!(fired < end && fired >= end - 6 * MS, "{fired:?}");
    drop(guard);
    nodes.settle_free("order:1").await;
}

/// A clock that a test moves by hand, as a suspend moves the clock while timers stand still.
#[derive(Clone, Debug)]
struct HandClock(Arc<AtomicU64>);

impl Clock for HandClock {
    fn follows_runtime(&self) -> bool {
        true
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspend_is_seen_though_no_timer_fired() {
    let clock = HandClock(Arc::new(AtomicU64::new(1_000_000_000)));
    let locks = LockManager::builder()
        .memory(5)
        .clock(clock.clone())
        .connect_lazy()
        .unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let handle = guard.handle();
    let waiting = tokio::spawn(handle.lost());
    tokio::task::yield_now().await;
    let before = Instant::now();
    assert!(!handle.is_lost());
    clock.0.fetch_add(9_897_000_000, Ordering::SeqCst);
    assert!(!handle.is_lost());
    clock.0.fetch_add(1_000_000, Ordering::SeqCst);
    assert!(handle.is_lost());
    assert_eq!(waiting.await.unwrap(), LossReason::Expired);
    assert_eq!(
        before.elapsed(),
        Duration::ZERO,
        "whoever sees it tells the others"
    );
    assert_eq!(handle.lost().await, LossReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_outlives_its_guard_says_lost() {
    let nodes = Nodes::five();
    let guard = nodes.manager().try_acquire("order:1").await.unwrap();
    let handle = guard.handle();
    let waiting = tokio::spawn(handle.lost());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    assert!(handle.is_lost());
    assert_eq!(waiting.await.unwrap(), LossReason::Released);
    assert_eq!(handle.lost().await, LossReason::Released);
}

#[tokio::test(start_paused = true)]
async fn run_returns_what_the_work_returns_and_releases() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let during = locks
        .run("order:1", |lock| {
            let held = nodes.holding("order:1");
            async move { (held, lock.is_lost()) }
        })
        .await
        .unwrap();
    assert_eq!(during, (5, false));
    assert_eq!(nodes.holding("order:1"), 0);
}

#[tokio::test(start_paused = true)]
async fn run_holds_every_key_while_it_runs() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let keys = ["account:7", "account:3"];
    let held = |nodes: &Nodes| keys.map(|key| nodes.holding(key));
    let run = locks.run(keys, |lock| {
        let names: Vec<_> = lock.keys().iter().map(ToString::to_string).collect();
        let held = held(&nodes);
        async move { (names, held) }
    });
    let (names, during) = run.await.unwrap();
    assert_eq!(names, ["account:3", "account:7"]);
    assert_eq!((during, held(&nodes)), ([5, 5], [0, 0]));

    // Lost half-way, and not acquired at all.
    let cut = locks.run(keys, |_| {
        nodes.each(0..5, MemoryNode::freeze);
        std::future::pending::<()>()
    });
    assert_eq!(cut.await, Err(RunError::Lost(LossReason::Expired)));
    let none: [&str; 0] = [];
    let refused = locks.run(none, async |_| panic!("there is no key"));
    let refused = refused.await;
    assert!(
        matches!(
            refused,
            Err(RunError::Acquire(tower_redlock::AcquireError::InvalidKey(
                _
            )))
        ),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn run_drops_the_work_when_the_lock_is_lost() {
    struct Gone(Arc<AtomicU64>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let dropped = Arc::new(AtomicU64::new(0));
    let gone = Gone(Arc::clone(&dropped));
    let before = Instant::now();
    let outcome: Result<(), RunError> = locks
        .run("order:1", |_lock| {
            nodes.each(0..5, MemoryNode::freeze);
            async move {
                let _gone = gone;
                std::future::pending().await
            }
        })
        .await;
    assert_eq!(outcome, Err(RunError::Lost(LossReason::Expired)));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert!(before.elapsed() < TTL + 200 * MS);
}

/// The process stood still, and the work is woken before any timer.
#[tokio::test(start_paused = true)]
async fn run_does_not_go_on_with_work_whose_lock_has_ended_unseen() {
    let clock = HandClock(Arc::new(AtomicU64::new(1_000_000_000)));
    let builder = LockManager::builder().memory(5).clock(clock.clone());
    let locks = builder.connect_lazy().unwrap();
    let (wake, woken) = tokio::sync::oneshot::channel::<()>();
    let (began, has_begun) = tokio::sync::oneshot::channel::<()>();
    let stand_still = async {
        has_begun.await.unwrap();
        clock.0.fetch_add(60_000_000_000, Ordering::SeqCst);
        wake.send(()).unwrap();
    };
    let work = locks.run("order:1", |_lock| async {
        began.send(()).unwrap();
        woken.await.unwrap();
        "went on"
    });
    let (outcome, ()) = tokio::join!(work, stand_still);
    assert_eq!(outcome, Err(RunError::Lost(LossReason::Expired)));
}

#[tokio::test(start_paused = true)]
async fn an_extension_counts_from_its_send() {
    let nodes = Nodes::five();
    let guard = nodes.manager().try_acquire("order:1").await.unwrap();
    let before = Instant::now();
    // Just before the first renewal: it is answered 50 ms after it was sent, or a little less.
    tokio::time::sleep_until(before + 3_370 * MS).await;
    nodes.each(0..5, MemoryNode::freeze);
    tokio::time::sleep_until(before + 3_430 * MS).await;
    nodes.each(0..5, MemoryNode::thaw);
    nodes
        .settle("the extension is taken in", |_| {
            guard.remaining() > Duration::from_secs(9)
        })
        .await;
    assert!(guard.remaining() <= 9_850 * MS, "{:?}", guard.remaining());
}

/// The machine sleeps while replies are in the sockets: they are there when it wakes up, before any timer has fired.
#[tokio::test(start_paused = true)]
async fn a_reply_that_is_read_late_counts_from_when_the_command_was_sent() {
    const LATE: Duration = Duration::from_secs(5);
    const SOON: Duration = Duration::from_millis(1_200);
    let nodes = Nodes::five();
    let clock = HandClock(Arc::new(AtomicU64::new(1_000_000_000)));
    let (ttl, timeout) = (Duration::from_secs(20), 1_500 * MS);
    let builder = nodes.unguarded().clock(clock.clone()).ttl(ttl);
    let locks = builder
        .max_ttl(ttl)
        .node_timeout(timeout)
        .connect_lazy()
        .unwrap();
    let pass = |time: Duration| {
        let nanos = u64::try_from(time.as_nanos()).unwrap();
        clock.0.fetch_add(nanos, Ordering::SeqCst);
    };

    nodes.each(0..5, MemoryNode::freeze);
    let mut attempt = Box::pin(locks.try_acquire("order:1"));
    assert!(poll_once(&mut attempt).await.is_none());
    pass(ttl);
    nodes.each(0..5, MemoryNode::thaw);
    attempt.await.unwrap_err();
    nodes.settle_free("order:1").await;

    let guard = locks.try_acquire("order:1").await.unwrap();
    nodes.each(0..5, MemoryNode::freeze);
    let before = Instant::now();
    // A third of the ttl. Within a second somebody looks at the clock, and an extension is on its way; no timer is due
    // when it is answered.
    pass(7 * Duration::from_secs(1));
    tokio::time::sleep(SOON).await;
    let left = guard.remaining();
    pass(LATE);
    nodes.each(0..5, MemoryNode::thaw);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(before.elapsed(), SOON);
    let passed = ttl - ttl / 100 - 2 * MS - guard.remaining();
    assert!(passed >= LATE && passed < LATE + SOON, "{passed:?}");
    assert!(guard.remaining() > left - LATE, "it was extended");
}

#[tokio::test(start_paused = true)]
async fn a_release_after_the_end_says_so_though_nothing_has_looked_since_the_announcement() {
    let clock = HandClock(Arc::new(AtomicU64::new(1_000_000_000)));
    let builder = LockManager::builder().memory(5).clock(clock.clone());
    let locks = builder.connect_lazy().unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let end = guard.lease().deadline.as_nanos();
    // The watchdog's timer finds the end near.
    clock.0.store(end - 1_000_000, Ordering::SeqCst);
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(!guard.is_lost(), "announced, and not over yet");
    clock.0.store(end, Ordering::SeqCst);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error, ReleaseError::Lost(LossReason::Expired));
}

/// Asks a handle as soon as it is woken, as an executor that polls inside `wake` does.
struct AsksAtOnce(tower_redlock::LockHandle, std::sync::mpsc::Sender<bool>);

impl std::task::Wake for AsksAtOnce {
    fn wake(self: Arc<Self>) {
        // On a thread of its own, so that a test that fails ends.
        let (handle, (told, tell)) = (self.0.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || told.send(handle.is_lost()));
        let lost = tell.recv_timeout(Duration::from_secs(2));
        let _ = self.1.send(lost == Ok(true));
    }
}

#[tokio::test]
async fn who_is_woken_by_the_end_may_ask_for_it_at_once() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let (told, tell) = std::sync::mpsc::channel();
    let waker = Arc::new(AsksAtOnce(guard.handle(), told)).into();
    let mut lost = Box::pin(guard.lost());
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(Future::poll(lost.as_mut(), &mut cx).is_pending());
    drop(guard);
    assert_eq!(
        tell.try_recv(),
        Ok(true),
        "the lock's own mutex was in the way"
    );
}
