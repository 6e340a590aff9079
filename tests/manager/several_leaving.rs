//! Callers that want several keys and give up half-way, or meet others that want them in another order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_redlock::key::LockKeys;
use tower_redlock::node::MemoryNode;
use tower_redlock::{AcquireError, LockGuard, LockManager};

use super::{MS, Nodes, TTL, assert_idle, poll_once, wait_for};

const SECOND: Duration = Duration::from_secs(1);

/// What is in the way of a waiter for `a b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `a` is held in this process.
    FirstTurn,
    /// `a` came as a bare turn, and `b` is held in this process.
    SecondTurn,
    /// `a` came as a lock, and `b` is held in this process.
    SecondTurnAfterHandOff,
    /// `a` was just passed to it as a lock, and it has not looked yet.
    Called,
    /// It has both turns, and another process holds `b`.
    Contending,
    /// It has both turns, and asks nodes that do not answer.
    AcquireCall,
}

const STAGES: [Stage; 6] = [
    Stage::FirstTurn,
    Stage::SecondTurn,
    Stage::SecondTurnAfterHandOff,
    Stage::Called,
    Stage::Contending,
    Stage::AcquireCall,
];

type Waiter<'a> = std::pin::Pin<Box<dyn Future<Output = super::Outcome> + 'a>>;

/// Brings a waiter of `locks` to a stage. Returns it with the guards that are in its way.
async fn bring<'a>(
    stage: Stage,
    nodes: &Nodes,
    locks: &'a LockManager,
    others: &LockManager,
) -> (Waiter<'a>, Vec<LockGuard>) {
    let keys = LockKeys::new(["b", "a"]).unwrap();
    let mut waiter: Waiter<'a> = {
        let locks = locks.with_max_wait(SECOND);
        Box::pin(async move { locks.acquire(keys).await })
    };
    let mut guards = Vec::new();
    match stage {
        Stage::FirstTurn => guards.push(locks.try_acquire("a").await.unwrap()),
        Stage::SecondTurn => guards.push(locks.try_acquire("b").await.unwrap()),
        Stage::Called | Stage::SecondTurnAfterHandOff => {
            let first = locks.try_acquire("a").await.unwrap();
            guards.push(locks.try_acquire("b").await.unwrap());
            assert!(poll_once(&mut waiter).await.is_none());
            drop(first);
            if stage == Stage::Called {
                return (waiter, guards);
            }
        }
        Stage::Contending => guards.push(others.try_acquire("b").await.unwrap()),
        Stage::AcquireCall => nodes.each([0, 1, 2], MemoryNode::freeze),
    }
    for _ in 0..20 {
        assert!(poll_once(&mut waiter).await.is_none());
        tokio::task::yield_now().await;
    }
    (waiter, guards)
}

async fn assert_nothing_left(nodes: &Nodes, locks: &LockManager, held: &[LockGuard]) {
    let expected: Vec<String> = held
        .iter()
        .map(|guard| format!("lk:{}", guard.key()))
        .collect();
    nodes
        .settle("only what others hold", |nodes| {
            nodes.0.iter().all(|node| node.keys() == expected)
        })
        .await;
    assert_eq!(nodes.subscriptions(), 0);
    for key in ["a", "b"] {
        if !held.iter().any(|guard| guard.key().as_str() == key) {
            drop(locks.try_acquire(key).await.unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_dropped_at_any_stage_leaves_nothing() {
    for stage in STAGES {
        let nodes = Nodes::five();
        let (locks, others) = (nodes.met().await, nodes.met().await);
        let (waiter, held) = bring(stage, &nodes, &locks, &others).await;
        let before = Instant::now();
        drop(waiter);
        nodes.each(0..5, MemoryNode::thaw);
        assert_nothing_left(&nodes, &locks, &held).await;
        assert_eq!(before.elapsed(), Duration::ZERO, "{stage:?}");
        drop(held);
        assert_idle(&locks).await;
        assert_nothing_left(&nodes, &locks, &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_vain_at_any_stage_leaves_nothing() {
    for stage in STAGES {
        let nodes = Nodes::five();
        let (locks, others) = (nodes.met().await, nodes.met().await);
        let before = Instant::now();
        let (waiter, held) = bring(stage, &nodes, &locks, &others).await;
        let error = waiter.await.unwrap_err();
        if stage == Stage::AcquireCall {
            assert!(matches!(error, AcquireError::NoQuorum(_)), "{error:?}");
        } else {
            assert!(
                matches!(error, AcquireError::WaitTimeout { .. }),
                "{stage:?}: {error:?}"
            );
            assert!(before.elapsed() >= SECOND && before.elapsed() <= SECOND + 2 * MS);
        }
        nodes.each(0..5, MemoryNode::thaw);
        assert_nothing_left(&nodes, &locks, &held).await;
        drop(held);
        assert_nothing_left(&nodes, &locks, &[]).await;
        assert_idle(&locks).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_at_any_stage_lets_those_behind_it_go() {
    for stage in STAGES {
        let nodes = Nodes::five();
        let (locks, others) = (nodes.manager(), nodes.manager());
        let (waiter, mut held) = bring(stage, &nodes, &locks, &others).await;
        let (first, second) = (wait_for(&locks, "a").await, wait_for(&locks, "b").await);
        drop(waiter);
        nodes.each(0..5, MemoryNode::thaw);
        held.clear();
        let before = Instant::now();
        let guards = [
            first.await.unwrap().unwrap(),
            second.await.unwrap().unwrap(),
        ];
        assert!(
            before.elapsed() <= 100 * MS,
            "{stage:?}: {:?}",
            before.elapsed()
        );
        assert_eq!(
            (nodes.holding("a"), nodes.holding("b")),
            (5, 5),
            "{stage:?}"
        );
        drop(guards);
        nodes.settle_free("a").await;
        nodes.settle_free("b").await;
        assert_idle(&locks).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_though_a_lock_was_handed_over_that_cannot_be_given_back() {
    let nodes = Nodes::five();
    let locks = nodes
        .builder()
        .node_timeout(TTL / 4)
        .connect_lazy()
        .unwrap();
    let first = locks.try_acquire("a").await.unwrap();
    let second = locks.try_acquire("b").await.unwrap();
    let keys = LockKeys::new(["a", "b"]).unwrap();
    let before = Instant::now();
    let mut waiter = {
        let locks = locks.with_max_wait(SECOND);
        Box::pin(async move { locks.acquire(keys).await })
    };
    assert!(poll_once(&mut waiter).await.is_none());
    nodes.each(0..5, MemoryNode::freeze);
    drop(first);
    let error = waiter.await.unwrap_err();
    assert!(
        matches!(error, AcquireError::WaitTimeout { .. }),
        "{error:?}"
    );
    assert!(before.elapsed() <= SECOND + MS, "{:?}", before.elapsed());
    nodes.each(0..5, MemoryNode::thaw);
    drop(second);
    assert_idle(&locks).await;
    assert_nothing_left(&nodes, &locks, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_round_got_of_several_keys_is_given_back() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.met().await, nodes.met().await);
    // Held on three nodes only: the other two grant the set, which is not enough.
    nodes.each([3, 4], MemoryNode::go_down);
    let held = a.try_acquire("b").await.unwrap();
    nodes.each([3, 4], MemoryNode::come_up);
    let keys = LockKeys::new(["a", "b", "c"]).unwrap();
    let error = b.try_acquire(keys).await.unwrap_err();
    assert!(matches!(error, AcquireError::Contended { .. }), "{error:?}");
    nodes
        .settle("nothing but the holder's", |nodes| {
            let free = ["a", "c"].iter().all(|key| nodes.holding(key) == 0);
            free && nodes.holding("b") == 3
        })
        .await;
    held.release().await.unwrap();
    assert_nothing_left(&nodes, &b, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_several_is_woken_by_the_release_of_the_one_in_the_way() {
    for in_the_way in ["a", "b", "c"] {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), nodes.manager());
        let guard = a.try_acquire(in_the_way).await.unwrap();
        let locks = b.clone();
        let waiter = tokio::spawn(async move { locks.acquire(["c", "a", "b"]).await });
        tokio::time::sleep(2_111 * MS).await;
        let before = Instant::now();
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        assert!(before.elapsed() <= 2 * MS, "{:?}", before.elapsed());
        assert_eq!(nodes.subscriptions(), 0);
        drop(guard);
        assert_nothing_left(&nodes, &b, &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn crossing_sets_of_several_processes_never_wait_in_a_circle() {
    let nodes = Nodes::five();
    let sets = [
        ["a", "b"],
        ["b", "c"],
        ["c", "a"],
        ["b", "a"],
        ["c", "b"],
        ["a", "c"],
    ];
    let managers: Vec<LockManager> = (0..3)
        .map(|_| {
            nodes
                .builder()
                .max_wait(60 * SECOND)
                .connect_lazy()
                .unwrap()
        })
        .collect();
    let inside: Arc<[AtomicU32; 3]> = Arc::default();
    let mut tasks = JoinSet::new();
    for (number, locks) in managers.iter().cycle().take(36).enumerate() {
        let (locks, inside) = (locks.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            for turn in 0..5 {
                let set = sets[(number * 7 + turn) % sets.len()];
                let guard = locks.acquire(set).await.unwrap();
                let places = set.map(|key| &inside[usize::from(key.as_bytes()[0] - b'a')]);
                for place in places {
                    assert_eq!(place.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                }
                tokio::time::sleep(MS).await;
                assert!(!guard.is_lost());
                for place in places {
                    place.fetch_sub(1, Ordering::SeqCst);
                }
                if turn % 2 == 0 {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    let before = Instant::now();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    // 180 turns of a millisecond, any two of which exclude each other.
    assert!(before.elapsed() <= 5 * SECOND, "{:?}", before.elapsed());
    for locks in &managers {
        assert_idle(locks).await;
        assert_nothing_left(&nodes, locks, &[]).await;
    }
}
