//! Handles of one manager with ttls of their own, on real servers.

use std::ops::RangeInclusive;
use std::time::Duration;

use tower_redlock::LockManager;
use tower_redlock::idempotency::IdempotentRun;
use tower_redlock::snapshot::VotingStatus;

use crate::support::server::Server;
use crate::{Cluster, LONG, MS, all_up, connected, eventually};

const SECOND: Duration = Duration::from_secs(1);

async fn manager(cluster: &Cluster) -> LockManager {
    let builder = cluster.builder().ttl(10 * SECOND).max_ttl(LONG);
    connected(builder.node_timeout(200 * MS)).await
}

#[tokio::test]
async fn a_server_that_lost_its_data_waits_for_the_longest_ttl_that_is_agreed_on() {
    let mut cluster = Cluster::start();
    let locks = manager(&cluster).await;
    drop(locks.try_acquire("order:1").await.unwrap());
    cluster.servers[0].restart();
    let mut waits = Duration::ZERO;
    eventually("it is quarantined", || {
        let status = locks.snapshot().nodes.swap_remove(0).voting;
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
    let usual = connected(builder.fencing_keep(3 * SECOND)).await;
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
    // A run may last for `max_hold`, and a ttl more where a node lost it early.
    kept("lk!idem!fence:run", 66_000..=72_001);
    run.abandon().await.unwrap();
}
