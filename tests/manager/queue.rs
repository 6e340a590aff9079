//! Callers of one manager that want the same key: one goes for it, the others are in line, in order and bounded.

use super::*;

#[tokio::test(start_paused = true)]
async fn callers_behind_a_local_holder_cost_no_command() {
    let (nodes, locks, guard) = held("order:1").await;
    let before = nodes.commands();
    let mut waiters = Vec::new();
    for _ in 0..64 {
        waiters.push(wait_for(&locks, "order:1").await);
    }
    sleep(3 * SECOND).await;
    let full = locks.acquire("order:1").await.unwrap_err();
    let is_full = matches!(
        full,
        AcquireError::QueueFull {
            limit: 64,
            of_key: true,
            ..
        }
    );
    assert!(is_full, "{full:?}");
    assert_eq!(nodes.commands(), before, "before the first renewal");
    assert_eq!(locks.snapshot().waiting, 64);
    assert_eq!(nodes.subscriptions(), 0);
    for waiter in waiters {
        cancel(waiter).await;
    }
    guard.release().await.unwrap();
    nodes.assert_nothing_left(&[&locks]).await;
}

#[tokio::test(start_paused = true)]
async fn callers_behind_a_contender_cost_no_command() {
    let (nodes, [a, b]) = five();
    let _guard = a.try_acquire("order:1").await.unwrap();
    let before = nodes.commands();
    let mut waiters = Vec::new();
    for _ in 0..65 {
        waiters.push(wait_for(&b, "order:1").await);
    }
    // All that is asked is what the first asks: one round, and one more when it has begun to listen.
    assert_eq!(nodes.commands() - before, 2 * 5);
    assert_eq!(nodes.subscriptions(), 5);
    // The first waits for the other process, and those behind it for their turn.
    assert_eq!((b.snapshot().keys, b.snapshot().waiting), (1, 65));
    sleep(3 * SECOND).await;
    let rounds = (nodes.commands() - before) / 5;
    assert!(rounds <= 30, "{rounds} rounds of one contender in 3 s");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_and_meets_a_local_holder_or_contender_asks_no_node() {
    let (nodes, [a, b]) = five();
    let guard = a.try_acquire("order:1").await.unwrap();
    let _waiter = wait_for(&b, "order:1").await;
    let before = nodes.commands();
    assert_eq!(
        remaining(&b, "order:1").await,
        Some(TTL),
        "as its contender was told"
    );
    assert_eq!(nodes.commands(), before);
    for passed in [0, 1_000, 1_500] {
        sleep(passed * MS).await;
        let before = nodes.commands();
        // The lease as the nodes keep it: longer than the holder may rely on it.
        let left = guard.remaining() + 102 * MS;
        assert_eq!(remaining(&a, "order:1").await, Some(left));
        assert_eq!(nodes.commands(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_during_a_release_waits_for_it_even_if_it_does_not_wait() {
    let (_nodes, [locks]) = five();
    let before = Instant::now();
    for _ in 0..20 {
        drop(locks.try_acquire("order:1").await.unwrap());
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
    // Only the first: the second would have to wait for a holder.
    let try_it = || locks.try_acquire("order:1");
    let (first, second) = tokio::join!(try_it(), try_it());
    assert!(first.is_ok());
    assert_contended(second);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_over_lets_the_next_go_though_its_guard_lives_on() {
    for reason in [LossReason::Expired, LossReason::MaxHold, LossReason::Taken] {
        let nodes = Nodes::five();
        let builder = nodes.unguarded().max_wait(6 * TTL);
        let locks = match reason {
            LossReason::MaxHold => lazy(builder.max_hold(TTL)),
            _ => lazy(builder),
        };
        let guard = locks.try_acquire("order:1").await.unwrap();
        let waiter = wait_for(&locks, "order:1").await;
        let mut thief = None;
        match reason {
            LossReason::Expired => nodes.each(0..5, MemoryNode::go_down),
            LossReason::Taken => {
                nodes.each(0..5, MemoryNode::forget);
                thief = Some(nodes.forgetful().try_acquire("order:1").await.unwrap());
            }
            _ => {}
        }
        assert_eq!(guard.lost().await, reason);
        let before = Instant::now();
        nodes.each(0..5, MemoryNode::come_up);
        if let Some(thief) = thief {
            sleep(MS).await;
            thief.release().await.unwrap();
        }
        let next = waiter.await.unwrap().unwrap();
        // What nodes still hold ends with the ttl of the last extension.
        let soon = match reason {
            LossReason::Taken => 5 * MS,
            _ => TTL,
        };
        assert!(before.elapsed() <= soon, "{reason:?}");
        assert!(guard.is_lost() && !next.is_lost(), "{reason:?}");
        drop(guard);
        sleep(TTL / 2).await;
        assert!(!next.is_lost(), "the late release is not of this lock");
        assert_eq!(nodes.holding("order:1"), 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_come_and_go_on_many_threads_leave_nothing() {
    let (nodes, [locks]) = five();
    let held = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..8_usize)
        .map(|caller| {
            let (locks, held) = (locks.clone(), Arc::clone(&held));
            tokio::spawn(async move {
                for round in 0..1_000 {
                    let mut acquire = Box::pin(locks.acquire("order:1"));
                    // Every third one goes away after a look, called or not.
                    let guard = if (caller + round) % 3 == 0 {
                        let polled = poll_once(&mut acquire).await;
                        tokio::task::yield_now().await;
                        let Some(guard) = polled else { continue };
                        guard
                    } else {
                        acquire.await
                    };
                    let guard = guard.unwrap();
                    assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                    assert!(!guard.is_lost());
                    held.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert_free(&nodes, &locks).await;
    assert_eq!(nodes.subscriptions(), 0);
}

/// In the end. What goes on in the background is on other threads.
async fn assert_free(nodes: &Nodes, locks: &LockManager) {
    for _ in 0..1_000 {
        if nodes.holding("order:1") == 0 && locks.snapshot().keys == 0 {
            break;
        }
        sleep(MS).await;
    }
    assert_eq!(nodes.holding("order:1"), 0);
    assert_idle(locks).await;
}

/// One for each key, which waits for another process.
#[tokio::test(start_paused = true)]
async fn those_that_wait_for_other_processes_are_bounded_too() {
    let (nodes, [other]) = five_met().await;
    let keys: Vec<String> = (0..12).map(|key| format!("key:{key}")).collect();
    let mut held = Vec::new();
    for key in &keys {
        held.push(other.acquire(key.as_str()).await.unwrap());
    }
    let locks = lazy(nodes.builder().max_waiters(8));
    let locks = locks.with_max_wait(TTL);
    let waiting: Vec<_> = keys
        .iter()
        .map(|key| {
            let (locks, key) = (locks.clone(), key.clone());
            tokio::spawn(async move { locks.acquire(key.as_str()).await })
        })
        .collect();
    sleep(MS).await;
    assert_eq!(locks.snapshot().waiting, 8);
    drop(held);
    let mut refused = 0;
    for outcome in waiting {
        match outcome.await.unwrap() {
            Ok(guard) => guard.release().await.unwrap(),
            Err(AcquireError::QueueFull { limit: 8, .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, 4);
    assert_idle(&locks).await;
}
