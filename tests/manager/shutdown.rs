//! Shutting a manager down.

use std::time::Duration;

use tokio::time::Instant;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{AcquireError, LossReason};

use super::{MS, Nodes};

#[tokio::test(start_paused = true)]
async fn new_work_is_refused_and_running_work_awaited() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let shutdown = tokio::spawn({
        let locks = locks.clone();
        async move { locks.shutdown(Duration::from_secs(5)).await }
    });
    tokio::time::sleep(500 * MS).await;
    let error = locks.try_acquire("order:2").await.unwrap_err();
    assert!(matches!(error, AcquireError::ShuttingDown(_)), "{error:?}");
    assert!(!guard.is_lost() && !shutdown.is_finished());

    let before = Instant::now();
    guard.release().await.unwrap();
    let report = shutdown.await.unwrap();
    assert_eq!((report.lost, report.held, report.unconfirmed), (0, 0, 0));
    assert!(before.elapsed() < 50 * MS);
    assert_eq!(nodes.holding("order:1"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_still_held_after_the_grace_is_told_and_released_after_it() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let holder = tokio::spawn(async move {
        let reason = guard.lost().await;
        assert!(guard.is_lost());
        reason
    });
    let before = Instant::now();
    let report = locks.shutdown(Duration::from_secs(2)).await;
    assert!(before.elapsed() >= Duration::from_secs(2));
    assert!(before.elapsed() < Duration::from_secs(3));
    assert_eq!((report.lost, report.held, report.unconfirmed), (1, 0, 0));
    assert_eq!(holder.await.unwrap(), LossReason::Shutdown);
    assert_eq!(nodes.holding("order:1"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_ignores_the_shutdown_is_counted_and_still_releases() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let report = locks.shutdown(Duration::ZERO).await;
    assert_eq!((report.lost, report.held), (1, 1));
    drop(guard);
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_told_within_a_poll() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = nodes.manager().try_acquire("order:1").await.unwrap();
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("order:1").await }
    });
    tokio::time::sleep(500 * MS).await;
    locks.shutdown(Duration::ZERO).await;
    let error = waiter.await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::ShuttingDown(_)), "{error:?}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_under_way_is_refused_and_what_it_got_is_released() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    nodes.each(0..5, MemoryNode::freeze);
    let attempt = tokio::spawn({
        let locks = locks.clone();
        async move { locks.try_acquire("order:1").await }
    });
    tokio::task::yield_now().await;
    let shutdown = tokio::spawn({
        let locks = locks.clone();
        async move { locks.shutdown(Duration::ZERO).await }
    });
    tokio::time::sleep(10 * MS).await;
    assert!(!shutdown.is_finished(), "the attempt is waited for");
    nodes.each(0..5, MemoryNode::thaw);
    let error = attempt.await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::ShuttingDown(_)), "{error:?}");
    let report = shutdown.await.unwrap();
    assert_eq!((report.lost, report.held, report.unconfirmed), (0, 0, 0));
    assert_eq!(nodes.holding("order:1"), 0);
}
