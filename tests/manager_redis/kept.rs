//! Locks that are held while their servers are killed and come back empty.

use tokio::time::{Instant, sleep};

use crate::*;

const TTL: Duration = Duration::from_secs(3);

fn short(builder: Settings) -> Settings {
    builder.ttl(TTL).max_ttl(TTL).node_timeout(300 * MS)
}

#[tokio::test]
async fn a_lock_outlives_the_kill_of_its_only_server() {
    let mut server = Server::start(Kind::Redis, &[]);
    let builder = || short(LockManager::builder().redis([server.url()]).bootstrap(true));
    let locks = connected(builder()).await;
    let other = connected(builder().bootstrap(false)).await;
    let guard = locks.try_acquire("k").await.unwrap();
    let fence = guard.fence();
    let began = Instant::now();
    for kills in 1..=2 {
        sleep(TTL / 3).await;
        server.restart();
        // Longer than any lease from before: the new server alone has it.
        while began.elapsed() < kills * 3 * TTL / 2 {
            assert!(!guard.is_lost(), "after {:?}", began.elapsed());
            other.try_acquire("k").await.unwrap_err();
            sleep(50 * MS).await;
        }
    }
    // It votes again at last, and knows the lock.
    all_vote(&other).await;
    let error = other.try_acquire("k").await.unwrap_err();
    assert!(is_contended(&error), "{error}");
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    let next = other.try_acquire("k").await.unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test]
async fn a_lock_ends_whose_only_server_comes_back_too_late() {
    let mut server = Server::start(Kind::Redis, &[]);
    let builder = short(LockManager::builder().redis([server.url()]).bootstrap(true));
    let locks = connected(builder).await;
    let guard = locks.try_acquire("k").await.unwrap();
    server.kill();
    eventually("the end", || guard.is_lost()).await;
    server.restart();
    sleep(TTL / 2).await;
    assert!(guard.is_lost());
    assert_eq!(server.run("EXISTS lk:k"), "0", "it is not set again");
}
