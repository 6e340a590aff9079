//! Several keys at once: all or nothing, in any order, beside callers that want other sets of them.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn keys(names: &str) -> LockKeys {
    LockKeys::new(names.split(' ')).unwrap()
}

async fn assert_busy(locks: &LockManager, names: &str) {
    assert_contended(try_all(locks, names).await);
}

async fn try_all(locks: &LockManager, names: &str) -> Outcome {
    locks.try_acquire(keys(names)).await
}

#[tokio::test(start_paused = true)]
async fn any_order_and_any_repetition_is_one_lock() {
    let (nodes, [a, b]) = five();
    for names in [
        ["z", "a", "m", "a"],
        ["a", "m", "z", "z"],
        ["m", "m", "z", "a"],
    ] {
        let before = nodes.commands();
        let guard = a.acquire(names).await.unwrap();
        assert_eq!(nodes.commands() - before, 5, "all keys at once");
        let held: Vec<&str> = guard.keys().iter().map(LockKey::as_str).collect();
        assert_eq!(held, ["a", "m", "z"]);
        assert_eq!(guard.key().as_str(), "a");
        for node in &nodes.0 {
            assert_eq!(node.keys(), ["lk:a", "lk:m", "lk:z"]);
            let owners: BTreeSet<_> = node.keys().iter().map(|key| node.holder(key)).collect();
            assert_eq!(owners.len(), 1, "one owner of all");
        }
        assert_eq!(a.snapshot().held, 1);
        assert_busy(&b, "z m a").await;
        guard.release().await.unwrap();
        nodes.assert_nothing_left(&[&a, &b]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sets_that_overlap_exclude_each_other_and_others_do_not() {
    let nodes = Nodes::five();
    for managers in [
        vec![nodes.manager()],
        vec![nodes.manager(), nodes.manager()],
    ] {
        let (ours, theirs) = (&managers[0], &managers[managers.len() - 1]);
        let guard = try_all(ours, "b c d").await.unwrap();
        for overlap in ["a b", "d e", "c", "a b c d e", "c d", "b c d", "a d z"] {
            assert_busy(theirs, overlap).await;
            // What it could have had it does not keep.
            for free in ["a", "e", "z"] {
                assert_eq!(nodes.holding(free), 0, "{free} of {overlap}");
            }
        }
        let disjoint = try_all(theirs, "a e").await.unwrap();
        assert_busy(ours, "d e").await;
        drop(guard);
        nodes.settle_free("d").await;
        assert_busy(ours, "d e").await;
        drop(disjoint);
        nodes.settle_free("e").await;
        drop(try_all(ours, "d e").await.unwrap());
        nodes.assert_nothing_left(&[ours, theirs]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_number_for_all_of_them_above_those_of_each() {
    let (_nodes, [a, b]) = five();
    let fence = async |locks: &LockManager, names: &str| {
        let guard = try_all(locks, names).await.unwrap();
        let fence = guard.fence().unwrap();
        guard.release().await.unwrap();
        fence
    };
    // No time passes, so it is the counters that must grow, one after the other.
    let mut last = BTreeMap::from([("c", fence(&a, "c").await)]);
    for names in [
        "a b c", "b", "c", "a", "a c", "b", "c d", "d", "a b c d", "d",
    ] {
        let next = fence(&b, names).await;
        for name in names.split(' ') {
            let before = last.insert(name, next);
            assert!(Some(next) > before, "{names}: {next} after {before:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_holder_of_several_gets_its_turn_at_the_release() {
    for waits_for in ["a", "b", "c", "a c", "c d"] {
        let (nodes, [locks]) = five();
        let guard = try_all(&locks, "a b c").await.unwrap();
        let token = nodes.token("a");
        let waiter = wait_for(&locks, keys(waits_for)).await;
        let behind = wait_for(&locks, keys(waits_for)).await;
        sleep(100 * MS).await;
        let before = Instant::now();
        drop(guard);
        let next = waiter.await.unwrap().unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO);
        let ours = nodes.token(next.key().as_str());
        assert!(ours.is_some() && ours != token, "never handed over");
        assert_eq!(nodes.holding("b"), if waits_for == "b" { 5 } else { 0 });
        assert!(next.waited() >= 100 * MS);
        drop(next);
        drop(behind.await.unwrap().unwrap());
        nodes.assert_nothing_left(&[&locks]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_is_held_up_by_the_releases_of_many_keys_no_longer_than_by_one() {
    let (nodes, [locks]) = five();
    let mut guards = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        guards.push(locks.try_acquire(name).await.unwrap());
    }
    nodes.each(0..5, MemoryNode::freeze);
    // Each release begins just before the one before it is given up.
    let releases = tokio::spawn(async move {
        for guard in guards {
            drop(guard);
            sleep(90 * MS).await;
        }
    });
    tokio::task::yield_now().await;
    let before = Instant::now();
    try_all(&locks, "a b c d e f").await.unwrap_err();
    let patience = locks.node_timeout() + MS;
    assert!(before.elapsed() <= patience, "{:?}", before.elapsed());
    releases.await.unwrap();
    nodes.each(0..5, MemoryNode::thaw);
    nodes.assert_nothing_left(&[&locks]).await;
}

/// Its holder counts on the others until it is told.
#[tokio::test(start_paused = true)]
async fn when_one_key_is_taken_the_others_stay_until_the_holder_lets_go() {
    let (nodes, [locks, other]) = five_met().await;
    let guard = try_all(&locks, "a b").await.unwrap();
    let seen = other.holders("a").await.unwrap();
    assert_eq!(other.force_release(&seen, true).await, Ok(5));
    let taken = other.try_acquire("a").await.unwrap();
    let began = Instant::now();
    while !guard.is_lost() {
        assert!(other.try_acquire("b").await.is_err());
        sleep(10 * MS).await;
    }
    assert!(began.elapsed() <= TTL / 2, "by the first extension");
    assert!(other.try_acquire("b").await.is_err());
    drop(guard);
    nodes.settle_free("b").await;
    assert_eq!(nodes.holding("a"), 5, "that is another's");
    drop(taken);
    nodes.assert_nothing_left(&[&locks, &other]).await;
}
