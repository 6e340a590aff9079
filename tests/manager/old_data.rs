//! Nodes that come back with what they had before: the numbers go on, and so do the ballots of what runs once.

use super::fence::{PAST, dated, fence};
use super::*;

/// Longer than any quarantine here, and shorter than what nodes take for a clock that went mad; in microseconds.
const AHEAD: u64 = 30 * 60 * 1_000_000;

/// Waits until the nodes that had to be in quarantine vote.
async fn promoted(locks: &LockManager) {
    let standings = || locks.snapshot().nodes.into_iter().map(|node| node.voting);
    sleep(MS).await;
    assert_quarantined(&standings().next().unwrap());
    for _ in 0..100 {
        if standings().all(|standing| standing == VotingStatus::Voting) {
            return;
        }
        sleep(TTL / 10).await;
    }
    panic!("no promotion: {:?}", locks.snapshot().nodes);
}

/// Three nodes on which `count` was called, of which the first comes back with what it had then; meanwhile `lose` was
/// called while the third was away and the date was ahead. The second is away when this returns.
async fn forget_what_came_since<T>(
    count: impl AsyncFnOnce(&LockManager),
    lose: impl AsyncFnOnce(&LockManager) -> T,
) -> (Nodes, LockManager, T) {
    let nodes = Nodes::of(3);
    let (locks, _) = dated(nodes.builder(), PAST);
    sleep(MS).await;
    count(&locks).await;
    let saved = nodes.0[0].snapshot();
    nodes.each([2], MemoryNode::go_down);
    let (ahead, _) = dated(nodes.builder(), PAST + AHEAD);
    let lost = lose(&ahead).await;
    // It tells nobody of it later.
    ahead.shutdown(Duration::ZERO).await;
    nodes.each([2], MemoryNode::come_up);
    nodes.0[0].restore(&saved);
    drop(locks.try_acquire("probe").await);
    promoted(&locks).await;
    nodes.each([1], MemoryNode::go_down);
    (nodes, locks, lost)
}

#[tokio::test(start_paused = true)]
async fn tokens_go_on_after_a_node_came_back_with_old_data() {
    let count = async |locks: &LockManager| assert!(fence(locks, "counted").await > 0);
    let lose =
        async |locks: &LockManager| [fence(locks, "counted").await, fence(locks, "new").await];
    let (_nodes, locks, [counted, new]) = forget_what_came_since(count, lose).await;
    for (key, before) in [("counted", counted), ("new", new)] {
        let after = fence(&locks, key).await;
        assert!(after > before, "{key}: {after} after {before}");
    }
}

async fn begin(locks: &LockManager) -> Result<IdempotentRun, AcquireError> {
    locks.begin_idempotent("pay", DAY, Duration::ZERO).await
}

#[tokio::test(start_paused = true)]
async fn a_run_after_a_node_came_back_with_what_it_had_before_has_the_higher_ballot() {
    let run = async |locks: &LockManager| to_run(begin(locks).await);
    let count = async |locks: &LockManager| run(locks).await.abandon().await.unwrap();
    let lose = async |locks: &LockManager| {
        let run = run(locks).await;
        let ballot = run.fence();
        run.complete("first").await.unwrap();
        ballot
    };
    let (nodes, locks, ballot) = forget_what_came_since(count, lose).await;
    // One node too many has lost what it was told, so it runs again; but what is said then is the last word.
    let again = run(&locks).await;
    assert!(again.fence() > ballot, "{} after {ballot}", again.fence());
    again.complete("second").await.unwrap();
    nodes.each([1], MemoryNode::come_up);
    for away in [0, 2, 1] {
        nodes.each([away], MemoryNode::go_down);
        assert_eq!(replayed(begin(&locks).await), "second", "without n{away}");
        nodes.each([away], MemoryNode::come_up);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_set_back_holds_what_it_held_then_and_does_not_vote() {
    let nodes = Nodes::of(3);
    let locks = nodes.manager();
    sleep(MS).await;
    let before = locks.try_acquire("before").await.unwrap();
    let saved = nodes.0[0].snapshot();
    before.release().await.unwrap();
    let since = locks.try_acquire("since").await.unwrap();
    nodes.0[0].restore(&saved);
    assert_eq!(nodes.0[0].keys(), ["lk:before"], "{saved:?}");
    nodes.each([2], MemoryNode::go_down);
    for key in ["before", "since", "new"] {
        locks.try_acquire(key).await.unwrap_err();
    }
    nodes.each([2], MemoryNode::come_up);
    // What has expired meanwhile does not come back, and another quarantine begins each time.
    promoted(&locks).await;
    nodes.0[0].restore(&saved);
    drop(locks.try_acquire("probe").await);
    promoted(&locks).await;
    assert!(!nodes.0[0].keys().contains(&"lk:before".to_owned()));
    assert!(!since.is_lost(), "two of three knew it all the time");
    // One that was saved before it had been asked anything may have forgotten, too.
    let (fresh, saved) = (nodes.0[1].clone(), MemoryNode::new("new").snapshot());
    fresh.restore(&saved);
    drop(locks.try_acquire("probe").await);
    sleep(MS).await;
    assert_quarantined(&locks.snapshot().nodes[1].voting);
}

/// The run that came later is told that its result is kept; then the node that the two have in common comes back with
/// what it had before, and the run that came first, which stood still, has its result to say.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_overtaken_keeps_no_result_on_a_node_that_came_back_with_old_data() {
    let nodes = nodes(3);
    let process = || Process::on(&nodes);
    let (first, second) = (process(), process());
    let (a, b, c) = (
        lazy(first.builder()),
        lazy(second.builder()),
        lazy(process().builder()),
    );
    sleep(TTL).await;
    first.0[2].cut();
    let overtaken = to_run(begin(&a).await);
    let saved = nodes[1].snapshot();
    first.0.iter().for_each(Link::cut);
    sleep(2 * TTL).await;
    second.0[0].cut();
    to_run(begin(&b).await).complete("b").await.unwrap();
    nodes[1].restore(&saved);
    sleep(2 * TTL).await;
    assert_eq!(voting(&c), 3);
    first.0[..2].iter().for_each(Link::mend);
    overtaken.complete("a").await.unwrap_err();
}
