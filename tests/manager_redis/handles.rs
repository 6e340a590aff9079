//! Handles of one manager with ttls of their own, on real servers.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::task::JoinHandle;
use tower_redlock::lock::IdempotentRun;
use tower_redlock::settings::Fencing;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{AcquireError, LockGuard, LockManager};

use crate::support::server::Server;
use crate::{Cluster, LONG, MS, all_up, connected, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// How long the servers keep `key`, in milliseconds.
fn kept(cluster: &Cluster, key: &str) -> Vec<u64> {
    let servers = cluster.servers.iter();
    let left = |server: &Server| server.run(&format!("PTTL {key}")).parse();
    servers.map(|server| left(server).unwrap_or(0)).collect()
}

async fn manager(cluster: &Cluster) -> LockManager {
    let builder = cluster.builder().ttl(10 * SECOND).max_ttl(LONG);
    connected(builder.node_timeout(200 * MS)).await
}

#[tokio::test]
async fn servers_keep_each_lock_for_the_ttl_of_its_handle() {
    let cluster = Cluster::start();
    let locks = manager(&cluster).await;
    let (long, short) = (
        locks.with_ttl(LONG).unwrap(),
        locks.with_ttl(2 * SECOND).unwrap(),
    );
    let first = long.try_acquire("long").await.unwrap();
    let second = short.try_acquire("short").await.unwrap();
    let third = locks.try_acquire("usual").await.unwrap();
    for (key, ttl) in [("long", 60_000), ("short", 2_000), ("usual", 10_000)] {
        let kept = kept(&cluster, &format!("lk:{key}"));
        let in_time = |left: &&u64| **left > ttl / 3 && **left <= ttl;
        assert!(kept.iter().filter(in_time).count() >= 3, "{key}: {kept:?}");
    }
    for guard in [first, second, third] {
        guard.release().await.unwrap();
    }
    cluster.settle_free("released").await;
}

#[tokio::test]
async fn a_server_that_lost_its_data_waits_for_the_longest_ttl_that_is_agreed_on() {
    let mut cluster = Cluster::start();
    let locks = manager(&cluster).await;
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
    assert!(
        waits > LONG - 10 * SECOND && waits <= LONG + SECOND,
        "{waits:?}"
    );
    locks.bootstrap().await.unwrap();
    all_up(&locks).await;
}

/// How much longer the servers keep this counter, in milliseconds.
fn counter_lives(cluster: &Cluster, counter: &str) -> Vec<u64> {
    let lives = |server: &Server| server.run(&format!("PTTL {counter}")).parse();
    (cluster.servers.iter())
        .map(|server| lives(server).unwrap_or(0))
        .collect()
}

/// The builder's time is at least its own ttl; the locks of another handle may last longer.
#[tokio::test]
async fn counters_outlive_the_leases_of_every_handle() {
    let cluster = Cluster::start();
    let builder = cluster.builder().ttl(3 * SECOND).max_ttl(12 * SECOND);
    let builder = builder.node_timeout(200 * MS);
    let usual = connected(builder.fencing(Fencing::keep(3 * SECOND))).await;
    let long = usual.with_ttl(12 * SECOND).unwrap();
    let are = |counter: &str, bounds: RangeInclusive<u64>| {
        let lives = counter_lives(&cluster, counter);
        let in_time = lives.iter().filter(|left| bounds.contains(left)).count();
        (in_time >= 3, format!("{counter}: {lives:?}"))
    };
    let kept = |counter: &str, bounds| {
        let (in_time, lives) = are(counter, bounds);
        assert!(in_time, "{lives}");
    };
    let first = usual.try_acquire("usual").await.unwrap();
    kept("lk!fence:usual", 1..=3_000);
    let second = long.try_acquire("long").await.unwrap();
    kept("lk!fence:long", 6_000..=12_000);
    // Each extension is a use, and a new life of that length.
    cluster.each(0..5, |server| {
        server.run("PEXPIRE lk!fence:long 8000");
    });
    let extended = || are("lk!fence:long", 8_001..=12_000).0;
    eventually("an extension", extended).await;
    first.release().await.unwrap();
    second.release().await.unwrap();
    let run = long.begin_idempotent("run", LONG, Duration::ZERO).await;
    let IdempotentRun::Execute(run) = run.unwrap() else {
        panic!("done before");
    };
    kept("lk!idem!fence:run", 6_000..=12_000);
    run.abandon().await.unwrap();
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
