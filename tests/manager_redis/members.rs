//! Processes that were given different lists of servers.

use std::time::Instant;

use tower_redlock::error::ConnectError;

use crate::*;

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
    let new = builder(&urls[2..]).connect_lazy().unwrap();
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

/// Each list has the same names in the same groups: only the servers know that a key would be held twice.
#[tokio::test]
async fn servers_whose_names_are_exchanged_between_groups_serve_one_process_alone() {
    let servers = Server::start_many(Kind::Redis, 2);
    let process = |servers: [&Server; 2]| {
        let nodes = (0..).zip(servers);
        let nodes = nodes.map(|(n, it)| RedisNode::new(&it.url()).name(format!("n{n}")));
        let builder = LockManager::builder().redis_nodes(nodes);
        builder.groups(2).bootstrap(true)
    };
    let first = connected(process([&servers[0], &servers[1]])).await;
    let guard = first.try_acquire("order:1").await.unwrap();
    let exchanged = process([&servers[1], &servers[0]]).connect().await;
    let Err(error @ ConnectError::Misconfigured(_)) = exchanged else {
        panic!("a second holder may come: {exchanged:?}");
    };
    let text = error.to_string();
    for group in ["n0 | n1 (it is in group 1);", "n0 | n1 (it is in group 2);"] {
        assert!(text.contains(group), "{text}");
    }
    assert!(!guard.is_lost());
    let again = connected(process([&servers[0], &servers[1]])).await;
    assert!(is_contended(
        &again.try_acquire("order:1").await.unwrap_err()
    ));
}
