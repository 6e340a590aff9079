//! Locks that are held for longer than their ttl.

use std::time::Instant;

use crate::*;

#[tokio::test]
async fn an_extension_that_fails_does_not_lose_the_lock() {
    let cluster = Cluster::start();
    let ttl = 1_500 * MS;
    let locks = connected(cluster.short(ttl).node_timeout(100 * MS)).await;
    let guard = locks.acquire("order:1").await.unwrap();
    let began = Instant::now();
    cluster.each([0, 1, 2], |server| server.freeze());
    // The extension at a third of the ttl is given up, which leads to a PING, which is not answered either.
    let failed = || (0..3).all(|node| is_down(&locks, node));
    eventually("the extension has failed", failed).await;
    let left = guard.remaining();
    assert!(left < ttl * 2 / 3, "it was not extended: {left:?}");
    assert!(!guard.is_lost(), "and not lost for it");
    cluster.each([0, 1, 2], |server| server.thaw());

    eventually("an extension", || guard.remaining() > left).await;
    while began.elapsed() < ttl * 5 / 4 {
        assert!(!guard.is_lost(), "lost after {:?}", began.elapsed());
        tokio::time::sleep(5 * MS).await;
    }
    assert!(cluster.holding("order:1") >= 3);
    guard.release().await.unwrap();
    cluster.settle_free("after the thaw").await;
}
