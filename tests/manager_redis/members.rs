//! Processes that were given different lists of servers.

use std::time::Instant;

use tower_redlock::error::ConnectError;
use tower_redlock::node::NodeState;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{AcquireError, LockManager};

use crate::support::eventually;
use crate::{Cluster, MS, connected};

#[tokio::test]
async fn of_two_lists_with_a_server_in_common_never_do_both_hold() {
    let mut cluster = Cluster::start();
    let urls = cluster.urls();
    let builder = |urls: &[String]| {
        let builder = LockManager::builder().redis(urls);
        let ttl = 2_000 * MS;
        // Longer than any other lease, so that nobody waits for the rest of a minute.
        builder.ttl(ttl).max_ttl(ttl).node_timeout(300 * MS)
    };
    let old = connected(builder(&urls[..3]).bootstrap(true)).await;
    let guard = old.try_acquire("order:1").await.unwrap();
    // The shared one is away, and says nothing to those who begin.
    cluster.servers[2].kill();
    let new = builder(&urls[2..]);
    let error = new.connect_timeout(500 * MS).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::NoQuorum(_)), "{error}");
    let new = builder(&urls[2..]).lazy().unwrap();
    eventually("the others are there", || {
        let nodes = new.snapshot().nodes;
        nodes[1..].iter().all(|node| node.state == NodeState::Up)
    })
    .await;
    new.try_acquire("order:1").await.unwrap_err();
    assert!(!guard.is_lost());
    // It comes back with nothing, for whoever is first.
    cluster.servers[2].restart();
    let foreign = |locks: &LockManager| {
        let nodes = locks.snapshot().nodes;
        let foreign = |standing: &VotingStatus| matches!(standing, VotingStatus::Foreign { .. });
        nodes.iter().any(|node| foreign(&node.voting))
    };
    // Long enough for the quarantine of the new list, should it be that.
    let began = Instant::now();
    while began.elapsed() < 9_000 * MS {
        if let Ok(other) = new.try_acquire("order:1").await {
            assert!(guard.is_lost() || other.is_lost(), "two holders");
            drop(other);
        }
        tokio::time::sleep(20 * MS).await;
    }
    assert_ne!(foreign(&old), foreign(&new));
    let (on, off) = if foreign(&old) {
        (&new, &old)
    } else {
        (&old, &new)
    };
    let AcquireError::NoQuorum(error) = off.try_acquire("order:2").await.unwrap_err() else {
        panic!("not refused");
    };
    assert!(
        error.to_string().starts_with("nothing is granted while"),
        "{error}"
    );
    drop(on.try_acquire("order:2").await.unwrap());
}
