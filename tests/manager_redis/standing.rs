//! Keys that are no locks.

use crate::*;

#[tokio::test]
async fn a_key_of_another_type_is_no_fault_of_the_nodes() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    for server in &cluster.servers[..3] {
        server.run("RPUSH lk:order:1 item");
    }
    let error = locks.try_acquire("order:1").await.unwrap_err();
    assert!(error.to_string().contains("not a lock"), "{error}");
    assert!(locks.has_quorum(), "{}", locks.snapshot().verdict);
    drop(locks.try_acquire("order:2").await.unwrap());
}

/// A re-fill sets the keys before the one of another type. The release frees them.
#[tokio::test]
async fn of_several_keys_none_stays_where_one_is_of_another_type() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let list = &cluster.servers[4];
    list.run("RPUSH lk:b item");
    let guard = locks.acquire(["a", "b"]).await.unwrap();
    let has_a = || list.command(&["EXISTS", "lk:a"]) == "1";
    eventually("a top-up that sets the first", has_a).await;
    guard.release().await.unwrap();
    eventually("it is free", || !has_a()).await;
}
