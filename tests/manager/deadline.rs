//! A wait ends when it is to end, and what comes in that very moment is not lost.

use crate::requests::*;
use std::time::Duration;

use tokio::time::Instant;
use tower_redlock::clock::TokioClock;
use tower_redlock::node::MemoryNode;
use tower_redlock::node::{AcquireRequest, Namespace, Node as _, OwnerToken};
use tower_redlock::{AcquireError, LockKey, LockManager};

use super::slow::Slow;
use super::{MS, Nodes, Outcome, TTL, assert_idle, wait_for};

const WAIT: Duration = Duration::from_millis(300);

fn short(nodes: &Nodes) -> LockManager {
    nodes.builder().max_wait(WAIT).connect_lazy().unwrap()
}

#[track_caller]
fn assert_timed_out(outcome: Outcome, before: Instant) {
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
        assert_timed_out(waiter.await.unwrap(), before);
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
        tokio::time::sleep(frozen_at * MS).await;
        nodes.each(0..5, MemoryNode::freeze);
        // Nobody answers any more: what is under way hangs, or the node time-out comes before the end.
        drop(guard);
        let outcome = waiter.await.unwrap();
        let took = before.elapsed();
        assert!(took <= WAIT + 2 * MS, "{took:?}");
        outcome.unwrap_err();
        nodes.each(0..5, MemoryNode::thaw);
        nodes.settle_free("order:1").await;
        assert_idle(&b).await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_in_time_behind_a_contender_that_hangs() {
    let nodes = Nodes::five();
    let locks = nodes
        .builder()
        .node_timeout(Duration::from_secs(5))
        .connect_lazy()
        .unwrap();
    super::meet(&locks).await;
    nodes.each(0..5, MemoryNode::freeze);
    let contender = wait_for(&locks, "order:1").await;
    let before = Instant::now();
    let outcome = locks.with_max_wait(WAIT).acquire("order:1").await;
    assert_timed_out(outcome, before);
    contender.abort();
    contender.await.unwrap_err();
    nodes.each(0..5, MemoryNode::thaw);
    nodes.settle_free("order:1").await;
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn a_contender_that_waited_in_the_queue_does_not_hang_beyond_its_time() {
    let nodes = Nodes::five();
    let builder = nodes.builder().node_timeout(Duration::from_secs(5));
    let builder = builder.max_wait(WAIT).hand_off(false);
    let locks = builder.connect_lazy().unwrap();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let before = Instant::now();
    let waiter = wait_for(&locks, "order:1").await;
    tokio::time::sleep(100 * MS).await;
    guard.release().await.unwrap();
    nodes.each(0..5, MemoryNode::freeze);
    assert_timed_out(waiter.await.unwrap(), before);
    nodes.each(0..5, MemoryNode::thaw);
    nodes.settle_free("order:1").await;
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn it_ends_in_time_though_what_a_lost_round_got_is_not_given_back_yet() {
    let nodes = Nodes::five();
    let slow = nodes.0.iter();
    let slow = slow.map(|node| Slow::node(node, Duration::ZERO, 200 * MS));
    let builder = LockManager::builder().nodes(slow).clock(TokioClock::new());
    let builder = builder.node_timeout(Duration::from_secs(5)).max_wait(WAIT);
    let locks = builder.connect_lazy().unwrap();
    let key = Namespace::default().node_key(&LockKey::new("order:1").unwrap());
    let token = OwnerToken::from_entropy([1; OwnerToken::ENTROPY_LEN]);
    for node in &nodes.0[..3] {
        let request = AcquireRequest::new(key.clone(), token, TTL);
        node.acquire(request).await.unwrap();
    }
    let before = Instant::now();
    assert_timed_out(locks.acquire("order:1").await, before);
    nodes
        .settle("only theirs are left", |n| n.holding("order:1") == 3)
        .await;
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
        tokio::time::sleep_until(before + WAIT - MS).await;
        nodes.each(0..5, MemoryNode::freeze);
        assert_timed_out(waiter.await.unwrap(), before);
        let commands = nodes.commands();
        nodes.each(0..5, MemoryNode::thaw);
        asked += usize::from(nodes.commands() > commands);
    }
    // One of the looks now and then may fall into the last millisecond.
    assert!(asked <= 5, "asked in vain {asked} times of 20");
}

/// The offsets from the end of the wait at which something happens, in quarters of a millisecond.
fn offsets() -> impl Iterator<Item = Duration> {
    (0..=16).map(|quarter| WAIT - 2 * MS + quarter * MS / 4)
}

/// Either the waiter has the lock, or nobody has; then, nothing is left.
async fn assert_one_or_none(
    nodes: &Nodes,
    managers: &[&LockManager],
    outcome: Outcome,
    at: Duration,
) -> bool {
    let got = match outcome {
        Ok(guard) => {
            assert!(!guard.is_lost(), "{at:?}");
            assert!(nodes.holding("order:1") >= 3, "{at:?}");
            drop(guard);
            true
        }
        Err(AcquireError::WaitTimeout { .. }) => false,
        Err(error) => panic!("{at:?}: {error:?}"),
    };
    nodes.settle_free("order:1").await;
    for manager in managers {
        assert_idle(manager).await;
    }
    assert_eq!(nodes.subscriptions(), 0, "{at:?}");
    got
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_as_the_lock_is_passed_to_it_leaks_nothing() {
    for passes in [0, 9] {
        let mut got = Vec::new();
        for at in offsets() {
            let nodes = Nodes::five();
            let builder = nodes.builder().max_wait(WAIT);
            let builder = builder.hand_off_limits(passes, Duration::from_secs(9));
            let locks = builder.connect_lazy().unwrap();
            let guard = locks.try_acquire("order:1").await.unwrap();
            let start = Instant::now();
            let waiter = wait_for(&locks, "order:1").await;
            tokio::time::sleep_until(start + at).await;
            drop(guard);
            let outcome = waiter.await.unwrap();
            got.push(assert_one_or_none(&nodes, &[&locks], outcome, at).await);
        }
        assert_eq!((got.first(), got.last()), (Some(&true), Some(&false)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_as_another_process_releases_leaks_nothing() {
    let mut got = Vec::new();
    for at in offsets() {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), short(&nodes));
        let guard = a.try_acquire("order:1").await.unwrap();
        let start = Instant::now();
        let waiter = wait_for(&b, "order:1").await;
        tokio::time::sleep_until(start + at).await;
        drop(guard);
        let outcome = waiter.await.unwrap();
        got.push(assert_one_or_none(&nodes, &[&a, &b], outcome, at).await);
    }
    assert_eq!((got.first(), got.last()), (Some(&true), Some(&false)));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_as_slow_nodes_grant_leaks_nothing() {
    let mut got = Vec::new();
    for at in offsets() {
        let nodes = Nodes::five();
        let builder = nodes.builder().max_wait(WAIT).hand_off(false);
        let builder = builder.node_timeout(Duration::from_secs(5));
        let locks = builder.connect_lazy().unwrap();
        let guard = locks.try_acquire("order:1").await.unwrap();
        let start = Instant::now();
        let waiter = wait_for(&locks, "order:1").await;
        tokio::time::sleep_until(start + WAIT / 2).await;
        guard.release().await.unwrap();
        nodes.each(0..5, MemoryNode::freeze);
        tokio::time::sleep_until(start + at).await;
        nodes.each(0..5, MemoryNode::thaw);
        let outcome = waiter.await.unwrap();
        got.push(assert_one_or_none(&nodes, &[&locks], outcome, at).await);
    }
    assert_eq!((got.first(), got.last()), (Some(&true), Some(&false)));
}
