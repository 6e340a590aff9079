//! Callers that wait for several keys leave to others what they cannot have yet.

use super::*;

/// `a` is free for those who do not wait, for those who do, and for those behind them.
async fn assert_free_for_others(locks: &LockManager, a: &'static str) {
    let before = Instant::now();
    let guard = locks.try_acquire(a).await.unwrap();
    let line = [wait_for(locks, a).await, wait_for(locks, a).await];
    drop(guard);
    for waiter in line {
        drop(waiter.await.unwrap().unwrap());
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_free_for_others_while_its_waiter_waits_for_another_that_is_held() {
    for (free, held) in [("a", "b"), ("b", "a")] {
        for holds_here in [true, false] {
            let (nodes, [locks, other]) = five();
            let holder = if holds_here { &locks } else { &other };
            let guard = holder.try_acquire(held).await.unwrap();
            let mut waiter = wait_for(&locks, ["a", "b"]).await;
            for _ in 0..60 {
                assert_free_for_others(&locks, free).await;
                sleep(37 * MS).await;
            }
            // The key in the way is not: who came first goes first.
            let behind = wait_for(&locks, held).await;
            assert!(locks.try_acquire(held).await.is_err());
            assert!(poll_once(&mut waiter).await.is_none());
            let before = Instant::now();
            guard.release().await.unwrap();
            let both = waiter.await.unwrap().unwrap();
            assert!(before.elapsed() <= 2 * MS, "{:?}", before.elapsed());
            assert_eq!(nodes.subscriptions(), 0);
            assert_eq!((nodes.holding("a"), nodes.holding("b")), (5, 5));
            // Held for once, by somebody who is not about to leave.
            let (commands, before) = (nodes.commands(), Instant::now());
            assert_contended(locks.try_acquire("a").await);
            assert_contended(locks.try_acquire("b").await);
            assert_contended(locks.try_acquire(["a", "b"]).await);
            assert_eq!(nodes.commands(), commands);
            assert_eq!(before.elapsed(), Duration::ZERO);
            drop(both);
            drop(behind.await.unwrap().unwrap());
            assert_idle(&locks).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_came_free_while_another_is_held_goes_to_those_behind() {
    for hand_off in [false, true] {
        let nodes = Nodes::five();
        let locks = lazy(nodes.builder().hand_off(hand_off));
        let (first, second) = (
            locks.try_acquire("a").await.unwrap(),
            locks.try_acquire("b").await.unwrap(),
        );
        let mut waiter = wait_for(&locks, ["a", "b"]).await;
        let behind = wait_for(&locks, "a").await;
        drop(first);
        let before = Instant::now();
        drop(behind.await.unwrap().unwrap());
        assert_free_for_others(&locks, "a").await;
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert!(poll_once(&mut waiter).await.is_none());
        drop(second);
        drop(waiter.await.unwrap().unwrap());
        assert_idle(&locks).await;
    }
}

/// Asks for `key` without waiting, every few milliseconds for so long: it is never refused, and answered within `most`.
async fn assert_never_refused(locks: &LockManager, key: &str, time: Duration, most: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        let before = Instant::now();
        drop(locks.try_acquire(key).await.unwrap());
        assert!(before.elapsed() <= most, "{:?}", before.elapsed());
        sleep(3 * MS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_for_pairs_do_not_lock_a_key_out_while_others_hold_the_other_of_each() {
    for holds_here in [true, false] {
        let nodes = Nodes::five();
        let (locks, other) = (lazy(Odd::slow(&nodes.0, MS, MS)), nodes.manager());
        let holder = if holds_here { &locks } else { &other };
        let (mut held, mut waiters) = (Vec::new(), Vec::new());
        for key in ["m", "o", "p", "z"] {
            held.push(holder.try_acquire(key).await.unwrap());
            for _ in 0..3 {
                waiters.push(wait_for(&locks, [key, "victim"]).await);
            }
        }
        // What each of those before it asks is a round trip, now and then.
        let most = 4 * MS * u32::try_from(waiters.len()).unwrap();
        assert_never_refused(&locks, "victim", 4 * SECOND, most).await;
        drop(held);
        // All of them, for each gives its keys back when it has had them.
        let mut going = JoinSet::new();
        for waiter in waiters {
            going.spawn(async move { drop(waiter.await.unwrap().unwrap()) });
        }
        going.join_all().await;
        sleep(10 * MS).await;
        assert_idle(&locks).await;
    }
}
