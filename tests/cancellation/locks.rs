//! Calls for a lock.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;
use tower_redlock::key::LockKeys;
use tower_redlock::{LockGuard, LockManager, LockScope};

use super::scene::{ALL, KEY, MS, SECOND, Scene, key};
use super::sweep::{Leaves, Operation, Work, by, covering, end, work};

fn all() -> LockKeys {
    LockKeys::new(ALL).unwrap()
}

/// A guard that is dropped after so long, whatever becomes of the operation.
fn goes_after(scene: &Rc<Scene>, pause: Duration, guard: LockGuard) {
    scene.beside(async move {
        sleep(pause).await;
        drop(guard);
    });
}

/// Somebody who waits for `name` with the same manager after so long, and holds it for a moment.
fn rival_after(scene: &Rc<Scene>, pause: Duration, locks: &LockManager, name: &'static str) {
    let locks = locks.clone();
    scene.beside(async move {
        sleep(pause).await;
        let guard = locks.acquire(name).await;
        sleep(5 * MS).await;
        drop(guard);
    });
}

/// The same, who waits already.
async fn rival(scene: &Rc<Scene>, locks: &LockManager, name: &'static str) {
    rival_after(scene, Duration::ZERO, locks, name);
    tokio::task::yield_now().await;
}

/// Where nobody else wants the lock.
pub(crate) fn operations() -> Vec<Operation> {
    let acquire = [
        by!(try_acquire_alone),
        by!(try_acquire_the_first_call_of_a_manager),
        by!(acquire_of_several_free_keys),
        by!(run_for_half_a_ttl),
        by!(run_for_a_moment),
        by!(run_under_several_keys_for_a_moment),
        by!(try_acquire_one_of_six_permits),
        by!(try_acquire_as_a_reader),
        by!(acquire_in_a_scope_that_holds_a_part),
    ];
    let covers = &[
        "manager LockManager::try_acquire",
        "manager LockManager::acquire",
        "manager LockManager::run",
        "manager LockManager::acquire_in",
    ];
    covering(covers, Leaves::Nothing, acquire)
}

/// Where others have it, or want it, too.
pub(crate) fn crowded() -> Vec<Operation> {
    let acquire = [
        by!(acquire_what_another_process_holds),
        by!(acquire_what_another_process_releases),
        by!(acquire_behind_another_caller),
        by!(acquire_between_two_other_callers),
        by!(acquire_of_keys_of_which_another_process_holds_one),
        by!(acquire_of_keys_of_which_another_caller_holds_one),
        by!(acquire_a_permit_behind_another_caller),
        by!(acquire_what_another_process_reads_for_a_while),
        by!(acquire_as_a_reader_behind_a_writer),
        by!(acquire_in_beside_another_part),
    ];
    let covers = &["manager Future for LockSeat", "manager Future for Seat"];
    covering(covers, Leaves::Nothing, acquire)
}

async fn try_acquire_alone(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.try_acquire(KEY).await) })
}

/// It waits until the manager has asked the nodes whether they vote.
async fn try_acquire_the_first_call_of_a_manager(scene: Rc<Scene>) -> Work {
    let locks = scene.locks.clone();
    work(async move { end(locks.try_acquire(KEY).await) })
}

async fn acquire_of_several_free_keys(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.acquire(ALL).await) })
}

/// Long enough for its lock to be extended.
async fn run_for_half_a_ttl(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.run(KEY, |_| sleep(15 * SECOND)).await) })
}

async fn try_acquire_one_of_six_permits(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await.permits(6).unwrap();
    work(async move { end(locks.try_acquire(KEY).await) })
}

/// All are held, more than the first round asks for.
async fn acquire_a_permit_behind_another_caller(scene: Rc<Scene>) -> Work {
    let permits = |locks: LockManager| locks.permits(5).unwrap();
    let (locks, other) = (permits(scene.met().await), permits(scene.other().await));
    let guard = other.try_acquire(KEY).await.unwrap();
    for _ in 0..4 {
        scene.keep(other.try_acquire(KEY).await.unwrap());
    }
    goes_after(&scene, 40 * MS, guard);
    rival(&scene, &locks, KEY).await;
    work(async move { end(locks.with_max_wait(SECOND).acquire(KEY).await) })
}

async fn try_acquire_as_a_reader(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await.shared();
    work(async move { end(locks.try_acquire(KEY).await) })
}

async fn acquire_what_another_process_reads_for_a_while(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await.shared());
    let guard = other.try_acquire(KEY).await.unwrap();
    goes_after(&scene, 40 * MS, guard);
    work(async move { end(locks.with_max_wait(SECOND).acquire(KEY).await) })
}

async fn acquire_as_a_reader_behind_a_writer(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await.shared());
    let guard = other.try_acquire(KEY).await.unwrap();
    goes_after(&scene, 40 * MS, guard);
    rival(&scene, &locks, KEY).await;
    let readers = locks.shared().with_max_wait(SECOND);
    work(async move { end(readers.acquire(KEY).await) })
}

async fn run_for_a_moment(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.run(KEY, |_| sleep(5 * MS)).await) })
}

async fn run_under_several_keys_for_a_moment(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.run(ALL, |_| sleep(5 * MS)).await) })
}

/// Of three keys the work holds the first.
async fn acquire_in_a_scope_that_holds_a_part(scene: Rc<Scene>) -> Work {
    let (locks, scope) = (scene.met().await, LockScope::new());
    let one = locks.acquire_in(&scope, key(KEY).into(), SECOND).await;
    scene.keep(one.unwrap());
    work(async move { end(locks.acquire_in(&scope, all(), SECOND).await) })
}

async fn acquire_what_another_process_holds(scene: Rc<Scene>) -> Work {
    let locks = scene.met_beside_a_holder().await;
    work(async move { end(locks.acquire(KEY).await) })
}

async fn acquire_what_another_process_releases(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    let guard = other.try_acquire(KEY).await.unwrap();
    goes_after(&scene, 30 * MS, guard);
    work(async move { end(locks.acquire(KEY).await) })
}

async fn acquire_behind_another_caller(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    scene.keep(locks.try_acquire(KEY).await.unwrap());
    let wait = 100 * MS;
    work(async move { end(locks.with_max_wait(wait).acquire(KEY).await) })
}

/// The lock passes to it, and from it to the next, or past it.
async fn acquire_between_two_other_callers(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let guard = locks.try_acquire(KEY).await.unwrap();
    goes_after(&scene, 20 * MS, guard);
    rival(&scene, &locks, KEY).await;
    let ours = locks.clone();
    let ours = async move { end(ours.acquire(KEY).await) };
    rival_after(&scene, 10 * MS, &locks, KEY);
    work(ours)
}

async fn acquire_of_keys_of_which_another_process_holds_one(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    let guard = other.try_acquire(ALL[1]).await.unwrap();
    goes_after(&scene, 40 * MS, guard);
    rival(&scene, &locks, ALL[2]).await;
    work(async move { end(locks.with_max_wait(SECOND).acquire(all()).await) })
}

async fn acquire_of_keys_of_which_another_caller_holds_one(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let guard = locks.try_acquire(ALL[1]).await.unwrap();
    goes_after(&scene, 20 * MS, guard);
    rival(&scene, &locks, ALL[1]).await;
    work(async move { end(locks.acquire(ALL).await) })
}

/// Parts of one piece of work acquire one after the other.
async fn acquire_in_beside_another_part(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    let guard = other.try_acquire(ALL[0]).await.unwrap();
    goes_after(&scene, 30 * MS, guard);
    let scope = LockScope::new();
    let (first, within) = (locks.clone(), scope.clone());
    scene.beside(async move {
        let one = first.acquire_in(&within, key(ALL[0]).into(), SECOND).await;
        sleep(5 * MS).await;
        drop(one);
    });
    tokio::task::yield_now().await;
    work(async move { end(locks.acquire_in(&scope, all(), SECOND).await) })
}
