//! Handles of one manager with times of their own: what each lock keeps, what passes between them, and what nodes are
//! told.

use super::*;

const LONG: Duration = Duration::from_secs(40);

/// A manager whose locks pass on for as long as a test lasts, and a handle with another ttl.
async fn two_ttls(nodes: &Nodes) -> (LockManager, LockManager) {
    let builder = nodes.builder().max_ttl(LONG).max_wait(6 * TTL);
    let locks = lazy(builder.hand_off_limits(32, 6 * TTL));
    meet(&locks).await;
    let long = locks.with_ttl(LONG).unwrap();
    (locks, long)
}

fn is_of(guard: &LockGuard, ttl: Duration) -> bool {
    let validity = guard.lease().deadline.since(guard.lease().started);
    guard.lease().ttl == ttl && validity < ttl && validity > ttl * 9 / 10
}

#[tokio::test(start_paused = true)]
async fn debug_names_the_nodes_the_quorum_and_the_ttl() {
    let (_nodes, [locks]) = five();
    let shown = format!("{locks:?}");
    let (nodes, rest) = shown.split_once("], ").unwrap();
    assert!(
        nodes.starts_with("LockManager { nodes: [") && nodes.contains("n4"),
        "{shown}"
    );
    assert_eq!(rest, "quorum: 3, ttl: 10s, .. }");
}

#[tokio::test(start_paused = true)]
async fn each_lock_lives_as_long_as_its_handle_says() {
    let nodes = Nodes::five();
    let (locks, long) = two_ttls(&nodes).await;
    let short = locks.with_ttl(SECOND).unwrap();
    for (handle, ttl) in [(&long, LONG), (&short, SECOND), (&locks, TTL)] {
        assert_eq!(handle.ttl(), ttl);
        let handle = handle.with_max_hold(10 * ttl).unwrap();
        let guard = handle.try_acquire("order:1").await.unwrap();
        assert!(is_of(&guard, ttl), "{:?}", guard.lease());
        // It is extended, and for so long again.
        sleep(3 * ttl).await;
        let left = guard.remaining();
        assert!(left > ttl * 6 / 10 && left < ttl, "{left:?} of {ttl:?}");
        // A node keeps it for as long after the last extension, and no longer.
        nodes.each(0..5, MemoryNode::go_down);
        sleep(ttl * 6 / 10).await;
        assert_eq!(nodes.holding("order:1"), 5, "{ttl:?}");
        sleep(ttl / 2).await;
        assert_eq!(nodes.holding("order:1"), 0, "{ttl:?}");
        assert_eq!(guard.lost().await, LossReason::Expired);
        nodes.each(0..5, MemoryNode::come_up);
        drop(guard);
        sleep(SECOND).await;
    }
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn times_that_make_no_sense_are_refused() {
    let locks = lazy(Nodes::five().builder().node_timeout(50 * MS));
    let error = locks.with_ttl(49 * MS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ttl is 49ms, and a node may take 50ms to reply; use a longer ttl, or a shorter node_timeout"
    );
    let error = locks.with_max_hold(9 * SECOND).unwrap_err();
    assert_eq!(error.field(), Some("max_hold"));
    let text = "max_hold is 9s; it must be at least the ttl, 10s";
    assert_eq!(error.to_string(), text);
    let handle = locks.with_ttl(Duration::from_micros(1_500_900)).unwrap();
    assert_eq!(handle.ttl(), 1_500 * MS, "whole milliseconds");
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_another_ttl_is_released_and_not_handed_on() {
    let nodes = Nodes::five();
    let (locks, long) = two_ttls(&nodes).await;
    for (first, then, ttl) in [(&locks, &long, LONG), (&long, &locks, TTL)] {
        let guard = first.try_acquire("order:1").await.unwrap();
        let token = nodes.token("order:1");
        let waiter = wait_for(then, "order:1").await;
        let same = wait_for(then, "order:1").await;
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        assert!(is_of(&guard, ttl), "{:?}", guard.lease());
        let granted = nodes.token("order:1");
        assert_ne!(granted, token, "granted anew");
        // Among callers with one ttl it passes as ever.
        let before = nodes.commands();
        guard.release().await.unwrap();
        let guard = same.await.unwrap().unwrap();
        assert_eq!(nodes.commands(), before);
        assert_eq!(nodes.token("order:1"), granted);
        drop(guard);
        nodes.settle_free("order:1").await;
    }
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn max_hold_is_that_of_each_holder_of_a_lock_that_passes_on() {
    let nodes = Nodes::five();
    let (locks, _) = two_ttls(&nodes).await;
    let brief = locks.with_max_hold(2 * TTL).unwrap();
    let ample = locks.with_max_hold(30 * TTL).unwrap();
    for (first, then, hold) in [
        (&locks, &brief, 2 * TTL),
        (&brief, &ample, 30 * TTL),
        (&ample, &locks, 6 * TTL),
        (&brief, &brief, 2 * TTL),
    ] {
        let guard = first.try_acquire("order:1").await.unwrap();
        let token = nodes.token("order:1");
        let waiter = wait_for(then, "order:1").await;
        sleep(TTL).await;
        guard.release().await.unwrap();
        let began = Instant::now();
        let guard = waiter.await.unwrap().unwrap();
        assert_eq!(nodes.token("order:1"), token, "handed on");
        assert_eq!(guard.lost().await, LossReason::MaxHold);
        let held = began.elapsed();
        let due = hold - 10 * MS..=hold;
        assert!(due.contains(&held), "{held:?} of {hold:?}");
        drop(guard);
        nodes.settle_free("order:1").await;
    }
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_shared_keeps_its_ttl() {
    let nodes = Nodes::five();
    let (locks, long) = two_ttls(&nodes).await;
    let scope = LockScope::new();
    let keys = || LockKey::new("order:1").unwrap().into();
    let outer = long.acquire_in(&scope, keys(), SECOND).await.unwrap();
    let inner = locks.acquire_in(&scope, keys(), SECOND).await.unwrap();
    assert_eq!(inner.fence(), outer.fence());
    let again = inner.reenter().unwrap();
    drop((outer, inner));
    assert!(is_of(&again, LONG));
    nodes.each(0..5, MemoryNode::go_down);
    sleep(2 * TTL).await;
    assert!(!again.is_lost(), "for {LONG:?}");
}

/// A node that missed a release is told as long as the lock may be there.
#[tokio::test(start_paused = true)]
async fn a_release_is_tried_for_as_long_as_the_lock_may_live() {
    let nodes = Nodes::five();
    let (locks, long) = two_ttls(&nodes).await;
    let guard = long.try_acquire("order:1").await.unwrap();
    nodes.settle_on("order:1", 5).await;
    nodes.each([4], MemoryNode::go_down);
    guard.release().await.unwrap();
    sleep(2 * TTL).await;
    assert_eq!(locks.snapshot().held, 0);
    assert_eq!(nodes.holding("order:1"), 1);
    nodes.each([4], MemoryNode::come_up);
    sleep(SECOND).await;
    assert_eq!(nodes.holding("order:1"), 0, "long before its ttl is over");
}

#[test]
fn outside_a_runtime_it_says_what_to_do() {
    assert_eq!(
        LockManager::builder()
            .memory(1)
            .connect_lazy()
            .unwrap_err()
            .to_string(),
        "there is no tokio runtime here: build the manager inside one, for its tasks live there"
    );
}
