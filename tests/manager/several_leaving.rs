//! Callers that want several keys and give up half-way, or meet others that want them in another order.

use super::*;

/// What is in the way of a waiter for `a b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `a` is held in this process.
    FirstTurn,
    /// `a` is free, and `b` is held in this process.
    SecondTurn,
    /// The same, and `a` has just come free: it has not looked since.
    FirstCameFree,
    /// It has both turns, and another process holds `b`.
    Contending,
    /// It has both turns, and asks nodes that do not answer.
    AcquireCall,
}

const STAGES: [Stage; 5] = [
    Stage::FirstTurn,
    Stage::SecondTurn,
    Stage::FirstCameFree,
    Stage::Contending,
    Stage::AcquireCall,
];

type Waiter<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

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
        Stage::FirstCameFree => {
            let first = locks.try_acquire("a").await.unwrap();
            guards.push(locks.try_acquire("b").await.unwrap());
            assert!(poll_once(&mut waiter).await.is_none());
            drop(first);
            return (waiter, guards);
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

/// Only what others hold is left, and both keys can be had if they are free.
async fn assert_nothing_left(nodes: &Nodes, locks: &LockManager, held: &[LockGuard]) {
    let names = held.iter().map(|guard| format!("lk:{}", guard.key()));
    let expected: Vec<String> = names.collect();
    let left = |nodes: &Nodes| nodes.0.iter().all(|node| node.keys() == expected);
    nodes.settle("only what others hold", left).await;
    assert_eq!(nodes.subscriptions(), 0);
    for key in ["a", "b"] {
        if !expected.contains(&format!("lk:{key}")) {
            drop(locks.try_acquire(key).await.unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_dropped_or_waits_in_vain_at_any_stage_leaves_nothing() {
    for (stage, is_dropped) in STAGES
        .iter()
        .flat_map(|stage| [(*stage, true), (*stage, false)])
    {
        let (nodes, [locks, others]) = five_met().await;
        let before = Instant::now();
        let (waiter, held) = bring(stage, &nodes, &locks, &others).await;
        let mut takes = Duration::ZERO;
        if is_dropped {
            drop(waiter);
        } else if stage == Stage::AcquireCall {
            let error = waiter.await.unwrap_err();
            assert!(matches!(error, AcquireError::NoQuorum(_)), "{error:?}");
            takes = locks.node_timeout();
        } else {
            assert_timed_out(waiter.await);
            takes = SECOND;
        }
        nodes.each(0..5, MemoryNode::thaw);
        assert_nothing_left(&nodes, &locks, &held).await;
        let took = before.elapsed();
        let due = takes..=takes + 2 * MS;
        assert!(due.contains(&took), "{stage:?} {took:?}");
        drop(held);
        assert_nothing_left(&nodes, &locks, &[]).await;
        assert_idle(&locks).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_at_any_stage_lets_those_behind_it_go() {
    for stage in STAGES {
        let (nodes, [locks, others]) = five();
        let (waiter, mut held) = bring(stage, &nodes, &locks, &others).await;
        let (first, second) = (wait_for(&locks, "a").await, wait_for(&locks, "b").await);
        drop(waiter);
        nodes.each(0..5, MemoryNode::thaw);
        held.clear();
        let before = Instant::now();
        let guards = (
            first.await.unwrap().unwrap(),
            second.await.unwrap().unwrap(),
        );
        let took = before.elapsed();
        assert!(took <= 100 * MS, "{stage:?}: {took:?}");
        let holding = (nodes.holding("a"), nodes.holding("b"));
        assert_eq!(holding, (5, 5), "{stage:?}");
        drop(guards);
        nodes.settle_free("a").await;
        nodes.assert_nothing_left(&[&locks]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_round_got_of_several_keys_is_given_back() {
    let (nodes, [a, b]) = five_met().await;
    // Held on three nodes only: the other two grant the set, which is not enough.
    nodes.each([3, 4], MemoryNode::go_down);
    let held = a.try_acquire("b").await.unwrap();
    nodes.each([3, 4], MemoryNode::come_up);
    let keys = LockKeys::new(["a", "b", "c"]).unwrap();
    assert_contended(b.try_acquire(keys).await);
    nodes.settle_free("a").await;
    nodes.settle_free("c").await;
    nodes.settle_on("b", 3).await;
    held.release().await.unwrap();
    assert_nothing_left(&nodes, &b, &[]).await;
}
