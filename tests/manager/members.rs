//! Managers with different lists of nodes on the same nodes: only one list is served at a time.

use super::*;

/// The longest lease and its drift, and before that the time in which others notice.
const LONG_WAIT: Duration = Duration::from_millis(12_202);

const FIVE: &str = "[format 2; nodes n0, n1, n2, n3, n4; quorum 3; losses masked 0; max_ttl 10s; \
                    restart guard on; fencing on]";

/// A builder on some of the nodes.
fn some(nodes: &Nodes, which: &[usize]) -> Settings {
    over(which.iter().map(|n| nodes.0[*n].clone()))
}

/// How many nodes tell that they serve the five.
fn foreign(locks: &LockManager) -> usize {
    let is_foreign = |node: &NodeStatus| match &node.voting {
        VotingStatus::Foreign { reason } => reason.contains(FIVE),
        _ => false,
    };
    let nodes = locks.snapshot().nodes.into_iter();
    nodes.filter(is_foreign).count()
}

async fn assert_refused(builder: Settings, ours: &str) {
    match builder.connect().await {
        Err(error @ ConnectError::Misconfigured(_)) => {
            let text = error.to_string();
            assert!(text.contains(FIVE) && text.contains(ours), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_another_list_or_quorum_is_refused_and_both_are_told() {
    let nodes = Nodes::five();
    let locks = connected(nodes.builder()).await;
    let theirs = "nodes n0, n1, n2; quorum 2; losses masked 0;";
    assert_refused(some(&nodes, &[2, 1, 0]), theirs).await;
    let strict = "nodes n0, n1, n2, n3, n4; quorum 4; losses masked 1;";
    assert_refused(nodes.builder().mask_losses(1), strict).await;

    let other = lazy(some(&nodes, &[0, 1, 2]));
    let error = no_quorum(&other, "order:1").await;
    assert_eq!((error.failures().len(), error.retry_after()), (3, None));
    let text = error.to_string();
    assert!(text.contains(FIVE) && text.contains(theirs), "{text}");
    sleep(MS).await;
    assert_eq!((foreign(&other), voting(&locks)), (3, 5));
    // The order of the list is no difference, nor is the ttl.
    let same = connected(some(&nodes, &[4, 2, 0, 1, 3]).ttl(TTL / 2)).await;
    let guard = same.try_acquire("order:1").await.unwrap();
    assert!(locks.try_acquire("order:1").await.is_err());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn who_shares_but_one_node_with_others_is_refused_however_slow_that_is() {
    // With its other two it would have a quorum of its own.
    for slow in [0, 50, 150] {
        let nodes = Nodes::of(7);
        let _locks = connected(some(&nodes, &[0, 1, 2, 3, 4])).await;
        nodes.each([4], MemoryNode::freeze);
        let shared = nodes.0[4].clone();
        tokio::spawn(async move {
            sleep(slow * MS).await;
            shared.thaw();
        });
        let ours = "nodes n4, n5, n6; quorum 2; losses masked 0;";
        assert_refused(some(&nodes, &[5, 6, 4]), ours).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_nodes_are_taken_over_and_the_others_are_refused_from_then_on() {
    let nodes = Nodes::five();
    let old = connected(nodes.builder()).await;
    let guard = old.try_acquire("order:1").await.unwrap();
    let deadline = Instant::now() + guard.remaining();
    let new = lazy(some(&nodes, &[0, 1, 2]));
    sleep(MS).await;
    assert_eq!(foreign(&new), 3);
    let before = Instant::now();
    let adopting = begun(new.adopt_nodes(None)).await;
    breathe().await;
    // From now on: it is not extended, and nothing new is granted.
    let text = no_quorum(&old, "order:2").await.to_string();
    let new_list = "nodes n0, n1, n2; quorum 2";
    assert!(text.contains(FIVE) && text.contains(new_list), "{text}");
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(Instant::now() <= deadline, "before the nodes are had");
    adopting.await.unwrap();
    let waited = before.elapsed();
    let due = LONG_WAIT..=LONG_WAIT + 5 * MS;
    assert!(due.contains(&waited), "{waited:?}");
    assert!(guard.is_lost() && Instant::now() > deadline);
    assert_eq!(voting(&new), 3);
    let next = new.try_acquire("order:1").await.unwrap();
    assert!(next.fence().unwrap() > guard.fence().unwrap());
    assert!(old.try_acquire("order:1").await.is_err());
    assert!(old.try_acquire("order:3").await.is_err());
}

/// They forget with their locks of whom they were taken over; whoever adopts them does not.
#[tokio::test(start_paused = true)]
async fn nodes_that_forget_while_they_are_taken_over_wait_for_the_longest_lease_all_the_same() {
    let nodes = Nodes::five();
    let long = || nodes.builder().max_ttl(2 * TTL).ttl(2 * TTL);
    let old = long().connect().await.unwrap();
    let guard = old.try_acquire("order:1").await.unwrap();
    for word in [None, Some(2 * TTL)] {
        let new = lazy(some(&nodes, &[0, 1, 2]));
        sleep(MS).await;
        let began = Instant::now();
        let adopting = begun(new.adopt_nodes(word)).await;
        sleep(SECOND).await;
        nodes.each([0, 1, 2], MemoryNode::forget);
        adopting.await.unwrap();
        let waited = began.elapsed();
        assert!(waited >= 2 * TTL, "{word:?}: {waited:?}");
        assert!(guard.is_lost());
        drop(new);
        if word.is_none() {
            // Back to the old list, for the next.
            let back = lazy(long());
            back.adopt_nodes(None).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_not_asked_by_the_end_of_the_call_is_not_taken_over_later() {
    let nodes = Nodes::five();
    let old = connected(nodes.builder()).await;
    let new = lazy(some(&nodes, &[0, 1, 2]));
    sleep(MS).await;
    let adopting = begun(new.adopt_nodes(None)).await;
    nodes.each([0, 1, 2], MemoryNode::go_down);
    sleep(SECOND).await;
    drop(adopting);
    nodes.each([0, 1, 2], MemoryNode::come_up);
    sleep(2 * SECOND).await;
    assert_eq!((foreign(&new), voting(&old)), (3, 5));
    drop(old.try_acquire("order:1").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn who_takes_nodes_over_is_told_when_they_go_down() {
    let nodes = Nodes::five();
    drop(connected(nodes.builder()).await);
    let locks = lazy(some(&nodes, &[0, 1, 2]).connect_timeout(SECOND));
    let mut adopting = Box::pin(locks.adopt_nodes(None));
    assert!(timeout(3 * SECOND, &mut adopting).await.is_err());
    nodes.each(0..5, MemoryNode::go_down);
    let error = timeout(3 * SECOND, adopting).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the node is down"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_process_without_the_guard_is_refused_beside_those_with_it_and_they_beside_it() {
    let nodes = Nodes::five();
    let guarded = connected(nodes.builder()).await;
    let guard = guarded.try_acquire("order:1").await.unwrap();
    nodes.each(0..5, MemoryNode::forget);
    sleep(2 * SECOND).await;
    assert!(!guard.is_lost());
    let text = no_quorum(&nodes.forgetful(), "order:1").await.to_string();
    let both = ["restart guard on", "restart guard off"];
    assert!(both.iter().all(|word| text.contains(word)), "{text}");
    match nodes.unguarded().connect().await {
        Err(ConnectError::Misconfigured(failures)) => assert_eq!(failures.len(), 5),
        other => panic!("{other:?}"),
    }

    let nodes = Nodes::five();
    let bare = connected(nodes.unguarded()).await;
    drop(bare.try_acquire("order:1").await.unwrap());
    let error = nodes.builder().connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Misconfigured(_)), "{error:?}");
    assert!(error.to_string().contains("restart guard off"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_retired_list_grants_and_extends_nothing_until_it_is_adopted_again() {
    let nodes = Nodes::five();
    let old = connected(nodes.builder()).await;
    let guard = old.try_acquire("order:1").await.unwrap();
    let operator = lazy(nodes.builder());
    let left = operator.retire_nodes("the new\n ones").await.unwrap();
    assert!(!guard.is_lost() && left > guard.remaining());
    sleep(left).await;
    assert!(guard.is_lost(), "it was not extended");
    let error = old.try_acquire("order:2").await.unwrap_err().to_string();
    let why = "it was retired in favour of `the new ones`";
    assert!(error.contains(why), "{error}");
    let verdict = old.snapshot().verdict;
    assert!(verdict.contains("it was retired in favour of"), "{verdict}");
    operator.adopt_nodes(None).await.unwrap();
    drop(operator.try_acquire("order:2").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_list_is_not_retired_while_a_quorum_of_its_nodes_is_away() {
    let nodes = Nodes::five();
    let old = connected(nodes.builder()).await;
    nodes.each(2..5, MemoryNode::go_down);
    let operator = lazy(nodes.builder());
    let error = operator.retire_nodes("the new ones").await.unwrap_err();
    assert_eq!(error.failures().len(), 3, "{error}");
    nodes.each(2..3, MemoryNode::come_up);
    operator.retire_nodes("the new ones").await.unwrap();
    nodes.each(3..5, MemoryNode::come_up);
    sleep(SECOND).await;
    assert!(old.try_acquire("order:1").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn only_the_list_that_nodes_serve_is_retired() {
    let nodes = Nodes::five();
    let locks = connected(nodes.builder()).await;
    let guard = locks.try_acquire("order:1").await.unwrap();
    // As an operator without the settings of the service.
    for others in [nodes.builder().max_ttl(2 * TTL), some(&nodes, &[1])] {
        let others = lazy(others);
        let error = others.retire_nodes("the new ones").await.unwrap_err();
        assert!(error.to_string().contains("agreed on"), "{error}");
    }
    sleep(TTL).await;
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    // A text that a terminal would obey, and none at all.
    let operator = lazy(nodes.builder());
    operator.retire_nodes("\u{202e}a\u{1b}[31m").await.unwrap();
    sleep(2 * SECOND).await;
    let error = locks.try_acquire("order:1").await.unwrap_err().to_string();
    assert!(error.contains("in favour of `a[31m`"), "{error}");
}
