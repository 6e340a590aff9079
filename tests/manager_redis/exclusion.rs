//! One holder at a time, whoever asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower_redlock::node::NodeState;
use tower_redlock::{AcquireError, LockGuard, LockManager};

use crate::support::server::{Kind, Server};
use crate::{Cluster, LONG, connected, is_contended};

const TASKS: usize = 200;

/// Four managers: what four processes would have.
async fn processes(cluster: &Cluster, max_wait: Duration) -> Vec<LockManager> {
    let mut processes = Vec::new();
    for _ in 0..4 {
        // A node time-out that hundreds of tasks on a busy machine do not reach: this is not about answers in time.
        let builder = cluster.builder().node_timeout(Duration::from_secs(2));
        processes.push(connected(builder.max_wait(max_wait)).await);
    }
    processes
}

/// Runs `task` 200 times at once, spread over the managers.
async fn at_once<T, F>(managers: &[LockManager], task: impl Fn(LockManager) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let barrier = Arc::new(Barrier::new(TASKS));
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        let barrier = Arc::clone(&barrier);
        let task = task(managers[n % managers.len()].clone());
        tasks.spawn(async move {
            barrier.wait().await;
            task.await
        });
    }
    tasks.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_that_try_at_once_exactly_one_gets_a_free_key() {
    let cluster = Cluster::start();
    let managers = processes(&cluster, Duration::ZERO).await;
    let outcomes: Vec<Result<LockGuard, AcquireError>> = at_once(&managers, |locks| async move {
        locks.try_acquire("order:1").await
    })
    .await;
    // The winner holds on while the others try, so a second one would be an overlap, and none would be a loss.
    let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1, "one at a time, and a free key is not refused");
    for outcome in lost {
        let error = outcome.unwrap_err();
        assert!(is_contended(&error), "{error}");
    }
    drop(won);
    cluster
        .settle_free("the winner's and the losers' keys")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_tasks_take_turns_without_overlap() {
    let cluster = Cluster::start();
    let managers = processes(&cluster, Duration::from_secs(20)).await;
    let inside = Arc::new(AtomicUsize::new(0));
    let outcomes = at_once(&managers, |locks| {
        let inside = Arc::clone(&inside);
        async move {
            let guard = locks.acquire("order:1").await?;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
            tokio::task::yield_now().await;
            assert!(!guard.is_lost());
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two holders");
            guard.release().await.unwrap();
            Ok::<(), AcquireError>(())
        }
    })
    .await;
    for outcome in outcomes {
        outcome.unwrap();
    }
    cluster.settle_free("all turns").await;
}

#[tokio::test]
async fn servers_of_both_kinds_serve_side_by_side() {
    let mut cluster = Cluster {
        servers: Server::start_many(Kind::Redis, 3),
    };
    cluster.servers.extend(Server::start_many(Kind::Valkey, 2));
    let (ours, theirs) = (cluster.manager().await, cluster.manager().await);
    assert!(ours.nodes().iter().all(|node| node.state == NodeState::Up));
    let guard = ours.try_acquire("order:1").await.unwrap();
    crate::eventually("held on all five", || cluster.holding("order:1") == 5).await;
    let error = theirs.try_acquire("order:1").await.unwrap_err();
    let AcquireError::Contended(busy) = error else {
        panic!("{error}");
    };
    assert!(busy.remaining().is_some_and(|left| left <= LONG));
    guard.release().await.unwrap();
    drop(theirs.try_acquire("order:1").await.unwrap());
    cluster.settle_free("both kinds").await;
}
