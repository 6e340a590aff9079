//! Beside another Redlock library: `rslock` on the same servers and the same key.

use std::time::Duration;

use rslock::{LockError, LockManager as Theirs};
use tower_redlock::{AcquireError, LockManager};

use crate::{Cluster, LONG, connected, eventually};

/// The other library, which shall not repeat what is refused.
fn theirs(cluster: &Cluster) -> Theirs {
    let mut theirs = Theirs::new(cluster.urls());
    theirs.set_retry(1, Duration::from_millis(1));
    theirs
}

/// Each excludes the other on `key` of ours, which is `place` on the servers, and lets the other in afterwards.
async fn exclude_each_other(cluster: &Cluster, ours: &LockManager, key: &str, place: &str) {
    let theirs = theirs(cluster);
    let place_bytes = place.as_bytes();

    let guard = ours.acquire(key).await.unwrap();
    let refused = theirs.lock(place_bytes, LONG).await;
    assert!(matches!(refused, Err(LockError::Unavailable)));
    assert!(!guard.is_lost(), "their failed attempt left ours alone");
    eventually("everywhere", || {
        let mut servers = cluster.servers.iter();
        servers.all(|s| s.command(&["EXISTS", place]) == "1")
    })
    .await;
    guard.release().await.unwrap();

    let ttl = Duration::from_secs(7);
    let lock = theirs.lock(place_bytes, ttl).await.unwrap();
    let error = ours.try_acquire(key).await.unwrap_err();
    let AcquireError::Contended { remaining, .. } = &error else {
        panic!("{error}");
    };
    let left = remaining.unwrap();
    assert!(left <= ttl && left > ttl / 2, "{left:?}");
    for server in &cluster.servers {
        let value = server.command(&["EXISTS", place]);
        assert_eq!(value, "1", "our failed attempt left theirs alone");
    }
    theirs.unlock(&lock).await;
    ours.try_acquire(key)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    cluster.settle_free("both").await;
}

#[tokio::test]
async fn locks_exclude_each_other_on_a_key_in_a_namespace() {
    let cluster = Cluster::start();
    let ours = connected(cluster.builder().namespace("shop")).await;
    exclude_each_other(&cluster, &ours, "order:42", "shop:order:42").await;
}

#[tokio::test]
async fn on_the_server_a_lock_is_a_string_with_an_expiry_beside_its_counter_and_the_marker() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let _guard = locks.acquire("order:42").await.unwrap();
    eventually("everywhere", || cluster.holding("order:42") == 5).await;
    let token = cluster.token("order:42");
    for server in &cluster.servers {
        assert_eq!(server.locks(), ["lk:order:42"]);
        let beside = ["TYPE lk!fence:order:42", "TYPE lk!node"].map(|line| server.run(line));
        assert_eq!(beside, ["string", "hash"]);
        assert_eq!(server.run("DBSIZE"), "3");
        assert_eq!(server.run("TYPE lk:order:42"), "string");
        assert_eq!(server.run("GET lk:order:42"), token);
        let left: u128 = server.run("PTTL lk:order:42").parse().unwrap();
        let ttl = LONG.as_millis();
        assert!(left <= ttl && left > ttl / 2, "{left}");
    }
}
