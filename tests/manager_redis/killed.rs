//! A holder whose process is killed: its lease ends it, and who waits gets its turn.

use crate::support::role::{Player, role};
use crate::*;

const TTL: Duration = Duration::from_millis(600);

/// What the process does that is to be killed.
async fn hold(servers: Vec<String>) {
    let builder = LockManager::builder().redis(servers);
    let builder = builder.bootstrap(true).ttl(TTL).max_ttl(TTL);
    let locks = connected(builder.node_timeout(200 * MS)).await;
    let _guard = locks.acquire("order:1").await.unwrap();
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_waiter_starts_when_the_lease_of_a_killed_process_ends() {
    if let Some(servers) = role() {
        return hold(servers).await;
    }
    let cluster = Cluster::start();
    // A process that takes the lock and keeps it: this test again, in the other role.
    let name = "killed::the_next_waiter_starts_when_the_lease_of_a_killed_process_ends";
    let (mut holder, _heard) = Player::start(name, &cluster.urls(), &[]);
    eventually("it is held", || cluster.holding("order:1") == 5).await;
    let locks = connected(cluster.short(TTL).max_wait(Duration::from_secs(20))).await;
    let waiting = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.acquire("order:1").await })
    };
    eventually("it listens", || cluster.listened_to("order:1") == 5).await;
    // The holder renews all this time, so it is held far beyond one ttl.
    tokio::time::sleep(TTL * 3 / 2).await;
    assert!(!waiting.is_finished(), "taken from a holder that is alive");
    holder.child.kill().await.unwrap();
    let killed = Stopwatch::start();
    let guard = waiting.await.unwrap().unwrap();
    let after = killed.elapsed();
    // The rest of a ttl, and one poll; on a busy machine some more.
    assert!(after < TTL + Duration::from_secs(1), "it took {after:?}");
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    cluster.settle_free("the turn of the next").await;
}
