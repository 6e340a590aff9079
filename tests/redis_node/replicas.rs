//! Locks that count only once replicas have them.

use crate::support::requests::*;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tower_redlock::FencingToken;
use tower_redlock::node::{
    AcquireReply, CompleteReply, CompleteRequest, ExtendReply, Node, NodeContext, NodeError,
    NodeErrorKind, NodeState, RecallRequest, Record, ReleaseReply,
};
use tower_redlock::node::{LiveNode, RedisNode};

use crate::support::nodes::{
    FAR, acquire, context, extend, key, refill, refusal, release, settled, token,
};
use crate::support::server::{Kind, Server};
use crate::support::{PATIENCE, eventually};

/// Longer than a healthy replica takes on a busy machine.
const LONG: Duration = Duration::from_secs(5);
/// Likewise, but not so long that a test may not wait for it.
const SHORT: Duration = Duration::from_millis(250);

/// What a manager with patience gives its nodes.
fn patient() -> NodeContext {
    let mut context = context();
    context.node_timeout = 2 * PATIENCE;
    context
}

/// A started node that takes commands.
async fn ready(builder: RedisNode) -> LiveNode {
    let node = builder.build().unwrap();
    node.start(patient());
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

fn exists(server: &Server, name: &str) -> bool {
    server.command(&["EXISTS", key(name).as_str()]) == "1"
}

fn assert_not_replicated(error: &NodeError, words: &str) {
    assert_eq!(error.kind(), NodeErrorKind::NotReplicated, "{error}");
    assert!(error.outcome_unknown(), "a release is owed");
    assert!(error.to_string().contains(words), "{error}");
}

#[tokio::test]
async fn what_is_granted_is_on_the_replica() {
    for kind in Kind::ALL {
        let (master, replica, node) = pair(kind, LONG).await;
        for owner in 0..20 {
            let name = format!("k{owner}");
            let granted = node.acquire(acquire(&name, owner)).await;
            assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
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
        let error = node.acquire(acquire("k", 2)).await.unwrap_err();
        assert_not_replicated(&error, "0 of 1 replicas acknowledged within 250ms");
        assert!(!exists(&master, "k"), "it was released");
        assert_eq!(node.state(), NodeState::Up);
        // What is held stays held, but the renewal does not count.
        let batch = Arc::from([extend("old", 1), refill("new", 3), extend("none", 4)]);
        let replies = node.extend(batch).await.unwrap();
        assert_not_replicated(replies[0].as_ref().unwrap_err(), "0 of 1");
        assert_not_replicated(replies[1].as_ref().unwrap_err(), "0 of 1");
        assert_eq!(replies[2], Ok(ExtendReply::Absent));
        assert!(exists(&master, "old"));
        let reply = node.release(release("old", 1)).await;
        assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 0 }));

        replica.thaw();
        let granted = node.acquire(acquire("k", 5)).await;
        assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
    }
}

#[tokio::test]
async fn a_record_that_a_frozen_replica_does_not_have_is_not_told() {
    for kind in Kind::ALL {
        let (_master, replica, node) = pair(kind, SHORT).await;
        let recall = async |owner, adopt| {
            let recall = RecallRequest::new(acquire("k", owner), adopt, LONG);
            node.recall(recall).await
        };
        recall(1, false).await.unwrap();
        replica.freeze();
        let record = Record::new(FencingToken::new(7).unwrap(), "done".into(), FAR);
        let complete = CompleteRequest::new(release("k", 1), Some(record.clone()));
        let later = CompleteRequest::new(release("k", 2), Some(record.clone()));
        let lower = Record::new(FencingToken::new(6).unwrap(), "done".into(), FAR);
        let lower = CompleteRequest::new(release("k", 3), Some(lower)).chosen();
        // It is written at once, and from then on it is for each to find out whether it is there to stay: also for
        // those who write nothing, and over a connection that has written nothing yet.
        let error = node.complete(complete.clone()).await.unwrap_err();
        assert_not_replicated(&error, "0 of 1");
        for owner in 1..9 {
            let error = recall(owner, false).await.unwrap_err();
            assert_not_replicated(&error, "0 of 1");
        }
        for complete in [lower.clone(), later] {
            let error = node.complete(complete).await.unwrap_err();
            assert_not_replicated(&error, "0 of 1");
        }
        let error = recall(4, true).await.unwrap_err();
        assert_not_replicated(&error, "0 of 1");
        replica.thaw();
        let told = recall(5, false).await;
        assert_eq!(told, Ok(AcquireReply::Recorded(record)));
        let stored = Ok(CompleteReply::Stored { listeners: 0 });
        for complete in [complete, lower] {
            assert_eq!(node.complete(complete).await, stored);
        }
    }
}

/// As a release does not: a replica that has not heard of it keeps a lock until its ttl, and nothing else.
#[tokio::test]
async fn a_run_that_is_given_up_waits_for_no_replica() {
    for kind in Kind::ALL {
        let (_master, replica, node) = pair(kind, SHORT).await;
        let recall = RecallRequest::new(acquire("k", 1), false, LONG);
        node.recall(recall).await.unwrap();
        replica.freeze();
        let given_up = CompleteRequest::new(release("k", 1), None);
        let reply = node.complete(given_up).await;
        assert_eq!(reply, Ok(CompleteReply::Stored { listeners: 0 }));
        replica.thaw();
    }
}

#[tokio::test]
async fn a_record_that_makes_way_for_one_that_a_frozen_replica_does_not_have_is_not_kept() {
    for kind in Kind::ALL {
        let (_master, replica, node) = pair(kind, SHORT).await;
        let recall = RecallRequest::new(acquire("k", 1), false, LONG);
        node.recall(recall).await.unwrap();
        replica.freeze();
        let complete = |owner, ballot| {
            let record = Record::new(FencingToken::new(ballot).unwrap(), "done".into(), FAR);
            CompleteRequest::new(release("k", owner), Some(record))
        };
        let error = node.complete(complete(1, 9)).await.unwrap_err();
        assert_not_replicated(&error, "0 of 1");
        // Nothing of it is changed, and most of these go over a connection that has written nothing.
        for owner in 2..9 {
            let error = node.complete(complete(owner, 8).chosen()).await;
            assert_not_replicated(&error.unwrap_err(), "0 of 1");
        }
        replica.thaw();
        let stored = Ok(CompleteReply::Stored { listeners: 0 });
        assert_eq!(node.complete(complete(9, 8).chosen()).await, stored);
    }
}

#[tokio::test]
async fn as_many_replicas_as_required_must_acknowledge() {
    let (master, first, one) = pair(Kind::Redis, SHORT).await;
    let two = ready(
        RedisNode::new(&master.url())
            .require(1)
            .require(2)
            .within(SHORT)
            .name("two"),
    )
    .await;
    let error = two.acquire(acquire("k", 1)).await.unwrap_err();
    assert_not_replicated(&error, "1 of 2 replicas");
    let second = Server::replica_of(&master, &[]);
    let granted = two.acquire(acquire("k", 1)).await;
    assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
    assert!(exists(&first, "k") && exists(&second, "k"));
    second.freeze();
    let granted = one.acquire(acquire("other", 1)).await;
    assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
}

/// The server's log of commands names the connection of each.
#[tokio::test]
async fn what_belongs_to_one_token_takes_one_connection() {
    let (master, _replica, node) = pair(Kind::Redis, LONG).await;
    assert_eq!(commands(&master), 5, "connections of their own");
    let mut monitor = master.raw();
    monitor.command(&["MONITOR"]).unwrap();
    for owner in 0..12 {
        let name = format!("k{owner}");
        node.acquire(acquire(&name, owner)).await.unwrap();
    }
    let all: Vec<_> = (0..12).map(|n| extend(&format!("k{n}"), n)).collect();
    node.extend(all.into()).await.unwrap();
    for owner in 0..12 {
        let name = format!("k{owner}");
        node.release(release(&name, owner)).await.unwrap();
    }
    master.run("SET end 1");
    let mut lanes = HashSet::new();
    let mut of_owner = vec![HashSet::new(); 12];
    let mut seen = [0; 12];
    loop {
        let line = monitor.answer().unwrap();
        if line.contains("\"end\"") {
            break;
        }
        let Some((_, address)) = line.split_once('[') else {
            continue;
        };
        let address = address.split(']').next().unwrap().to_owned();
        // What a script calls has no address.
        let is_set = line.contains("\"NX\"") && address.contains(':');
        if !is_set && !line.contains("\"EVALSHA\"") {
            continue;
        }
        lanes.insert(address.clone());
        for (owner, connections) in of_owner.iter_mut().enumerate() {
            let number = u32::try_from(owner).unwrap();
            let token = String::from_utf8(token(number).expose().to_vec()).unwrap();
            if line.contains(&token) {
                connections.insert(address.clone());
                seen[owner] += 1;
            }
        }
    }
    assert!(
        lanes.len() > 1,
        "all of them took one connection: {lanes:?}"
    );
    for (owner, connections) in of_owner.iter().enumerate() {
        // That of its calls, and that of all renewals.
        assert_eq!(connections.len(), 2, "owner {owner}: {connections:?}");
        assert_eq!(seen[owner], 3, "owner {owner}");
    }
    let shared = (of_owner.into_iter()).reduce(|all, of| &all & &of);
    assert_eq!(shared.unwrap().len(), 1);
}

/// How many of our connections carry commands.
fn commands(server: &Server) -> usize {
    let list = server.run("CLIENT LIST");
    list.matches("name=tower-redlock ").count()
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
    assert_eq!(waiting.await, Ok(AcquireReply::Granted { fence: None }));
}

#[tokio::test]
async fn acquires_in_a_row_do_not_pile_up_waits() {
    let (master, replica, _) = pair(Kind::Redis, SHORT).await;
    let builder = RedisNode::new(&master.url()).require(1).connections(1);
    let node = ready(builder.within(SHORT)).await;
    node.acquire(acquire("held", 0)).await.unwrap();
    replica.freeze();
    let calls = |master: &Server| {
        let stats = master.run("INFO commandstats");
        let wait = stats.lines().find(|line| line.starts_with("cmdstat_wait:"));
        let calls = wait.unwrap().split_once("calls=").unwrap().1;
        calls.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    let before = calls(&master);
    let crowd: Vec<_> = (1..=20)
        .map(|owner| {
            let node = node.clone();
            tokio::spawn(async move { node.acquire(acquire("held", owner)).await })
        })
        .collect();
    // The release is sent after all of them, and overtakes those that wait for their turn.
    tokio::task::yield_now().await;
    node.release(release("held", 0)).await.unwrap();
    let after = calls(&master);
    assert!(after - before <= 3, "{} waits came first", after - before);
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn lost_scripts_are_loaded_again() {
    let (master, replica, node) = pair(Kind::Redis, LONG).await;
    master.run("SCRIPT FLUSH");
    let granted = node.acquire(acquire("k", 1)).await;
    assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
    assert!(exists(&replica, "k"));
    master.run("SCRIPT FLUSH");
    let replies = node.extend(Arc::from([extend("k", 1)])).await.unwrap();
    assert_eq!(replies, [Ok(ExtendReply::Extended)]);
}

#[tokio::test]
async fn a_lost_connection_is_the_business_of_its_own_locks() {
    let (master, _replica, node) = pair(Kind::Redis, LONG).await;
    let list = master.run("CLIENT LIST");
    let ours = list
        .lines()
        .filter(|line| line.contains("name=tower-redlock "));
    // Two of five, so one of the four for calls, or two.
    for line in ours.take(2) {
        let id = line.split(['=', ' ']).nth(1).unwrap();
        master.run(&format!("CLIENT KILL ID {id}"));
    }
    let granted = (0..40).map(|n| node.acquire(acquire(&format!("k{n}"), n)));
    let granted = futures_util::future::join_all(granted).await;
    let failed = granted.iter().filter(|reply| reply.is_err()).count();
    assert!(failed > 0 && failed < 40, "{failed} of 40");
    eventually("mended", || node.state() == NodeState::Up).await;
    assert_eq!(commands(&master), 5);
}

#[tokio::test]
async fn a_user_needs_the_right_to_wait() {
    let master = Server::start(Kind::Redis, &[]);
    let _replica = Server::replica_of(&master, &[]);
    master.run("ACL SETUSER u on >p ~* &* +@all -wait");
    let url = master.url_as("u", "p");
    let node = RedisNode::new(&url)
        .require(1)
        .within(LONG)
        .build()
        .unwrap();
    node.start(patient());
    let error = refusal(&node).await;
    let text = error.to_string();
    assert!(text.contains("ACL") && text.contains("WAIT"), "{text}");
    master.run("ACL SETUSER u +wait");
    eventually("up", || node.state() == NodeState::Up).await;
    let granted = node.acquire(acquire("k", 1)).await;
    assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
}

#[test]
fn no_replica_is_no_number_of_replicas() {
    let node = RedisNode::new("redis://10.0.0.1").require(0);
    let error = node.build().unwrap_err();
    assert!(error.to_string().contains("0 replicas"), "{error}");
}
