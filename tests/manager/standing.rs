//! Which nodes vote now, whether they are enough, and waiting until all of them do.

use std::sync::atomic::AtomicU8;

use super::*;

const NOTHING: u8 = 0;
const LOCKS: u8 = 1;
const EVERYTHING: u8 = 2;

/// What each of five nodes refuses.
struct Refusing([Arc<AtomicU8>; 5]);

impl Refusing {
    /// A manager over five nodes that may refuse, and knows that they vote.
    async fn met(nodes: &Nodes) -> (Self, LockManager) {
        let refuse: [Arc<AtomicU8>; 5] = Default::default();
        let what = refuse.clone();
        let locks = lazy(Odd::over(&nodes.0, move |name, call| {
            let refused = match call {
                Call::Ready | Call::Close => return None,
                Call::Acquire => LOCKS,
                _ => EVERYTHING,
            };
            let node: usize = name[1..].parse().unwrap();
            let refuses = what[node].load(Ordering::SeqCst) >= refused;
            let text = "OOM command not allowed";
            refuses.then(|| NodeError::of(NodeErrorKind::Rejected, text))
        }));
        meet(&locks).await;
        (Self(refuse), locks)
    }

    fn refuse(&self, nodes: std::ops::Range<usize>, what: u8) {
        let nodes = self.0[nodes].iter();
        nodes.for_each(|node| node.store(what, Ordering::SeqCst));
    }
}

#[track_caller]
fn assert_voting(locks: &LockManager, count: usize) {
    let snapshot = locks.snapshot();
    assert_eq!(voting(locks), count, "{:?}", snapshot.nodes);
    let text = format!("quorum: {count} of 5 vote, 3 needed");
    let few = count < 3;
    let text = text + if few { "; no lock is granted" } else { "" };
    assert_eq!(snapshot.verdict, text);
    assert_eq!((snapshot.has_quorum, locks.has_quorum()), (!few, !few));
    // It stands first, where people look.
    let json = serde_json::to_string(&snapshot).unwrap();
    let begin = format!(r#"{{"verdict":"{text}","has_quorum":{}"#, !few);
    assert!(json.starts_with(&begin), "{json}");
}

#[track_caller]
fn assert_failing(locks: &LockManager, node: usize, why: &str) {
    match &locks.snapshot().nodes[node].voting {
        VotingStatus::Failing { reason } => assert!(reason.contains(why), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_votes_only_while_its_replies_count() {
    let nodes = Nodes::five();
    let (refusing, locks) = Refusing::met(&nodes).await;
    assert_voting(&locks, 5);
    nodes.0[0].go_down();
    assert_voting(&locks, 4);
    assert_failing(&locks, 0, "the node is down");
    nodes.0[1].freeze();
    sleep(2 * SECOND).await;
    assert_eq!(
        locks.snapshot().nodes[1].state,
        NodeState::Up,
        "as far as is known"
    );
    assert_failing(&locks, 1, "no answer within");
    assert_voting(&locks, 3);
    refusing.refuse(2..3, EVERYTHING);
    sleep(SECOND + MS).await;
    assert_failing(&locks, 2, "OOM command not allowed");
    assert_voting(&locks, 2);
    locks.try_acquire("order:1").await.unwrap_err();
    nodes.0[0].come_up();
    nodes.0[1].thaw();
    refusing.refuse(2..3, NOTHING);
    sleep(SECOND).await;
    assert_voting(&locks, 5);
    drop(locks.try_acquire("order:1").await.unwrap());
    locks.shutdown(SECOND).await;
    let verdict = "quorum: 5 of 5 vote, 3 needed; the manager is shut down, so no lock is granted";
    let snapshot = locks.snapshot();
    assert_eq!(snapshot.verdict, verdict);
    assert!(!snapshot.has_quorum && !locks.has_quorum());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_locks_does_not_vote_for_a_while() {
    let nodes = Nodes::five();
    let (refusing, locks) = Refusing::met(&nodes).await;
    refusing.refuse(0..3, LOCKS);
    sleep(2 * SECOND).await;
    assert_voting(&locks, 5);
    locks.try_acquire("order:1").await.unwrap_err();
    assert_voting(&locks, 2);
    assert_failing(&locks, 0, "OOM command not allowed");
    sleep(4 * SECOND).await;
    assert_voting(&locks, 2);
    // Nothing may be locked for lack of a quorum, and then no command would ever tell that they are repaired.
    sleep(SECOND).await;
    assert_voting(&locks, 5);
    locks.try_acquire("order:2").await.unwrap_err();
    refusing.refuse(0..1, NOTHING);
    assert_voting(&locks, 2);
    let _guard = locks.try_acquire("order:3").await.unwrap();
    assert_voting(&locks, 3);
}

#[tokio::test(start_paused = true)]
async fn without_the_guard_a_node_votes_while_it_answers() {
    let nodes = Nodes::five();
    let locks = nodes.forgetful();
    meet(&locks).await;
    nodes.each(0..3, MemoryNode::go_down);
    assert_voting(&locks, 2);
    nodes.each(0..3, MemoryNode::come_up);
    sleep(SECOND).await;
    assert_voting(&locks, 5);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_nodes_refuse_for_a_moment_is_tried_again() {
    let nodes = Nodes::five();
    let (refusing, locks) = Refusing::met(&nodes).await;
    let guard = locks.try_acquire("order:1").await.unwrap();
    refusing.refuse(0..5, EVERYTHING);
    guard.release().await.unwrap_err();
    assert_eq!(nodes.holding("order:1"), 5);
    refusing.refuse(0..5, NOTHING);
    sleep(SECOND).await;
    assert_eq!(nodes.holding("order:1"), 0, "long before its ttl is over");
}

#[tokio::test(start_paused = true)]
async fn another_list_on_one_node_leaves_no_quorum() {
    let (nodes, [locks]) = five_met().await;
    let others = lazy(over(nodes.0[..1].to_vec()));
    others.adopt_nodes(None).await.unwrap();
    sleep(2 * SECOND).await;
    assert!(!locks.has_quorum());
    let snapshot = locks.snapshot();
    let verdict = "quorum: 4 of 5 vote, 3 needed; a node serves processes with another list, so no lock is granted";
    assert_eq!((&*snapshot.verdict, snapshot.has_quorum), (verdict, false));
}

#[tokio::test(start_paused = true)]
async fn all_voting_is_what_every_node_says_after_the_call() {
    let (nodes, [locks]) = five_met().await;
    let begin = Instant::now();
    locks.all_voting().await.unwrap();
    assert_eq!(begin.elapsed(), Duration::ZERO, "nothing is to be awaited");
    // It restarted, and nobody has noticed.
    nodes.0[1].forget();
    assert_voting(&locks, 5);
    locks.all_voting().await.unwrap();
    let waited = begin.elapsed();
    assert!(waited >= TTL, "its quarantine lasts longer than {waited:?}");
    assert_voting(&locks, 5);
}

#[tokio::test(start_paused = true)]
async fn all_voting_waits_for_as_long_as_a_node_is_missing() {
    let nodes = Nodes::five();
    let (refusing, locks) = Refusing::met(&nodes).await;
    let missing = async || timeout(60 * SECOND, locks.all_voting()).await.is_err();
    nodes.0[4].go_down();
    assert!(missing().await, "one is down");
    nodes.0[4].come_up();
    nodes.0[3].freeze();
    assert!(missing().await, "one stands still");
    nodes.0[3].thaw();
    refusing.refuse(2..3, EVERYTHING);
    assert!(missing().await, "one refuses everything");
    let waiting = spawn(&locks, |locks| async move { locks.all_voting().await });
    sleep(SECOND).await;
    refusing.refuse(2..3, NOTHING);
    waiting.await.unwrap().unwrap();
    refusing.refuse(2..3, EVERYTHING);
    let waiting = spawn(&locks, |locks| async move { locks.all_voting().await });
    sleep(SECOND).await;
    locks.shutdown(Duration::ZERO).await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the lock manager is shutting down; ask another process"
    );
    locks.all_voting().await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn no_node_that_is_down_helps_to_bootstrap() {
    let (nodes, [locks]) = five_met().await;
    nodes.each(0..3, MemoryNode::go_down);
    locks.bootstrap().await.unwrap_err();
    nodes.each(0..1, MemoryNode::come_up);
    locks.bootstrap().await.unwrap();
}
