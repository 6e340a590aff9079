//! Shutting a manager down.

use std::pin::Pin;
use std::thread;

use tokio::runtime::Handle;
use tower_redlock::snapshot::ShutdownReport;

use super::*;

/// Starts to shut a manager down.
fn shutting_down(locks: &LockManager, grace: Duration) -> JoinHandle<ShutdownReport> {
    spawn(locks, |locks| async move { locks.shutdown(grace).await })
}

#[tokio::test(start_paused = true)]
async fn new_work_is_refused_and_running_work_asked_to_end_and_awaited() {
    let (nodes, locks, guard) = held("order:1").await;
    let working = tokio::spawn(async move {
        guard.draining().await;
        sleep(SECOND).await;
        assert!(!guard.is_lost());
        guard.release().await
    });
    let began = Instant::now();
    let shutdown = shutting_down(&locks, 5 * SECOND);
    sleep(500 * MS).await;
    let error = locks.try_acquire("order:2").await.unwrap_err();
    assert_eq!(error, AcquireError::ShuttingDown);
    assert_clean(&shutdown.await.unwrap());
    // It waited for the work alone.
    assert!(began.elapsed() < SECOND + 50 * MS);
    working.await.unwrap().unwrap();
    assert_eq!(nodes.holding("order:1"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_still_held_after_the_grace_is_told_and_released_after_it() {
    let (nodes, locks, guard) = held("order:1").await;
    let ignores = locks.try_acquire("order:2").await.unwrap();
    let holder = tokio::spawn(async move {
        let reason = guard.lost().await;
        assert!(guard.is_lost());
        reason
    });
    let before = Instant::now();
    let report = locks.shutdown(2 * SECOND).await;
    let took = before.elapsed();
    assert!(took >= 2 * SECOND && took < 3 * SECOND, "{took:?}");
    assert_eq!((report.lost, report.held, report.unconfirmed), (2, 1, 0));
    assert_eq!(holder.await.unwrap(), LossReason::Shutdown);
    assert_eq!(nodes.holding("order:1"), 0);
    drop(ignores);
    nodes.settle_free("order:2").await;
}

#[tokio::test(start_paused = true)]
async fn draining_asks_every_holder_and_refuses_none() {
    let (_nodes, locks, guard) = held("order:1").await;
    let handle = guard.handle();
    let mut asked = [
        Box::pin(guard.draining()) as Pin<Box<dyn Future<Output = ()> + Send>>,
        Box::pin(handle.draining()),
        Box::pin(locks.draining()),
    ];
    for asked in &mut asked {
        assert!(poll_once(asked).await.is_none());
    }
    assert!(!guard.is_draining() && !handle.is_draining() && !locks.is_draining());

    locks.clone().drain();
    for asked in &mut asked {
        assert!(poll_once(asked).await.is_some());
    }
    assert!(guard.is_draining() && handle.is_draining() && locks.is_draining());
    // What the server still answers gets its lock, and knows at once that it is to end.
    let late = locks.try_acquire("order:2").await.unwrap();
    late.draining().await;
    assert!(!guard.is_lost() && !late.is_lost());
    sleep(2 * TTL).await;
    assert!(!guard.is_lost(), "it is extended as before");
    drop((guard, late));
    assert_clean(&locks.shutdown(TTL).await);
}

/// The report of a shutdown that left nothing.
#[track_caller]
fn assert_clean(report: &ShutdownReport) {
    let unreleased = report.acquiring + report.unconfirmed + report.expiring;
    assert_eq!((report.lost, report.held, unreleased), (0, 0, 0));
    assert!(report.is_all_released());
}

/// Shuts a manager down in the very moment in which something is `given_back`: the thread that does is held up after
/// the lock has ended and before anything is sent.
async fn shut_down_as_it_is<T, W>(
    builder: impl FnOnce(Settings) -> Settings,
    take: impl AsyncFnOnce(LockManager) -> T,
    given_back: W,
) where
    T: Send + 'static,
    W: FnOnce(T) + Send + 'static,
{
    let gate = Arc::new(Gate::default());
    let far = Far::new(Duration::ZERO, Some(Arc::clone(&gate)));
    let locks = lazy(builder(far.builder()));
    let taken = take(locks.clone()).await;
    let runtime = Handle::current();
    let giving_back = thread::spawn(move || {
        let _inside = runtime.enter();
        given_back(taken);
    });
    gate.arrived().await;
    let mut shutdown = Box::pin(locks.shutdown(6 * TTL));
    let early = timeout(50 * MS, &mut shutdown).await;
    assert!(!far.is_closed(), "nothing was sent yet: {early:?}");
    assert!(early.is_err(), "{early:?}");
    gate.open();
    assert_clean(&shutdown.await);
    assert_eq!(far.holding(), 0);
    assert!(far.is_closed());
    giving_back.join().unwrap();
}

async fn take(locks: LockManager) -> LockGuard {
    locks.try_acquire("order:1").await.unwrap()
}

async fn run(locks: LockManager) -> RunGuard {
    let begun = locks.begin_idempotent("invoice:1", TTL, Duration::ZERO);
    to_run(begun.await)
}

#[tokio::test]
async fn what_is_dropped_or_released_as_the_shutdown_begins_is_released_before_it_ends() {
    shut_down_as_it_is(|b| b, take, drop).await;
    let release = |guard: LockGuard| Handle::current().block_on(guard.release()).unwrap();
    shut_down_as_it_is(|b| b, take, release).await;
}

/// Only the thread that gives it back may find that it is lost: whoever does is held up.
#[tokio::test]
async fn what_was_lost_is_released_before_the_shutdown_ends() {
    let short = |builder: Settings| {
        let builder = builder.ttl(2 * SECOND).max_hold(2 * SECOND);
        builder.hand_off(false)
    };
    let take = async |locks| {
        let guard = take(locks).await;
        sleep(2 * SECOND + 10 * MS).await;
        guard
    };
    let give_back = |guard: LockGuard| assert!(guard.is_lost());
    shut_down_as_it_is(short, take, give_back).await;
}

#[tokio::test]
async fn what_is_completed_as_the_shutdown_begins_is_kept_before_it_ends() {
    let complete = |run: RunGuard| Handle::current().block_on(run.complete("sent")).unwrap();
    shut_down_as_it_is(|b| b, run, complete).await;
    let abandon = |run: RunGuard| Handle::current().block_on(run.abandon()).unwrap();
    shut_down_as_it_is(|b| b, run, abandon).await;
    shut_down_as_it_is(|b| b, run, drop).await;
}

/// The way there and back of one command in the tests below is 320 ms.
const WAY: Duration = Duration::from_millis(160);

#[tokio::test(start_paused = true)]
async fn an_attempt_is_waited_for_within_the_grace_however_slow_the_nodes_are() {
    for is_dropped in [false, true] {
        let far = Far::new(WAY, None);
        let locks = far.manager();
        let attempt = spawn(
            &locks,
            |locks| async move { locks.try_acquire("order:1").await },
        );
        sleep(10 * MS).await;
        if is_dropped {
            attempt.abort();
        }
        let began = Instant::now();
        assert_clean(&locks.shutdown(6 * SECOND).await);
        // The answers to the attempt, and then to its release.
        assert_eq!(began.elapsed(), 4 * WAY - 10 * MS);
        assert_eq!(far.holding(), 0);
        assert!(far.is_closed());
        if !is_dropped {
            let error = attempt.await.unwrap().unwrap_err();
            assert_eq!(error, AcquireError::ShuttingDown);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_takes_longer_than_the_grace_is_counted_and_goes_on() {
    let far = Far::new(WAY, None);
    let locks = far.manager();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let attempt = begun(locks.try_acquire("order:2")).await;
    far.nodes.each([0], MemoryNode::freeze);
    drop(guard);
    let began = Instant::now();
    let report = locks.shutdown(SECOND).await;
    // And two node time-outs.
    assert_eq!(began.elapsed(), 3 * SECOND);
    let counts = (report.acquiring, report.unconfirmed, report.expiring);
    assert_eq!((counts, report.held, report.lost), ((1, 1, 0), 0, 0));
    assert!(!report.is_all_released());
    assert!(!far.is_closed(), "it goes on");

    drop(attempt);
    far.nodes.each([0], MemoryNode::thaw);
    assert_clean(&locks.shutdown(6 * SECOND).await);
    assert_eq!(far.holding(), 0);
    assert!(far.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_frozen_node_takes_up_the_grace_and_no_more() {
    let far = Far::new(Duration::ZERO, None);
    let locks = far.manager();
    let guard = locks.try_acquire("order:1").await.unwrap();
    far.nodes.each([0], MemoryNode::freeze);
    guard.release().await.unwrap();
    for grace in [Duration::ZERO, 3 * SECOND] {
        let began = Instant::now();
        let report = locks.shutdown(grace).await;
        assert_eq!(began.elapsed(), grace + 2 * SECOND);
        assert_eq!((report.unconfirmed, report.expiring), (1, 0));
    }
    // After a ttl nobody tries any more; what it was sent it may do yet.
    let began = Instant::now();
    let report = locks.shutdown(6 * TTL).await;
    assert!(began.elapsed() < TTL, "{:?}", began.elapsed());
    assert_eq!((report.unconfirmed, report.expiring), (0, 1));
    sleep(TTL + SECOND).await;
    assert_clean(&locks.shutdown(Duration::ZERO).await);
}

#[tokio::test(start_paused = true)]
async fn what_there_was_no_room_to_release_is_left_to_expire_and_counted() {
    let (nodes, [locks]) = five();
    let mut guards = Vec::new();
    for order in 0..10_100 {
        guards.push(locks.try_acquire(format!("order:{order}")).await.unwrap());
    }
    drop(guards);
    let report = locks.shutdown(TTL).await;
    let left = nodes.0[0].keys().len();
    assert!(left >= 100, "{left}");
    assert_eq!((report.unconfirmed, report.expiring), (0, left));
    assert!(!report.is_all_released());
}

#[test]
fn what_was_let_go_after_the_end_of_the_runtime_is_left_to_expire_and_counted() {
    let runtime = Runtime::new().unwrap();
    let node = MemoryNode::new("n0");
    let (locks, guard) = runtime.block_on(async {
        let locks = lazy(LockManager::builder().nodes([node.clone()]));
        let guard = locks.try_acquire("order:1").await.unwrap();
        (locks, guard)
    });
    drop(runtime);
    drop(guard);
    let report = Runtime::new().unwrap().block_on(locks.shutdown(TTL));
    let left = (report.unconfirmed, report.expiring);
    assert_eq!((report.held, left), (0, (0, 1)));
    assert_eq!(node.keys(), ["lk:order:1"]);
}

#[tokio::test(start_paused = true)]
async fn calls_at_the_same_time_and_one_that_was_dropped_leave_nothing_behind() {
    let far = Far::new(WAY, None);
    let locks = far.manager();
    let guard = locks.try_acquire("order:1").await.unwrap();
    assert!(timeout(SECOND, locks.shutdown(TTL)).await.is_err());
    assert!(!guard.is_lost() && !far.is_closed());
    let error = locks.try_acquire("order:2").await.unwrap_err();
    assert_eq!(error, AcquireError::ShuttingDown);

    let (long, short) = (locks.shutdown(TTL), locks.shutdown(SECOND));
    let holder = async {
        let reason = guard.lost().await;
        drop(guard);
        reason
    };
    let (long, short, reason) = tokio::join!(long, short, holder);
    assert_eq!(reason, LossReason::Shutdown);
    assert_eq!((short.lost, short.held), (1, 0));
    assert!(short.is_all_released());
    assert_clean(&long);
    assert_eq!(far.holding(), 0);
    assert!(far.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_grant_beside_a_record_is_released_before_the_shutdown_ends() {
    let far = Far::new(WAY, None);
    let (locks, other) = (far.manager(), far.manager());
    far.nodes.each([2], MemoryNode::go_down);
    run(locks.clone()).await.complete("sent").await.unwrap();
    far.nodes.each([2], MemoryNode::come_up);
    // The third node has no record and grants, for as long as nobody brings it one.
    far.nodes.each([0, 1], MemoryNode::freeze);
    let asking = spawn(&other, |other| async move {
        other
            .begin_idempotent("invoice:1", TTL, Duration::ZERO)
            .await
    });
    sleep(2 * WAY + 10 * MS).await;
    assert_eq!(far.holding(), 1);
    far.nodes.each([0, 1], MemoryNode::thaw);
    replayed(asking.await.unwrap());
    assert_clean(&other.shutdown(6 * SECOND).await);
    assert_eq!(far.holding(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_in_line_and_runs_do_not_put_off_the_end() {
    let (nodes, [locks, other]) = five();
    let minute = 60 * SECOND;
    let run = async |key: &str| to_run(locks.begin_idempotent(key, minute, Duration::ZERO).await);
    let (quick, slow) = (run("quick").await, run("slow").await);
    let guard = locks.try_acquire("order:1").await.unwrap();
    let _theirs = other.try_acquire("order:2").await.unwrap();
    let wait = |number: u32| {
        spawn(&locks, move |locks| async move {
            // Behind the guard, behind another process, and as a repetition of the run.
            match number % 3 {
                0 => locks.acquire("order:1").await.map(drop),
                1 => locks.acquire("order:2").await.map(drop),
                _ => {
                    let begun = locks.begin_idempotent("slow", minute, minute);
                    begun.await.map(drop)
                }
            }
        })
    };
    let waiting: Vec<_> = (0..60).map(wait).collect();
    while locks.snapshot().waiting < 60 {
        tokio::task::yield_now().await;
    }
    locks.drain();
    sleep(SECOND).await;
    // None is refused.
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    assert_eq!(locks.snapshot().waiting, 60);
    let (begun, grace) = (Instant::now(), 5 * SECOND);
    let shutdown = shutting_down(&locks, grace);
    for waiting in waiting {
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error, AcquireError::ShuttingDown);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(nodes.subscriptions(), 0);
    quick.complete("done").await.unwrap();
    drop(guard);
    sleep(SECOND).await;
    assert!(!shutdown.is_finished() && !slow.handle().is_lost());
    let ended = tokio::spawn(async move {
        slow.handle().lost().await;
        slow.complete("late").await
    });
    let report = shutdown.await.unwrap();
    assert!(begun.elapsed() < grace + SECOND, "{:?}", begun.elapsed());
    assert_eq!((report.lost, report.held, report.acquiring), (1, 0, 0));
    // A result is kept where a quorum takes it.
    ended.await.unwrap().unwrap();
    assert_idle(&locks).await;
}
