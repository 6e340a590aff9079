//! Servers of both kinds under one lock.

use crate::*;

#[tokio::test]
async fn servers_of_both_kinds_serve_side_by_side() {
    let mut cluster = Cluster {
        servers: Server::start_many(Kind::Redis, 3),
    };
    cluster.servers.extend(Server::start_many(Kind::Valkey, 2));
    let (ours, theirs) = (cluster.manager().await, cluster.manager().await);
    assert!(
        ours.snapshot()
            .nodes
            .iter()
            .all(|node| node.state == NodeState::Up)
    );
    let guard = ours.try_acquire("order:1").await.unwrap();
    eventually("held on all five", || cluster.holding("order:1") == 5).await;
    let error = theirs.try_acquire("order:1").await.unwrap_err();
    let AcquireError::Contended { remaining, .. } = error else {
        panic!("{error}");
    };
    assert!(remaining.is_some_and(|left| left <= LONG));
    guard.release().await.unwrap();
    drop(theirs.try_acquire("order:1").await.unwrap());
    cluster.settle_free("both kinds").await;
}
