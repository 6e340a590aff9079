//! How a manager begins and ends, and what it asks of all nodes.

use std::rc::Rc;

use tokio::time::{sleep, timeout};
use tower_redlock::Settings;
use tower_redlock::node::MemoryNode;

use super::scene::{KEY, MS, Scene};
use super::sweep::{Operation, Work, by, end, work};

pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = begins();
    operations.extend(ends());
    operations.extend(looks());
    operations
}

fn begins() -> Vec<Operation> {
    vec![
        Operation::new(
            "connect",
            &["settings Settings::connect"],
            by!(connect_alone),
        ),
        Operation::new(
            "connect, which trusts new nodes meanwhile",
            &["settings Settings::connect"],
            by!(connect_which_trusts_new_nodes_meanwhile),
        ),
        Operation::new(
            "settings",
            &["settings Settings::connect"],
            by!(connect_of_variables),
        ),
        Operation::new(
            "bootstrap",
            &["manager LockManager::bootstrap"],
            by!(bootstrap_alone),
        ),
        Operation::new(
            "bootstrap of nodes that forgot",
            &["manager LockManager::bootstrap"],
            by!(bootstrap_of_nodes_that_forgot),
        )
        .may_leave_a_quarantine(),
        Operation::new(
            "all_voting",
            &["manager LockManager::all_voting"],
            by!(all_voting_alone),
        ),
        Operation::new(
            "adopt_nodes",
            &["manager LockManager::adopt_nodes"],
            by!(adopt_nodes_alone),
        )
        .may_leave_a_quarantine(),
        Operation::new(
            "retire_nodes",
            &["manager LockManager::retire_nodes"],
            by!(retire_nodes_alone),
        ),
    ]
}

/// What operators do.
fn looks() -> Vec<Operation> {
    vec![
        Operation::new(
            "holders",
            &["manager LockManager::holders"],
            by!(holders_of_a_held_key),
        ),
        Operation::new("list", &["manager LockManager::list"], by!(list_of_all)),
        Operation::new(
            "idempotent_holders",
            &["manager LockManager::idempotent_holders"],
            by!(holders_of_a_run),
        ),
        Operation::new(
            "list_idempotent",
            &["manager LockManager::list_idempotent"],
            by!(list_of_runs),
        ),
        Operation::new(
            "force_release",
            &["manager LockManager::force_release"],
            by!(force_release_of_a_dead_holder),
        )
        .may_leave_a_key_to_its_ttl(),
    ]
}

async fn holders_of_a_held_key(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    scene.keep(other.try_acquire(KEY).await.unwrap());
    work(async move { end(locks.holders(KEY).await) })
}

async fn list_of_all(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    scene.keep(other.try_acquire(KEY).await.unwrap());
    work(async move { end(locks.list("", 10).await) })
}

async fn holders_of_a_run(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.idempotent_holders(KEY).await) })
}

async fn list_of_runs(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.list_idempotent("", 10).await) })
}

async fn force_release_of_a_dead_holder(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    scene.keep(other.try_acquire(KEY).await.unwrap());
    let seen = locks.holders(KEY).await.unwrap();
    work(async move { end(locks.force_release(&seen, true).await) })
}

const SHUTDOWN: &[&str] = &[
    "manager LockManager::shutdown",
    "manager Future for Counted",
];

fn ends() -> Vec<Operation> {
    vec![
        Operation::new("shutdown", SHUTDOWN, by!(shutdown_alone)),
        Operation::new(
            "shutdown, while a lock is held",
            SHUTDOWN,
            by!(shutdown_while_a_lock_is_held),
        ),
        Operation::new(
            "shutdown, while calls are under way",
            SHUTDOWN,
            by!(shutdown_while_calls_are_under_way),
        ),
        Operation::new(
            "shutdown, while a lock is released",
            SHUTDOWN,
            by!(shutdown_while_a_lock_is_released),
        ),
    ]
}

async fn connect_alone(scene: Rc<Scene>) -> Work {
    let builder = scene.builder();
    work(async move { end(builder.connect().await) })
}

async fn connect_which_trusts_new_nodes_meanwhile(scene: Rc<Scene>) -> Work {
    let builder = scene.builder().bootstrap(true);
    work(async move { end(builder.connect().await) })
}

async fn connect_of_variables(_: Rc<Scene>) -> Work {
    let variables = [("REDLOCK_MEMORY", "3")];
    let settings = Settings::default().with_vars("REDLOCK", variables);
    work(async move { end(settings.unwrap().connect().await) })
}

async fn bootstrap_alone(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.bootstrap().await) })
}

async fn all_voting_alone(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    // It never ends where a node is silent.
    let limit = 1_500 * MS;
    work(async move { end(timeout(limit, locks.all_voting()).await) })
}

/// All nodes are in quarantine for it, as they may have forgotten.
async fn bootstrap_of_nodes_that_forgot(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    // It sees them through their quarantine if the operation is dropped.
    scene.other().await;
    scene.nodes.iter().for_each(MemoryNode::forget);
    work(async move { end(locks.bootstrap().await) })
}

async fn adopt_nodes_alone(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    scene.other().await;
    work(async move { end(locks.adopt_nodes(None).await) })
}

/// Of another namespace, so that the nodes can be used after that.
async fn retire_nodes_alone(scene: Rc<Scene>) -> Work {
    let locks = scene.apart();
    work(async move { end(locks.retire_nodes("others").await) })
}

async fn shutdown_alone(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    work(async move { end(locks.shutdown(20 * MS).await) })
}

async fn shutdown_while_a_lock_is_held(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let guard = locks.try_acquire(KEY).await.unwrap();
    scene.beside(async move {
        guard.lost().await;
        drop(guard);
    });
    work(async move { end(locks.shutdown(20 * MS).await) })
}

async fn shutdown_while_calls_are_under_way(scene: Rc<Scene>) -> Work {
    let (locks, other) = (scene.met().await, scene.other().await);
    scene.keep(other.try_acquire(KEY).await.unwrap());
    for _ in 0..2 {
        let locks = locks.clone();
        scene.beside(async move { end(locks.acquire(KEY).await) });
    }
    tokio::task::yield_now().await;
    work(async move { end(locks.shutdown(20 * MS).await) })
}

async fn shutdown_while_a_lock_is_released(scene: Rc<Scene>) -> Work {
    let locks = scene.met().await;
    let guard = locks.try_acquire(KEY).await.unwrap();
    scene.beside(async move {
        sleep(5 * MS).await;
        end(guard.release().await);
    });
    work(async move { end(locks.shutdown(20 * MS).await) })
}
