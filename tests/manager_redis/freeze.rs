//! Servers that stop answering and keep their connections.

use std::time::Duration;

use tower_redlock::error::{LossReason, ReleaseError};
use tower_redlock::node::NodeState;
use tower_redlock::{AcquireError, LockManager};

use crate::support::stalls::{Stopwatch, undisturbed};
use crate::support::{PATIENCE, eventually};
use crate::{Cluster, MS, connected};

fn is_down(locks: &LockManager, node: usize) -> bool {
    matches!(locks.snapshot().nodes[node].state, NodeState::Down(_))
}

#[tokio::test]
async fn one_frozen_server_costs_nothing_and_keeps_nothing() {
    undisturbed(async || {
        let cluster = Cluster::start();
        let locks = cluster.manager().await;
        cluster.servers[2].freeze();
        let mut slowest = Duration::ZERO;
        // Before it is known to be down, while it is found out, and afterwards.
        let mut cycles = 0;
        while !is_down(&locks, 2) || cycles < 50 {
            let began = Stopwatch::start();
            let guard = locks.try_acquire("order:1").await.unwrap();
            guard.release().await.unwrap();
            slowest = slowest.max(began.elapsed());
            cycles += 1;
        }
        let limit = locks.node_timeout();
        assert!(slowest < limit, "{slowest:?} of {limit:?}");

        cluster.servers[2].thaw();
        eventually("up again", || !is_down(&locks, 2)).await;
        // What it was sent before and while it stood still is released as well, in the background.
        eventually("free", || cluster.keys().is_empty()).await;
        let guard = locks.try_acquire("order:1").await.unwrap();
        eventually("used again", || cluster.holding("order:1") == 5).await;
        guard.release().await.unwrap();
        cluster.settle_free("all five").await;
    })
    .await;
}

#[tokio::test]
async fn a_server_frozen_with_a_lock_on_it_gives_it_back_when_thawed() {
    undisturbed(async || {
        let cluster = Cluster::start();
        let locks = cluster.manager().await;
        let guard = locks.try_acquire("order:1").await.unwrap();
        eventually("everywhere", || cluster.holding("order:1") == 5).await;
        cluster.servers[4].freeze();
        let began = Stopwatch::start();
        guard.release().await.unwrap();
        assert!(began.elapsed() < locks.node_timeout());
        cluster.servers[4].thaw();
        eventually("free", || cluster.keys().is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn three_frozen_servers_are_no_quorum_at_the_node_time_out_and_at_once_when_known() {
    undisturbed(async || {
        let cluster = Cluster::start();
        let locks = connected(cluster.builder().node_timeout(200 * MS)).await;
        cluster.each([0, 1, 2], |server| server.freeze());
        let began = Stopwatch::start();
        let error = locks.try_acquire("order:1").await.unwrap_err();
        let took = began.elapsed();
        assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
        assert!(
            error.to_string().contains("no answer within 200ms"),
            "{error}"
        );
        assert!(took < 5 * locks.node_timeout(), "{took:?}");

        eventually("known to be down", || (0..3).all(|n| is_down(&locks, n))).await;
        let began = Stopwatch::start();
        let error = locks.try_acquire("order:1").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
        assert!(began.elapsed() < locks.node_timeout() / 2, "fails fast");

        cluster.each([0, 1, 2], |server| server.thaw());
        crate::all_up(&locks).await;
        eventually("free", || cluster.keys().is_empty()).await;
        drop(locks.try_acquire("order:1").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_lock_is_lost_within_its_validity_when_no_server_answers() {
    let cluster = Cluster::start();
    let ttl = 500 * MS;
    // A generous drift, so that a late timer on a busy machine still fires within the ttl.
    let builder = cluster.short(ttl).drift_factor(0.2);
    let locks = connected(builder).await;
    let began = Stopwatch::start();
    let guard = locks.try_acquire("order:1").await.unwrap();
    // A look at a lock notices its end, so the one that is looked at is not the one that is to be told of.
    let watched = locks.try_acquire("order:2").await.unwrap();
    cluster.each(0..5, |server| server.freeze());

    let handle = watched.handle();
    let deadline = watched.lease().deadline;
    let exact = tokio::task::spawn_blocking(move || {
        use tower_redlock::clock::{Clock, SystemClock};
        let clock = SystemClock::new();
        loop {
            let before = clock.now();
            let lost = handle.is_lost();
            let after = clock.now();
            if lost {
                return (after >= deadline, before, deadline);
            }
            assert!(before < deadline, "it is over and not lost");
        }
    });
    let reason = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
    assert!(began.elapsed() < ttl, "too late: {:?}", began.elapsed());
    assert_eq!(reason, LossReason::Expired);
    let (not_early, at, deadline) = exact.await.unwrap();
    assert!(not_early, "lost at {at:?}, before {deadline:?}");
    assert_eq!(watched.remaining(), Duration::ZERO);
    drop(watched);

    cluster.each(0..5, |server| server.thaw());
    // The servers find the renewals that were sent meanwhile, and may set the key anew. Those are given back.
    let error = guard.release().await.unwrap_err();
    assert_eq!(error, ReleaseError::Lost(LossReason::Expired));
    let began = Stopwatch::start();
    eventually("free", || cluster.keys().is_empty()).await;
    let took = began.elapsed();
    assert!(took < ttl / 2, "it was not the ttl: {took:?}");
}
