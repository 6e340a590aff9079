//! Waiting for a lock that another process holds: other managers over the same nodes.

use std::time::Duration;

use tokio::time::Instant;
use tower_redlock::namespace::Namespace;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::node::{AcquireRequest, Node as _};
use tower_redlock::token::OwnerToken;
use tower_redlock::{AcquireError, HandOff, LockKey};

use super::{MS, Nodes, TTL, assert_idle, poll_once, wait_for};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_waiter_listens_and_is_woken_by_the_release() {
    for after in [1, 50, 950, 2_050, 4_111] {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), nodes.manager());
        let guard = a.try_acquire("order:1").await.unwrap();
        let waiter = wait_for(&b, "order:1").await;
        assert_eq!(nodes.subscriptions(), 5);
        tokio::time::sleep(after * MS).await;
        let before = Instant::now();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        assert!(before.elapsed() <= 2 * MS, "{:?}", before.elapsed());
        assert_eq!(nodes.subscriptions(), 0, "who holds it does not listen");
        assert!(next.waited() >= after * MS);
        drop(next);
        nodes.settle_free("order:1").await;
        assert_idle(&b).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_stops_to_listen_when_its_wait_is_over_or_dropped() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let _guard = a.try_acquire("order:1").await.unwrap();
    let error = b.acquire_within("order:1", SECOND).await.unwrap_err();
    assert!(matches!(error, AcquireError::WaitTimeout(_)), "{error:?}");
    assert_eq!(nodes.subscriptions(), 0);
    let mut waiter = Box::pin(b.acquire("order:1"));
    assert!(poll_once(&mut waiter).await.is_none());
    assert_eq!(nodes.subscriptions(), 5);
    drop(waiter);
    assert_eq!(nodes.subscriptions(), 0);
    assert_idle(&b).await;
}

#[tokio::test(start_paused = true)]
async fn who_gets_the_lock_at_once_never_listens() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let mut acquire = Box::pin(locks.acquire("order:1"));
    let guard = poll_once(&mut acquire).await.unwrap().unwrap();
    assert_eq!((nodes.commands(), nodes.subscriptions()), (5, 0));
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_looks_now_and_then_and_no_more() {
    // Pauses are random up to 0.1, 0.2, 0.4, 0.8 and then 1 s: 13 looks in 5 s on the average, and as good as never
    // more than 35. Without notices they are up to 4, 8 .. 100 ms: 100 on the average.
    for (silent, least, most) in [(false, 5, 35), (true, 60, 160)] {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), nodes.manager());
        if silent {
            nodes.each(0..5, MemoryNode::fall_silent);
        }
        let _guard = a.try_acquire("order:1").await.unwrap();
        let before = nodes.commands();
        b.acquire("order:1").await.unwrap_err();
        // Five of them are the holder's extension.
        let looks = (nodes.commands() - before) / 5;
        assert!((least..=most).contains(&looks), "{looks} looks in 5 s");
    }
}

#[tokio::test(start_paused = true)]
async fn without_notices_a_look_finds_the_lock_free() {
    for round in 0..20 {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), nodes.manager());
        nodes.each(0..5, MemoryNode::fall_silent);
        let guard = a.try_acquire("order:1").await.unwrap();
        let waiter = wait_for(&b, "order:1").await;
        tokio::time::sleep(SECOND + 7 * round * MS).await;
        let before = Instant::now();
        guard.release().await.unwrap();
        let _next = waiter.await.unwrap().unwrap();
        assert!(before.elapsed() <= 101 * MS, "{:?}", before.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn with_notices_of_a_minority_looks_are_as_frequent_as_without() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    nodes.each([0, 1, 2], MemoryNode::fall_silent);
    let guard = a.try_acquire("order:1").await.unwrap();
    let waiter = wait_for(&b, "order:1").await;
    tokio::time::sleep(SECOND).await;
    nodes.each([3, 4], MemoryNode::fall_silent);
    let before = Instant::now();
    guard.release().await.unwrap();
    let _next = waiter.await.unwrap().unwrap();
    assert!(before.elapsed() <= 101 * MS, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_was_lost_is_made_up_for_when_the_nodes_are_heard_again() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire("order:1").await.unwrap();
    let mut waiter = wait_for(&b, "order:1").await;
    // It sleeps for long by now.
    tokio::time::sleep(2_500 * MS).await;
    nodes.each(0..5, MemoryNode::fall_silent);
    guard.release().await.unwrap();
    nodes.each(0..5, MemoryNode::speak_up);
    let before = Instant::now();
    let _next = (&mut waiter).await.unwrap().unwrap();
    assert!(before.elapsed() <= 2 * MS, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_vanished_is_followed_when_its_ttl_ends() {
    for (ttl, silent) in [(777, false), (3_000, false), (3_000, true)] {
        let nodes = Nodes::five();
        let locks = nodes.manager();
        if silent {
            nodes.each(0..5, MemoryNode::fall_silent);
        }
        let key = Namespace::default().place(&LockKey::new("order:1").unwrap());
        let token = OwnerToken::from_entropy([1; OwnerToken::ENTROPY_LEN]);
        for node in &nodes.0 {
            let request = AcquireRequest::new(key.clone(), token, ttl * MS);
            node.acquire(request).await.unwrap();
        }
        let before = Instant::now();
        let _next = locks.acquire("order:1").await.unwrap();
        let waited = before.elapsed();
        assert!(waited >= ttl * MS && waited <= (ttl + 2) * MS, "{waited:?}");
    }
}

/// In how many of 100 rounds `b`, who waits, has the lock before the next caller of `a`, who released it.
async fn rounds_that_the_other_wins(hand_off: HandOff, releases: bool) -> usize {
    let mut won = 0;
    for round in 0..100 {
        let nodes = Nodes::five();
        let a = nodes.builder().hand_off(hand_off).lazy().unwrap();
        let b = nodes.manager();
        let guard = a.try_acquire("order:1").await.unwrap();
        let other = wait_for(&b, "order:1").await;
        let line = wait_for(&a, "order:1").await;
        tokio::time::sleep((10 + 3 * round) * MS).await;
        if releases {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        let next = wait_for(&a, "order:1").await;
        let theirs = tokio::select! {
            biased;
            guard = line => { drop(guard.unwrap().unwrap()); false }
            guard = next => { drop(guard.unwrap().unwrap()); false }
            guard = other => { drop(guard.unwrap().unwrap()); true }
        };
        won += usize::from(theirs);
    }
    won
}

#[tokio::test(start_paused = true)]
async fn who_releases_while_another_waits_stands_back() {
    for releases in [true, false] {
        let won = rounds_that_the_other_wins(HandOff::OFF, releases).await;
        assert!(won >= 95, "{won} of 100");
    }
}

#[tokio::test(start_paused = true)]
async fn one_process_keeps_a_lock_for_as_long_as_it_may_pass_and_then_stands_back() {
    let nodes = Nodes::five();
    let builder = nodes.builder().hand_off(HandOff::new(4, SECOND));
    let (a, b) = (builder.lazy().unwrap(), nodes.manager());
    let guard = a.try_acquire("order:1").await.unwrap();
    let other = wait_for(&b, "order:1").await;
    let mut callers = Vec::new();
    for _ in 0..20 {
        let a = a.clone();
        callers.push(tokio::spawn(async move {
            let _guard = a.acquire("order:1").await.unwrap();
            tokio::time::sleep(10 * MS).await;
        }));
    }
    tokio::time::sleep(10 * MS).await;
    let before = Instant::now();
    drop(guard);
    let theirs = other.await.unwrap().unwrap();
    // Four more of the first process, and then a release.
    assert!(before.elapsed() >= 40 * MS);
    assert!(before.elapsed() <= 45 * MS, "{:?}", before.elapsed());
    drop(theirs);
    for caller in callers {
        caller.await.unwrap();
    }
    assert_idle(&a).await;
}

#[tokio::test(start_paused = true)]
async fn with_nobody_listening_the_next_caller_is_not_delayed() {
    let nodes = Nodes::five();
    let locks = nodes.builder().hand_off(HandOff::OFF).lazy().unwrap();
    let before = Instant::now();
    for _ in 0..50 {
        let guard = locks.acquire("order:1").await.unwrap();
        let waiter = wait_for(&locks, "order:1").await;
        guard.release().await.unwrap();
        drop(waiter.await.unwrap().unwrap());
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn many_processes_have_their_turns_one_at_a_time() {
    let nodes = Nodes::five();
    let guard = nodes.manager().try_acquire("order:1").await.unwrap();
    let held = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut callers = Vec::new();
    let before = Instant::now();
    for _ in 0..8 {
        let locks = nodes.builder().max_wait(6 * TTL).lazy().unwrap();
        for _ in 0..5 {
            let (locks, held) = (locks.clone(), std::sync::Arc::clone(&held));
            callers.push(tokio::spawn(async move {
                let _guard = locks.acquire("order:1").await.unwrap();
                let others = held.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                assert_eq!(others, 0, "two at a time");
                tokio::time::sleep(10 * MS).await;
                held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            }));
        }
    }
    tokio::time::sleep(MS).await;
    drop(guard);
    for caller in callers {
        caller.await.unwrap();
    }
    // Forty turns of 10 ms, and eight changes of process, each with a few splits.
    assert!(before.elapsed() < SECOND, "{:?}", before.elapsed());
    assert_eq!(nodes.subscriptions(), 0);
    nodes.settle_free("order:1").await;
}
