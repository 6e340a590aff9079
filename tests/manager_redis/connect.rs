//! What `connect` takes, and how it names what it does not take.

use std::collections::BTreeMap;

use tower_redlock::error::ConnectError;

use crate::*;

#[tokio::test]
async fn servers_that_cannot_be_nodes_are_named_with_the_reason_and_no_password() {
    let mut cluster = Cluster::start();
    cluster.servers[1] = Server::start(Kind::Redis, &["--requirepass", "right"]);
    cluster.servers[3] = Server::start(Kind::Redis, &["--replicaof", "127.0.0.1", "1"]);
    let mut urls = cluster.urls();
    urls[1] = cluster.servers[1].url_as("default", "s3cret-wrong");
    urls[4] = urls[0].replace("127.0.0.1", "localhost");
    let began = Stopwatch::start();
    let builder = LockManager::builder().bootstrap(true).redis(&urls);
    let error = builder.connect().await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(4), "not a time-out");
    let text = format!("{error} {error:?}");
    assert!(text.starts_with("these nodes cannot serve: "), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
    let ConnectError::Misconfigured(failures) = error else {
        panic!("{text}");
    };
    let failures = failures.into_iter();
    let reasons: BTreeMap<_, _> = failures
        .map(|failure| (failure.node, failure.error.to_string()))
        .collect();
    let [a, password, _, replica, b] = [0, 1, 2, 3, 4].map(|n: usize| {
        let (_, address) = urls[n].rsplit_once(['/', '@']).unwrap();
        address
    });
    assert!(reasons[password].contains("check the user and password"));
    let only = "its role is `slave`, and only a master can hold locks; use the master's URL";
    assert_eq!(reasons[replica], only);
    // Whichever connected first has the place.
    let (second, first) = if reasons.contains_key(a) {
        (a, b)
    } else {
        (b, a)
    };
    let one = format!(
        "it is the same server as node `{first}`; every node must be a server of its own, remove one of the two"
    );
    assert_eq!(reasons[second], one);
    assert_eq!(reasons.len(), 3, "{reasons:?}");
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
