//! Locks that count only once replicas have them.

use std::fmt::Debug;

use tokio::task::JoinSet;
use tower_redlock::FencingToken;
use tower_redlock::node::{CompleteReply, CompleteRequest, ExtendReply, RecallRequest, Record};

use crate::support::PATIENCE;
use crate::support::nodes::{FAR, refill};
use crate::support::requests::*;
use crate::*;

/// Longer than a healthy replica takes on a busy machine.
const LONG: Duration = Duration::from_secs(5);
/// Likewise, but not so long that a test may not wait for it.
const SHORT: Duration = Duration::from_millis(250);

/// A node as a manager with patience has it.
fn start(builder: RedisNode) -> LiveNode {
    let node = builder.build().unwrap();
    let mut context = context();
    context.node_timeout = 2 * PATIENCE;
    node.start(context);
    node
}

/// A started node that takes commands.
async fn ready(builder: RedisNode) -> LiveNode {
    let node = start(builder);
    settled(&node).await.unwrap();
    node
}

/// A master, its replica, and a node that requires one.
async fn pair(kind: Kind, within: Duration) -> (Server, Server, LiveNode) {
    let master = Server::start(kind, &[]);
    let replica = Server::replica_of(&master, &[]);
    let node = ready(RedisNode::new(&master.url()).require(1).within(within)).await;
    (master, replica, node)
}

const STORED: Result<CompleteReply, NodeError> = Ok(CompleteReply::Stored { listeners: 0 });

#[track_caller]
fn assert_not_replicated<T: Debug>(result: &Result<T, NodeError>, words: &str) {
    let error = result.as_ref().unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::NotReplicated, "{error}");
    assert!(error.outcome_unknown(), "a release is owed");
    assert!(error.to_string().contains(words), "{error}");
}

fn completion(owner: u32, ballot: u64) -> CompleteRequest {
    let record = Record::new(FencingToken::new(ballot).unwrap(), "done".into(), FAR);
    CompleteRequest::new(release("k", owner), Some(record))
}

async fn recall(node: &LiveNode, owner: u32, adopt: bool) -> Result<AcquireReply, NodeError> {
    let recall = RecallRequest::new(acquire("k", owner), adopt, LONG);
    node.recall(recall).await
}

#[tokio::test]
async fn what_is_granted_is_on_the_replica() {
    for kind in Kind::ALL {
        let (master, replica, node) = pair(kind, LONG).await;
        for owner in 0..20 {
            let name = format!("k{owner}");
            assert_eq!(node.acquire(acquire(&name, owner)).await, GRANTED);
            assert!(exists(&replica, &name), "{kind:?}: {name}");
            let held = node.acquire(acquire(&name, 99)).await;
            assert!(matches!(held, Ok(AcquireReply::Held(_))), "{held:?}");
        }
        let batch: Vec<_> = (0..20).map(|n| extend(&format!("k{n}"), n)).collect();
        let replies = node.extend(batch.into()).await.unwrap();
        assert_eq!(replies, vec![Ok(ExtendReply::Extended); 20]);
        let reply = node.release(release("k7", 7)).await;
        assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 0 }));
        assert!(!exists(&master, "k7"));
    }
}

#[tokio::test]
async fn a_lock_that_a_frozen_replica_does_not_have_is_not_granted() {
    for kind in Kind::ALL {
        let (master, replica, node) = pair(kind, SHORT).await;
        node.acquire(acquire("old", 1)).await.unwrap();
        replica.freeze();
        let missed = node.acquire(acquire("k", 2)).await;
        assert_not_replicated(&missed, "0 of 1 replicas acknowledged within 250ms");
        assert!(!exists(&master, "k"), "it was released");
        assert_eq!(node.state(), NodeState::Up);
        // What is held stays held, but the renewal does not count.
        let batch = Arc::from([extend("old", 1), refill("new", 3), extend("none", 4)]);
        let replies = node.extend(batch).await.unwrap();
        assert_not_replicated(&replies[0], "0 of 1");
        assert_not_replicated(&replies[1], "0 of 1");
        assert_eq!(replies[2], Ok(ExtendReply::Absent));
        assert!(exists(&master, "old"));
        let reply = node.release(release("old", 1)).await;
        assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 0 }));

        replica.thaw();
        assert_eq!(node.acquire(acquire("k", 5)).await, GRANTED);
    }
}

#[tokio::test]
async fn a_record_that_a_frozen_replica_does_not_have_is_not_told() {
    for kind in Kind::ALL {
        let (_master, replica, node) = pair(kind, SHORT).await;
        recall(&node, 1, false).await.unwrap();
        replica.freeze();
        let (first, later, lower) = (completion(1, 7), completion(2, 7), completion(3, 6));
        let lower = lower.chosen();
        // It is written at once, and from then on it is for each to find out whether it is there to stay: also for
        // those who write nothing, and over a connection that has written nothing yet.
        assert_not_replicated(&node.complete(first.clone()).await, "0 of 1");
        for owner in 1..9 {
            assert_not_replicated(&recall(&node, owner, false).await, "0 of 1");
        }
        for complete in [lower.clone(), later] {
            assert_not_replicated(&node.complete(complete).await, "0 of 1");
        }
        assert_not_replicated(&recall(&node, 4, true).await, "0 of 1");
        replica.thaw();
        let told = recall(&node, 5, false).await;
        let record = first.record.clone().unwrap();
        assert_eq!(told, Ok(AcquireReply::Recorded(record)));
        for complete in [first, lower] {
            assert_eq!(node.complete(complete).await, STORED);
        }
    }
}

/// As a release does not: a replica that has not heard of it keeps a lock until its ttl, and nothing else.
#[tokio::test]
async fn a_run_that_is_given_up_waits_for_no_replica() {
    for kind in Kind::ALL {
        let (_master, replica, node) = pair(kind, SHORT).await;
        recall(&node, 1, false).await.unwrap();
        replica.freeze();
        let given_up = CompleteRequest::new(release("k", 1), None);
        assert_eq!(node.complete(given_up).await, STORED);
        replica.thaw();
    }
}

#[tokio::test]
async fn a_record_that_makes_way_for_one_that_a_frozen_replica_does_not_have_is_not_kept() {
    for kind in Kind::ALL {
        let (_master, replica, node) = pair(kind, SHORT).await;
        recall(&node, 1, false).await.unwrap();
        replica.freeze();
        assert_not_replicated(&node.complete(completion(1, 9)).await, "0 of 1");
        // Nothing of it is changed, and most of these go over a connection that has written nothing.
        for owner in 2..9 {
            let chosen = completion(owner, 8).chosen();
            assert_not_replicated(&node.complete(chosen).await, "0 of 1");
        }
        replica.thaw();
        let chosen = completion(9, 8).chosen();
        assert_eq!(node.complete(chosen).await, STORED);
    }
}

#[tokio::test]
async fn as_many_replicas_as_required_must_acknowledge() {
    let (master, first, one) = pair(Kind::Redis, SHORT).await;
    let two = RedisNode::new(&master.url()).require(1).require(2);
    let two = ready(two.within(SHORT).name("two")).await;
    let missed = two.acquire(acquire("k", 1)).await;
    assert_not_replicated(&missed, "1 of 2 replicas");
    let second = Server::replica_of(&master, &[]);
    assert_eq!(two.acquire(acquire("k", 1)).await, GRANTED);
    assert!(exists(&first, "k") && exists(&second, "k"));
    second.freeze();
    assert_eq!(one.acquire(acquire("other", 1)).await, GRANTED);
}

#[tokio::test]
async fn a_wait_holds_up_its_own_connection_only() {
    let master = Server::start(Kind::Redis, &[]);
    let replica = Server::replica_of(&master, &[]);
    let builder = RedisNode::new(&master.url()).require(1).connections(32);
    let node = ready(builder.within(PATIENCE)).await;
    let batch: Vec<_> = (0..64).map(|n| refill(&format!("k{n}"), n)).collect();
    node.extend(batch.into()).await.unwrap();
    replica.freeze();
    let mut waiting = node.acquire(acquire("late", 1_000));
    let mut releases = JoinSet::new();
    // Polled before the releases can begin.
    let early = tokio::time::timeout(Duration::from_millis(1), &mut waiting).await;
    assert!(early.is_err(), "{early:?}");
    for owner in 0..64 {
        let reply = node.release(release(&format!("k{owner}"), owner));
        releases.spawn(reply);
    }
    // Those that share the connection come after the wait, which lasts for as long as this test may.
    for _ in 0..32 {
        let reply = tokio::time::timeout(PATIENCE / 2, releases.join_next()).await;
        reply.unwrap().unwrap().unwrap().unwrap();
    }
    replica.thaw();
    assert_eq!(waiting.await, GRANTED);
}

#[tokio::test]
async fn acquires_in_a_row_do_not_pile_up_waits() {
    let (master, replica, _) = pair(Kind::Redis, SHORT).await;
    let builder = RedisNode::new(&master.url()).require(1).connections(1);
    let node = ready(builder.within(SHORT)).await;
    node.acquire(acquire("held", 0)).await.unwrap();
    replica.freeze();
    let before = master.calls()["wait"];
    let crowd: Vec<_> = (1..=20)
        .map(|owner| {
            let node = node.clone();
            tokio::spawn(async move { node.acquire(acquire("held", owner)).await })
        })
        .collect();
    // The release is sent after all of them, and overtakes those that wait for their turn.
    tokio::task::yield_now().await;
    node.release(release("held", 0)).await.unwrap();
    let after = master.calls()["wait"];
    assert!(after - before <= 3, "{} waits came first", after - before);
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn lost_scripts_are_loaded_again() {
    let (master, replica, node) = pair(Kind::Redis, LONG).await;
    master.run("SCRIPT FLUSH");
    assert_eq!(node.acquire(acquire("k", 1)).await, GRANTED);
    assert!(exists(&replica, "k"));
    master.run("SCRIPT FLUSH");
    let replies = node.extend(Arc::from([extend("k", 1)])).await.unwrap();
    assert_eq!(replies, [Ok(ExtendReply::Extended)]);
}

#[tokio::test]
async fn a_lost_connection_is_the_business_of_its_own_locks() {
    let (master, _replica, node) = pair(Kind::Redis, LONG).await;
    // Two of five, so one of the four for calls, or two.
    for (id, _) in &connections(&master)[..2] {
        master.run(&format!("CLIENT KILL ID {id}"));
    }
    let granted = (0..40).map(|n| node.acquire(acquire(&format!("k{n}"), n)));
    let granted = futures_util::future::join_all(granted).await;
    let failed = granted.iter().filter(|reply| reply.is_err()).count();
    assert!(failed > 0 && failed < 40, "{failed} of 40");
    eventually("mended", || node.state() == NodeState::Up).await;
    assert_eq!(connections(&master).len(), 5);
}
