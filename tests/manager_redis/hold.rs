//! Locks that are held for longer than their ttl.

use std::time::Instant;

use tower_redlock::node::NodeState;
use tower_redlock::snapshot::NodeStatus;

use crate::{Cluster, MS, connected, eventually, is_contended};

#[tokio::test]
async fn a_lock_outlives_its_ttl_and_nobody_gets_in() {
    let cluster = Cluster::start();
    // Long enough that a busy machine does not keep its renewals waiting for two thirds of it.
    let ttl = 600 * MS;
    let ours = connected(cluster.short(ttl)).await;
    let theirs = connected(cluster.short(ttl)).await;
    let guard = ours.acquire("order:1").await.unwrap();
    let token = cluster.token("order:1");
    let until = Instant::now() + 2_000 * MS;
    let mut refused = 0;
    while Instant::now() < until {
        let error = theirs.try_acquire("order:1").await.unwrap_err();
        assert!(is_contended(&error), "{error}");
        refused += 1;
        tokio::time::sleep(10 * MS).await;
    }
    assert!(refused > 10, "{refused}");
    assert!(!guard.is_lost());
    // One server may have been renewed too late on a busy machine, and then lets another in for a moment.
    let servers = cluster.servers.iter();
    let ours_on = servers.filter(|server| server.run("GET lk:order:1") == token);
    assert!(ours_on.count() >= 3, "still ours");
    guard.release().await.unwrap();
    drop(theirs.try_acquire("order:1").await.unwrap());
}

#[tokio::test]
async fn an_extension_that_fails_does_not_lose_the_lock() {
    let cluster = Cluster::start();
    let ttl = 1_500 * MS;
    let locks = connected(cluster.short(ttl).node_timeout(100 * MS)).await;
    let guard = locks.acquire("order:1").await.unwrap();
    let began = Instant::now();
    cluster.each([0, 1, 2], |server| server.freeze());
    // The extension at a third of the ttl is given up, which leads to a PING, which is not answered either.
    eventually("the extension has failed", || {
        let down = |node: &NodeStatus| matches!(node.state, NodeState::Down(_));
        locks.nodes().iter().filter(|node| down(node)).count() == 3
    })
    .await;
    let left = guard.remaining();
    assert!(left < ttl * 2 / 3, "it was not extended: {left:?}");
    assert!(!guard.is_lost(), "and not lost for it");
    cluster.each([0, 1, 2], |server| server.thaw());

    let extended = tokio::time::timeout(ttl, async {
        while guard.remaining() <= left {
            tokio::time::sleep(MS).await;
        }
    });
    extended.await.unwrap();
    while began.elapsed() < ttl * 5 / 4 {
        assert!(!guard.is_lost(), "lost after {:?}", began.elapsed());
        tokio::time::sleep(5 * MS).await;
    }
    assert!(cluster.holding("order:1") >= 3);
    guard.release().await.unwrap();
    cluster.settle_free("after the thaw").await;
}
