//! The locks of all processes, for operators: who holds a key, which keys are held, and keys that are taken from their
//! holders.

use tower_redlock::snapshot::{KeyStatus, KeyVerdict};

use super::*;

async fn named(nodes: &Nodes, instance: &str) -> LockManager {
    let locks = lazy(nodes.builder().instance(instance));
    meet(&locks).await;
    locks
}

async fn verdict(locks: &LockManager, key: &str) -> (KeyVerdict, String) {
    let status = locks.holders(key).await.unwrap();
    (status.verdict, status.to_string())
}

#[tokio::test(start_paused = true)]
async fn the_verdict_is_that_of_a_quorum() {
    let nodes = Nodes::five();
    let locks = named(&nodes, "here").await;
    let free = (KeyVerdict::Free, "free".to_owned());
    assert_eq!(verdict(&locks, "k").await, free);
    for (node, number) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
        occupy(&nodes.0[node], place("k"), number, TTL).await;
    }
    let (split, text) = verdict(&locks, "k").await;
    assert_eq!(split, KeyVerdict::Split, "{text}");
    nodes.each([4], MemoryNode::go_down);
    assert_eq!(verdict(&locks, "k").await.0, KeyVerdict::Unknown);
    nodes.each([0], MemoryNode::go_down);
    let unknown = "unknown: too few nodes that vote have answered";
    assert_eq!(
        verdict(&locks, "k").await,
        (KeyVerdict::Unknown, unknown.to_owned())
    );
    nodes.each([0, 4], MemoryNode::come_up);
    nodes.each(0..2, MemoryNode::forget);
    let (free, text) = verdict(&locks, "k").await;
    assert_eq!(free, KeyVerdict::Free);
    assert!(text == "free, but on a few nodes", "{text}");
}

/// Neither nodes that are free nor those that do not answer are a quorum.
#[tokio::test(start_paused = true)]
async fn what_does_not_answer_may_be_a_holder() {
    let nodes = Nodes::five();
    let locks = connected(nodes.unguarded().mask_losses(1)).await;
    nodes.each([0, 1], MemoryNode::go_down);
    assert_eq!(verdict(&locks, "k").await.0, KeyVerdict::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_says_nothing_is_told_as_such() {
    let nodes = Nodes::five();
    let locks = named(&nodes, "here").await;
    nodes.each([1], MemoryNode::freeze);
    let begin = Instant::now();
    let status = locks.holders("k").await.unwrap();
    assert_eq!(begin.elapsed(), SECOND);
    let reason = status.nodes[1].error.as_ref().unwrap().to_string();
    assert!(reason.contains("no answer within 1s"), "{reason}");
    assert_eq!(status.verdict, KeyVerdict::Free);
}

async fn run(locks: &LockManager, key: &str) -> RunGuard {
    let begun = locks.begin_idempotent(key, 60 * SECOND, Duration::ZERO);
    to_run(begun.await)
}

#[tokio::test(start_paused = true)]
async fn of_an_idempotency_key_its_run_is_told_and_for_how_long_its_result_is_stored() {
    let nodes = Nodes::five();
    let (here, there) = (named(&nodes, "here").await, named(&nodes, "there").await);
    let guard = run(&there, "invoice:7").await;
    let other = run(&there, "invoice:8").await;
    let _lock = there.try_acquire("invoice:9").await.unwrap();
    let keys = async || {
        let list = here.list_idempotent("invoice:", 10).await;
        assert!(!list.more && list.failures.is_empty());
        let keys = list.locks.into_iter().map(|lock| lock.key);
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys().await, ["invoice:7", "invoice:8"]);
    let status = here.idempotent_holders("invoice:7").await.unwrap();
    assert_eq!(status.verdict, KeyVerdict::Held);
    assert_eq!(status.holder().unwrap().instance, "there");
    let stored = |status: &KeyStatus, time| status.nodes.iter().all(|it| it.stored_for == time);
    assert!(stored(&status, None));
    // The lock of that name is another one.
    assert_eq!(verdict(&here, "invoice:7").await.0, KeyVerdict::Free);

    guard.complete("paid").await.unwrap();
    sleep(10 * SECOND).await;
    let status = here.idempotent_holders("invoice:7").await.unwrap();
    assert_eq!(status.verdict, KeyVerdict::Free);
    let json = serde_json::to_value(&status).unwrap();
    assert!(!json.to_string().contains("paid"), "{json}");
    assert_eq!(json["nodes"][0]["stored_for"], 50.0);
    assert!(stored(&status, Some(50 * SECOND)));
    assert_eq!(keys().await, ["invoice:8"], "only what runs");
    sleep(50 * SECOND).await;
    let status = here.idempotent_holders("invoice:7").await.unwrap();
    assert!(stored(&status, None));
    other.abandon().await.unwrap();
}

/// The run that was taken stores nothing once another one has begun.
#[tokio::test(start_paused = true)]
async fn a_run_is_taken_from_its_process_as_a_lock_is() {
    let nodes = Nodes::five();
    let operator = named(&nodes, "operator").await;
    let there = named(&nodes, "there").await;
    let taken = run(&there, "k").await;
    let seen = operator.idempotent_holders("k").await.unwrap();
    assert_eq!(seen.holder().unwrap().instance, "there");
    assert_eq!(operator.force_release(&seen, false).await, Ok(5));
    assert!(taken.handle().is_lost());
    let next = run(&operator, "k").await;
    taken.complete("late").await.unwrap_err();
    next.complete("next").await.unwrap();
    let stored = there.begin_idempotent("k", SECOND, SECOND).await;
    assert_eq!(replayed(stored), "next");
}

/// Nobody else has the key before the holder's validity is over, whether the holder notices or not.
#[tokio::test(start_paused = true)]
async fn a_forced_release_lets_the_holder_notice_first() {
    let nodes = Nodes::five();
    let operator = named(&nodes, "operator").await;
    let there = nodes.met().await;
    let guard = there.try_acquire("k").await.unwrap();
    nodes.settle_on("k", 5).await;
    let seen = operator.holders("k").await.unwrap();
    let begin = Instant::now();
    let lost = guard.lost();
    let lost = tokio::spawn(async move { (lost.await, Instant::now()) });
    let other = named(&nodes, "other").await.with_max_wait(60 * SECOND);
    let other = spawn(&other, |other| async move {
        (other.acquire("k").await.unwrap(), Instant::now())
    });
    assert_eq!(operator.force_release(&seen, false).await, Ok(5));
    assert_eq!(begin.elapsed(), 10 * SECOND);
    let (reason, lost) = lost.await.unwrap();
    assert_eq!(reason, LossReason::Taken);
    let noticed = lost.duration_since(begin);
    assert!(noticed < 4 * SECOND, "at its next extension: {noticed:?}");
    let (_guard, got) = other.await.unwrap();
    // It was told, and did not wait for the end of the ttl.
    assert!(got.duration_since(begin) < 10 * SECOND + 100 * MS);
    assert!(got > lost);
    drop(guard);
}

/// A tool beside the service must not end what only its processes may end.
#[tokio::test(start_paused = true)]
async fn an_observer_ends_no_quarantine_and_begins_none() {
    let nodes = Nodes::five();
    let first = lazy(nodes.builder().observing());
    sleep(60 * SECOND).await;
    assert!(!first.has_quorum());
    drop(first);
    let locks = named(&nodes, "here").await;
    let observer = lazy(nodes.builder().observing());
    meet(&observer).await;
    nodes.each(0..5, MemoryNode::forget);
    drop(locks);
    sleep(60 * SECOND).await;
    assert!(!observer.has_quorum());
    let text = format!("{:?}", observer.snapshot().nodes);
    assert_eq!(text.matches("Quarantined").count(), 5, "{text}");
}
