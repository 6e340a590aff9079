//! Nodes whose master is found through a real Sentinel.

use std::sync::atomic::{AtomicU16, Ordering};

use tower_redlock::Settings;

use crate::support::fake::Fake;
use crate::support::nodes::is_down;
use crate::support::sentinel::{Sentinel, says};
use crate::support::server::free_port;
use crate::*;

/// The node at the master that these Sentinels name.
fn node(urls: &[String]) -> RedisNode {
    RedisNode::sentinel(urls, "mymaster")
}

#[tokio::test]
async fn a_sentinel_that_is_gone_or_silent_is_passed_over() {
    let master = Server::start(Kind::Redis, &[]);
    let three = [(); 3].map(|()| Sentinel::start(Kind::Redis, &master, 0));
    let gone = format!("redis://127.0.0.1:{}", free_port());
    let silent = Fake::start(|_| String::new()).await;
    let mut urls = vec![gone, silent.url()];
    urls.extend(three.iter().map(Sentinel::url));
    up_again(&ready(node(&urls)).await).await;
}

#[tokio::test]
async fn the_masters_user_and_database_are_its_own() {
    let master = Server::start(Kind::Redis, &[]);
    master.run("ACL SETUSER u on >p@s/s ~* &* +@all");
    let sentinel = Sentinel::start_as(Kind::Redis, &master, "s3cret");
    let url = sentinel.url().replace("//", "//:s3cret@");
    let builder = node(&[url]).user("u");
    let node = ready(builder.clone().password("p@s/s").database(3)).await;
    node.acquire(acquire("k", 1)).await.unwrap();
    assert!(master.info("db3").starts_with("keys=1"));

    let node = start(builder.clone().password("wr0ng"));
    let error = refusal(&node).await;
    let text = format!("{builder:?} {node:?} {error}");
    assert!(text.contains("credentials"), "{text}");
    let secrets = ["s3cret", "wr0ng"];
    assert!(!secrets.iter().any(|it| text.contains(it)), "{text}");
}

/// With replicas that must acknowledge, and another database.
#[tokio::test]
async fn the_rules_that_are_printed_are_enough_and_not_more() {
    for kind in Kind::ALL {
        let master = Server::start(kind, &[]);
        let _replica = Server::replica_of(&master, &[]);
        let sentinel = Sentinel::start(kind, &master, 1);
        let url = sentinel.url().replace("//", "//asker:pw@");
        let node = node(&[url]).user("u").password("pw");
        let node = node.database(3).require(1).name("main");
        for reads_only in [false, true] {
            let settings = Settings::default().redis_nodes([node.clone()]);
            let rules = settings.acl(reads_only).unwrap();
            let rule = |index: usize| rules[index].1.replace("PASSWORD", "pw");
            let names = (&*rules[0].0, &*rules[1].0);
            assert_eq!(names, ("main", "the Sentinels of main"));
            assert_eq!(master.run(&rule(0)), "OK");
            let words = rule(1);
            let words: Vec<&str> = words.split(' ').collect();
            let set = sentinel.raw().unwrap().command(&words).unwrap();
            assert_eq!((words[2], &*set), ("asker", "OK"));
            let settled_as = async |rights: &str| {
                master.run(&format!("ACL SETUSER u {rights}"));
                settled(&start(node.clone())).await
            };
            if reads_only {
                let error = settled_as("+info").await.unwrap_err().to_string();
                assert!(
                    error.contains("add `+set +del +pexpire +hset +hdel`"),
                    "{error}"
                );
                continue;
            }
            settled_as("+info").await.unwrap();
            for spare in ["wait", "select"] {
                let error = settled_as(&format!("-{spare}")).await.unwrap_err();
                let named = format!("`{}`", spare.to_uppercase());
                assert!(error.to_string().contains(&named), "{error}");
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
        let error = refusal(&start(RedisNode::sentinel([url], "othermaster"))).await;
        assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
        assert!(error.to_string().contains("`othermaster`"), "{error}");
    }
    let gone = node(&[format!("redis://127.0.0.1:{}", free_port())]);
    down(&start(gone), "do not agree").await;
}

/// Waits until an acquire is granted, for longer than a failover takes.
async fn granted_anew(node: &LiveNode, name: &str) {
    for owner in 1_000..2_000 {
        if node.acquire(acquire(name, owner)).await == GRANTED {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no new master: {node:?}");
}

#[tokio::test]
async fn a_demoted_master_is_left() {
    let master = Server::start(Kind::Redis, &[]);
    let replica = Server::replica_of(&master, &[]);
    let sentinel = Sentinel::start(Kind::Redis, &master, 1);
    let node = ready(node(&[sentinel.url()]).connections(3)).await;
    // Nobody's connection breaks by this, and Sentinel sets it right again.
    master.run(&format!("REPLICAOF 127.0.0.1 {}", replica.port()));
    let error = node.acquire(acquire("k", 1)).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Rejected);
    eventually("left", || is_down(&node)).await;
    // As an operator does it.
    master.run("REPLICAOF NO ONE");
    eventually("up", || node.state() == NodeState::Up).await;
    granted_anew(&node, "k").await;
}

/// The old master still takes itself for one, and so do the Sentinels for a moment. Connections to it may break, whose
/// successors lead to the new one.
#[tokio::test]
async fn no_connection_stays_behind_at_a_server_that_was_replaced() {
    // All connections stay, or one alone.
    for stays in [None, Some(0), Some(1), Some(2), Some(3), Some(4)] {
        let [old, new] = [(); 2].map(|()| Server::start(Kind::Redis, &[]));
        let named = Arc::new(AtomicU16::new(old.port()));
        let answer = Arc::clone(&named);
        let fake = Fake::start(move |words| {
            says(words, "s", "127.0.0.1", answer.load(Ordering::SeqCst), 0)
        });
        let fake = fake.await;
        let node = ready(node(&[fake.url()]).connections(4)).await;
        named.store(new.port(), Ordering::SeqCst);
        let before = connections(&old);
        assert_eq!(before.len(), 5);
        for (number, (id, _)) in before.iter().enumerate() {
            if stays.is_some_and(|stays| number != stays) {
                old.run(&format!("CLIENT KILL ID {id}"));
            }
        }
        let is_left = || connections(&old).is_empty() && connections(&new).len() == 5;
        eventually("none is left behind", is_left).await;
        settled(&node).await.unwrap();
        node.acquire(acquire("k", 1)).await.unwrap();
        assert!(exists(&new, "k"));
    }
}
