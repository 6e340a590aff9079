//! A wait ends when it is to end, and what comes in that very moment is not lost.

use super::*;

const WAIT: Duration = Duration::from_millis(300);

fn short(nodes: &Nodes) -> LockManager {
    lazy(nodes.builder().max_wait(WAIT))
}

#[track_caller]
fn assert_ended_in_time(outcome: Outcome, before: Instant) {
    let error = outcome.unwrap_err();
    let AcquireError::WaitTimeout { waited, .. } = error else {
        panic!("{error:?}");
    };
    let took = before.elapsed();
    assert!(took >= WAIT && took <= WAIT + 2 * MS, "{took:?}");
    assert_eq!(waited, took);
}

#[tokio::test(start_paused = true)]
async fn it_ends_in_time_in_the_queue_and_at_its_head() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), short(&nodes));
    let _guard = a.try_acquire("order:1").await.unwrap();
    let before = Instant::now();
    // The first goes for the key, and the last of them has it for the rest of its time.
    let waiters = [
        wait_for(&b, "order:1").await,
        wait_for(&b, "order:1").await,
        wait_for(&b, "order:1").await,
    ];
    for waiter in waiters {
        assert_ended_in_time(waiter.await.unwrap(), before);
    }
    assert_idle(&b).await;
}

#[tokio::test(start_paused = true)]
async fn it_ends_in_time_though_the_nodes_hang() {
    for frozen_at in [0, 100, 250, 299] {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), short(&nodes));
        let guard = a.try_acquire("order:1").await.unwrap();
        let before = Instant::now();
        let waiter = wait_for(&b, "order:1").await;
        sleep(frozen_at * MS).await;
        nodes.each(0..5, MemoryNode::freeze);
        // Nobody answers any more: what is under way hangs, or the node time-out comes before the end.
        drop(guard);
        let outcome = waiter.await.unwrap();
        let took = before.elapsed();
        assert!(took <= WAIT + 2 * MS, "{took:?}");
        outcome.unwrap_err();
        nodes.each(0..5, MemoryNode::thaw);
        nodes.assert_nothing_left(&[&b]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_in_time_behind_a_contender_that_hangs() {
    let nodes = Nodes::five();
    let locks = lazy(nodes.builder().node_timeout(5 * SECOND));
    meet(&locks).await;
    nodes.each(0..5, MemoryNode::freeze);
    let contender = wait_for(&locks, "order:1").await;
    let before = Instant::now();
    let outcome = locks.with_max_wait(WAIT).acquire("order:1").await;
    assert_ended_in_time(outcome, before);
    cancel(contender).await;
    nodes.each(0..5, MemoryNode::thaw);
    nodes.assert_nothing_left(&[&locks]).await;
}

#[tokio::test(start_paused = true)]
async fn a_contender_that_waited_in_the_queue_does_not_hang_beyond_its_time() {
    let nodes = Nodes::five();
    let builder = nodes.builder().node_timeout(5 * SECOND);
    let locks = lazy(builder.max_wait(WAIT).hand_off(false));
    let guard = locks.try_acquire("order:1").await.unwrap();
    let before = Instant::now();
    let waiter = wait_for(&locks, "order:1").await;
    sleep(100 * MS).await;
    guard.release().await.unwrap();
    nodes.each(0..5, MemoryNode::freeze);
    assert_ended_in_time(waiter.await.unwrap(), before);
    nodes.each(0..5, MemoryNode::thaw);
    nodes.assert_nothing_left(&[&locks]).await;
}

#[tokio::test(start_paused = true)]
async fn it_ends_in_time_though_what_a_lost_round_got_is_not_given_back_yet() {
    let nodes = Nodes::five();
    let slow = Odd::slow(&nodes.0, Duration::ZERO, 200 * MS);
    let locks = lazy(slow.node_timeout(5 * SECOND).max_wait(WAIT));
    for node in &nodes.0[..3] {
        occupy(node, place("order:1"), 1, TTL).await;
    }
    let before = Instant::now();
    assert_ended_in_time(locks.acquire("order:1").await, before);
    nodes.settle_on("order:1", 3).await;
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn no_node_is_asked_any_more_when_the_wait_is_over() {
    let mut asked = 0;
    for _ in 0..20 {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), short(&nodes));
        let _guard = a.try_acquire("order:1").await.unwrap();
        let before = Instant::now();
        let waiter = wait_for(&b, "order:1").await;
        sleep_until(before + WAIT - MS).await;
        nodes.each(0..5, MemoryNode::freeze);
        assert_ended_in_time(waiter.await.unwrap(), before);
        let commands = nodes.commands();
        nodes.each(0..5, MemoryNode::thaw);
        asked += usize::from(nodes.commands() > commands);
    }
    // One of the looks now and then may fall into the last millisecond.
    assert!(asked <= 5, "asked in vain {asked} times of 20");
}

/// What comes in the last moments of a wait.
#[derive(Clone, Copy, Debug)]
enum Late {
    /// The lock is passed to it, or released for it.
    Passed(bool),
    /// Another process releases.
    OfAnother,
    /// Slow nodes grant.
    Granted,
}

/// Either the waiter has the lock in the end, or nobody has; then, nothing is left.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_as_the_lock_comes_leaks_nothing() {
    let cases = [
        Late::Passed(false),
        Late::Passed(true),
        Late::OfAnother,
        Late::Granted,
    ];
    for late in cases {
        let mut got = Vec::new();
        // From 2 ms before the end to 2 ms after it, in quarters of a millisecond.
        for at in (0..=16).map(|quarter| WAIT - 2 * MS + quarter * MS / 4) {
            let nodes = Nodes::five();
            let hands_off = matches!(late, Late::Passed(true));
            let builder = nodes.builder().max_wait(WAIT).hand_off(hands_off);
            let locks = match late {
                Late::Granted => lazy(builder.node_timeout(5 * SECOND)),
                _ => lazy(builder),
            };
            let other = nodes.manager();
            let holder = match late {
                Late::OfAnother => &other,
                _ => &locks,
            };
            let guard = holder.try_acquire("order:1").await.unwrap();
            let start = Instant::now();
            let waiter = wait_for(&locks, "order:1").await;
            if let Late::Granted = late {
                sleep_until(start + WAIT / 2).await;
                guard.release().await.unwrap();
                nodes.each(0..5, MemoryNode::freeze);
                sleep_until(start + at).await;
                nodes.each(0..5, MemoryNode::thaw);
            } else {
                sleep_until(start + at).await;
                drop(guard);
            }
            let outcome = waiter.await.unwrap();
            got.push(outcome.is_ok());
            match outcome {
                Ok(guard) => {
                    assert!(!guard.is_lost(), "{late:?} {at:?}");
                    assert!(nodes.holding("order:1") >= 3, "{late:?} {at:?}");
                }
                timed_out => assert_timed_out(timed_out),
            }
            nodes.assert_nothing_left(&[&locks, &other]).await;
        }
        let ends = (got.first(), got.last());
        assert_eq!(ends, (Some(&true), Some(&false)), "{late:?}");
    }
}
