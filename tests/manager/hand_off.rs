//! A lock passes from one caller of a manager to the next without a word to the nodes, and not for ever.

use super::*;

/// A manager that passes a lock so often, for so long.
fn passing(nodes: &Nodes, passes: u32, time: Duration) -> LockManager {
    let builder = nodes.builder().max_wait(6 * TTL);
    lazy(builder.hand_off_limits(passes, time))
}

/// The tokens on the nodes while one caller after another has the lock, each for `each`.
async fn tokens(nodes: &Nodes, locks: &LockManager, callers: usize, each: Duration) -> Vec<usize> {
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut numbers = Vec::new();
    let mut guard = locks.try_acquire("order:1").await.unwrap();
    for caller in 0..callers {
        let token = nodes.token("order:1").unwrap();
        let number = seen.iter().position(|other| *other == token);
        numbers.push(number.unwrap_or_else(|| {
            seen.push(token);
            seen.len() - 1
        }));
        assert!(!guard.is_lost(), "caller {caller}");
        let next = wait_for(locks, "order:1").await;
        sleep(each).await;
        drop(guard);
        guard = next.await.unwrap().unwrap();
    }
    drop(guard);
    nodes.settle_free("order:1").await;
    assert_idle(locks).await;
    numbers
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_passes_costs_no_command_and_no_time() {
    let (nodes, locks, guard) = held("order:1").await;
    let (handle, lost) = (guard.handle(), tokio::spawn(guard.lost()));
    let waiter = wait_for(&locks, "order:1").await;
    sleep(20 * MS).await;
    let (before, start) = (nodes.commands(), Instant::now());
    guard.release().await.unwrap();
    assert!(handle.is_lost(), "at once");
    let next = waiter.await.unwrap().unwrap();
    assert_eq!(next.waited(), 20 * MS);
    assert_eq!(lost.await.unwrap(), LossReason::Released);
    assert_eq!(handle.lost().await, LossReason::Released);
    assert_eq!(handle.remaining(), Duration::ZERO);
    assert!(!next.is_lost());
    let ending = timeout(SECOND, next.lost());
    assert!(ending.await.is_err(), "its own signal is its own");
    assert_eq!(nodes.commands(), before);
    assert_eq!(start.elapsed(), SECOND);
    assert_eq!(locks.snapshot().held, 1);
    drop(next);
    nodes.assert_nothing_left(&[&locks]).await;
}

#[tokio::test(start_paused = true)]
async fn it_passes_so_often_and_for_so_long_and_is_then_granted_anew() {
    let cases: [(u32, Duration, Duration, &[usize]); 4] = [
        (3, TTL, MS, &[0, 0, 0, 0, 1, 1, 1, 1, 2, 2]),
        // Passed after 20 ms and after 40 ms.
        (100, 50 * MS, 20 * MS, &[0, 0, 0, 1, 1, 1, 2]),
        (0, Duration::ZERO, MS, &[0, 1, 2, 3]),
        // One grant for four and a half ttls: it is extended across the passes.
        (1_023, 6 * TTL, SECOND, &[0; 45]),
    ];
    for (passes, time, each, expected) in cases {
        let nodes = Nodes::five();
        let locks = passing(&nodes, passes, time);
        let tokens = tokens(&nodes, &locks, expected.len(), each).await;
        assert_eq!(tokens, expected, "{passes} passes in {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_passes_on_is_valid_for_as_long_as_the_nodes_keep_it() {
    let nodes = Nodes::five();
    let locks = passing(&nodes, 100, 6 * TTL);
    let guard = locks.try_acquire("order:1").await.unwrap();
    let waiter = wait_for(&locks, "order:1").await;
    // So that nothing extends it.
    nodes.each(0..5, MemoryNode::go_down);
    sleep(4 * SECOND).await;
    let left = guard.remaining();
    drop(guard);
    let next = waiter.await.unwrap().unwrap();
    assert_eq!(next.remaining(), left);
    sleep(left).await;
    assert!(next.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_goes_when_it_has_been_called_passes_the_lock_on() {
    for others in [0, 1, 2] {
        let (nodes, locks, guard) = held("order:1").await;
        let called = begun(locks.acquire("order:1")).await;
        let mut waiters = Vec::new();
        for _ in 0..others {
            waiters.push(wait_for(&locks, "order:1").await);
        }
        let before = nodes.commands();
        drop(guard);
        assert_eq!(nodes.commands(), before);
        assert_eq!(nodes.holding("order:1"), 5, "handed over, not released");
        drop(called);
        for waiter in waiters {
            let next = waiter.await.unwrap().unwrap();
            assert_eq!(nodes.commands(), before);
            drop(next);
        }
        nodes.assert_nothing_left(&[&locks]).await;
    }
}

#[test]
fn a_lock_that_was_handed_to_a_task_is_released_when_the_runtime_of_that_ends_first() {
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    let (ours, theirs) = (runtime(), runtime());
    let nodes = Nodes::five();
    let (locks, guard) = ours.block_on(async {
        let locks = nodes.manager();
        let guard = locks.try_acquire("order:1").await.unwrap();
        (locks, guard)
    });
    let waiter = theirs.block_on(wait_for(&locks, "order:1"));
    ours.block_on(guard.release()).unwrap();
    assert_eq!(nodes.holding("order:1"), 5, "handed over, not released");
    drop(theirs);
    assert!(waiter.is_finished());
    ours.block_on(async {
        nodes.assert_nothing_left(&[&locks]).await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_before_its_receiver_looks_is_gone_for_again() {
    let nodes = Nodes::five();
    let locks = passing(&nodes, 100, 6 * TTL);
    let guard = locks.try_acquire("order:1").await.unwrap();
    let waiter = begun(locks.acquire("order:1")).await;
    let token = nodes.token("order:1").unwrap();
    drop(guard);
    nodes.each(0..5, MemoryNode::go_down);
    sleep(TTL).await;
    nodes.each(0..5, MemoryNode::come_up);
    let next = waiter.await.unwrap();
    assert!(!next.is_lost());
    assert!(next.remaining() > TTL / 2);
    assert_ne!(nodes.token("order:1").unwrap(), token);
    drop(next);
    nodes.assert_nothing_left(&[&locks]).await;
}

#[tokio::test(start_paused = true)]
async fn who_was_passed_a_lost_lock_waits_no_longer_for_it() {
    let nodes = Nodes::five();
    let builder = nodes.builder().node_timeout(TTL / 2);
    let builder = builder.hand_off_limits(100, 6 * TTL);
    let locks = lazy(builder.max_wait(TTL + MS));
    let guard = locks.try_acquire("order:1").await.unwrap();
    let began = Instant::now();
    let waiter = begun(locks.acquire("order:1")).await;
    drop(guard);
    nodes.each(0..5, MemoryNode::freeze);
    sleep(TTL).await;
    let outcome = waiter.await;
    assert!(began.elapsed() <= TTL + 4 * MS, "{:?}", began.elapsed());
    assert!(outcome.is_err());
}

/// A holder is extended up to its `max_hold`, and so is the one after it: not only when the end of the first has come.
#[tokio::test(start_paused = true)]
async fn a_lock_that_passes_on_shortly_before_max_hold_is_extended_as_usual() {
    let nodes = Nodes::five();
    let builder = nodes.unguarded().max_hold(6 * TTL).max_wait(60 * TTL);
    let locks = lazy(builder.hand_off_limits(100, 6 * TTL));
    let first = locks.try_acquire("k").await.unwrap();
    let waiter = wait_for(&locks, "k").await;
    sleep(54 * SECOND).await;
    let fence = first.fence();
    drop(first);
    let second = waiter.await.unwrap().unwrap();
    assert!(second.fence() > fence);
    let before = nodes.commands();
    sleep(TTL / 2).await;
    assert!(nodes.commands() > before, "nothing extends it");
    assert!(second.remaining() > TTL / 2);
}

/// As in a `select!` whose other branch goes on for long, or in a vector of futures that wait for their turn.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_does_not_keep_what_it_is_handed() {
    let nodes = Nodes::five();
    let locks = lazy(nodes.builder().max_wait(6 * TTL));
    let first = locks.acquire("order:1").await.unwrap();
    let (one, at_nodes) = (first.fence().unwrap(), nodes.token("order:1"));
    let mut kept = begun(locks.acquire("order:1")).await;
    let waiter = wait_for(&locks, "order:1").await;
    let begin = Instant::now();
    first.release().await.unwrap();
    let second = waiter.await.unwrap().unwrap();
    assert_eq!(begin.elapsed(), locks.node_timeout());
    assert_eq!(nodes.token("order:1"), at_nodes, "handed on twice");
    let two = second.fence().unwrap();
    assert_eq!(two.get(), one.get() + 2, "one is used up");
    assert!(poll_once(&mut kept).await.is_none(), "it waits anew");
    let third = wait_for(&locks, "order:1").await;
    second.release().await.unwrap();
    let kept = kept.await.unwrap();
    assert!(kept.fence().unwrap() > two && !kept.is_lost());
    kept.release().await.unwrap();
    third.await.unwrap().unwrap().release().await.unwrap();
    nodes.assert_nothing_left(&[&locks]).await;
}

#[tokio::test(start_paused = true)]
async fn with_nobody_else_in_line_it_is_released_for_other_processes() {
    let nodes = Nodes::five();
    let (locks, others) = (lazy(nodes.builder().max_wait(TTL)), nodes.manager());
    let first = locks.acquire("order:1").await.unwrap();
    let mut kept = begun(locks.acquire("order:1")).await;
    first.release().await.unwrap();
    let begin = Instant::now();
    let theirs = others.acquire("order:1").await.unwrap();
    let took = begin.elapsed();
    assert!(took < 2 * locks.node_timeout(), "{took:?}");
    assert!(poll_once(&mut kept).await.is_none());
    theirs.release().await.unwrap();
    let first = kept.await.unwrap();
    assert!(!first.is_lost());
    // It leaves before it looks.
    let kept = begun(locks.acquire("order:1")).await;
    first.release().await.unwrap();
    sleep(2 * locks.node_timeout()).await;
    drop(kept);
    nodes.assert_nothing_left(&[&locks]).await;
}
