//! Work that is done once: what it came to is told to whoever asks again.

use tower_redlock::node::{CompleteReply, CompleteRequest, RecallRequest, Record};

use super::*;

/// The year 2100, which no test lives to see.
const FAR: u64 = 4_102_444_800_000;

async fn begin(locks: &LockManager, wait: Duration) -> Result<IdempotentRun, AcquireError> {
    locks.begin_idempotent("order", DAY, wait).await
}

async fn run(locks: &LockManager) -> RunGuard {
    to_run(begin(locks, TTL).await)
}

async fn replay(locks: &LockManager) -> Bytes {
    replayed(begin(locks, TTL).await)
}

/// The place of `order` on the nodes.
fn order() -> NodeKey {
    let namespace = Namespace::default().idempotency();
    namespace.node_key(&LockKey::new("order").unwrap())
}

/// Puts a record on a node, as somebody did who crashed then.
async fn put(node: &MemoryNode, ballot: u64, body: &'static str) {
    let record = Record::new(FencingToken::new(ballot).unwrap(), Bytes::from(body), FAR);
    let release = ReleaseRequest::new(order(), owner(0), false);
    let request = CompleteRequest::new(release, Some(record)).chosen();
    let stored = node.complete(request).await;
    assert_eq!(stored, Ok(CompleteReply::Stored { listeners: 0 }));
}

/// What a node has, if anything.
async fn look(node: &MemoryNode) -> Option<Bytes> {
    let token = owner(1);
    let fence = Fence::new(FencingToken::new(1).unwrap(), DAY);
    let lock = AcquireRequest::new(order(), token, MS).fenced(Some(fence));
    match node.recall(RecallRequest::new(lock, false, MS)).await {
        Ok(AcquireReply::Recorded(record)) => Some(record.body),
        Ok(AcquireReply::Promised { .. }) => {
            let release = ReleaseRequest::new(NodeKeys::from(order()), token, false);
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
    let (key, nodes) = (order(), nodes.0.iter());
    let held = nodes.filter(|node| node.holder(key.as_str()).is_some());
    held.count()
}

async fn no_lock_is_left(nodes: &Nodes) {
    nodes.settle("no lock", |nodes| holding(nodes) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn debug_shows_nothing_of_a_result() {
    let (_nodes, [locks]) = five();
    let shown = format!("{:?}", run(&locks).await);
    assert_eq!(shown, "RunGuard { key: \"order\", keep: 86400s, .. }");
    let record = Record {
        ballot: FencingToken::new(7).unwrap(),
        body: "secret".into(),
        until: 9,
    };
    let shown = "Record { ballot: FencingToken(7), len: 6, until: 9, .. }";
    assert_eq!(format!("{record:?}"), shown);
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_by_those_that_granted_whatever_each_has_counted() {
    let nodes = Nodes::of(3);
    let locks = nodes.manager();
    let before = run(&locks).await;
    let high = before.handle().fence().unwrap().get() + (1 << 40);
    before.abandon().await.unwrap();
    count_up(&nodes.0[0], order(), high).await;
    let guard = run(&locks).await;
    let ballot = guard.handle().fence().unwrap().get();
    // More than a node has promised.
    assert!(ballot > high, "{ballot}");
    // The two others can do it, and one of them has counted less.
    nodes.0[1].go_down();
    guard.complete("shipped").await.unwrap();
    nodes.0[1].come_up();
    assert_eq!(replay(&locks).await, "shipped");
    no_lock_is_left(&nodes).await;
}

#[tokio::test(start_paused = true)]
async fn a_round_trip_acquires_or_replays_and_another_completes() {
    let (nodes, [locks]) = five();
    // So that what a manager asks at its start is not counted.
    locks.run("warm", |_| async {}).await.unwrap();
    nodes.settle_free("warm").await;
    let before = nodes.commands();
    let guard = run(&locks).await;
    assert_eq!(nodes.commands() - before, 5);
    guard.complete("done").await.unwrap();
    let sent = |nodes: &Nodes| nodes.commands() - before;
    nodes.settle("all have it", |nodes| sent(nodes) == 10).await;
    replay(&locks).await;
    nodes.settle("all tell", |nodes| sent(nodes) == 15).await;
}

/// Also if the completion was dropped half-way, and one node never answers.
#[tokio::test(start_paused = true)]
async fn those_who_wait_are_told_as_soon_as_it_is_done() {
    for is_dropped in [false, true] {
        let (nodes, [here, there]) = five();
        let guard = run(&here).await;
        let waiting: &[_] = if is_dropped {
            &[&here]
        } else {
            &[&here, &here, &there, &there]
        };
        let wait = |locks| spawn(locks, |locks| async move { replay(&locks).await });
        let waiters: Vec<_> = waiting.iter().copied().map(wait).collect();
        sleep(700 * MS).await;
        let done = Instant::now();
        if is_dropped {
            nodes.each(0..5, MemoryNode::freeze);
            drop(begun(guard.complete("done")).await);
            nodes.each(1..5, MemoryNode::thaw);
        } else {
            guard.complete("done").await.unwrap();
        }
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap(), "done");
        }
        assert!(done.elapsed() < 10 * MS, "{:?}", done.elapsed());
        nodes.each(0..1, MemoryNode::thaw);
        assert_idle(&here).await;
        assert_idle(&there).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_said_is_done_again() {
    let (nodes, [locks]) = five();
    run(&locks).await.abandon().await.unwrap();
    assert_eq!(holding(&nodes), 0);
    drop(run(&locks).await);
    let guard = run(&locks).await;
    let fence = guard.handle().fence();
    guard.abandon().await.unwrap();
    let again = run(&locks).await;
    // Each run has a number of its own.
    assert!(again.handle().fence() > fence);
    again.complete("at last").await.unwrap();
    assert_eq!(replay(&locks).await, "at last");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_never_takes_over_the_lock_of_the_one_before() {
    let (nodes, [locks]) = five();
    let guard = run(&locks).await;
    let token = nodes.0[0].holder(order().as_str());
    let waiter = spawn(&locks, |locks| async move { run(&locks).await });
    sleep(MS).await;
    drop(guard);
    let _next = waiter.await.unwrap();
    assert_ne!(nodes.0[0].holder(order().as_str()), token);
    assert_ne!(token, None);
}

/// Ballots and what they say, by nodes.
type Left = [(usize, u64, &'static str)];

#[tokio::test(start_paused = true)]
async fn what_may_have_been_told_is_brought_to_a_quorum_before_it_is_told() {
    let cases: [(&Left, &str); 3] = [
        // What a minority has.
        (&[(3, 5, "half")], "half"),
        // Of several the one with the highest ballot.
        (&[(0, 5, "old"), (1, 5, "old"), (2, 9, "new")], "new"),
        // What a quorum has, and the rest is mended.
        (
            &[
                (0, 7, "chosen"),
                (1, 7, "chosen"),
                (2, 7, "chosen"),
                (4, 3, "lost"),
            ],
            "chosen",
        ),
    ];
    for (left, told) in cases {
        let (nodes, [locks]) = five();
        for (node, ballot, body) in left {
            put(&nodes.0[*node], *ballot, body).await;
        }
        assert_eq!(replay(&locks).await, told);
        no_lock_is_left(&nodes).await;
        let mut having = 0;
        for node in &nodes.0 {
            having += usize::from(look(node).await.as_deref() == Some(told.as_bytes()));
        }
        assert!(
            having >= 3 && (left.len() < 4 || having == 5),
            "{told}: {having}"
        );
        // For good: whatever other nodes are asked.
        for away in [[0, 1], [1, 3]] {
            nodes.each(away, MemoryNode::go_down);
            assert_eq!(replay(&locks).await, told, "without {away:?}");
            nodes.each(away, MemoryNode::come_up);
        }
    }
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
        sleep(10 * MS + 20 * MS * step).await;
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
async fn who_lost_the_lock_may_still_say_what_came_of_it_if_nobody_came_after() {
    let (nodes, [locks]) = five();
    let guard = run(&locks).await;
    nodes.each(0..5, MemoryNode::go_down);
    sleep(TTL * 2).await;
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
        let locks = lazy(nodes.builder().max_hold(2 * work));
        let begin = async || locks.begin_idempotent("order", keep, TTL).await;
        let run = to_run(begin().await);
        sleep(work).await;
        assert!(!run.handle().is_lost());
        run.complete("late").await.unwrap();
        assert_eq!(replayed(begin().await), "late", "{keep:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_came_after_decides() {
    let (nodes, [here, there]) = five();
    let slow = run(&here).await;
    nodes.each(0..5, MemoryNode::go_down);
    sleep(TTL * 2).await;
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
    let (nodes, [locks]) = five();
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
    let (nodes, [locks]) = five_met().await;
    nodes.each([4], MemoryNode::go_down);
    run(&locks).await.complete("kept").await.unwrap();
    nodes.each([4], MemoryNode::come_up);
    sleep(MS * 600).await;
    assert_eq!(with_record(&nodes).await, 5);

    // One that was away for longer is given it when it is asked for.
    nodes.each([4], MemoryNode::go_down);
    nodes.each([4], MemoryNode::forget);
    sleep(120 * SECOND).await;
    nodes.each([4], MemoryNode::come_up);
    assert_eq!(replay(&locks).await, "kept");
}

/// Whichever two forget it unseen, and whichever two cannot be reached then.
#[tokio::test(start_paused = true)]
async fn what_all_nodes_have_as_many_may_forget_as_a_quorum_can_spare() {
    for (forget, away) in [([0, 1], [2, 3]), ([0, 4], [1, 3]), ([3, 4], [0, 1])] {
        let nodes = Nodes::five();
        let guard = run(&nodes.forgetful()).await;
        guard.complete("kept").await.unwrap();
        no_lock_is_left(&nodes).await;
        assert_eq!(with_record(&nodes).await, 5);
        nodes.each(forget, MemoryNode::forget);
        nodes.each(away, MemoryNode::go_down);
        assert_eq!(replay(&nodes.forgetful()).await, "kept");
        nodes.each(away, MemoryNode::come_up);
        assert_eq!(replay(&nodes.forgetful()).await, "kept");
    }
}

/// A node that was away at the grant does not remember it: it knows by the counter that nobody was granted since.
#[tokio::test(start_paused = true)]
async fn a_run_that_outlives_the_counters_of_locks_is_stored_where_only_its_renewals_came() {
    let nodes = Nodes::five();
    let brief = nodes.builder().fencing_keep(TTL);
    let locks = lazy(brief.max_hold(DAY));
    meet(&locks).await;
    nodes.each([3, 4], MemoryNode::go_down);
    let guard = run(&locks).await;
    nodes.each([3, 4], MemoryNode::come_up);
    sleep(TTL * 3).await;
    // The number of this lock is higher.
    let other = locks.try_acquire("another order").await.unwrap();
    other.release().await.unwrap();
    sleep(TTL * 3).await;
    nodes.each([0, 1], MemoryNode::go_down);
    guard.complete("done").await.unwrap();
    assert_eq!(replay(&locks).await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_node_costs_a_replay_nothing() {
    let (nodes, [locks]) = five();
    run(&locks).await.complete("done").await.unwrap();
    nodes.each([0, 1], MemoryNode::freeze);
    let began = Instant::now();
    assert_eq!(replay(&locks).await, "done");
    assert!(began.elapsed() < MS, "{:?}", began.elapsed());
}

/// Answers that are kept for a node that is down must not use up what releases need.
#[tokio::test(start_paused = true)]
async fn records_that_wait_for_a_node_leave_room_for_releases() {
    let (nodes, [locks]) = five_met().await;
    nodes.each([0], MemoryNode::go_down);
    // As many as there are in a minute of a service that is not even busy.
    for number in 0..10_100 {
        let work = locks.begin_idempotent(format!("order:{number}"), DAY, Duration::ZERO);
        to_run(work.await).complete("done").await.unwrap();
        // As a service does, whose nodes do not answer at once.
        tokio::task::yield_now().await;
    }
    let mut guards = Vec::new();
    for number in 0..10 {
        guards.push(locks.acquire(format!("invoice:{number}")).await.unwrap());
    }
    drop(guards);
    sleep(MS).await;
    for number in 0..10 {
        assert_eq!(nodes.holding(&format!("invoice:{number}")), 0, "{number}");
    }
}

/// Of those on their way, so many bytes go to all nodes at once; a node gives its part back alone.
#[tokio::test(start_paused = true)]
async fn a_long_result_goes_to_the_nodes_in_turn_and_a_frozen_node_keeps_only_its_part() {
    let (nodes, [locks]) = five_met().await;
    let begin = async |key: &str| to_run(locks.begin_idempotent(key, DAY, TTL).await);
    let long = || "x".repeat(1_000_000);
    let runs = [begin("a").await, begin("b").await, begin("c").await];
    let later = [begin("g").await, begin("h").await, begin("i").await];
    nodes.each([0], MemoryNode::freeze);
    for runs in [runs, later] {
        let began = Instant::now();
        for run in runs {
            run.complete(long()).await.unwrap();
        }
        assert!(began.elapsed() < MS, "{:?}", began.elapsed());
        // Until the node is not waited for any more.
        sleep(250 * MS).await;
    }
    nodes.each([0], MemoryNode::thaw);
    sleep(MS).await;
    // Six have a turn of two node time-outs each within ten, and the last one none.
    let (first, short, last) = (begin("d").await, begin("e").await, begin("f").await);
    let mut others = Vec::new();
    for key in ["j", "k", "l", "m", "n"] {
        others.push(begin(key).await);
    }
    nodes.each(0..5, MemoryNode::freeze);
    let first = tokio::spawn(first.complete(long()));
    sleep(50 * MS).await;
    let others = others
        .into_iter()
        .map(|run| tokio::spawn(run.complete(long())));
    let others: Vec<_> = others.collect();
    let last = tokio::spawn(last.complete(long()));
    sleep(60 * MS).await;
    // Sent at once: it goes on in the background.
    let short = timeout(50 * MS, short.complete("short"));
    short.await.unwrap_err();
    for run in others.into_iter().chain([first, last]) {
        let error = run.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("only 0 of the 3"), "{error}");
    }
    nodes.each(0..5, MemoryNode::thaw);
    sleep(MS).await;
    assert_eq!(nodes.0[4].keys().len(), 0);
    for key in ["d", "e", "j", "n"] {
        replayed(locks.begin_idempotent(key, DAY, TTL).await);
    }
    // Nothing was sent of the last one, so it did not happen.
    begin("f").await.abandon().await.unwrap();
}

/// On five nodes there is room for 8 MiB at a time.
#[tokio::test(start_paused = true)]
async fn a_result_that_is_longer_than_all_room_is_sent_alone() {
    let (_nodes, [locks]) = five();
    let long = vec![7; 2 << 20];
    run(&locks).await.complete(long.clone()).await.unwrap();
    assert!(replay(&locks).await == long);
}

/// Nothing was sent of it.
#[tokio::test(start_paused = true)]
async fn a_completion_that_is_dropped_while_it_waits_for_its_turn_releases_the_lock() {
    let (nodes, [locks]) = five_met().await;
    let begin = async |key: &str| to_run(locks.begin_idempotent(key, DAY, TTL).await);
    let (first, second) = (begin("a").await, begin("b").await);
    nodes.each(0..5, MemoryNode::freeze);
    let first = tokio::spawn(first.complete("x".repeat(1_000_000)));
    sleep(10 * MS).await;
    let second = second.complete("x".repeat(1_000_000));
    let dropped = timeout(50 * MS, second).await;
    dropped.unwrap_err();
    nodes.each(0..5, MemoryNode::thaw);
    first.await.unwrap().unwrap();
    begin("b").await.abandon().await.unwrap();
}

/// A reply may be there already when the run begins, and not have been read when the run is given up.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_at_once_is_released_on_all_nodes_that_have_granted() {
    let nodes = Nodes::five();
    let locks = lazy(nodes.builder().without_restart_guard());
    let begin = async || locks.begin_idempotent("k", 20 * SECOND, SECOND).await;
    // A record on one node alone.
    let run = to_run(begin().await);
    nodes.0[1..].iter().for_each(MemoryNode::go_down);
    let _ = run.complete("a").await;
    sleep(12 * SECOND).await;
    nodes.0[1..].iter().for_each(MemoryNode::come_up);
    // Just before the end of the record, so that the replies of the second round come on both sides of it.
    sleep(7_840 * MS).await;
    nodes.0[1..].iter().for_each(MemoryNode::freeze);
    let replies = async {
        breathe().await;
        for node in &nodes.0[1..] {
            node.thaw();
            node.freeze();
        }
        breathe().await;
        sleep(170 * MS).await;
        nodes.0[1..3].iter().for_each(MemoryNode::thaw);
        breathe().await;
        nodes.0[3..].iter().for_each(MemoryNode::thaw);
    };
    let dropped = async { drop(begin().await) };
    tokio::join!(dropped, replies);
    let report = locks.shutdown(2 * SECOND).await;
    let left: Vec<_> = nodes.0.iter().map(MemoryNode::keys).collect();
    assert!(left.iter().all(Vec::is_empty), "{left:?} after {report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_result_is_brought_to_all_nodes_that_are_there_before_the_shutdown_ends() {
    let (nodes, [locks]) = five_met().await;
    nodes.each([4], MemoryNode::go_down);
    let run = to_run(locks.begin_idempotent("order", DAY, Duration::ZERO).await);
    nodes.each([4], MemoryNode::come_up);
    let ending = spawn(&locks, |locks| async move { locks.shutdown(TTL).await });
    sleep(MS).await;
    run.complete("done").await.unwrap();
    assert!(ending.await.unwrap().is_all_released());
    assert_eq!(with_record(&nodes).await, 5);
}
