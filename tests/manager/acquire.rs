//! Taking a lock, failing to, and being dropped half-way.

use crate::requests::*;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::node::MemoryNode;
use tower_redlock::node::{AcquireRequest, Namespace, Node as _, OwnerToken, ReleaseRequest};
use tower_redlock::{AcquireError, LockKey};

use super::links::Process;
use super::{MS, Nodes, TTL, meet};

/// Polls `future` once, so that its commands are under way, and drops it.
async fn poll_and_drop(future: impl Future) {
    let mut future = pin!(future);
    tokio::select! {
        biased;
        _ = &mut future => panic!("it was to be dropped half-way"),
        () = tokio::task::yield_now() => {}
    }
}

#[tokio::test(start_paused = true)]
async fn one_holder_at_a_time_on_every_node() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire("order:1").await.unwrap();
    assert_eq!(nodes.holding("order:1"), 5);

    let error = b.try_acquire("order:1").await.unwrap_err();
    let AcquireError::Contended { remaining, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(remaining, Some(TTL));
    let _other = b.try_acquire("order:2").await.unwrap();

    guard.release().await.unwrap();
    assert_eq!(nodes.holding("order:1"), 0);
    let _guard = b.try_acquire("order:1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_the_send_and_takes_off_the_drift() {
    let nodes = Nodes::five();
    let guard = nodes.manager().try_acquire("order:1").await.unwrap();
    assert_eq!(guard.remaining(), Duration::from_millis(9_898));
}

#[tokio::test(start_paused = true)]
async fn a_minority_down_does_not_matter_and_costs_no_time() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    nodes.each([0, 4], MemoryNode::go_down);
    let before = Instant::now();
    let guard = locks.try_acquire("order:1").await.unwrap();
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(nodes.holding("order:1"), 3);
    guard.release().await.unwrap();
    assert_eq!(nodes.holding("order:1"), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_every_failed_node_is_named_and_nothing_stays() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    nodes.each([0, 1], MemoryNode::go_down);
    nodes.each([2], MemoryNode::freeze);
    let before = Instant::now();
    let error = locks.try_acquire("order:1").await.unwrap_err();
    assert_eq!(before.elapsed(), 100 * MS, "the node time-out");
    assert_eq!(
        error.to_string(),
        "no quorum: 3 of 5 nodes must vote and these do not: \
         n0 (the node is down), n1 (the node is down), n2 (no answer within 100ms)"
    );
    nodes.settle_free("order:1").await;
    nodes.each([2], MemoryNode::thaw);
    nodes.settle_free("order:1").await;

    nodes.each([0, 1], MemoryNode::come_up);
    let _guard = nodes.manager().try_acquire("order:1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn three_down_fail_at_once() {
    let nodes = Nodes::five();
    nodes.each([0, 1, 2], MemoryNode::go_down);
    let before = Instant::now();
    let error = nodes.manager().try_acquire("order:1").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum(_)), "{error:?}");
    assert_eq!(before.elapsed(), Duration::ZERO);
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn one_frozen_node_adds_nothing() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    nodes.each([1], MemoryNode::freeze);
    let before = Instant::now();
    let guard = locks.try_acquire("order:1").await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_after_a_loss_is_released() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.met().await, nodes.met().await);
    nodes.each([3, 4], MemoryNode::go_down);
    let held = a.try_acquire("order:1").await.unwrap();
    nodes.each([3, 4], MemoryNode::freeze);
    b.try_acquire("order:1").await.unwrap_err();
    // The request waits in the sockets of the frozen nodes and is granted there when they go on.
    nodes.each([3, 4], MemoryNode::thaw);
    nodes
        .settle("late grants released", |n| n.commands() >= 3 + 3 + 2 * 2)
        .await;
    assert_eq!(nodes.holding("order:1"), 3, "only the holder's");
    held.release().await.unwrap();
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_after_a_win_is_kept_and_released_with_the_rest() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    nodes.each([3, 4], MemoryNode::freeze);
    let guard = locks.try_acquire("order:1").await.unwrap();
    nodes.each([3, 4], MemoryNode::thaw);
    nodes
        .settle("late grants kept", |n| n.holding("order:1") == 5)
        .await;
    guard.release().await.unwrap();
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_the_release_is_released() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    nodes.each([3, 4], MemoryNode::freeze);
    let guard = locks.try_acquire("order:1").await.unwrap();
    guard.release().await.unwrap();
    nodes.each([3, 4], MemoryNode::thaw);
    // Granted late, then released: two commands on each of the two.
    nodes
        .settle("settled", |n| {
            n.0[3].commands() == 2 && n.0[4].commands() == 2
        })
        .await;
    assert_eq!(nodes.holding("order:1"), 0);
}

#[tokio::test(start_paused = true)]
async fn missing_nodes_are_topped_up_soon_after_a_win() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    nodes.each([3, 4], MemoryNode::go_down);
    let _guard = locks.try_acquire("order:1").await.unwrap();
    nodes.each([3, 4], MemoryNode::come_up);
    assert_eq!(nodes.holding("order:1"), 3);
    sleep(200 * MS).await;
    assert_eq!(
        nodes.holding("order:1"),
        5,
        "long before a third of the ttl"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refused_late_is_topped_up_soon() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    let key = Namespace::default().node_key(&LockKey::new("order:1").unwrap());
    let other = OwnerToken::from_entropy([1; OwnerToken::ENTROPY_LEN]);
    let request = AcquireRequest::new(key, other, 50 * MS);
    nodes.0[3].acquire(request).await.unwrap();
    nodes.each([3, 4], MemoryNode::freeze);
    let _guard = locks.try_acquire("order:1").await.unwrap();
    nodes.each([3, 4], MemoryNode::thaw);
    sleep(300 * MS).await;
    let holders: std::collections::HashSet<_> =
        nodes.0.iter().map(|n| n.holder("lk:order:1")).collect();
    assert_eq!(
        holders.len(),
        1,
        "ours on all five, long before a third of the ttl"
    );
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_before_it_is_polled_sends_nothing() {
    let nodes = Nodes::five();
    drop(nodes.manager().try_acquire("order:1"));
    tokio::task::yield_now().await;
    assert_eq!(nodes.commands(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_half_way_leaves_nothing() {
    // Thawed at once, or after the node time-out: what stands in the sockets runs all the same.
    for pause in [Duration::ZERO, 150 * MS] {
        let nodes = Nodes::five();
        nodes.each([2, 3, 4], MemoryNode::freeze);
        poll_and_drop(nodes.manager().try_acquire("order:1")).await;
        nodes.settle_free("order:1").await;
        sleep(pause).await;
        nodes.each([2, 3, 4], MemoryNode::thaw);
        nodes.settle_free("order:1").await;
        let _guard = nodes.manager().try_acquire("order:1").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_long_after_a_loss_is_released() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.met().await, nodes.met().await);
    nodes.each([3, 4], MemoryNode::go_down);
    let _held = a.try_acquire("order:1").await.unwrap();
    nodes.each([3, 4], MemoryNode::freeze);
    b.try_acquire("order:1").await.unwrap_err();
    sleep(150 * MS).await;
    nodes.each([3, 4], MemoryNode::thaw);
    nodes
        .settle("released again", |n| n.holding("order:1") == 3)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_split_is_tried_again_within_a_few_round_trips() {
    // Without any, all attempts might be over before anybody else is heard of.
    const ROUND_TRIP: Duration = Duration::from_millis(4);
    let nodes = Nodes::five();
    let process = Process::on(&nodes.0);
    let locks = process.builder().connect_lazy().unwrap();
    meet(&locks).await;
    process.0.iter().for_each(|link| link.delay(ROUND_TRIP));
    let key = Namespace::default().node_key(&LockKey::new("order:1").unwrap());
    let others = [(0, 1), (1, 1), (2, 2)].map(|(node, token)| {
        (
            node,
            OwnerToken::from_entropy([token; OwnerToken::ENTROPY_LEN]),
        )
    });
    for (node, token) in others {
        let request = AcquireRequest::new(key.clone(), token, TTL);
        nodes.0[node].acquire(request).await.unwrap();
    }
    let attempt = tokio::spawn(async move { locks.try_acquire("order:1").await });
    sleep(ROUND_TRIP + MS).await;
    assert!(
        !attempt.is_finished(),
        "nobody has a quorum, so nobody is told that it is busy"
    );
    let released = Instant::now();
    for (node, token) in others {
        let request = ReleaseRequest::new(key.clone(), token, true);
        nodes.0[node].release(request).await.unwrap();
    }
    let _guard = attempt.await.unwrap().unwrap();
    assert!(
        released.elapsed() <= 5 * ROUND_TRIP,
        "{:?}",
        released.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_split_that_lasts_is_contention() {
    let nodes = Nodes::five();
    let key = Namespace::default().node_key(&LockKey::new("order:1").unwrap());
    let locks = nodes.manager();
    for (node, token) in [(0, 1), (1, 1), (2, 2)] {
        let token = OwnerToken::from_entropy([token; OwnerToken::ENTROPY_LEN]);
        let request = AcquireRequest::new(key.clone(), token, TTL);
        nodes.0[node].acquire(request).await.unwrap();
    }
    let error = locks.try_acquire("order:1").await.unwrap_err();
    assert!(matches!(error, AcquireError::Contended { .. }), "{error:?}");
    nodes
        .settle("only theirs are left", |n| n.holding("order:1") == 3)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_without_validity_left_is_released_and_says_so() {
    let nodes = Nodes::five();
    let hasty = nodes.builder().ttl(10 * MS).node_timeout(10 * MS);
    let locks = hasty.connect().await.unwrap();
    nodes.each(0..5, MemoryNode::freeze);
    let thaw = async {
        sleep(9 * MS).await;
        nodes.each(0..5, MemoryNode::thaw);
    };
    let (result, ()) = tokio::join!(locks.try_acquire("order:1"), thaw);
    assert_eq!(
        result.unwrap_err().to_string(),
        "a quorum granted the lock, but after 9ms of a ttl of 10ms no validity was left; use a longer ttl"
    );
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn bad_keys_cost_no_command() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let long = "x".repeat(513);
    for key in ["", &long, "a\nb"] {
        let error = locks.try_acquire(key).await.unwrap_err();
        assert!(matches!(error, AcquireError::InvalidKey(_)), "{error:?}");
    }
    assert_eq!(nodes.commands(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lock_soon_after_its_release() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire("order:1").await.unwrap();
    let waiter = tokio::spawn(async move { b.acquire("order:1").await });
    sleep(1_000 * MS).await;
    let before = Instant::now();
    guard.release().await.unwrap();
    let _guard = waiter.await.unwrap().unwrap();
    assert!(before.elapsed() <= 100 * MS, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_the_max_wait_of_the_manager_or_of_the_handle() {
    let nodes = Nodes::five();
    let a = nodes.manager();
    let b = nodes.builder().max_wait(300 * MS).connect_lazy().unwrap();
    let other = nodes.builder().max_wait(100 * MS).connect_lazy().unwrap();
    let _guard = a.try_acquire("order:1").await.unwrap();
    for locks in [b, other.with_max_wait(300 * MS)] {
        let before = Instant::now();
        let error = locks.acquire("order:1").await.unwrap_err();
        let AcquireError::WaitTimeout { waited, .. } = error else {
            panic!("{error:?}");
        };
        assert!(waited >= 300 * MS && waited < 305 * MS);
        assert!(before.elapsed() < 305 * MS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_leaves_nothing() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire("order:1").await.unwrap();
    let wait = tokio::time::timeout(500 * MS, b.acquire("order:1"));
    wait.await.unwrap_err();
    guard.release().await.unwrap();
    nodes.settle_free("order:1").await;
    let before = nodes.commands();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(nodes.commands(), before, "nobody polls any more");
}

#[tokio::test(start_paused = true)]
async fn a_split_vote_of_two_managers_ends_with_one_holder() {
    for _ in 0..50 {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), nodes.manager());
        // Each reaches two nodes first; the fifth decides when it goes on.
        nodes.each([0, 1], MemoryNode::freeze);
        let first = tokio::spawn(async move { a.try_acquire("order:1").await });
        tokio::task::yield_now().await;
        nodes.each([0, 1], MemoryNode::thaw);
        let second = tokio::spawn(async move { b.try_acquire("order:1").await });
        let outcomes = [first.await.unwrap(), second.await.unwrap()];
        assert_eq!(outcomes.iter().filter(|o| o.is_ok()).count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_seems_a_split_because_a_node_is_slow_does_not_hold_up_the_answer() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    // A holder that does not top up.
    let key = Namespace::default().node_key(&LockKey::new("order:1").unwrap());
    let token = OwnerToken::from_entropy([1; OwnerToken::ENTROPY_LEN]);
    for node in 0..3 {
        let request = AcquireRequest::new(key.clone(), token, TTL);
        nodes.0[node].acquire(request).await.unwrap();
    }
    // Two refuse, two are free, and the one that knows does not answer.
    nodes.each([0], MemoryNode::freeze);
    let before = Instant::now();
    let error = locks.try_acquire("order:1").await.unwrap_err();
    assert!(matches!(error, AcquireError::Contended { .. }), "{error:?}");
    assert!(before.elapsed() < 400 * MS, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn keys_of_two_namespaces_never_meet_and_one_key_is_one_lock() {
    let nodes = Nodes::five();
    let in_namespace = |name: &str| nodes.builder().namespace(name).connect_lazy().unwrap();
    let _a = in_namespace("a").try_acquire("b:c").await.unwrap();
    assert!(nodes.builder().namespace("a:b").connect_lazy().is_err());
    // The empty namespace is the nodes' own key space: the same text is the same lock.
    let raw = in_namespace("");
    raw.try_acquire("a:b:c").await.unwrap_err();
    let _other = raw.try_acquire("a:b:d").await.unwrap();
}
