//! Holding a lock: renewal, loss, and what is known of it.

use tower_redlock::error::RunError;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lock_is_extended_until_it_is_released() {
    let (nodes, [a, b]) = five();
    let guard = a.try_acquire("order:1").await.unwrap();
    for _ in 0..50 {
        sleep(SECOND).await;
        assert!(!guard.is_lost());
        assert!(guard.remaining() > 6 * SECOND);
        assert_eq!(nodes.holding("order:1"), 5);
        b.try_acquire("order:1").await.unwrap_err();
    }
    guard.release().await.unwrap();
    nodes.settle_free("order:1").await;
    let before = nodes.commands();
    sleep(60 * SECOND).await;
    assert_eq!(nodes.commands(), before, "no renewal outlives the release");
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    OfSeveralKeys,
    Permit,
    Reader,
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_any_kind_is_extended_set_again_where_it_was_forgotten_and_lost() {
    let take = async |locks: &LockManager, kind| match kind {
        Kind::Plain => locks.try_acquire("a").await,
        Kind::OfSeveralKeys => locks.try_acquire(["a", "b"]).await,
        Kind::Permit => locks.permits(2).unwrap().try_acquire("a").await,
        Kind::Reader => locks.shared().try_acquire("a").await,
    };
    for kind in [Kind::Plain, Kind::OfSeveralKeys, Kind::Permit, Kind::Reader] {
        let (nodes, [locks]) = five_met().await;
        let guard = take(&locks, kind).await.unwrap();
        sleep(3 * TTL).await;
        assert!(!guard.is_lost(), "{kind:?}");
        let held = nodes.0[4].keys();
        nodes.each(0..2, MemoryNode::forget);
        sleep(2 * TTL).await;
        assert!(!guard.is_lost(), "{kind:?}");
        nodes.each(0..5, |node| assert_eq!(node.keys(), held, "{kind:?}"));
        nodes.each(0..3, MemoryNode::go_down);
        assert_eq!(guard.lost().await, LossReason::Expired, "{kind:?}");
        nodes.each(0..3, MemoryNode::come_up);
        drop(guard);
        sleep(2 * TTL).await;
        drop(take(&locks, kind).await.unwrap());
    }
}

/// However slow a node may be: the next try comes before the end.
#[tokio::test(start_paused = true)]
async fn a_lock_outlives_an_outage_over_one_renewal() {
    for node_timeout in [TTL / 50, TTL / 2, TTL] {
        let nodes = Nodes::five();
        let locks = lazy(nodes.builder().node_timeout(node_timeout));
        let guard = locks.try_acquire("order:1").await.unwrap();
        sleep(TTL * 3 / 10).await;
        nodes.each(0..5, MemoryNode::go_down);
        sleep(TTL / 10).await;
        nodes.each(0..5, MemoryNode::come_up);
        sleep(2 * TTL).await;
        assert!(!guard.is_lost(), "{node_timeout:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_loss_fires_just_before_validity_ends_with_no_node_reachable() {
    let (nodes, _locks, guard) = held("order:1").await;
    nodes.each(0..5, MemoryNode::freeze);
    let before = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    let fired = before.elapsed();
    let end = Duration::from_millis(9_898);
    assert!(fired < end && fired >= end - 6 * MS, "{fired:?}");
    assert!(!guard.is_lost(), "the last milliseconds are still ours");
    sleep_until(before + end).await;
    assert!(guard.is_lost());
    assert_eq!(guard.remaining(), Duration::ZERO);
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
    assert!(before.elapsed() < 4 * SECOND);
    assert!(guard.is_lost());
}

/// A clock that a test moves by hand, as a suspend moves the clock while timers stand still.
#[derive(Clone, Debug)]
struct HandClock(Arc<AtomicU64>);

impl HandClock {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_000_000_000)))
    }

    fn pass(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap();
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

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
    let clock = HandClock::new();
    let locks = lazy(LockManager::builder().memory(5).clock(clock.clone()));
    let guard = locks.try_acquire("order:1").await.unwrap();
    let handle = guard.handle();
    let waiting = tokio::spawn(handle.lost());
    tokio::task::yield_now().await;
    let before = Instant::now();
    clock.pass(9_897 * MS);
    assert!(!handle.is_lost());
    clock.pass(MS);
    assert!(handle.is_lost());
    assert_eq!(waiting.await.unwrap(), LossReason::Expired);
    let took = before.elapsed();
    assert_eq!(took, Duration::ZERO, "whoever sees it tells the others");
    assert_eq!(handle.lost().await, LossReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn run_holds_every_key_while_it_runs_and_drops_the_work_when_the_lock_is_lost() {
    let (nodes, [locks]) = five();
    let keys = ["account:7", "account:3"];
    let held = |nodes: &Nodes| keys.map(|key| nodes.holding(key));
    let run = locks.run(keys, |lock| {
        let names: Vec<_> = lock.keys().iter().map(ToString::to_string).collect();
        let held = held(&nodes);
        async move { (names, held, lock.is_lost()) }
    });
    let (names, during, is_lost) = run.await.unwrap();
    assert_eq!(names, ["account:3", "account:7"]);
    assert_eq!((during, held(&nodes)), ([5, 5], [0, 0]));
    assert!(!is_lost);

    // Lost half-way, and not acquired at all.
    let (before, working) = (Instant::now(), Arc::new(()));
    let work = Arc::clone(&working);
    let cut = locks.run(keys, |_| {
        nodes.each(0..5, MemoryNode::freeze);
        async move {
            let _work = work;
            pending::<()>().await;
        }
    });
    assert_eq!(cut.await, Err(RunError::Lost(LossReason::Expired)));
    assert_eq!(Arc::strong_count(&working), 1, "the work is dropped");
    assert!(before.elapsed() < TTL + 200 * MS);
    let refused = locks.run([""; 0], async |_| panic!("there is no key"));
    let refused = refused.await.unwrap_err();
    let is_invalid = matches!(refused, RunError::Acquire(AcquireError::InvalidKey(_)));
    assert!(is_invalid, "{refused:?}");
}

/// The process stood still, and the work is woken before any timer.
#[tokio::test(start_paused = true)]
async fn run_does_not_go_on_with_work_whose_lock_has_ended_unseen() {
    let clock = HandClock::new();
    let locks = lazy(LockManager::builder().memory(5).clock(clock.clone()));
    let (wake, woken) = tokio::sync::oneshot::channel::<()>();
    let (began, has_begun) = tokio::sync::oneshot::channel::<()>();
    let stand_still = async {
        has_begun.await.unwrap();
        clock.pass(60 * SECOND);
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
    let (nodes, _locks, guard) = held("order:1").await;
    let before = Instant::now();
    // Just before the first renewal: it is answered 50 ms after it was sent, or a little less.
    sleep_until(before + 3_370 * MS).await;
    nodes.each(0..5, MemoryNode::freeze);
    sleep_until(before + 3_430 * MS).await;
    nodes.each(0..5, MemoryNode::thaw);
    let is_extended = |_: &Nodes| guard.remaining() > 9 * SECOND;
    nodes.settle("the extension", is_extended).await;
    assert!(guard.remaining() <= 9_850 * MS, "{:?}", guard.remaining());
}

/// The machine sleeps while replies are in the sockets: they are there when it wakes up, before any timer has fired.
#[tokio::test(start_paused = true)]
async fn a_reply_that_is_read_late_counts_from_when_the_command_was_sent() {
    const LATE: Duration = Duration::from_secs(5);
    const SOON: Duration = Duration::from_millis(1_200);
    let nodes = Nodes::five();
    let clock = HandClock::new();
    let ttl = 20 * SECOND;
    let builder = nodes.unguarded().clock(clock.clone()).ttl(ttl);
    let locks = lazy(builder.node_timeout(1_500 * MS));

    nodes.each(0..5, MemoryNode::freeze);
    let attempt = begun(locks.try_acquire("order:1")).await;
    clock.pass(ttl);
    nodes.each(0..5, MemoryNode::thaw);
    attempt.await.unwrap_err();
    nodes.settle_free("order:1").await;

    let guard = locks.try_acquire("order:1").await.unwrap();
    nodes.each(0..5, MemoryNode::freeze);
    let before = Instant::now();
    // A third of the ttl. Within a second somebody looks at the clock, and an extension is on its way; no timer is due
    // when it is answered.
    clock.pass(7 * SECOND);
    sleep(SOON).await;
    let left = guard.remaining();
    clock.pass(LATE);
    nodes.each(0..5, MemoryNode::thaw);
    breathe().await;
    assert_eq!(before.elapsed(), SOON);
    let passed = ttl - ttl / 100 - 2 * MS - guard.remaining();
    assert!(passed >= LATE && passed < LATE + SOON, "{passed:?}");
    assert!(guard.remaining() > left - LATE, "it was extended");
}

#[tokio::test(start_paused = true)]
async fn a_release_after_the_end_says_so_though_nothing_has_looked_since_the_announcement() {
    let clock = HandClock::new();
    let locks = lazy(LockManager::builder().memory(5).clock(clock.clone()));
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
        let lost = tell.recv_timeout(2 * SECOND);
        let _ = self.1.send(lost == Ok(true));
    }
}

#[tokio::test]
async fn who_is_woken_by_the_end_may_ask_for_it_at_once() {
    let (_nodes, _locks, guard) = held("order:1").await;
    let (told, tell) = std::sync::mpsc::channel();
    let waker = Arc::new(AsksAtOnce(guard.handle(), told)).into();
    let mut lost = Box::pin(guard.lost());
    let mut cx = Context::from_waker(&waker);
    assert!(Future::poll(lost.as_mut(), &mut cx).is_pending());
    drop(guard);
    // Else the lock's own mutex was in the way.
    assert_eq!(tell.try_recv(), Ok(true));
}
