//! Several runtimes and one manager, and runtimes that end. Each is driven by hand, so that the order of everything is
//! known; the clock is set by hand, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_redlock::clock::{Clock, Moment};
use tower_redlock::error::{LossReason, RunError};
use tower_redlock::node::MemoryNode;
use tower_redlock::{AcquireError, LockManager};

use super::scene::{KEY, NODES, SECOND, TTL, meet};

/// A clock that is set by hand.
#[derive(Clone, Debug)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn advance(&self, span: Duration) {
        let span = u64::try_from(span.as_nanos()).unwrap();
        self.0.fetch_add(span, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn follows_runtime(&self) -> bool {
        true
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// Runs what is ready, without any time passing.
fn run_ready(runtime: &Runtime) {
    runtime.block_on(async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
}

/// Memory nodes, and a clock.
struct Scene {
    nodes: Vec<MemoryNode>,
    clock: Hand,
}

impl Scene {
    fn new() -> Self {
        let nodes = (0..NODES).map(|n| MemoryNode::new(format!("n{n}")));
        Self {
            nodes: nodes.collect(),
            clock: Hand(Arc::new(AtomicU64::new(1_000_000_000))),
        }
    }

    /// A manager that belongs to `home`.
    fn manager(&self, home: &Runtime) -> LockManager {
        home.block_on(async {
            let builder = LockManager::builder().nodes(self.nodes.iter().cloned());
            let locks = builder
                .clock(self.clock.clone())
                .ttl(TTL)
                .max_ttl(TTL)
                .connect_lazy()
                .unwrap();
            meet(&locks).await;
            locks
        })
    }

    fn each(&self, act: impl Fn(&MemoryNode)) {
        self.nodes.iter().for_each(act);
    }

    /// How many keys the nodes have.
    fn keys(&self) -> usize {
        self.nodes.iter().map(|node| node.keys().len()).sum()
    }

    fn subscriptions(&self) -> usize {
        self.nodes.iter().map(MemoryNode::subscriptions).sum()
    }
}

#[track_caller]
fn assert_idle(locks: &LockManager) {
    let snapshot = locks.snapshot();
    let left = (snapshot.held, snapshot.keys, snapshot.waiting);
    assert_eq!(left, (0, 0, 0), "{snapshot:?}");
}

#[test]
fn callers_of_two_runtimes_wait_in_one_queue() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let locks = scene.manager(&home);
    let guard = home.block_on(locks.try_acquire(KEY)).unwrap();
    let waiter = away.spawn({
        let locks = locks.clone();
        async move { locks.acquire(KEY).await }
    });
    run_ready(&away);
    assert_eq!(locks.snapshot().waiting, 1);
    home.block_on(guard.release()).unwrap();
    let theirs = away.block_on(waiter).unwrap().unwrap();
    let waiter = home.spawn({
        let locks = locks.clone();
        async move { locks.acquire(KEY).await }
    });
    run_ready(&home);
    // Outside of any runtime.
    drop(theirs);
    let ours = home.block_on(waiter).unwrap().unwrap();
    away.block_on(ours.release()).unwrap();
    run_ready(&home);
    assert_eq!(scene.keys(), 0);
    assert_idle(&locks);
}

#[test]
fn a_runtime_that_ends_takes_its_waiters_along() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let (locks, other) = (scene.manager(&home), scene.manager(&home));
    // One waits in the queue, and one for another process.
    let guard = home.block_on(locks.try_acquire(KEY)).unwrap();
    let theirs = home.block_on(other.try_acquire("order:2")).unwrap();
    for key in [KEY, "order:2"] {
        let locks = locks.clone();
        away.spawn(async move { locks.acquire(key).await });
    }
    run_ready(&away);
    assert_eq!(locks.snapshot().queues.len(), 2);
    assert_eq!(scene.subscriptions(), NODES);
    drop(away);
    assert_eq!(locks.snapshot().queues, []);
    assert_eq!(scene.subscriptions(), 0);
    home.block_on(guard.release()).unwrap();
    drop(theirs);
    run_ready(&home);
    assert_eq!(scene.keys(), 0);
    assert_idle(&locks);
    drop(home.block_on(locks.try_acquire(KEY)).unwrap());
}

#[test]
fn a_runtime_that_ends_amid_a_round_leaves_no_key() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let locks = scene.manager(&home);
    scene.each(MemoryNode::freeze);
    let attempt = away.spawn({
        let locks = locks.clone();
        async move { locks.try_acquire(KEY).await }
    });
    run_ready(&away);
    assert!(!attempt.is_finished());
    drop(away);
    run_ready(&home);
    // Now they grant what nobody waits for any more.
    scene.each(MemoryNode::thaw);
    run_ready(&home);
    assert_eq!(scene.keys(), 0);
    assert_idle(&locks);
}

#[test]
fn a_runtime_that_ends_amid_a_release_leaves_no_key() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let locks = scene.manager(&home);
    let guard = home.block_on(locks.try_acquire(KEY)).unwrap();
    scene.each(MemoryNode::freeze);
    let release = away.spawn(guard.release());
    run_ready(&away);
    assert!(!release.is_finished());
    drop(away);
    run_ready(&home);
    scene.each(MemoryNode::thaw);
    run_ready(&home);
    assert_eq!(scene.keys(), 0);
    assert_idle(&locks);
}

#[test]
fn locks_of_a_runtime_that_ends_are_released_by_that_of_the_manager() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let locks = scene.manager(&home);
    away.spawn({
        let locks = locks.clone();
        async move { locks.run(KEY, |_| std::future::pending::<()>()).await }
    });
    run_ready(&away);
    assert_eq!(scene.keys(), NODES);
    drop(away);
    run_ready(&home);
    assert_eq!(scene.keys(), 0);
    assert_idle(&locks);
    let report = home.block_on(locks.shutdown(SECOND));
    assert!(report.is_all_released(), "{report:?}");
}

#[test]
fn locks_of_a_manager_whose_runtime_has_ended_expire_and_other_managers_go_on() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let (locks, other) = (scene.manager(&home), scene.manager(&away));
    home.spawn({
        let locks = locks.clone();
        async move { locks.run(KEY, |_| std::future::pending::<()>()).await }
    });
    let theirs = away.block_on(other.try_acquire("order:2")).unwrap();
    run_ready(&home);
    assert_eq!(scene.keys(), 2 * NODES);
    drop(home);
    // Nothing is left that could release it.
    assert_eq!(scene.keys(), 2 * NODES);
    let error = away.block_on(other.try_acquire(KEY)).unwrap_err();
    assert!(matches!(error, AcquireError::Contended { .. }), "{error}");
    away.block_on(theirs.release()).unwrap();
    run_ready(&away);
    let report = away.block_on(locks.shutdown(Duration::ZERO));
    assert_eq!((report.held, report.expiring), (0, 1));

    scene.clock.advance(TTL + 2 * SECOND);
    assert_eq!(scene.keys(), 0);
    let guard = away.block_on(other.try_acquire(KEY)).unwrap();
    away.block_on(guard.release()).unwrap();
    let report = away.block_on(locks.shutdown(Duration::ZERO));
    assert!(report.is_all_released(), "{report:?}");
    assert_idle(&other);
}

#[test]
fn who_works_elsewhere_is_told_that_the_runtime_of_the_manager_has_ended() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let locks = scene.manager(&home);
    let guard = away.block_on(locks.try_acquire(KEY)).unwrap();
    let told = away.spawn(guard.lost());
    let work = away.spawn({
        let locks = locks.clone();
        async move { locks.run("order:2", |_| std::future::pending::<()>()).await }
    });
    let waiter = away.spawn({
        let locks = locks.clone();
        async move { locks.acquire(KEY).await }
    });
    run_ready(&away);
    assert!(!told.is_finished() && !work.is_finished());
    // Nobody extends locks from here on.
    drop(home);
    run_ready(&away);
    assert!(told.is_finished() && work.is_finished() && waiter.is_finished());
    assert_eq!(away.block_on(told).unwrap(), LossReason::Shutdown);
    let ended = away.block_on(work).unwrap();
    assert_eq!(ended, Err(RunError::Lost(LossReason::Shutdown)));
    let refused = away.block_on(waiter).unwrap().unwrap_err();
    assert!(matches!(refused, AcquireError::ShuttingDown), "{refused}");
    assert!(guard.is_lost());
    let refused = away.block_on(locks.try_acquire("order:3")).unwrap_err();
    assert!(matches!(refused, AcquireError::ShuttingDown), "{refused}");
    drop(guard);
    assert_idle(&locks);
    let report = away.block_on(locks.shutdown(Duration::ZERO));
    // What ran was released from where it ran; the guard had nobody left to release it.
    assert_eq!((report.held, report.expiring), (0, 1));
}
