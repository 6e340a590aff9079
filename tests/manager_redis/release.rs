//! Every way out of a lock leaves no key on any server, within a round trip and not within a ttl.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tower_redlock::AcquireError;
use tower_redlock::error::LossReason;

use crate::{Cluster, MS};

/// Polls `future` so many times, with the other tasks and the servers at work in between, and drops it.
///
/// Returns its output if it was ready by then. `pause` chooses how long the pauses are.
async fn poll_and_drop<F: Future>(future: F, polls: usize, pause: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        for _ in 0..pause {
            yield_now().await;
        }
    }
    None
}

#[tokio::test]
async fn a_released_lock_is_gone_and_free_for_the_next() {
    let cluster = Cluster::start();
    let (ours, theirs) = (cluster.manager().await, cluster.manager().await);
    for _ in 0..20 {
        let guard = ours.acquire("order:1").await.unwrap();
        guard.release().await.unwrap();
        // No waiting: whoever is told of the release can take the lock at once.
        let next = theirs.try_acquire("order:1").await.unwrap();
        next.release().await.unwrap();
    }
    cluster.settle_free("release()").await;
}

#[tokio::test]
async fn a_dropped_guard_releases() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    drop(locks.acquire("order:1").await.unwrap());
    cluster.settle_free("a dropped guard").await;
}

#[tokio::test]
async fn a_panic_releases() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let panics = tokio::spawn(async move {
        let _guard = locks.acquire("order:1").await.unwrap();
        panic!("on purpose");
    });
    assert!(panics.await.unwrap_err().is_panic());
    cluster.settle_free("a panic").await;
}

#[tokio::test]
async fn an_aborted_task_releases() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let (held, is_held) = oneshot::channel();
    let task = tokio::spawn(async move {
        let guard = locks.acquire("order:1").await.unwrap();
        held.send(()).unwrap();
        std::future::pending::<()>().await;
        drop(guard);
    });
    is_held.await.unwrap();
    assert!(cluster.holding("order:1") >= 3);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    cluster.settle_free("an aborted task").await;
}

#[tokio::test]
async fn work_under_run_releases_when_it_ends_or_is_dropped() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let sum = locks.run("order:1", |_| async { 42 }).await.unwrap();
    assert_eq!(sum, 42);
    cluster.settle_free("run").await;
    let (held, is_held) = oneshot::channel();
    let work = locks.run("order:1", |_| async {
        held.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    tokio::select! {
        biased;
        _ = work => panic!("it never ends"),
        held = is_held => held.unwrap(),
    }
    cluster.settle_free("a dropped run").await;
}

#[tokio::test]
async fn an_acquire_that_was_never_polled_sends_nothing() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    cluster.each(0..5, |server| {
        server.run("CONFIG RESETSTAT");
    });
    drop(locks.acquire("order:1"));
    yield_now().await;
    cluster.each(0..5, |server| {
        assert!(!server.run("INFO commandstats").contains("evalsha"));
    });
}

#[tokio::test]
async fn an_acquire_dropped_anywhere_leaves_nothing() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let (mut early, mut late) = (0, 0);
    for round in 0..240 {
        // The points differ in how often the future was polled and how far the connections came in between.
        let (polls, pause) = (1 + round % 12, round / 12);
        match poll_and_drop(locks.acquire("order:1"), polls, pause).await {
            None => early += 1,
            Some(guard) => {
                late += 1;
                drop(guard.unwrap());
            }
        }
        if round % 4 == 0 {
            cluster.settle_free("a dropped acquire").await;
        }
    }
    assert!(early > 20 && late > 20, "{early} before, {late} after");
    cluster.settle_free("all dropped acquires").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_that_are_aborted_in_a_crowd_leave_nothing() {
    let cluster = Cluster::start();
    let managers = [cluster.manager().await, cluster.manager().await];
    for round in 0..15 {
        let tasks: Vec<_> = (0..20)
            .map(|n| {
                let locks = managers[n % 2].clone();
                tokio::spawn(async move { locks.acquire("order:1").await.map(drop) })
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(150 * round)).await;
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        for task in tasks {
            // Done or aborted, or refused in the crowd.
            let _ = task.await;
        }
        cluster.settle_free("an aborted crowd").await;
    }
}

#[tokio::test]
async fn a_release_dropped_anywhere_goes_on() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    for round in 0..60 {
        let guard = locks.acquire("order:1").await.unwrap();
        poll_and_drop(guard.release(), round % 6, round / 6).await;
        cluster.settle_free("a dropped release").await;
    }
}

#[tokio::test]
async fn a_shutdown_waits_for_releases_and_tells_the_rest() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let (dropped, held) = (
        locks.acquire("order:1").await.unwrap(),
        locks.acquire("order:2").await.unwrap(),
    );
    let holder = tokio::spawn(async move {
        let reason = held.lost().await;
        drop(held);
        reason
    });
    drop(dropped);
    let report = locks.shutdown(20 * MS).await;
    // No settling here: what the shutdown waited for is done.
    assert_eq!(cluster.keys(), []);
    assert_eq!((report.lost, report.held, report.unconfirmed), (1, 0, 0));
    assert_eq!(holder.await.unwrap(), LossReason::Shutdown);
    let refused = locks.try_acquire("order:1").await.unwrap_err();
    assert!(matches!(refused, AcquireError::ShuttingDown(_)));
}

#[test]
fn a_runtime_that_ends_after_a_shutdown_leaves_nothing() {
    let cluster = Cluster::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = cluster.manager().await;
        for n in 0..100 {
            drop(locks.acquire(format!("order:{n}")).await.unwrap());
        }
        locks.shutdown(Duration::from_secs(1)).await;
    });
    drop(runtime);
    assert_eq!(cluster.keys(), []);
}
