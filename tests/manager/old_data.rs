//! Nodes that come back with what they had before: the numbers go on, and so do the ballots of what runs once.

use std::time::Duration;

use tokio::time::sleep;
use tower_redlock::LockManager;
use tower_redlock::idempotency::IdempotentRun;
use tower_redlock::node::MemoryNode;
use tower_redlock::snapshot::VotingStatus;

use super::fence::{PAST, dated, fence};
use super::{MS, Nodes, TTL};

/// Longer than any quarantine here, and shorter than what nodes take for a clock that went mad; in microseconds.
const AHEAD: u64 = 30 * 60 * 1_000_000;
const DAY: Duration = Duration::from_secs(86_400);

fn three() -> Nodes {
    Nodes((0..3).map(|n| MemoryNode::new(format!("n{n}"))).collect())
}

/// Waits until the nodes that had to be in quarantine vote.
async fn promoted(locks: &LockManager) {
    let standings = || locks.snapshot().nodes.into_iter().map(|node| node.voting);
    sleep(MS).await;
    let of_first = standings().next().unwrap();
    assert!(
        matches!(of_first, VotingStatus::Quarantined { .. }),
        "{of_first:?}"
    );
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
    let nodes = three();
    let (locks, _) = dated(&nodes, PAST);
    sleep(MS).await;
    count(&locks).await;
    let saved = nodes.0[0].snapshot();
    nodes.each([2], MemoryNode::go_down);
    let (ahead, _) = dated(&nodes, PAST + AHEAD);
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

async fn run(locks: &LockManager) -> tower_redlock::idempotency::RunGuard {
    match locks
        .begin_idempotent("pay", DAY, Duration::ZERO)
        .await
        .unwrap()
    {
        IdempotentRun::Execute(run) => run,
        other => panic!("already done: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_after_a_node_came_back_with_what_it_had_before_has_the_higher_ballot() {
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
        match locks
            .begin_idempotent("pay", DAY, Duration::ZERO)
            .await
            .unwrap()
        {
            IdempotentRun::Replay(told) => assert_eq!(told, "second", "without n{away}"),
            other => panic!("without n{away} it runs a third time: {other:?}"),
        }
        nodes.each([away], MemoryNode::come_up);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_set_back_holds_what_it_held_then_and_does_not_vote() {
    let nodes = three();
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
    let standing = locks.snapshot().nodes.remove(1).voting;
    assert!(
        matches!(standing, VotingStatus::Quarantined { .. }),
        "{standing:?}"
    );
}

/// The run that came later is told that its result is kept; then the node that the two have in common comes back with
/// what it had before, and the run that came first, which stood still, has its result to say.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_overtaken_keeps_no_result_on_a_node_that_came_back_with_old_data() {
    let nodes = super::links::nodes(3);
    let process = || super::links::Process::on(&nodes);
    let (first, second, third) = (process(), process(), process());
    let manager = |process: &super::links::Process| process.builder().connect_lazy().unwrap();
    let (a, b, c) = (manager(&first), manager(&second), manager(&third));
    sleep(TTL).await;
    let run = async |locks: &LockManager| match locks
        .begin_idempotent("order", DAY, Duration::ZERO)
        .await
    {
        Ok(IdempotentRun::Execute(run)) => run,
        other => panic!("{other:?}"),
    };
    first.0[2].cut();
    let overtaken = run(&a).await;
    let saved = nodes[1].snapshot();
    first.0.iter().for_each(super::links::Link::cut);
    sleep(2 * TTL).await;
    second.0[0].cut();
    run(&b).await.complete("b").await.unwrap();
    nodes[1].restore(&saved);
    sleep(2 * TTL).await;
    let votes = |node: tower_redlock::snapshot::NodeStatus| node.voting == VotingStatus::Voting;
    assert!(c.snapshot().nodes.into_iter().all(votes));
    first.0[..2].iter().for_each(super::links::Link::mend);
    overtaken.complete("a").await.unwrap_err();
}
