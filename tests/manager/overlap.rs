//! Two lists of nodes that share one: never do both grant.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{AcquireError, LockManager, NodeStanding};

use super::links::{Process, nodes};
use super::{MS, TTL};

const SECOND: Duration = Duration::from_secs(1);

/// The processes of the old list, and of the new one that shares `n2` with it.
fn lists(nodes: &[MemoryNode]) -> (Process, Process) {
    (Process::on(&nodes[..3]), Process::on(&nodes[2..]))
}

/// Looks again and again for `time` whether `new` gets the lock that `old` has or could have.
async fn never_both(old: &LockManager, new: &LockManager, time: Duration) {
    let began = Instant::now();
    let mut held = None;
    while began.elapsed() < time {
        if held.as_ref().is_none_or(tower_redlock::LockGuard::is_lost) {
            held = old.try_acquire("k").await.ok();
        }
        if let Ok(other) = new.try_acquire("k").await {
            let valid = held.as_ref().is_some_and(|guard| !guard.is_lost());
            assert!(!valid, "two holders after {:?}", began.elapsed());
            drop(other);
        }
        sleep(37 * MS).await;
    }
}

fn foreign(locks: &LockManager) -> Vec<String> {
    let nodes = locks.nodes().into_iter();
    let foreign = nodes.filter(|node| matches!(node.standing, NodeStanding::Foreign { .. }));
    foreign.map(|node| node.name).collect()
}

async fn refusal(locks: &LockManager) -> String {
    match locks.try_acquire("k").await {
        Err(AcquireError::NoQuorum(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

const OLD: &str = "nodes n0, n1, n2; quorum 2";
const NEW: &str = "nodes n2, n3, n4; quorum 2";

#[tokio::test(start_paused = true)]
async fn who_does_not_connect_first_finds_the_node_that_others_have_all_the_same() {
    let nodes = nodes(5);
    let (old, new) = lists(&nodes);
    let old = old.builder().max_hold(100 * TTL).connect().await.unwrap();
    let guard = old.try_acquire("k").await.unwrap();
    let new = new.builder().lazy().unwrap();
    let text = refusal(&new).await;
    assert!(text.contains(OLD) && text.contains(NEW), "{text}");
    assert_eq!(foreign(&new), ["n2"]);
    never_both(&old, &new, 4 * TTL).await;
    assert!(!guard.is_lost(), "nothing has happened to the old ones");
}

#[tokio::test(start_paused = true)]
async fn a_list_one_node_of_which_was_never_reached_grants_nothing() {
    let nodes = nodes(5);
    let (old, new) = lists(&nodes);
    let old = old.builder().max_hold(100 * TTL).connect().await.unwrap();
    let guard = old.try_acquire("k").await.unwrap();
    new.0[0].cut();
    let locks = new.builder().lazy().unwrap();
    never_both(&old, &locks, 8 * TTL).await;
    assert!(!guard.is_lost());
    // And when it is reached at last, it is another's.
    new.0[0].mend();
    sleep(2 * SECOND).await;
    assert_eq!(foreign(&locks), ["n2"]);
    never_both(&old, &locks, 2 * TTL).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_lists_that_share_a_node_which_forgets_only_one_goes_on() {
    // Whoever is the first to look at it then.
    for delay in [0, 300, 600, 900] {
        let nodes = nodes(5);
        let (old, new) = lists(&nodes);
        let old = old.builder().connect().await.unwrap();
        sleep(delay * MS).await;
        let new = new.builder().lazy().unwrap();
        sleep(3 * SECOND + 50 * MS).await;
        nodes[2].forget();
        never_both(&old, &new, 4 * TTL).await;
        assert_eq!(
            (foreign(&old).len(), foreign(&new).len()).max((1, 0)),
            if foreign(&old).is_empty() {
                (0, 1).max((1, 0))
            } else {
                (1, 0)
            },
        );
    }
}
