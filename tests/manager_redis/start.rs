//! Starting while some servers cannot serve as nodes.

use tower_redlock::AcquireError;
use tower_redlock::error::ConnectError;
use tower_redlock::node::NodeState;
use tower_redlock::snapshot::{NodeStatus, VotingStatus};

use crate::support::eventually;
use crate::{Cluster, MS};

fn spoil(cluster: &Cluster, nodes: std::ops::Range<usize>) {
    cluster.each(nodes, |server| {
        server.run("CONFIG SET maxmemory-policy allkeys-lru");
    });
}

#[tokio::test]
async fn a_lazy_start_needs_a_quorum_for_a_list_that_all_nodes_have_accepted() {
    let cluster = Cluster::start();
    drop(cluster.manager().await);
    spoil(&cluster, 0..1);
    let builder = || cluster.builder().bootstrap(false);
    match builder().connect().await {
        Err(ConnectError::Misconfigured(failures)) => assert_eq!(failures.len(), 1),
        other => panic!("{other:?}"),
    }
    let locks = builder().connect_lazy().unwrap();
    eventually("a quorum votes", || locks.has_quorum()).await;
    drop(locks.try_acquire("k").await.unwrap());
    let is_failing = matches!(
        locks.snapshot().nodes[0].voting,
        VotingStatus::Failing { .. }
    );
    assert!(is_failing, "{:?}", locks.snapshot().nodes);
    assert_eq!(locks.snapshot().verdict, "quorum: 4 of 5 vote, 3 needed");
    cluster.servers[0].run("CONFIG SET maxmemory-policy noeviction");
    locks.all_voting().await.unwrap();
    // Too few are left.
    spoil(&cluster, 0..3);
    match builder().connect().await {
        Err(ConnectError::Misconfigured(failures)) => assert_eq!(failures.len(), 3),
        other => panic!("{other:?}"),
    }
    let refused = || {
        let nodes = locks.snapshot().nodes;
        nodes[..3]
            .iter()
            .all(|node| node.voting != VotingStatus::Voting)
    };
    eventually("they are refused", refused).await;
    assert!(!locks.has_quorum());
}

#[tokio::test]
async fn a_new_list_needs_all_of_its_nodes() {
    let cluster = Cluster::start();
    spoil(&cluster, 4..5);
    let builder = cluster.builder().connect_timeout(700 * MS);
    let locks = builder.connect_lazy().unwrap();
    let is_up = |node: &NodeStatus| node.state == NodeState::Up;
    eventually("four are up", || {
        locks.snapshot().nodes[..4].iter().all(is_up)
    })
    .await;
    match locks.try_acquire("k").await {
        Err(AcquireError::NoQuorum(error)) => {
            let error = error.to_string();
            assert!(error.contains("maxmemory-policy"), "{error}");
            assert!(
                error.contains("before every node has accepted this list"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    let accepted = cluster.servers[3].run("HEXISTS lk!node accepted");
    assert_eq!(accepted, "0", "no node votes");
}
