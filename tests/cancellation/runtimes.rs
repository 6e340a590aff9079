//! Several runtimes and one manager, and runtimes that end. Each is driven by hand, so that the order of everything is
//! known, and no time passes.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tower_redlock::clock::{Clock, Moment};
use tower_redlock::error::{LossReason, RunError};
use tower_redlock::node::MemoryNode;
use tower_redlock::{AcquireError, LockGuard, LockManager};

use super::scene::{KEY, NODES, SECOND, TTL, meet};

/// A clock that stands still.
#[derive(Clone, Debug)]
struct Still;

impl Clock for Still {
    fn follows_runtime(&self) -> bool {
        true
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(1_000_000_000)
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

/// Memory nodes.
struct Scene {
    nodes: Vec<MemoryNode>,
}

impl Scene {
    fn new() -> Self {
        let nodes = (0..NODES).map(|n| MemoryNode::new(format!("n{n}")));
        Self {
            nodes: nodes.collect(),
        }
    }

    /// A manager that belongs to `home`.
    fn manager(&self, home: &Runtime) -> LockManager {
        home.block_on(async {
            let builder = LockManager::builder().nodes(self.nodes.iter().cloned());
            let locks = builder
                .clock(Still)
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

    /// Nothing is left on the nodes, or of what the manager did.
    #[track_caller]
    fn assert_nothing_left(&self, locks: &LockManager) {
        assert_eq!(self.keys(), 0);
        assert_idle(locks);
    }
}

#[track_caller]
fn assert_idle(locks: &LockManager) {
    let snapshot = locks.snapshot();
    let left = (snapshot.held, snapshot.keys, snapshot.waiting);
    assert_eq!(left, (0, 0, 0), "{snapshot:?}");
}

type Waiter = JoinHandle<Result<LockGuard, AcquireError>>;

/// A caller that waits on this runtime.
fn waiter(runtime: &Runtime, locks: &LockManager, key: &'static str) -> Waiter {
    let locks = locks.clone();
    let waiter = runtime.spawn(async move { locks.acquire(key).await });
    run_ready(runtime);
    waiter
}

/// Work under a lock on this runtime, which never ends.
fn work(
    runtime: &Runtime,
    locks: &LockManager,
    key: &'static str,
) -> JoinHandle<Result<(), RunError>> {
    let locks = locks.clone();
    let work = runtime.spawn(async move { locks.run(key, |_| std::future::pending()).await });
    run_ready(runtime);
    work
}

#[test]
fn a_runtime_that_ends_takes_its_waiters_along() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let (locks, other) = (scene.manager(&home), scene.manager(&home));
    // One waits in the queue, and one for another process.
    let guard = home.block_on(locks.try_acquire(KEY)).unwrap();
    let theirs = home.block_on(other.try_acquire("order:2")).unwrap();
    waiter(&away, &locks, KEY);
    waiter(&away, &locks, "order:2");
    assert_eq!(locks.snapshot().queues.len(), 2);
    assert_eq!(scene.subscriptions(), NODES);
    drop(away);
    assert_eq!(locks.snapshot().queues, []);
    assert_eq!(scene.subscriptions(), 0);
    home.block_on(guard.release()).unwrap();
    drop(theirs);
    run_ready(&home);
    scene.assert_nothing_left(&locks);
    drop(home.block_on(locks.try_acquire(KEY)).unwrap());
}

#[test]
fn a_runtime_that_ends_amid_a_round_or_a_release_leaves_no_key() {
    for held in [false, true] {
        let (home, away, scene) = (runtime(), runtime(), Scene::new());
        let locks = scene.manager(&home);
        let guard = held.then(|| home.block_on(locks.try_acquire(KEY)).unwrap());
        scene.each(MemoryNode::freeze);
        let attempt = locks.clone();
        let step = away.spawn(async move {
            match guard {
                Some(guard) => drop(guard.release().await),
                None => drop(attempt.try_acquire(KEY).await),
            }
        });
        run_ready(&away);
        assert!(!step.is_finished());
        drop(away);
        run_ready(&home);
        // Now they grant what nobody waits for any more, or release it.
        scene.each(MemoryNode::thaw);
        run_ready(&home);
        scene.assert_nothing_left(&locks);
    }
}

#[test]
fn locks_of_a_runtime_that_ends_are_released_by_that_of_the_manager() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let locks = scene.manager(&home);
    work(&away, &locks, KEY);
    assert_eq!(scene.keys(), NODES);
    drop(away);
    run_ready(&home);
    scene.assert_nothing_left(&locks);
    let report = home.block_on(locks.shutdown(SECOND));
    assert!(report.is_all_released(), "{report:?}");
}

#[test]
fn who_works_elsewhere_is_told_that_the_runtime_of_the_manager_has_ended() {
    let (home, away, scene) = (runtime(), runtime(), Scene::new());
    let locks = scene.manager(&home);
    let guard = away.block_on(locks.try_acquire(KEY)).unwrap();
    let told = away.spawn(guard.lost());
    let work = work(&away, &locks, "order:2");
    let waiter = waiter(&away, &locks, KEY);
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
