//! How a manager begins and ends, and what it asks of all nodes.

use std::rc::Rc;

use tokio::time::{sleep, timeout};
use tower_redlock::Settings;
use tower_redlock::node::MemoryNode;

use super::scene::{KEY, MS, Scene};
use super::sweep::{Leaves, Operation, Work, by, covering, end, work};

pub(crate) fn operations() -> Vec<Operation> {
    let covers = &[
        "settings Settings::connect",
        "manager LockManager::bootstrap",
        "manager LockManager::adopt_nodes",
        "manager LockManager::retire_nodes",
        "manager LockManager::all_voting",
        "manager LockManager::holders",
        "manager LockManager::list",
        "manager LockManager::idempotent_holders",
        "manager LockManager::list_idempotent",
        "manager LockManager::force_release",
        "manager LockManager::shutdown",
        "manager Future for Counted",
    ];
    let most = [
        by!(connect_alone),
        by!(connect_which_trusts_new_nodes_meanwhile),
        by!(connect_of_variables),
        by!(bootstrap_alone),
        by!(all_voting_alone),
        by!(retire_nodes_alone),
        by!(holders_of_a_held_key),
        by!(list_of_all),
        by!(holders_of_a_run),
        by!(list_of_runs),
        by!(shutdown_alone),
        by!(shutdown_while_a_lock_is_held),
        by!(shutdown_while_calls_are_under_way),
        by!(shutdown_while_a_lock_is_released),
    ];
    let of_nodes = [by!(bootstrap_of_nodes_that_forgot), by!(adopt_nodes_alone)];
    let of_a_key = [by!(force_release_of_a_dead_holder)];
    [
        covering(covers, Leaves::Nothing, most),
        covering(covers, Leaves::Quarantine, of_nodes),
        covering(covers, Leaves::Key, of_a_key),
    ]
    .concat()
}

async fn holders_of_a_held_key(scene: Rc<Scene>) -> Work {
    let locks = scene.met_beside_a_holder().await;
    work(async move { end(locks.holders(KEY).await) })
}

async fn list_of_all(scene: Rc<Scene>) -> Work {
    let locks = scene.met_beside_a_holder().await;
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
    let locks = scene.met_beside_a_holder().await;
    let seen = locks.holders(KEY).await.unwrap();
    work(async move { end(locks.force_release(&seen, true).await) })
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
    let locks = scene.met_beside_a_holder().await;
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
