//! Locks that parts of one piece of work share.

use super::*;

fn keys(names: &[&str]) -> LockKeys {
    LockKeys::new(names.iter().copied()).unwrap()
}

async fn take(
    locks: &LockManager,
    scope: &LockScope,
    names: &[&str],
) -> Result<LockGuard, AcquireError> {
    locks.acquire_in(scope, keys(names), TTL).await
}

#[tokio::test(start_paused = true)]
async fn what_is_held_already_is_shared_and_costs_no_command() {
    let (nodes, [locks]) = five();
    let scope = LockScope::new();
    let outer = take(&locks, &scope, &["order:1"]).await.unwrap();
    nodes.settle_on("order:1", 5).await;
    let before = nodes.commands();
    let inner = take(&locks, &scope, &["order:1"]).await.unwrap();
    let third = outer.reenter().unwrap();
    assert_eq!(nodes.commands(), before);
    assert_eq!(inner.fence(), outer.fence());
    assert_eq!(inner.remaining(), outer.remaining());
    // Another piece of work is kept out as ever.
    let other = locks.try_acquire("order:1").await.unwrap_err();
    assert!(matches!(other, AcquireError::Contended { .. }));

    outer.release().await.unwrap();
    drop(third);
    sleep(MS).await;
    assert_eq!(nodes.holding("order:1"), 5, "one of the three is left");
    assert!(!inner.is_lost());
    inner.release().await.unwrap();
    nodes.settle_free("order:1").await;
    // What was released is not held any more.
    let again = take(&locks, &scope, &["order:1"]).await.unwrap();
    assert!(!again.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_not_shared_and_not_taken_anew() {
    let nodes = Nodes::five();
    let locks = lazy(nodes.builder().max_hold(TTL));
    let scope = LockScope::new();
    let outer = take(&locks, &scope, &["order:1"]).await.unwrap();
    outer.lost().await;
    let error = take(&locks, &scope, &["order:1"]).await.unwrap_err();
    assert_eq!(error, AcquireError::Lost(LossReason::MaxHold));
    assert_eq!(outer.reenter().unwrap_err(), LossReason::MaxHold);
    drop(outer);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_ends_the_wait_for_others() {
    let nodes = Nodes::five();
    let patient = nodes.builder().max_hold(TTL).max_wait(10 * TTL);
    let (locks, other) = (lazy(patient), nodes.manager());
    let scope = LockScope::new();
    let outer = take(&locks, &scope, &["a"]).await.unwrap();
    let _held = other.acquire("b").await.unwrap();
    let waiting = locks.acquire_in(&scope, keys(&["a", "b"]), 10 * TTL);
    let (error, reason) = tokio::join!(waiting, outer.lost());
    assert_eq!(error.unwrap_err(), AcquireError::Lost(reason));
    assert_eq!(reason, LossReason::MaxHold);
    assert!(!outer.is_lost(), "told before the end");
}

#[tokio::test(start_paused = true)]
async fn a_subset_is_shared_and_what_is_missing_is_added() {
    let (nodes, [locks]) = five();
    let scope = LockScope::new();
    let both = take(&locks, &scope, &["a", "b"]).await.unwrap();
    let part = take(&locks, &scope, &["b"]).await.unwrap();
    assert_eq!(part.fence(), both.fence());
    let more = take(&locks, &scope, &["b", "c"]).await.unwrap();
    let names = ["a", "b", "c"].map(|key| LockKey::new(key).unwrap());
    assert_eq!(more.keys(), names, "the whole lock of b");
    assert_eq!(more.fence(), None, "it has two locks");
    assert_eq!(more.fence_of(&names[1]), both.fence());
    assert!(more.fence_of(&names[2]) > both.fence());
    drop(both);
    drop(part);
    sleep(MS).await;
    let held = ["a", "b", "c"].map(|key| nodes.holding(key));
    assert_eq!(held, [5; 3], "the last guard shares a and b");
    more.release().await.unwrap();
    for key in ["a", "b", "c"] {
        nodes.settle_free(key).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_holds_something_waits_only_for_what_sorts_after_it() {
    let (_nodes, [locks, other]) = five();
    let scope = LockScope::new();
    let _b = take(&locks, &scope, &["b"]).await.unwrap();
    let a = other.acquire("a").await.unwrap();
    let c = other.acquire("c").await.unwrap();
    let began = Instant::now();
    assert_contended(take(&locks, &scope, &["a"]).await);
    assert!(began.elapsed() < 100 * MS, "{:?}", began.elapsed());
    let waiting = take(&locks, &scope, &["c"]);
    let releasing = async {
        sleep(SECOND).await;
        c.release().await.unwrap();
    };
    let (got, ()) = tokio::join!(waiting, releasing);
    assert!(got.unwrap().waited() >= SECOND);
    // A free one is had all the same.
    a.release().await.unwrap();
    drop(take(&locks, &scope, &["a"]).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_scope_tells_managers_apart() {
    let (_nodes, [locks, other]) = five();
    let scope = LockScope::new();
    let _held = take(&locks, &scope, &["order:1"]).await.unwrap();
    assert_contended(take(&other, &scope, &["order:1"]).await);
}

/// As during a move from one list of nodes to another, whose namespace sorts after the first one.
#[tokio::test(start_paused = true)]
async fn the_same_key_in_a_later_namespace_is_waited_for() {
    let (nodes, new) = (Nodes::five(), Nodes::five());
    let later = || lazy(new.builder().namespace("lm"));
    let (old, new, other) = (nodes.manager(), later(), later());
    let scope = LockScope::new();
    let _old = take(&old, &scope, &["order:1"]).await.unwrap();
    let held = other.acquire("order:1").await.unwrap();
    let waiting = take(&new, &scope, &["order:1"]);
    let releasing = async {
        sleep(SECOND).await;
        held.release().await.unwrap();
    };
    let (got, ()) = tokio::join!(waiting, releasing);
    assert!(got.unwrap().waited() >= SECOND);
}

/// The nodes answer nothing for a moment, so that whoever asks meanwhile does so at the same time.
fn hold_up(nodes: &Nodes) {
    nodes.each(0..5, MemoryNode::freeze);
    let nodes = nodes.0.clone();
    tokio::spawn(async move {
        sleep(5 * MS).await;
        nodes.iter().for_each(MemoryNode::thaw);
    });
}

#[tokio::test(start_paused = true)]
async fn parts_that_want_the_same_at_the_same_time_share_it() {
    let (nodes, [locks]) = five();
    let scope = LockScope::new();
    hold_up(&nodes);
    let before = Instant::now();
    let (one, two) = tokio::join!(
        locks.acquire_in(&scope, keys(&["a"]), 3 * SECOND),
        locks.acquire_in(&scope, keys(&["a"]), Duration::ZERO),
    );
    assert_eq!(one.unwrap().fence(), two.unwrap().fence());
    assert_eq!(before.elapsed(), 5 * MS);
    nodes.settle_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn parts_that_acquire_at_the_same_time_wait_for_no_other_work_in_a_circle() {
    let (nodes, [a, b]) = five_met().await;
    let (one, two) = (LockScope::new(), LockScope::new());
    hold_up(&nodes);
    let before = Instant::now();
    let outcomes = tokio::join!(
        a.acquire_in(&one, keys(&["a"]), 3 * SECOND),
        a.acquire_in(&one, keys(&["b"]), 3 * SECOND),
        b.acquire_in(&two, keys(&["b"]), 3 * SECOND),
        b.acquire_in(&two, keys(&["a"]), 3 * SECOND),
    );
    // Of the two that meet the other's lock, one may wait and the other may not.
    assert!(outcomes.0.is_ok() && outcomes.2.is_ok());
    assert_contended(outcomes.3);
    // Its guards are kept for so long.
    assert_eq!(before.elapsed(), 3 * SECOND);
    drop((outcomes.0, outcomes.1, outcomes.2));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_does_not_wait_is_not_held_up_by_one_that_does() {
    let (_nodes, [locks, others]) = five();
    let scope = LockScope::new();
    let rival = others.try_acquire("a").await.unwrap();
    let before = Instant::now();
    let (waits, does_not) =
        tokio::join!(locks.acquire_in(&scope, keys(&["a"]), 3 * SECOND), async {
            let refused = locks.acquire_in(&scope, keys(&["b"]), Duration::ZERO).await;
            (refused.unwrap_err(), before.elapsed())
        },);
    assert!(matches!(does_not.0, AcquireError::Contended { .. }));
    assert_eq!(does_not.1, 100 * MS, "the node time-out");
    waits.unwrap_err();
    // Its turn has gone with it.
    let again = locks.acquire_in(&scope, keys(&["b"]), Duration::ZERO);
    drop(again.await.unwrap());
    drop(rival);
}
