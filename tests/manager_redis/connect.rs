//! What `connect` takes, and what it does not take.

use tower_redlock::error::ConnectError;

use crate::*;

#[tokio::test]
async fn a_server_that_is_listed_twice_is_refused() {
    let servers = Server::start_many(Kind::Redis, 2);
    let mut urls: Vec<String> = servers.iter().map(Server::url).collect();
    urls.push(urls[0].replace("127.0.0.1", "localhost"));
    let builder = LockManager::builder().bootstrap(true).redis(&urls);
    let error = builder.connect().await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("these nodes cannot serve: "), "{text}");
    assert!(text.contains("the same server as node"), "{text}");
    let ConnectError::Misconfigured(failures) = error else {
        panic!("{text}");
    };
    // Whichever connected first has the place.
    assert_eq!(failures.len(), 1, "{text}");
}

#[tokio::test]
async fn a_lazy_start_needs_a_quorum_for_a_list_that_all_nodes_have_accepted() {
    let cluster = Cluster::start();
    drop(cluster.manager().await);
    let spoil = |nodes: std::ops::Range<usize>| {
        cluster.each(nodes, |server| {
            server.run("CONFIG SET maxmemory-policy allkeys-lru");
        });
    };
    let builder = || cluster.builder().bootstrap(false);
    let assert_misconfigured = async |count: usize| match builder().connect().await {
        Err(ConnectError::Misconfigured(failures)) => assert_eq!(failures.len(), count),
        other => panic!("{other:?}"),
    };
    spoil(0..1);
    assert_misconfigured(1).await;
    let locks = builder().connect_lazy().unwrap();
    eventually("a quorum votes", || locks.has_quorum()).await;
    drop(locks.try_acquire("k").await.unwrap());
    let snapshot = locks.snapshot();
    let voting = &snapshot.nodes[0].voting;
    assert!(matches!(voting, VotingStatus::Failing { .. }), "{voting:?}");
    assert_eq!(snapshot.verdict, "quorum: 4 of 5 vote, 3 needed");
    cluster.servers[0].run("CONFIG SET maxmemory-policy noeviction");
    locks.all_voting().await.unwrap();
    // Too few are left.
    spoil(0..3);
    assert_misconfigured(3).await;
    eventually("they are refused", || !locks.has_quorum()).await;
}
