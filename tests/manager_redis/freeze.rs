//! Servers that stop answering and keep their connections.

use tower_redlock::error::{LossReason, ReleaseError};

use crate::*;

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
