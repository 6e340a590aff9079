//! What was checked at connect and is looked at again while the connection lives.

use crate::support::requests::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_redlock::clock::{Clock, Moment};
use tower_redlock::node::RedisNode;
use tower_redlock::node::{
    AcquireReply, CheckInMode, CheckInRequest, ClusterConfig, Namespace, Node, NodeErrorKind,
    NodeState,
};

use crate::support::eventually;
use crate::support::fake::{Fake, sound};
use crate::support::nodes::{LONG, acquire, context, ready, settled};
use crate::support::server::{Kind, Server};

/// Waits until nobody asks anything of the node and it is refused all the same, for a reason with these words.
async fn refused(node: &dyn Node, words: &str) {
    eventually(words, || matches!(node.state(), NodeState::Refused(_))).await;
    let NodeState::Refused(reason) = node.state() else {
        panic!("{:?}", node.state());
    };
    assert_eq!(reason.kind(), NodeErrorKind::Misconfigured);
    assert!(reason.to_string().contains(words), "{reason}");
}

async fn up_again(node: &dyn Node) {
    eventually("up again", || node.state() == NodeState::Up).await;
    let granted = node.acquire(acquire("k", 1)).await;
    assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
}

/// Waits, without holding the node up, until it has looked at the server twice.
async fn looked_at(server: Server) -> Server {
    let looks = move || {
        server.wait_for_looks(1, 2);
        server
    };
    tokio::task::spawn_blocking(looks).await.unwrap()
}

#[tokio::test]
async fn a_server_that_begins_to_evict_is_refused() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let node = ready(&server.url()).await;
        server.run("CONFIG SET maxmemory-policy allkeys-lru");
        refused(&node, "`maxmemory-policy` is `allkeys-lru`").await;
        server.run("CONFIG SET maxmemory-policy noeviction");
        up_again(&node).await;
    }
}

#[tokio::test]
async fn a_demoted_master_is_noticed_without_a_command() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let node = ready(&server.url()).await;
        server.run("REPLICAOF 127.0.0.1 1");
        refused(&node, "only a master").await;
        server.run("REPLICAOF NO ONE");
        up_again(&node).await;
    }
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_noticed() {
    let server = Server::start(Kind::Redis, &[]);
    server.run("ACL SETUSER u on >p ~* &* +@all");
    let node = ready(&server.url_as("u", "p")).await;
    server.run("ACL SETUSER u -info");
    refused(&node, "ACL does not allow us to run `INFO`").await;
    server.run("ACL SETUSER u +info");
    up_again(&node).await;
}

#[tokio::test]
async fn a_replica_that_nobody_spoke_of_is_no_error() {
    for kind in Kind::ALL {
        let master = Server::start(kind, &[]);
        let node = ready(&master.url()).await;
        let replica = Server::replica_of(&master, &[]);
        let late = ready(&master.url()).await;
        let master = looked_at(master).await;
        for node in [&node, &late] {
            assert_eq!(node.state(), NodeState::Up);
            let granted = node.acquire(acquire("k", 1)).await;
            assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
        }
        drop((replica, master));
    }
}

#[tokio::test]
async fn a_replica_that_is_expected_is_fine() {
    for kind in Kind::ALL {
        let master = Server::start(kind, &[]);
        let builder = RedisNode::new(&master.url()).expect_replicas(true);
        let node = builder.build().unwrap();
        node.start(context());
        settled(&node).await.unwrap();
        let replica = Server::replica_of(&master, &[]);
        let master = looked_at(master).await;
        up_again(&node).await;
        assert_eq!(
            master
                .run("CLIENT LIST")
                .matches("name=tower-redlock ")
                .count(),
            2,
            "nothing is waited for"
        );
        drop(replica);
    }
}

#[tokio::test]
async fn a_backup_is_not_taken_for_a_replica() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let node = ready(&server.url()).await;
        server.run("CONFIG SET repl-diskless-sync yes");
        server.run("CONFIG SET repl-diskless-sync-delay 600");
        let mut backup = server.backup();
        eventually("begun", || {
            server.run("INFO replication").contains("port=0")
        })
        .await;
        let server = looked_at(server).await;
        up_again(&node).await;
        server.run("CONFIG SET repl-diskless-sync-delay 0");
        eventually("backed up", || backup.try_wait().unwrap().is_some()).await;
        assert!(backup.wait().unwrap().success());
        let server = looked_at(server).await;
        up_again(&node).await;
        drop(server);
    }
}

/// A clock that stands still but for the steps it is made to take.
#[derive(Debug, Default)]
struct Steps(AtomicU64);

impl Clock for Steps {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// By the time that a process wakes up, what it saw may be old, although no time has passed for its timers.
#[tokio::test]
async fn a_process_that_slept_does_not_say_who_the_server_is() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let fake = Fake::start(move |words| {
        if words[0] != "EVALSHA" {
            return sound(words);
        }
        // Behind the marker, the tombstone, the lock and its counter: token and ttl, then the digest and the identity.
        heard.lock().unwrap().push(words[9].clone());
        "*1\r\n:-1\r\n".to_owned()
    })
    .await;
    let clock = Arc::new(Steps::default());
    let mut context = context();
    context.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let node = RedisNode::new(&fake.url()).build().unwrap();
    node.start(context);
    settled(&node).await.unwrap();
    let config = Arc::new(ClusterConfig::new("nodes a"));
    for (step, who) in [(0, "fake"), (1_000, "fake"), (10_000, "ask")] {
        let step = Duration::from_millis(step).as_nanos();
        clock
            .0
            .fetch_add(step.try_into().unwrap(), Ordering::SeqCst);
        let request = acquire("k", 1).under(Some(Arc::clone(&config)));
        node.acquire(request).await.unwrap_err();
        let said = format!("{} {who}", config.digest);
        assert_eq!(told.lock().unwrap().pop().unwrap(), said);
    }
}

/// Without guard and fencing tokens a lock is a plain `SET`, which compares nothing: so not before a script has.
#[tokio::test]
async fn a_bare_process_that_slept_compares_its_list_again() {
    let server = Server::start(Kind::Redis, &[]);
    let (clock, mut context) = (Arc::new(Steps::default()), context());
    context.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let node = RedisNode::new(&server.url()).build().unwrap();
    node.start(context);
    settled(&node).await.unwrap();
    let list = |text: &str| Arc::new(ClusterConfig::new(text).unguarded());
    let check_in = |text: &str, mode| {
        let fresh = "fresh".to_owned();
        node.check_in(CheckInRequest::new(
            Namespace::default(),
            list(text),
            LONG,
            fresh,
            mode,
        ))
    };
    let acquired = |owner: u32| {
        let request = acquire(&format!("k{owner}"), owner);
        node.acquire(request.under(Some(list("nodes a"))))
    };
    let sets = || server.calls().get("set").copied().unwrap_or_default();
    check_in("nodes a", CheckInMode::Normal).await.unwrap();
    acquired(1).await.unwrap();
    server.run("CONFIG RESETSTAT");
    acquired(2).await.unwrap();
    assert_eq!((sets(), server.calls().get("evalsha")), (1, None));
    // Meanwhile an operator puts another list in its place.
    let former = Duration::ZERO;
    check_in("nodes b", CheckInMode::Adopt { former })
        .await
        .unwrap();
    clock.0.fetch_add(10_000_000_000, Ordering::SeqCst);
    let refused = acquired(3).await.unwrap_err();
    assert_eq!(refused.kind(), NodeErrorKind::Foreign);
    // Also if the next look at the server came before.
    let looks = || server.calls().get("info").copied().unwrap_or_default();
    let before = looks();
    eventually("both connections were looked at", || looks() >= before + 4).await;
    let refused = acquired(4).await.unwrap_err();
    assert_eq!(refused.kind(), NodeErrorKind::Foreign);
}
