//! Work that is done once: what it came to is told to whoever asks again.

use crate::requests::*;
use std::time::Duration;

use bytes::Bytes;

use tower_redlock::idempotency::{IdempotentRun, RunGuard};
use tower_redlock::node::MemoryNode;
use tower_redlock::node::{
    AcquireReply, AcquireRequest, CompleteReply, CompleteRequest, Fence, Namespace, Node, NodeKey,
    NodeKeys, OwnerToken, RecallRequest, Record, ReleaseRequest,
};
use tower_redlock::{AcquireError, FencingToken, LockKey, LockManager};

use super::far::Far;
use super::{MS, Nodes, TTL, assert_idle};

/// The year 2100, which no test lives to see.
const FAR: u64 = 4_102_444_800_000;
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

async fn begin(locks: &LockManager, wait: Duration) -> Result<IdempotentRun, AcquireError> {
    locks.begin_idempotent("order", DAY, wait).await
}

pub(crate) async fn run(locks: &LockManager) -> RunGuard {
    match begin(locks, TTL).await {
        Ok(IdempotentRun::Execute(run)) => run,
        other => panic!("not to be run: {other:?}"),
    }
}

pub(crate) async fn replay(locks: &LockManager) -> Bytes {
    match begin(locks, TTL).await {
        Ok(IdempotentRun::Replay(body)) => body,
        other => panic!("not replayed: {other:?}"),
    }
}

fn place() -> NodeKey {
    Namespace::default()
        .idempotency()
        .node_key(&LockKey::new("order").unwrap())
}

fn owner(seed: u8) -> OwnerToken {
    OwnerToken::from_entropy([seed; OwnerToken::ENTROPY_LEN])
}

/// Puts a record on a node, as somebody did who crashed then.
async fn put(node: &MemoryNode, ballot: u64, body: &'static str) {
    let record = Record::new(FencingToken::new(ballot).unwrap(), Bytes::from(body), FAR);
    let release = ReleaseRequest::new(place(), owner(0), false);
    let request = CompleteRequest::new(release, Some(record)).chosen();
    let stored = node.complete(request).await;
    assert_eq!(stored, Ok(CompleteReply::Stored { listeners: 0 }));
}

/// What a node has, if anything.
async fn look(node: &MemoryNode) -> Option<Bytes> {
    let token = owner(1);
    let fence = Fence::new(FencingToken::new(1).unwrap(), DAY);
    let lock = AcquireRequest::new(place(), token, MS).fenced(Some(fence));
    match node.recall(RecallRequest::new(lock, false, MS)).await {
        Ok(AcquireReply::Recorded(record)) => Some(record.body),
        Ok(AcquireReply::Promised { .. }) => {
            let release = ReleaseRequest::new(NodeKeys::from(place()), token, false);
            node.complete(CompleteRequest::new(release, None))
                .await
                .unwrap();
            None
        }
        _ => None,
    }
}

pub(crate) async fn with_record(nodes: &Nodes) -> usize {
    let mut count = 0;
    for node in &nodes.0 {
        count += usize::from(look(node).await.is_some());
    }
    count
}

/// How many nodes hold the lock of the work.
fn holding(nodes: &Nodes) -> usize {
    let (key, nodes) = (place(), nodes.0.iter());
    let held = nodes.filter(|node| node.holder(key.as_str()).is_some());
    held.count()
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_not_done_again_and_everybody_is_told_the_same() {
    let nodes = Nodes::five();
    let (here, there) = (nodes.manager(), nodes.manager());
    let guard = run(&here).await;
    let (fence, busy) = (guard.handle().fence(), begin(&there, Duration::ZERO).await);
    assert!(
        matches!(busy, Err(AcquireError::Contended { .. })),
        "{busy:?}"
    );
    assert!(matches!(
        begin(&here, Duration::ZERO).await,
        Err(AcquireError::Contended { .. })
    ));
    guard.complete("shipped").await.unwrap();
    assert!(fence.is_some());
    for locks in [&here, &there, &here] {
        assert_eq!(replay(locks).await, "shipped");
    }
    nodes
        .settle("no lock is left", |nodes| holding(nodes) == 0)
        .await;
    assert_eq!(with_record(&nodes).await, 5);
    assert_idle(&here).await;
    assert_idle(&there).await;
}

/// Has `node` grant the lock under `number` once.
async fn count_up(node: &MemoryNode, number: u64) {
    let fence = Fence::new(FencingToken::new(number).unwrap(), DAY);
    let lock = AcquireRequest::new(place(), owner(2), TTL).fenced(Some(fence));
    node.acquire(lock).await.unwrap();
    let release = ReleaseRequest::new(place(), owner(2), false);
    node.release(release).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_by_those_that_granted_whatever_each_has_counted() {
    let nodes = Nodes((0..3).map(|n| MemoryNode::new(format!("n{n}"))).collect());
    let locks = nodes.manager();
    let before = run(&locks).await;
    let high = before.handle().fence().unwrap().get() + (1 << 40);
    before.abandon().await.unwrap();
    count_up(&nodes.0[0], high).await;
    let guard = run(&locks).await;
    let ballot = guard.handle().fence().unwrap().get();
    assert!(
        ballot > high,
        "{ballot} is no more than a node has promised"
    );
    // The two others can do it, and one of them has counted less.
    nodes.0[1].go_down();
    guard.complete("shipped").await.unwrap();
    nodes.0[1].come_up();
    assert_eq!(replay(&locks).await, "shipped");
    nodes
        .settle("no lock is left", |nodes| holding(nodes) == 0)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_round_trip_acquires_or_replays_and_another_completes() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    // So that what a manager asks at its start is not counted.
    locks.run("warm", |_| async {}).await.unwrap();
    nodes.settle_free("warm").await;
    let before = nodes.commands();
    let guard = run(&locks).await;
    assert_eq!(nodes.commands() - before, 5);
    guard.complete("done").await.unwrap();
    nodes
        .settle("all have it", |nodes| nodes.commands() - before == 10)
        .await;
    replay(&locks).await;
    nodes
        .settle("all answered", |nodes| nodes.commands() - before == 15)
        .await;
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_told_as_soon_as_it_is_done() {
    let nodes = Nodes::five();
    let (here, there) = (nodes.manager(), nodes.manager());
    let guard = run(&here).await;
    let waiters: Vec<_> = [&here, &here, &there, &there]
        .map(|locks| {
            let locks = locks.clone();
            tokio::spawn(async move { (replay(&locks).await, tokio::time::Instant::now()) })
        })
        .into();
    tokio::time::sleep(MS * 700).await;
    let done = tokio::time::Instant::now();
    guard.complete("done").await.unwrap();
    for waiter in waiters {
        let (body, told) = waiter.await.unwrap();
        assert_eq!(body, "done");
        assert!(told - done < MS * 50, "{:?}", told - done);
    }
    assert_idle(&here).await;
    assert_idle(&there).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_said_is_done_again() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    run(&locks).await.abandon().await.unwrap();
    assert_eq!(holding(&nodes), 0);
    drop(run(&locks).await);
    let guard = run(&locks).await;
    let fence = guard.handle().fence();
    guard.abandon().await.unwrap();
    let again = run(&locks).await;
    assert!(
        again.handle().fence() > fence,
        "each run has a number of its own"
    );
    again.complete("at last").await.unwrap();
    assert_eq!(replay(&locks).await, "at last");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_never_takes_over_the_lock_of_the_one_before() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = run(&locks).await;
    let token = nodes.0[0].holder(place().as_str());
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { run(&locks).await }
    });
    tokio::time::sleep(MS).await;
    drop(guard);
    let next = waiter.await.unwrap();
    assert_ne!(nodes.0[0].holder(place().as_str()), token);
    assert_ne!(token, None);
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn what_a_minority_has_is_brought_to_a_quorum_before_it_is_told() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    put(&nodes.0[3], 5, "half").await;
    assert_eq!(replay(&locks).await, "half");
    nodes
        .settle("no lock is left", |nodes| holding(nodes) == 0)
        .await;
    assert!(with_record(&nodes).await >= 3);
    // For good: whatever other nodes are asked.
    nodes.each([1, 3], MemoryNode::go_down);
    assert_eq!(replay(&locks).await, "half");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_brought_to_a_quorum_is_told_to_nobody() {
    let mut told = Vec::new();
    for step in 0..10 {
        let far = Far::new(20 * MS, None);
        let locks = far.manager();
        put(&far.nodes.0[2], 5, "half").await;
        let asked = tokio::spawn(async move { begin(&locks, Duration::ZERO).await });
        // While its commands, or the replies to them, are under way.
        tokio::time::sleep(10 * MS + 20 * MS * step).await;
        far.nodes.each([0, 1], MemoryNode::go_down);
        let is_told = matches!(asked.await.unwrap(), Ok(IdempotentRun::Replay(_)));
        far.nodes.each([0, 1], MemoryNode::come_up);
        let count = with_record(&far.nodes).await;
        assert!(!is_told || count >= 2, "step {step}: {count} nodes have it");
        told.push(is_told);
    }
    assert!(told.contains(&true) && told.contains(&false), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn of_several_the_one_with_the_highest_ballot_may_have_been_told() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    put(&nodes.0[0], 5, "old").await;
    put(&nodes.0[1], 5, "old").await;
    put(&nodes.0[2], 9, "new").await;
    assert_eq!(replay(&locks).await, "new");
    nodes.each([0, 1], MemoryNode::go_down);
    assert_eq!(replay(&locks).await, "new");
}

#[tokio::test(start_paused = true)]
async fn a_quorum_of_one_ballot_is_told_at_once_and_the_rest_is_mended() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    for node in [0, 1, 2] {
        put(&nodes.0[node], 7, "chosen").await;
    }
    put(&nodes.0[4], 3, "lost").await;
    assert_eq!(replay(&locks).await, "chosen");
    nodes
        .settle("no lock is left", |nodes| holding(nodes) == 0)
        .await;
    for node in &nodes.0 {
        assert_eq!(look(node).await, Some(Bytes::from("chosen")), "{node:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_lost_the_lock_may_still_say_what_came_of_it_if_nobody_came_after() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = run(&locks).await;
    nodes.each(0..5, MemoryNode::go_down);
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.handle().is_lost());
    nodes.each(0..5, MemoryNode::come_up);
    assert_eq!(holding(&nodes), 0, "the nodes have let it expire");
    guard.complete("late").await.unwrap();
    assert_eq!(replay(&locks).await, "late");
}

/// A node remembers a grant for as long as it keeps responses, but for a minute at least.
#[tokio::test(start_paused = true)]
async fn a_run_that_outlasts_what_nodes_remember_of_its_grant_is_stored() {
    for (keep, work) in [(1, 61), (30, 90), (120, 200)] {
        let (keep, work) = (Duration::from_secs(keep), Duration::from_secs(work));
        let nodes = Nodes::five();
        let locks = nodes.builder().max_hold(2 * work).connect_lazy().unwrap();
        let begin = async || locks.begin_idempotent("order", keep, TTL).await.unwrap();
        let IdempotentRun::Execute(run) = begin().await else {
            panic!("there is no response yet");
        };
        tokio::time::sleep(work).await;
        assert!(!run.handle().is_lost());
        run.complete("late").await.unwrap();
        let again = begin().await;
        assert!(
            matches!(&again, IdempotentRun::Replay(body) if body == "late"),
            "{again:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn who_came_after_decides() {
    let nodes = Nodes::five();
    let (here, there) = (nodes.manager(), nodes.manager());
    let slow = run(&here).await;
    nodes.each(0..5, MemoryNode::go_down);
    tokio::time::sleep(TTL * 2).await;
    nodes.each(0..5, MemoryNode::come_up);
    let next = run(&there).await;
    let late = slow.complete("first").await;
    assert!(late.is_err(), "{late:?}");
    next.complete("second").await.unwrap();
    for locks in [&here, &there] {
        assert_eq!(replay(locks).await, "second");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_nobody_is_told_that_it_is_kept() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = run(&locks).await;
    nodes.each([0, 1, 2], MemoryNode::go_down);
    let error = guard.complete("perhaps").await.unwrap_err();
    assert!(error.to_string().contains("only 2 of the 3"), "{error}");
    // When they are back they are given it, for as long as the lock lasts at least.
    nodes.each([0, 1, 2], MemoryNode::come_up);
    assert_eq!(replay(&locks).await, "perhaps");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_away_is_given_what_it_missed() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    nodes.each([4], MemoryNode::go_down);
    run(&locks).await.complete("kept").await.unwrap();
    nodes.each([4], MemoryNode::come_up);
    tokio::time::sleep(MS * 600).await;
    assert_eq!(with_record(&nodes).await, 5);

    // One that was away for longer is given it when it is asked for.
    nodes.each([4], MemoryNode::go_down);
    nodes.each([4], MemoryNode::forget);
    tokio::time::sleep(Duration::from_secs(120)).await;
    nodes.each([4], MemoryNode::come_up);
    assert_eq!(replay(&locks).await, "kept");
}

/// Whichever two forget it unseen, and whichever two cannot be reached then.
#[tokio::test(start_paused = true)]
async fn what_all_nodes_have_as_many_may_forget_as_a_quorum_can_spare() {
    for (forget, away) in [([0, 1], [2, 3]), ([0, 4], [1, 3]), ([3, 4], [0, 1])] {
        let nodes = Nodes::five();
        run(&nodes.forgetful())
            .await
            .complete("kept")
            .await
            .unwrap();
        nodes
            .settle("no lock is left", |nodes| holding(nodes) == 0)
            .await;
        assert_eq!(with_record(&nodes).await, 5);
        nodes.each(forget, MemoryNode::forget);
        nodes.each(away, MemoryNode::go_down);
        assert_eq!(replay(&nodes.forgetful()).await, "kept");
        nodes.each(away, MemoryNode::come_up);
        assert_eq!(replay(&nodes.forgetful()).await, "kept");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_completion_half_way_completes_it() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = run(&locks).await;
    nodes.each(0..5, MemoryNode::freeze);
    let mut complete = Box::pin(guard.complete("done"));
    assert!(super::poll_once(&mut complete).await.is_none());
    drop(complete);
    nodes.each(0..5, MemoryNode::thaw);
    assert_eq!(replay(&locks).await, "done");
    assert_idle(&locks).await;
    assert_eq!(with_record(&nodes).await, 5);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_at_once_though_the_completion_was_dropped() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = run(&locks).await;
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { replay(&locks).await }
    });
    tokio::time::sleep(MS).await;
    nodes.each(0..5, MemoryNode::freeze);
    let mut complete = Box::pin(guard.complete("done"));
    assert!(super::poll_once(&mut complete).await.is_none());
    drop(complete);
    // One never answers.
    nodes.each(1..5, MemoryNode::thaw);
    let told = tokio::time::timeout(MS * 10, waiter).await.unwrap();
    assert_eq!(told.unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_kept_is_done_again() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let Ok(IdempotentRun::Execute(guard)) = locks
        .begin_idempotent("order", Duration::from_secs(100), TTL)
        .await
    else {
        panic!("nobody did it");
    };
    guard.complete("done").await.unwrap();
    tokio::time::sleep(Duration::from_secs(99)).await;
    assert_eq!(replay(&locks).await, "done");
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(run(&locks).await);
}

/// A node that was away at the grant does not remember it: it knows by the counter that nobody was granted since.
#[tokio::test(start_paused = true)]
async fn a_run_that_outlives_the_counters_of_locks_is_stored_where_only_its_renewals_came() {
    let nodes = Nodes::five();
    let brief = nodes.builder().fencing_keep(TTL);
    let locks = brief.max_hold(DAY).connect_lazy().unwrap();
    super::meet(&locks).await;
    nodes.each([3, 4], MemoryNode::go_down);
    let guard = run(&locks).await;
    nodes.each([3, 4], MemoryNode::come_up);
    tokio::time::sleep(TTL * 3).await;
    // The number of this lock is higher.
    let other = locks.try_acquire("another order").await.unwrap();
    other.release().await.unwrap();
    tokio::time::sleep(TTL * 3).await;
    nodes.each([0, 1], MemoryNode::go_down);
    guard.complete("done").await.unwrap();
    assert_eq!(replay(&locks).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_the_same_name_is_another() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = run(&locks).await;
    let lock = locks.try_acquire("order").await.unwrap();
    guard.complete("done").await.unwrap();
    assert!(!lock.is_lost());
    lock.release().await.unwrap();
    assert_eq!(replay(&locks).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_node_costs_a_replay_nothing() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    run(&locks).await.complete("done").await.unwrap();
    nodes.each([0, 1], MemoryNode::freeze);
    let began = tokio::time::Instant::now();
    assert_eq!(replay(&locks).await, "done");
    assert!(began.elapsed() < MS, "{:?}", began.elapsed());
}

/// Answers that are kept for a node that is down must not use up what releases need.
#[tokio::test(start_paused = true)]
async fn records_that_wait_for_a_node_leave_room_for_releases() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    nodes.each([0], MemoryNode::go_down);
    // As many as there are in a minute of a service that is not even busy.
    for number in 0..10_100 {
        let work = locks.begin_idempotent(format!("order:{number}"), DAY, Duration::ZERO);
        let Ok(IdempotentRun::Execute(run)) = work.await else {
            panic!("somebody did it");
        };
        run.complete("done").await.unwrap();
        // As a service does, whose nodes do not answer at once.
        tokio::task::yield_now().await;
    }
    let mut guards = Vec::new();
    for number in 0..10 {
        guards.push(locks.acquire(format!("invoice:{number}")).await.unwrap());
    }
    drop(guards);
    tokio::time::sleep(MS).await;
    for number in 0..10 {
        assert_eq!(nodes.holding(&format!("invoice:{number}")), 0, "{number}");
    }
}

/// Of those on their way, so many bytes go to all nodes at once; a node gives its part back alone.
#[tokio::test(start_paused = true)]
async fn a_long_result_goes_to_the_nodes_in_turn_and_a_frozen_node_keeps_only_its_part() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    let begin = async |key: &'static str| match locks.begin_idempotent(key, DAY, TTL).await {
        Ok(IdempotentRun::Execute(run)) => run,
        other => panic!("not to be run: {other:?}"),
    };
    let long = || "x".repeat(1_000_000);
    let runs = [begin("a").await, begin("b").await, begin("c").await];
    let later = [begin("g").await, begin("h").await, begin("i").await];
    nodes.each([0], MemoryNode::freeze);
    for runs in [runs, later] {
        let began = tokio::time::Instant::now();
        for run in runs {
            run.complete(long()).await.unwrap();
        }
        assert!(began.elapsed() < MS, "{:?}", began.elapsed());
        // Until the node is not waited for any more.
        tokio::time::sleep(250 * MS).await;
    }
    nodes.each([0], MemoryNode::thaw);
    tokio::time::sleep(MS).await;
    // Six have a turn of two node time-outs each within ten, and the last one none.
    let (first, short, last) = (begin("d").await, begin("e").await, begin("f").await);
    let mut others = Vec::new();
    for key in ["j", "k", "l", "m", "n"] {
        others.push(begin(key).await);
    }
    nodes.each(0..5, MemoryNode::freeze);
    let first = tokio::spawn(first.complete(long()));
    tokio::time::sleep(50 * MS).await;
    let others = others
        .into_iter()
        .map(|run| tokio::spawn(run.complete(long())));
    let others: Vec<_> = others.collect();
    let last = tokio::spawn(last.complete(long()));
    tokio::time::sleep(60 * MS).await;
    // Sent at once: it goes on in the background.
    let short = tokio::time::timeout(50 * MS, short.complete("short"));
    short.await.unwrap_err();
    for run in others.into_iter().chain([first, last]) {
        let error = run.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("only 0 of the 3"), "{error}");
    }
    nodes.each(0..5, MemoryNode::thaw);
    tokio::time::sleep(MS).await;
    assert_eq!(nodes.0[4].keys().len(), 0);
    for key in ["d", "e", "j", "n"] {
        let replay = locks.begin_idempotent(key, DAY, TTL).await.unwrap();
        assert!(matches!(replay, IdempotentRun::Replay(_)), "{key}");
    }
    // Nothing was sent of the last one, so it did not happen.
    begin("f").await.abandon().await.unwrap();
}

/// Nothing was sent of it.
#[tokio::test(start_paused = true)]
async fn a_completion_that_is_dropped_while_it_waits_for_its_turn_releases_the_lock() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    let begin = async |key: &'static str| match locks.begin_idempotent(key, DAY, TTL).await {
        Ok(IdempotentRun::Execute(run)) => run,
        other => panic!("not to be run: {other:?}"),
    };
    let (first, second) = (begin("a").await, begin("b").await);
    nodes.each(0..5, MemoryNode::freeze);
    let first = tokio::spawn(first.complete("x".repeat(1_000_000)));
    tokio::time::sleep(10 * MS).await;
    let second = second.complete("x".repeat(1_000_000));
    let dropped = tokio::time::timeout(50 * MS, second).await;
    dropped.unwrap_err();
    nodes.each(0..5, MemoryNode::thaw);
    first.await.unwrap().unwrap();
    begin("b").await.abandon().await.unwrap();
}

/// A reply may be there already when the run begins, and not have been read when the run is given up.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_at_once_is_released_on_all_nodes_that_have_granted() {
    let nodes = Nodes::five();
    let locks = nodes
        .builder()
        .without_restart_guard()
        .connect_lazy()
        .unwrap();
    let second = Duration::from_secs(1);
    let begin = async || locks.begin_idempotent("k", 20 * second, second).await;
    // A record on one node alone.
    let IdempotentRun::Execute(run) = begin().await.unwrap() else {
        panic!("it was never done");
    };
    nodes.0[1..].iter().for_each(MemoryNode::go_down);
    let _ = run.complete("a").await;
    tokio::time::sleep(12 * second).await;
    nodes.0[1..].iter().for_each(MemoryNode::come_up);
    // Just before the end of the record, so that the replies of the second round come on both sides of it.
    tokio::time::sleep(7_840 * MS).await;
    nodes.0[1..].iter().for_each(MemoryNode::freeze);
    let breathe = async || {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    };
    let replies = async {
        breathe().await;
        for node in &nodes.0[1..] {
            node.thaw();
            node.freeze();
        }
        breathe().await;
        tokio::time::sleep(170 * MS).await;
        nodes.0[1..3].iter().for_each(MemoryNode::thaw);
        breathe().await;
        nodes.0[3..].iter().for_each(MemoryNode::thaw);
    };
    let dropped = async { drop(begin().await) };
    tokio::join!(dropped, replies);
    let report = locks.shutdown(2 * second).await;
    let left: Vec<_> = nodes.0.iter().map(MemoryNode::keys).collect();
    assert!(left.iter().all(Vec::is_empty), "{left:?} after {report:?}");
}
