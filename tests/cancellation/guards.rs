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

use super::scene::{ALL, KEY, MS, RUN, SECOND, Scene, TTL, key};
use super::sweep::{Operation, Work, by, end, work};

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
    vec![
        Operation::new(
            "release",
            &["manager LockGuard::release"],
            by!(release_alone),
        ),
        Operation::new(
            "release of a lock that another caller waits for",
            &["manager LockGuard::release"],
            by!(release_of_a_lock_that_another_caller_waits_for),
        ),
        Operation::new(
            "release of a lock that is shared",
            &["manager LockGuard::release"],
            by!(release_of_a_lock_that_is_shared),
        ),
        Operation::new("lost", &["manager Future for Lost"], by!(lost_alone)),
        Operation::new("draining", DRAINING, by!(draining_alone)),
        Operation::new(
            "changed, of notices",
            &["node NoticeReceiver::changed"],
            by!(changed_of_notices),
        ),
    ]
}

const DRAINING: &[&str] = &[
    "manager LockHandle::draining",
    "manager LockManager::draining",
];

/// Idempotent runs.
pub(crate) fn runs() -> Vec<Operation> {
    let mut operations = begun();
    operations.extend(ended());
    operations
}

const BEGIN: &[&str] = &["manager LockManager::begin_idempotent"];

fn begun() -> Vec<Operation> {
    vec![
        Operation::new("begin_idempotent", BEGIN, by!(begin_idempotent_alone)),
        Operation::new(
            "begin_idempotent, of what is done",
            BEGIN,
            by!(begin_idempotent_of_what_is_done),
        ),
        Operation::new(
            "begin_idempotent, of what another process does",
            BEGIN,
            by!(begin_idempotent_of_what_another_process_does),
        ),
        Operation::new(
            "begin_idempotent, of what one node alone knows",
            BEGIN,
            by!(begin_idempotent_of_what_one_node_alone_knows),
        ),
    ]
}

/// In milliseconds since 1970.
const IN_2100: u64 = 4_102_444_800_000;

fn ended() -> Vec<Operation> {
    vec![
        Operation::new(
            "complete",
            &["manager RunGuard::complete"],
            by!(complete_alone),
        )
        .stores_its_result(),
        Operation::new(
            "complete, while another caller waits for it",
            &["manager RunGuard::complete"],
            by!(complete_while_another_caller_waits_for_it),
        )
        .stores_its_result(),
        Operation::new(
            "abandon",
            &["manager RunGuard::abandon"],
            by!(abandon_alone),
        ),
    ]
}

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
    let record = Record {
        ballot,
        body: Bytes::from("sent"),
        until: IN_2100,
    };
    let release = ReleaseRequest {
        keys: place.into(),
        token: owner,
        announce: false,
        waited: Duration::ZERO,
        since: None,
        background: false,
    };
    let request = CompleteRequest {
        release,
        record: Some(record),
        chosen: true,
        config: None,
    };
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
