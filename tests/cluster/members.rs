//! Processes that were given different lists of servers.

use tower_redlock::{AcquireError, ConnectError, LockManager, NodeStanding};

use crate::support::eventually;
use crate::{Cluster, LONG, MS};

/// What the processes with these servers agreed on.
fn agreed(urls: &[String], quorum: usize) -> String {
    let mut names: Vec<&str> = urls.iter().map(|url| &url["redis://".len()..]).collect();
    names.sort_unstable();
    format!(
        "[nodes {}; quorum {quorum}; losses masked 0]",
        names.join(", ")
    )
}

#[tokio::test]
async fn a_process_with_another_list_is_refused_and_both_lists_are_told() {
    let cluster = Cluster::start();
    let five = cluster.urls();
    let ours = cluster.manager().await;
    let guard = ours.try_acquire("order:1").await.unwrap();
    let three = five[1..4].to_vec();
    let lists = [agreed(&five, 3), agreed(&three, 2)];
    let builder = || {
        let builder = LockManager::builder().bootstrap(true).redis(&three);
        builder.ttl(LONG).node_timeout(1_000 * MS)
    };
    match builder().connect().await {
        Err(ConnectError::Misconfigured(error)) => {
            let text = error.to_string();
            assert!(lists.iter().all(|list| text.contains(list)), "{text}");
        }
        other => panic!("{other:?}"),
    }
    // Who does not connect first is refused by each of them.
    let theirs = builder().lazy().unwrap();
    eventually("all three known as others'", || {
        let nodes = theirs.nodes();
        let foreign = |standing: &NodeStanding| matches!(standing, NodeStanding::Foreign { .. });
        nodes.iter().all(|node| foreign(&node.standing))
    })
    .await;
    for key in ["order:1", "order:2"] {
        let AcquireError::NoQuorum(error) = theirs.try_acquire(key).await.unwrap_err() else {
            panic!("not refused");
        };
        assert!(error.failures().len() >= 2, "{error}");
        let text = error.to_string();
        assert!(lists.iter().all(|list| text.contains(list)), "{text}");
    }
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    drop(ours.try_acquire("order:2").await.unwrap());
    cluster.settle_free("ours").await;
}
