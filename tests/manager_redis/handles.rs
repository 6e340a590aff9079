//! Handles of one manager with ttls of their own, on real servers.

use std::time::Duration;

use tokio::task::JoinHandle;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{AcquireError, LockGuard, LockManager};

use crate::{Cluster, LONG, MS, all_up, connected, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// How long the servers keep `key`, in milliseconds, and the longest lease that each knows of.
fn kept(cluster: &Cluster, key: &str) -> Vec<(u64, u64)> {
    let servers = cluster.servers.iter();
    let number = |text: String| text.parse::<u64>().unwrap_or(0);
    servers
        .map(|server| {
            let left = number(server.run(&format!("PTTL {key}")));
            (left, number(server.run("HGET lk!node max_lease")))
        })
        .collect()
}

async fn manager(cluster: &Cluster) -> LockManager {
    let builder = cluster.builder().ttl(10 * SECOND).node_timeout(200 * MS);
    connected(builder).await
}

#[tokio::test]
async fn servers_keep_each_lock_for_the_ttl_of_its_handle_and_know_of_the_longest() {
    let cluster = Cluster::start();
    let locks = manager(&cluster).await;
    let (long, short) = (
        locks.with_ttl(LONG).unwrap(),
        locks.with_ttl(2 * SECOND).unwrap(),
    );
    // At once: servers that were not told yet would refuse it.
    let first = long.try_acquire("long").await.unwrap();
    let second = short.try_acquire("short").await.unwrap();
    let third = locks.try_acquire("usual").await.unwrap();
    for (key, ttl) in [("long", 60_000), ("short", 2_000), ("usual", 10_000)] {
        let kept = kept(&cluster, &format!("lk:{key}"));
        let in_time = |(left, _): &&(u64, u64)| *left > ttl / 3 && *left <= ttl;
        assert!(kept.iter().filter(in_time).count() >= 3, "{key}: {kept:?}");
        assert!(
            kept.iter().all(|(_, longest)| *longest == 60_000),
            "{kept:?}"
        );
    }
    for guard in [first, second, third] {
        guard.release().await.unwrap();
    }
    cluster.settle_free("released").await;
}

#[tokio::test]
async fn a_server_that_lost_its_data_waits_for_the_longest_ttl_of_any_handle() {
    let mut cluster = Cluster::start();
    let locks = manager(&cluster).await;
    let _long = locks.with_ttl(30 * SECOND).unwrap();
    drop(locks.try_acquire("order:1").await.unwrap());
    cluster.servers[0].restart();
    let mut waits = Duration::ZERO;
    eventually("it is quarantined", || {
        let status = locks.nodes().swap_remove(0).voting;
        if let VotingStatus::Quarantined {
            remaining: Some(remaining),
            ..
        } = status
        {
            waits = remaining;
        }
        !waits.is_zero()
    })
    .await;
    assert!(waits > 20 * SECOND, "{waits:?}");
    locks.bootstrap().await.unwrap();
    all_up(&locks).await;
    // Promoted, it knows of so long leases again.
    let kept = kept(&cluster, "lk:order:1");
    assert!(
        kept.iter().all(|(_, longest)| *longest == 30_000),
        "{kept:?}"
    );
}

/// Starts to wait, and returns when so many do.
async fn wait(locks: &LockManager, waiting: usize) -> JoinHandle<Result<LockGuard, AcquireError>> {
    let handle = locks.clone();
    let waiter = tokio::spawn(async move { handle.acquire("order:1").await });
    eventually("it waits", || locks.snapshot().waiting == waiting).await;
    waiter
}

#[tokio::test]
async fn a_lock_passes_to_callers_with_its_ttl_and_is_granted_anew_to_others() {
    let cluster = Cluster::start();
    let locks = manager(&cluster).await.with_max_wait(LONG);
    let long = locks.with_ttl(LONG).unwrap();
    let guard = locks.acquire("order:1").await.unwrap();
    let token = cluster.token("order:1");
    let other = wait(&long, 1).await;
    let after = wait(&locks, 2).await;
    guard.release().await.unwrap();
    let guard = other.await.unwrap().unwrap();
    assert!(guard.remaining() > 50 * SECOND);
    let granted = cluster.token("order:1");
    assert_ne!(granted, token);
    guard.release().await.unwrap();
    let guard = after.await.unwrap().unwrap();
    assert!(guard.remaining() <= 10 * SECOND);
    assert_ne!(cluster.token("order:1"), granted);
    guard.release().await.unwrap();
    cluster.settle_free("released").await;
}
