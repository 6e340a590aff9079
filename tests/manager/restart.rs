//! Nodes that forget: whom the restart guard keeps from voting, for how long, and what is said of it.

use super::*;

/// The longest lease and its drift.
const WAIT: Duration = Duration::from_millis(10_102);

fn standings(locks: &LockManager) -> Vec<VotingStatus> {
    let nodes = locks.snapshot().nodes;
    nodes.into_iter().map(|node| node.voting).collect()
}

/// A manager that knows where all nodes stand, once time has passed.
async fn manager(nodes: &Nodes) -> LockManager {
    let locks = nodes.manager();
    sleep(MS).await;
    assert_eq!(voting(&locks), 5);
    locks
}

/// Makes `locks` see that nodes have forgotten.
async fn noticed(locks: &LockManager, nodes: &[usize]) {
    drop(locks.try_acquire("probe").await);
    breathe().await;
    for node in nodes {
        assert_quarantined(&standings(locks)[*node]);
    }
}

/// The counter of `key` that a node gives to its next holder, if no clock proposes anything.
async fn next_number(node: &MemoryNode, key: &str) -> u64 {
    let (key, token) = (place(key), owner(9));
    let fence = Fence::new(FencingToken::new(1).unwrap(), SECOND);
    let request = AcquireRequest::new(key.clone(), token, SECOND).fenced(Some(fence));
    let reply = node.acquire(request).await;
    let Ok(AcquireReply::Granted { fence }) = reply else {
        panic!("{reply:?}");
    };
    let release = ReleaseRequest::new(key, token, true);
    node.release(release).await.unwrap();
    fence.unwrap().get()
}

#[tokio::test(start_paused = true)]
async fn who_votes_again_knows_the_highest_number_of_the_others() {
    let nodes = Nodes::five();
    let locks = manager(&nodes).await;
    nodes.each([1], MemoryNode::forget);
    noticed(&locks, &[1]).await;
    sleep(WAIT - 20 * MS).await;
    // Granted while it is out; the numbers run ahead of the clock, for no time passes.
    nodes.each([0], MemoryNode::go_down);
    let mut last = 0;
    for _ in 0..5_000 {
        let guard = locks.try_acquire("order:1").await.unwrap();
        last = guard.fence().unwrap().get();
        guard.release().await.unwrap();
    }
    nodes.each([0], MemoryNode::come_up);
    assert!(next_number(&nodes.0[1], "before").await < last);
    sleep(40 * MS).await;
    assert_eq!(voting(&locks), 5);
    assert!(next_number(&nodes.0[1], "new").await > last);
    assert!(next_number(&nodes.0[1], "order:1").await > last);
}

#[tokio::test(start_paused = true)]
async fn if_a_majority_forgets_nobody_is_granted_before_the_clocks_have_made_up_for_it() {
    let nodes = Nodes::five();
    let (locks, others) = (manager(&nodes).await, manager(&nodes).await);
    let guard = locks.try_acquire("order:1").await.unwrap();
    let fence = guard.fence().unwrap();
    nodes.each([0, 2, 4], MemoryNode::forget);
    noticed(&others, &[0, 2, 4]).await;
    let seen = Instant::now();
    while seen.elapsed() < WAIT - 500 * MS {
        let error = no_quorum(&others, "order:2").await;
        let left = WAIT.saturating_sub(seen.elapsed());
        assert_eq!(error.retry_after(), Some(left));
        let of = (error.needed(), error.nodes());
        assert_eq!((of, error.failures().len()), ((3, 5), 3));
        let text = error.to_string();
        for node in ["n0", "n2", "n4"] {
            let why = format!(
                "{node} (it restarted or lost its data, and does not vote for another {left:.1?}"
            );
            assert!(text.contains(&why), "{text}");
        }
        assert!(text.contains("fewer than a quorum"), "{text}");
        assert!(!text.contains("n1") && !text.contains("n3"), "{text}");
        assert_eq!((voting(&others), others.snapshot().nodes.len()), (2, 5));
        sleep(333 * MS).await;
    }
    sleep((WAIT - MS).saturating_sub(seen.elapsed())).await;
    no_quorum(&others, "order:2").await;
    no_quorum(&locks, "order:2").await;
    sleep(2 * MS).await;
    // What is held meanwhile is held on.
    assert!(!guard.is_lost() && others.try_acquire("order:1").await.is_err());
    guard.release().await.unwrap();
    let next = others.try_acquire("order:1").await.unwrap();
    assert!(next.fence().unwrap() > fence);
    assert_eq!(voting(&others), 5);
}

/// Nobody waits, so the floor makes up for the clocks.
#[tokio::test(start_paused = true)]
async fn who_begins_on_emptied_nodes_without_a_wait_goes_on_above_a_clock_that_was_ahead() {
    let nodes = Nodes::five();
    let ahead = nodes.builder().clock(Wrong(TokioClock::new(), 900));
    let ahead = connected(ahead).await;
    let fence = ahead.try_acquire("order:1").await.unwrap().fence();
    assert!(ahead.shutdown(SECOND).await.is_all_released());
    nodes.each(0..5, MemoryNode::forget);
    let locks = connected(nodes.builder().bootstrap(true)).await;
    let guard = locks.try_acquire("order:1").await.unwrap();
    assert!(guard.fence() > fence, "{:?} after {fence:?}", guard.fence());
}

#[tokio::test(start_paused = true)]
async fn how_long_is_told_also_while_nodes_that_could_vote_are_down() {
    let nodes = Nodes::five();
    let locks = manager(&nodes).await;
    nodes.each([0], MemoryNode::forget);
    noticed(&locks, &[0]).await;
    nodes.each([1, 2], MemoryNode::go_down);
    sleep(SECOND).await;
    // Two are up and vote, and the third will.
    let retry_after = no_quorum(&locks, "order:1").await.retry_after();
    assert!(retry_after >= Some(WAIT - SECOND), "{retry_after:?}");
    nodes.each([3], MemoryNode::go_down);
    // Nobody knows when they come back.
    let retry_after = no_quorum(&locks, "order:1").await.retry_after();
    assert_eq!(retry_after, None);
}

#[tokio::test(start_paused = true)]
async fn every_quarantine_lasts_the_longest_ttl_that_is_agreed_on() {
    // However many nodes remember, and whatever ttl is in use.
    for forgetful in [1..2, 0..3, 0..5] {
        let nodes = Nodes::five();
        let locks = connected(nodes.builder().max_ttl(6 * TTL)).await;
        sleep(5 * SECOND).await;
        nodes.each(forgetful.clone(), MemoryNode::forget);
        let which: Vec<usize> = forgetful.collect();
        noticed(&locks, &which).await;
        let remaining = Some(60_602 * MS);
        let remembered = which.len() < 3;
        for node in &which {
            let expected = VotingStatus::Quarantined {
                remaining,
                remembered,
            };
            assert_eq!(standings(&locks)[*node], expected);
        }
        sleep(60_600 * MS).await;
        assert_eq!(voting(&locks), 5 - which.len());
        sleep(3 * MS).await;
        assert_eq!(voting(&locks), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_lives_on_with_the_quorum_that_remembers_it() {
    let nodes = Nodes::five();
    let locks = lazy(nodes.builder().max_hold(60 * SECOND));
    sleep(MS).await;
    let guard = locks.try_acquire("order:1").await.unwrap();
    nodes.each([0, 1], MemoryNode::forget);
    for _ in 0..50 {
        sleep(SECOND).await;
        assert!(!guard.is_lost());
        assert!(locks.try_acquire("order:1").await.is_err());
    }
    // It was written through, so it is there when they vote again: others may forget now.
    assert_eq!((voting(&locks), nodes.holding("order:1")), (5, 5));
    nodes.each([2, 3], MemoryNode::forget);
    sleep(9 * SECOND).await;
    assert!(!guard.is_lost());
}

/// Also that of a reader: no writer comes beside it.
#[tokio::test(start_paused = true)]
async fn a_held_lock_outlives_the_loss_of_all_its_nodes() {
    for reads in [false, true] {
        let nodes = Nodes::five();
        let locks = lazy(nodes.builder().max_hold(60 * SECOND));
        let other = manager(&nodes).await;
        let holder = if reads { &locks.shared() } else { &locks };
        let guard = holder.try_acquire("order:1").await.unwrap();
        for _ in 0..3 {
            nodes.each(0..5, MemoryNode::forget);
            for _ in 0..15 {
                sleep(SECOND).await;
                assert!(!guard.is_lost());
                assert!(other.try_acquire("order:1").await.is_err());
            }
        }
        assert_eq!((voting(&locks), nodes.holding("order:1")), (5, 5));
        let fence = guard.fence();
        guard.release().await.unwrap();
        let next = other.try_acquire("order:1").await.unwrap();
        assert!(next.fence() > fence);
    }
}

/// One process holds the lock by two nodes. Another was granted it by the third, which forgets that; the first writes
/// its lock there. If that counted, the second would be granted the lock by the node that the first has lost, too.
#[tokio::test(start_paused = true)]
async fn a_node_that_forgot_the_vote_of_another_does_not_count() {
    let nodes = nodes(3);
    let (a, b) = (Process::on(&nodes), Process::on(&nodes));
    let builder = |process: &Process| process.builder().without_fencing();
    let first = connected(builder(&a)).await;
    // It waits for the node from which the lock of the other has yet to expire.
    let second = connected(builder(&b).node_timeout(TTL)).await;
    a.0[2].cut();
    let guard = first.try_acquire("k").await.unwrap();
    assert_eq!(guard.fence(), None);
    a.0[0].cut();
    sleep(TTL / 2).await;
    b.0[1].cut();
    b.0[0].delay(TTL * 7 / 10);
    let attempt = tokio::spawn(async move { (second.try_acquire("k").await, second) });
    sleep(MS).await;
    nodes[2].forget();
    a.0[2].mend();
    let (other, _second) = attempt.await.unwrap();
    assert!(nodes[2].holder("lk:k").is_some(), "written there");
    let _other = other.unwrap();
    assert!(guard.is_lost(), "two holders");
}

#[tokio::test(start_paused = true)]
async fn a_promotion_by_another_process_is_noticed() {
    let nodes = Nodes::five();
    let (first, late) = (manager(&nodes).await, manager(&nodes).await);
    nodes.each([0, 1, 2], MemoryNode::forget);
    noticed(&first, &[0, 1, 2]).await;
    sleep(WAIT / 2).await;
    noticed(&late, &[0, 1, 2]).await;
    first.bootstrap().await.unwrap();
    assert_eq!(voting(&first), 5);
    sleep(SECOND + MS).await;
    assert_eq!(voting(&late), 5);
    drop(late.try_acquire("order:1").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn to_say_that_no_lock_is_held_ends_the_quarantines_of_now_and_no_others() {
    let nodes = Nodes::five();
    let locks = manager(&nodes).await;
    nodes.each([0, 1, 2, 3], MemoryNode::forget);
    noticed(&locks, &[0, 1, 2, 3]).await;
    sleep(SECOND).await;
    let before = Instant::now();
    locks.bootstrap().await.unwrap();
    assert_eq!((voting(&locks), before.elapsed()), (5, Duration::ZERO));
    drop(locks.try_acquire("order:1").await.unwrap());
    nodes.each([0, 1, 2], MemoryNode::forget);
    sleep(2 * SECOND).await;
    assert_eq!(voting(&locks), 2);
    no_quorum(&locks, "order:1").await;
}

#[tokio::test(start_paused = true)]
async fn who_starts_by_saying_that_no_lock_is_held_says_so_of_what_it_finds_then() {
    let nodes = Nodes::five();
    drop(manager(&nodes).await);
    nodes.each([0, 1, 2, 4], MemoryNode::forget);
    nodes.each([4], MemoryNode::go_down);
    let before = Instant::now();
    let locks = connected(nodes.builder().bootstrap(true)).await;
    assert!(before.elapsed() <= 200 * MS, "{:?}", before.elapsed());
    assert_eq!(voting(&locks), 4);
    // It was not there when that was said.
    nodes.each([4], MemoryNode::come_up);
    sleep(2 * SECOND).await;
    assert_quarantined(&standings(&locks)[4]);
    // Nor had this one forgotten anything then.
    nodes.each([0], MemoryNode::forget);
    sleep(2 * SECOND).await;
    assert_quarantined(&standings(&locks)[0]);
    sleep(WAIT).await;
    assert_eq!(voting(&locks), 5);
}

#[tokio::test(start_paused = true)]
async fn without_the_guard_nothing_waits_and_nothing_is_refused() {
    let nodes = Nodes::five();
    let locks = nodes.forgetful();
    nodes.each(0..5, MemoryNode::forget);
    let guard = locks.try_acquire("order:1").await.unwrap();
    guard.release().await.unwrap();
    // But another list is no more welcome than with it, if it is looked for.
    let few = over(nodes.0[2..].to_vec()).without_restart_guard();
    sleep(SECOND + MS).await;
    few.connect().await.unwrap_err();
    let same = connected(nodes.unguarded()).await;
    drop(same.try_acquire("order:1").await.unwrap());
    same.bootstrap().await.unwrap();
    same.adopt_nodes(None).await.unwrap();
    assert_eq!((voting(&locks), voting(&same)), (5, 5));
    let guard = locks.try_acquire("order:2").await.unwrap();
    nodes.each(0..5, MemoryNode::forget);
    let second = same.try_acquire("order:2").await.unwrap();
    // What the guard is for.
    assert!(!guard.is_lost() && !second.is_lost());
}

/// Three nodes that vote, and their manager.
async fn three() -> (Vec<MemoryNode>, LockManager) {
    let nodes = nodes(3);
    let locks = connected(over(nodes.clone()).bootstrap(true)).await;
    (nodes, locks)
}

/// Else nodes would be trusted for as long, and one of them may have forgotten locks by then. This one is about to vote,
/// and then it does not answer, without end.
#[tokio::test(start_paused = true)]
async fn a_bootstrap_ends_in_time_while_a_node_comes_and_forgets() {
    let (nodes, _before) = three().await;
    nodes[2].go_down();
    let locks = lazy(over(nodes.clone()));
    let forgets = nodes[1].clone();
    let flaps = tokio::spawn(async move {
        loop {
            forgets.go_down();
            sleep(1_500 * MS).await;
            forgets.come_up();
            sleep(200 * MS).await;
            forgets.forget();
            sleep(1_300 * MS).await;
        }
    });
    let ended = timeout(20 * SECOND, locks.bootstrap()).await;
    assert!(ended.is_ok(), "it trusts nodes for ever");
    flaps.abort();
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_that_is_dropped_promotes_no_node_later() {
    let (nodes, locks) = three().await;
    let _guard = locks.try_acquire("k").await.unwrap();
    nodes[0].forget();
    sleep(3 * SECOND).await;
    assert_quarantined(&standings(&locks)[0]);
    nodes[1].freeze();
    // It has asked the others, and waits for the frozen one before it ends the quarantine.
    assert!(timeout(20 * MS, locks.bootstrap()).await.is_err());
    nodes[1].thaw();
    sleep(2 * SECOND).await;
    assert_quarantined(&standings(&locks)[0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_says_that_it_is_closed_and_is_not_is_asked_again() {
    let has_said = AtomicBool::new(false);
    let says_so_once = Odd::over(&nodes(1), move |_, call| {
        let says = call == Call::CheckIn && !has_said.swap(true, Ordering::SeqCst);
        says.then(|| NodeError::of(NodeErrorKind::Closed, "or so it says"))
    });
    assert_eq!(voting(&connected(says_so_once).await), 1);
}
