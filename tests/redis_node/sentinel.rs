//! Nodes whose master is found through a real Sentinel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tower_redlock::Settings;
use tower_redlock::node::{AcquireReply, Node, NodeErrorKind, NodeState};
use tower_redlock::node::{LiveNode, RedisNode};

use crate::support::eventually;
use crate::support::fake::Fake;
use crate::support::nodes::{acquire, context, is_down, key, refusal, settled};
use crate::support::sentinel::Sentinel;
use crate::support::server::{Kind, Server, free_port};

/// A started node at the master of these Sentinels.
fn started(urls: &[String]) -> LiveNode {
    let node = RedisNode::sentinel(urls, "mymaster").build().unwrap();
    node.start(context());
    node
}

fn holds(server: &Server, name: &str) -> bool {
    server.command(&["EXISTS", key(name).as_str()]) == "1"
}

#[tokio::test]
async fn the_master_is_found() {
    for kind in Kind::ALL {
        let master = Server::start(kind, &[]);
        let sentinel = Sentinel::start(kind, &master, 0);
        let node = started(&[sentinel.url()]);
        settled(&node).await.unwrap();
        assert_eq!(node.name(), "sentinel:mymaster");
        let granted = node.acquire(acquire("k", 1)).await;
        assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
        assert!(holds(&master, "k"));
    }
}

#[tokio::test]
async fn a_sentinel_that_is_gone_or_silent_is_passed_over() {
    let master = Server::start(Kind::Redis, &[]);
    let three = [(); 3].map(|()| Sentinel::start(Kind::Redis, &master, 0));
    let gone = format!("redis://127.0.0.1:{}", free_port());
    let silent = Fake::start(|_| String::new()).await;
    let mut urls = vec![gone, silent.url()];
    urls.extend(three.iter().map(Sentinel::url));
    let node = started(&urls);
    settled(&node).await.unwrap();
    node.acquire(acquire("k", 1)).await.unwrap();
}

#[tokio::test]
async fn the_masters_user_and_database_are_its_own() {
    let master = Server::start(Kind::Redis, &[]);
    master.run("ACL SETUSER u on >p@s/s ~* &* +@all");
    let sentinel = Sentinel::start_as(Kind::Redis, &master, "s3cret");
    let url = sentinel.url().replace("//", "//:s3cret@");
    let builder = RedisNode::sentinel([url], "mymaster").user("u");
    let node = builder
        .clone()
        .password("p@s/s")
        .database(3)
        .build()
        .unwrap();
    node.start(context());
    settled(&node).await.unwrap();
    node.acquire(acquire("k", 1)).await.unwrap();
    assert!(master.info("db3").starts_with("keys=1"));

    let node = builder.clone().password("wr0ng").build().unwrap();
    node.start(context());
    let error = refusal(&node).await;
    let text = format!("{builder:?} {node:?} {error}");
    assert!(text.contains("credentials"), "{text}");
    assert!(
        !text.contains("s3cret") && !text.contains("wr0ng"),
        "{text}"
    );
}

/// With replicas that must acknowledge, and another database.
#[tokio::test]
async fn the_rules_that_are_printed_are_enough_and_not_more() {
    for kind in Kind::ALL {
        let master = Server::start(kind, &[]);
        let _replica = Server::replica_of(&master, &[]);
        let sentinel = Sentinel::start(kind, &master, 1);
        let url = sentinel.url().replace("//", "//asker:pw@");
        let node = RedisNode::sentinel([url], "mymaster")
            .user("u")
            .password("pw");
        let node = node.database(3).require(1).name("main");
        for reads_only in [false, true] {
            let rules = Settings::default()
                .redis_nodes([node.clone()])
                .acl(reads_only)
                .unwrap();
            let rule = |index: usize| rules[index].1.replace("PASSWORD", "pw");
            assert_eq!(
                (&*rules[0].0, &*rules[1].0),
                ("main", "the Sentinels of main")
            );
            assert_eq!(master.run(&rule(0)), "OK");
            let words = rule(1);
            let words: Vec<&str> = words.split(' ').collect();
            assert_eq!(
                (
                    words[2],
                    sentinel.raw().unwrap().command(&words).unwrap().as_str()
                ),
                ("asker", "OK")
            );
            let settled_as = async |rights: &str| {
                master.run(&format!("ACL SETUSER u {rights}"));
                let node = node.clone().build().unwrap();
                node.start(context());
                settled(&node).await
            };
            if reads_only {
                let error = settled_as("+info").await.unwrap_err();
                assert!(
                    error
                        .to_string()
                        .contains("add `+set +del +pexpire +hset +hdel`"),
                    "{error}"
                );
                continue;
            }
            settled_as("+info").await.unwrap();
            for spare in ["-wait", "-select"] {
                settled_as(spare).await.unwrap_err();
                master.run(&rule(0));
            }
        }
    }
}

#[tokio::test]
async fn a_master_that_no_sentinel_knows_says_so() {
    let master = Server::start(Kind::Redis, &[]);
    let sentinel = Sentinel::start(Kind::Redis, &master, 0);
    // The second is no Sentinel at all.
    for url in [sentinel.url(), master.url()] {
        let node = RedisNode::sentinel([url], "othermaster").build().unwrap();
        node.start(context());
        let error = refusal(&node).await;
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        assert!(error.to_string().contains("`othermaster`"), "{error}");
    }
    let node = started(&[format!("redis://127.0.0.1:{}", free_port())]);
    eventually("down", || is_down(&node)).await;
    let NodeState::Down(reason) = node.state() else {
        panic!("{:?}", node.state());
    };
    assert!(reason.to_string().contains("do not agree"), "{reason}");
}

/// Waits until an acquire is granted, for longer than a failover takes.
async fn granted_anew(node: &LiveNode, name: &str) {
    for owner in 1_000..2_000 {
        if node.acquire(acquire(name, owner)).await == Ok(AcquireReply::Granted { fence: None }) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no new master: {node:?}");
}

/// Kills the master of a node, which then goes to the next.
async fn follow(kind: Kind) {
    let mut master = Server::start(kind, &[]);
    let replica = Server::replica_of(&master, &[]);
    let sentinel = Sentinel::start(kind, &master, 1);
    let node = RedisNode::sentinel([sentinel.url()], "mymaster")
        .require(1)
        .within(Duration::from_millis(500))
        .build()
        .unwrap();
    let mut patient = context();
    patient.node_timeout = Duration::from_secs(2);
    node.start(patient);
    settled(&node).await.unwrap();
    node.acquire(acquire("k", 1)).await.unwrap();
    let (before, history) = (master.info("run_id"), master.info("master_replid"));
    master.kill();
    eventually("promoted", || sentinel.master() == Some(replica.port())).await;
    eventually("up", || node.state() == NodeState::Up).await;
    assert_ne!(replica.info("run_id"), before);
    assert_ne!(replica.info("master_replid"), history);
    // It was acknowledged, so it is there; and without a replica nothing is granted any more.
    assert!(holds(&replica, "k"));
    let error = node.acquire(acquire("other", 2)).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::NotReplicated, "{error}");
    let _second = Server::replica_of(&replica, &[]);
    granted_anew(&node, "other").await;
}

#[tokio::test]
async fn a_node_follows_to_the_new_master() {
    follow(Kind::Redis).await;
}

#[tokio::test]
async fn a_node_follows_to_the_new_valkey_master() {
    follow(Kind::Valkey).await;
}

#[tokio::test]
async fn a_demoted_master_is_left() {
    let master = Server::start(Kind::Redis, &[]);
    let replica = Server::replica_of(&master, &[]);
    let sentinel = Sentinel::start(Kind::Redis, &master, 1);
    let node = RedisNode::sentinel([sentinel.url()], "mymaster")
        .connections(3)
        .build()
        .unwrap();
    node.start(context());
    settled(&node).await.unwrap();
    // Nobody's connection breaks by this, and Sentinel sets it right again.
    master.run(&format!("REPLICAOF 127.0.0.1 {}", replica.port()));
    let error = node.acquire(acquire("k", 1)).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Rejected);
    eventually("left", || is_down(&node)).await;
    let first = node.state();
    assert!(matches!(first, NodeState::Down(_)), "{first:?}");
    // As an operator does it.
    master.run("REPLICAOF NO ONE");
    eventually("up", || node.state() == NodeState::Up).await;
    granted_anew(&node, "k").await;
}

#[tokio::test]
async fn a_master_that_does_not_know_that_it_was_replaced_is_left() {
    let (old, new) = (
        Server::start(Kind::Redis, &[]),
        Server::start(Kind::Redis, &[]),
    );
    let named = Arc::new(AtomicU16::new(old.port()));
    let answer = Arc::clone(&named);
    let fake = Fake::start(move |_| {
        let port = answer.load(Ordering::SeqCst).to_string();
        format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
    })
    .await;
    let builder = RedisNode::sentinel([fake.url()], "mymaster");
    let node = builder.connections(4).build().unwrap();
    node.start(context());
    settled(&node).await.unwrap();
    named.store(new.port(), Ordering::SeqCst);
    let ours = |server: &Server| {
        server
            .run("CLIENT LIST")
            .matches("name=tower-redlock ")
            .count()
    };
    eventually("all have left", || ours(&old) == 0 && ours(&new) == 5).await;
    settled(&node).await.unwrap();
    node.acquire(acquire("k", 1)).await.unwrap();
    assert!(holds(&new, "k"));
}

/// The connections for commands, as the server lists them.
fn connections(server: &Server) -> Vec<String> {
    let list = server.run("CLIENT LIST");
    let ours = list
        .lines()
        .filter(|line| line.contains("name=tower-redlock "));
    let ids = ours.filter_map(|line| line.split_once("id=")?.1.split(' ').next());
    ids.map(str::to_owned).collect()
}

#[tokio::test]
async fn no_connection_stays_behind_at_a_server_that_the_others_have_left() {
    for stays in 0..5 {
        let (old, new) = (
            Server::start(Kind::Redis, &[]),
            Server::start(Kind::Redis, &[]),
        );
        let named = Arc::new(AtomicU16::new(old.port()));
        let answer = Arc::clone(&named);
        let fake = Fake::start(move |_| {
            let port = answer.load(Ordering::SeqCst).to_string();
            format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
        })
        .await;
        let builder = RedisNode::sentinel([fake.url()], "mymaster");
        let node = builder.connections(4).build().unwrap();
        node.start(context());
        settled(&node).await.unwrap();
        // Some connections break, and their successors lead to the new master. The old one still takes itself for it.
        named.store(new.port(), Ordering::SeqCst);
        let ids = connections(&old);
        assert_eq!(ids.len(), 5);
        for (_, id) in ids.iter().enumerate().filter(|(n, _)| *n != stays) {
            old.run(&format!("CLIENT KILL ID {id}"));
        }
        eventually("none is left behind", || {
            connections(&old).is_empty() && connections(&new).len() == 5
        })
        .await;
        settled(&node).await.unwrap();
    }
}
