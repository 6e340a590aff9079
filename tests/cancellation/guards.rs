//! The end of locks and idempotent runs.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tower_redlock::idempotency::{IdempotentRun, RunGuard};
use tower_redlock::key::LockKeys;
use tower_redlock::node::{
    CompleteRequest, Namespace, Node as _, NoticeReceiver, OwnerToken, Record, ReleaseRequest,
};
use tower_redlock::{FencingToken, LockGuard, LockManager, LockScope};

use super::node_requests::{Chosen as _, NewComplete as _, NewRecord as _, NewRelease as _};
use super::scene::{ALL, KEY, MS, RUN, SECOND, Scene, TTL, key};
use super::sweep::{Leaves, Operation, Work, by, covering, end, work};

/// A lock of the manager whose operations are dropped.
async fn held(scene: &Scene) -> LockGuard {
    scene.met().await.try_acquire(KEY).await.unwrap()
}

async fn run(locks: &LockManager) -> RunGuard {
    match locks.begin_idempotent(RUN, TTL, Duration::ZERO).await {
        Ok(IdempotentRun::Execute(run)) => run,
        other => panic!("nobody has begun it: {other:?}"),
    }
}

/// Locks.
pub(crate) fn operations() -> Vec<Operation> {
    let ends = [
        by!(release_alone),
        by!(release_of_a_lock_that_another_caller_waits_for),
        by!(release_of_a_lock_that_is_shared),
        by!(lost_alone),
        by!(draining_alone),
        by!(changed_of_notices),
    ];
    let covers = &[
        "manager LockGuard::release",
        "manager Future for Lost",
        "manager LockHandle::draining",
        "manager LockManager::draining",
        "node NoticeReceiver::changed",
    ];
    covering(covers, Leaves::Nothing, ends)
}

/// Idempotent runs.
pub(crate) fn runs() -> Vec<Operation> {
    let begin_and_abandon = [
        by!(begin_idempotent_alone),
        by!(begin_idempotent_of_what_is_done),
        by!(begin_idempotent_of_what_another_process_does),
        by!(begin_idempotent_of_what_one_node_alone_knows),
        by!(abandon_alone),
    ];
    let covers = &[
        "manager LockManager::begin_idempotent",
        "manager RunGuard::abandon",
    ];
    let complete = [
        by!(complete_alone),
        by!(complete_while_another_caller_waits_for_it),
    ];
    [
        covering(covers, Leaves::Nothing, begin_and_abandon),
        covering(&["manager RunGuard::complete"], Leaves::Result, complete),
    ]
    .concat()
}

/// In milliseconds since 1970.
const IN_2100: u64 = 4_102_444_800_000;

async fn release_alone(scene: Rc<Scene>) -> Work {
    let guard = held(&scene).await;
    work(async move { end(guard.release().await) })
}

/// It passes to that one.
async fn release_of_a_lock_that_another_caller_waits_for(scene: Rc<Scene>) -> Work {
    let guard = held(&scene).await;
    let locks = scene.locks.clone();
    scene.beside(async move {
        let guard = locks.acquire(KEY).await;
        sleep(5 * MS).await;
        drop(guard);
    });
    tokio::task::yield_now().await;
    work(async move { end(guard.release().await) })
}

async fn release_of_a_lock_that_is_shared(scene: Rc<Scene>) -> Work {
    let (locks, scope) = (scene.met().await, LockScope::new());
    let one = locks.acquire_in(&scope, key(KEY).into(), SECOND).await;
    let all = ALL.map(key);
    let all = LockKeys::new(all).unwrap();
    let guard = locks.acquire_in(&scope, all, SECOND).await.unwrap();
    scene.keep(one.unwrap());
    work(async move { end(guard.release().await) })
}

/// Until the lock has been held for as long as it may be.
async fn lost_alone(scene: Rc<Scene>) -> Work {
    let guard = held(&scene).await;
    let lost = guard.lost();
    scene.keep(guard);
    work(async move { end(lost.await) })
}

/// Until the manager is asked to drain, which the holder does not heed.
async fn draining_alone(scene: Rc<Scene>) -> Work {
    let guard = held(&scene).await;
    let (of_guard, of_handle) = (guard.draining(), guard.handle().draining());
    let (locks, of_manager) = (scene.locks.clone(), scene.locks.draining());
    scene.keep(guard);
    scene.beside(async move {
        sleep(5 * MS).await;
        locks.drain();
    });
    work(async move {
        of_guard.await;
        of_handle.await;
        of_manager.await;
    })
}

async fn changed_of_notices(scene: Rc<Scene>) -> Work {
    let other = scene.other().await;
    let guard = other.try_acquire(KEY).await.unwrap();
    scene.beside(async move {
        sleep(5 * MS).await;
        drop(guard);
    });
    let (node, receiver) = (scene.nodes[0].clone(), NoticeReceiver::new(1));
    work(async move {
        let name = Namespace::default().node_key(&key(KEY));
        let notifier = node.notifier().unwrap();
        let _heard = notifier.subscribe(&name, receiver.sender(0));
        while receiver.notices().released == 0 {
            receiver.changed().await;
        }
    })
}

async fn begin_idempotent_alone(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.begin_idempotent(RUN, TTL, SECOND).await) })
}

async fn begin_idempotent_of_what_is_done(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    run(&other).await.complete("sent").await.unwrap();
    work(async move { end(locks.begin_idempotent(RUN, TTL, SECOND).await) })
}

async fn begin_idempotent_of_what_another_process_does(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    let run = run(&other).await;
    scene.beside(async move {
        sleep(30 * MS).await;
        end(run.complete("sent").await);
    });
    work(async move { end(locks.begin_idempotent(RUN, TTL, SECOND).await) })
}

/// Its result must come to a quorum before anybody gets it.
async fn begin_idempotent_of_what_one_node_alone_knows(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let place = Namespace::default().idempotency().node_key(&key(RUN));
    let owner = OwnerToken::from_entropy([7; OwnerToken::ENTROPY_LEN]);
    let ballot = FencingToken::new(1).unwrap();
    let record = Record::new(ballot, Bytes::from("sent"), IN_2100);
    let release = ReleaseRequest::new(place, owner, false);
    let request = CompleteRequest::new(release, Some(record)).chosen();
    scene.nodes[0].complete(request).await.unwrap();
    work(async move { end(locks.begin_idempotent(RUN, TTL, SECOND).await) })
}

async fn complete_alone(scene: Rc<Scene>) -> Work {
    let run = run(&scene.met().await).await;
    work(async move { end(run.complete("sent").await) })
}

async fn complete_while_another_caller_waits_for_it(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let run = run(&locks).await;
    scene.beside(async move {
        end(locks.begin_idempotent(RUN, TTL, SECOND).await);
    });
    tokio::task::yield_now().await;
    work(async move { end(run.complete("sent").await) })
}

async fn abandon_alone(scene: Rc<Scene>) -> Work {
    let run = run(&scene.met().await).await;
    work(async move { end(run.abandon().await) })
}
