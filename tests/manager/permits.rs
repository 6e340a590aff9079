//! Permits: at most so many holders of a key at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower_redlock::clock::TokioClock;
use tower_redlock::error::LossReason;
use tower_redlock::key::LockKeys;
use tower_redlock::node::MemoryNode;
use tower_redlock::node::{Namespace, Node};
use tower_redlock::{AcquireError, LockGuard, LockKey, LockManager};

use super::links::{Process, nodes};
use super::requests::NewAcquire;
use super::slow::Slow;
use super::{MS, Nodes, TTL, assert_idle, wait_for};

const SECOND: Duration = Duration::from_secs(1);

/// The slots of `order` that the nodes hold, all nodes together.
fn slots(nodes: &Nodes) -> usize {
    let keys = nodes.0.iter().flat_map(MemoryNode::keys);
    keys.filter(|key| key.starts_with("lk!permit:")).count()
}

fn slot(guard: &LockGuard) -> u32 {
    guard.slot().unwrap()
}

/// Puts another owner in a slot of `order` at one node.
async fn occupy(node: &MemoryNode, slot: u32, ttl: Duration) {
    let key = LockKey::new(format!("order:{slot}")).unwrap();
    let key = Namespace::default().permits().node_key(&key);
    let token = tower_redlock::node::OwnerToken::from_entropy([7; 20]);
    let reply = node.acquire(tower_redlock::node::AcquireRequest::new(key, token, ttl));
    reply.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn as_many_hold_a_key_as_there_are_permits_each_in_a_slot_of_its_own() {
    for limit in [1, 2, 5, 16] {
        let nodes = Nodes::five();
        let processes = [nodes.met().await, nodes.met().await];
        let mut held = Vec::new();
        for number in 0..limit as usize {
            let locks = processes[number % 2].permits(limit).unwrap();
            held.push(locks.try_acquire("order").await.unwrap());
        }
        let mut taken: Vec<u32> = held.iter().map(slot).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..limit).collect::<Vec<_>>());
        for locks in &processes {
            let locks = locks.permits(limit).unwrap();
            let error = locks.try_acquire("order").await.unwrap_err();
            assert!(
                matches!(error, AcquireError::Contended { remaining: Some(left), .. } if left > Duration::ZERO),
                "{error:?}"
            );
            // The permits of another key are others.
            let other = locks.try_acquire("other").await.unwrap();
            other.release().await.unwrap();
        }
        let freed = slot(&held[0]);
        held.remove(0).release().await.unwrap();
        let next = processes[1].permits(limit).unwrap();
        let next = next.try_acquire("order").await.unwrap();
        assert_eq!(slot(&next), freed);
        drop((held, next));
        nodes
            .settle("every slot free", |nodes| slots(nodes) == 0)
            .await;
        for locks in &processes {
            assert_idle(locks).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_in_several_processes_never_more_hold_a_key_than_there_are_permits() {
    for (limit, slow) in [(2, 0), (3, 7), (7, 3)] {
        let nodes = Nodes::five();
        let holders = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for process in 0..4 {
            let each = nodes.0.iter().enumerate().map(|(index, node)| {
                let delay = u32::try_from((index + process) % 3).unwrap() * slow * MS / 4;
                Slow::node(node, delay, delay)
            });
            let locks = LockManager::builder()
                .nodes(each)
                .clock(TokioClock::new())
                .connect_lazy()
                .unwrap();
            let locks = locks.permits(limit).unwrap().with_max_wait(600 * SECOND);
            for task in 0..8_u32 {
                let (locks, holders, most) = (locks.clone(), holders.clone(), most.clone());
                tasks.spawn(async move {
                    for turn in 0..10 {
                        let guard = locks.acquire("order").await.unwrap();
                        let now = holders.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        // Long beside a round, so that at some time all slots are held.
                        sleep((20 + (task * 7 + turn * 3) % 20) * MS).await;
                        assert!(!guard.is_lost());
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(guard);
                    }
                });
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), limit as usize);
        sleep(SECOND).await;
        assert_eq!(slots(&nodes), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_comes_in_order_and_nobody_overtakes() {
    let nodes = Nodes::five();
    let (locks, other) = (nodes.met().await, nodes.met().await);
    let locks = locks.permits(2).unwrap().with_max_wait(60 * SECOND);
    let mut held = vec![
        locks.acquire("order").await.unwrap(),
        other.permits(2).unwrap().acquire("order").await.unwrap(),
    ];
    let mut line = Vec::new();
    for _ in 0..4 {
        line.push(wait_for(&locks, "order").await);
        sleep(MS).await;
    }
    for waiter in line {
        drop(held.remove(0));
        sleep(20 * MS).await;
        assert!(waiter.is_finished(), "the first in line is next");
        held.push(waiter.await.unwrap().unwrap());
        assert!(locks.try_acquire("order").await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_passes_to_who_waits_in_its_process_and_asks_no_node() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.permits(2).unwrap();
    let locks = locks.with_max_wait(60 * SECOND);
    let mut held = vec![
        locks.acquire("order").await.unwrap(),
        locks.acquire("order").await.unwrap(),
    ];
    let mut line = Vec::new();
    for _ in 0..6 {
        line.push(wait_for(&locks, "order").await);
    }
    sleep(SECOND / 10).await;
    let before = nodes.commands();
    for (number, waiter) in line.into_iter().enumerate() {
        let guard = held.remove(0);
        let (slot, fence) = (slot(&guard), guard.fence());
        guard.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        assert_eq!(next.slot(), Some(slot), "{number}");
        assert!(next.fence() > fence);
        held.push(next);
    }
    // The first of those that wait asks when it begins to, and no node is asked for a permit that passes.
    let asked = nodes.commands() - before;
    assert!(asked <= 2 * 5 * 6, "{asked}");
    assert_eq!(slots(&nodes), 10, "never released");
    drop(held);
    nodes
        .settle("every slot free", |nodes| slots(nodes) == 0)
        .await;
    assert_idle(&locks).await;
}

/// The permit was passed to the first, who is gone before it looks.
#[tokio::test(start_paused = true)]
async fn a_permit_that_is_passed_to_who_leaves_goes_on_to_the_next() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.permits(1).unwrap();
    let locks = locks.with_max_wait(60 * SECOND);
    let held = locks.acquire("order").await.unwrap();
    let first = wait_for(&locks, "order").await;
    let second = wait_for(&locks, "order").await;
    sleep(SECOND / 10).await;
    drop(held);
    first.abort();
    let next = second.await.unwrap().unwrap();
    assert!(first.await.unwrap_err().is_cancelled());
    assert!(!next.is_lost());
    next.release().await.unwrap();
    nodes
        .settle("every slot free", |nodes| slots(nodes) == 0)
        .await;
    assert_idle(&locks).await;
}

/// A future that is kept and not polled has the turn, and the permit was passed to it.
#[tokio::test(start_paused = true)]
async fn a_permit_that_is_passed_to_who_does_not_look_goes_on_after_a_node_time_out() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.permits(1).unwrap();
    let locks = locks.with_max_wait(60 * SECOND);
    let held = locks.acquire("order").await.unwrap();
    let mut kept = Box::pin(locks.acquire("order"));
    let looked = timeout(SECOND / 10, &mut kept).await;
    assert!(looked.is_err(), "it waits");
    let next = wait_for(&locks, "order").await;
    held.release().await.unwrap();
    let began = Instant::now();
    let next = next.await.unwrap().unwrap();
    assert!(began.elapsed() <= 2 * locks.node_timeout());
    // The one that was kept waits anew.
    assert!(timeout(SECOND / 10, &mut kept).await.is_err());
    next.release().await.unwrap();
    drop(kept.await.unwrap());
    nodes
        .settle("every slot free", |nodes| slots(nodes) == 0)
        .await;
    assert_idle(&locks).await;
}

/// At the same time there may be handles with other limits.
#[tokio::test(start_paused = true)]
async fn a_permit_does_not_pass_to_who_asked_for_fewer() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.with_max_wait(60 * SECOND);
    let (few, many) = (locks.permits(1).unwrap(), locks.permits(3).unwrap());
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(many.acquire("order").await.unwrap());
    }
    held.sort_by_key(slot);
    let next = wait_for(&few, "order").await;
    sleep(SECOND / 10).await;
    drop((held.pop(), held.pop()));
    sleep(SECOND / 10).await;
    assert!(!next.is_finished());
    drop(held);
    assert_eq!(slot(&next.await.unwrap().unwrap()), 0);
}

/// Three processes have more work than two permits allow, and one of three nodes is down.
#[tokio::test(start_paused = true)]
async fn no_process_starves_while_a_node_is_down() {
    for limit in [1, 2, 4] {
        let nodes = nodes(3);
        drop(with_late_replies(&nodes, Duration::ZERO).await);
        nodes[0].go_down();
        let until = Instant::now() + 4 * SECOND;
        let mut tasks = JoinSet::new();
        for process in 0..3_u32 {
            let each = nodes.iter().map(|node| Slow::node(node, MS / 2, MS / 2));
            let builder = LockManager::builder().nodes(each);
            let locks = builder.clock(TokioClock::new()).connect_lazy().unwrap();
            let locks = locks.permits(limit).unwrap().with_max_wait(600 * SECOND);
            for _ in 0..4 {
                let locks = locks.clone();
                tasks.spawn(async move {
                    let mut turns = 0;
                    while Instant::now() < until {
                        let guard = locks.acquire("order").await.unwrap();
                        sleep(MS).await;
                        guard.release().await.unwrap();
                        turns += 1;
                    }
                    (process, turns)
                });
            }
        }
        let mut turns = [0; 3];
        while let Some(done) = tasks.join_next().await {
            let (process, count) = done.unwrap();
            turns[process as usize] += count;
        }
        let (least, all) = (turns.iter().min().unwrap(), turns.iter().sum::<u32>());
        assert!(least * 6 >= all, "{limit} permits: {turns:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_time_and_a_waiter_that_leaves_passes_its_place_on() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.permits(1).unwrap();
    let held = locks.try_acquire("order").await.unwrap();
    let began = Instant::now();
    let error = locks.with_max_wait(2 * SECOND).acquire("order").await;
    assert!(matches!(error, Err(AcquireError::WaitTimeout { .. })));
    assert_eq!(began.elapsed(), 2 * SECOND);
    let patient = locks.with_max_wait(60 * SECOND);
    let first = wait_for(&patient, "order").await;
    let second = wait_for(&patient, "order").await;
    first.abort();
    sleep(MS).await;
    held.release().await.unwrap();
    sleep(20 * MS).await;
    assert!(second.is_finished());
    drop(second.await.unwrap().unwrap());
    nodes
        .settle("every slot free", |nodes| slots(nodes) == 0)
        .await;
    assert_idle(&locks).await;
}

/// A manager to which the first node's replies come so late, and which knows already who votes.
async fn with_late_replies(nodes: &[MemoryNode], late: Duration) -> LockManager {
    let each = nodes.iter().enumerate().map(|(index, node)| {
        let back = if index == 0 { late } else { Duration::ZERO };
        Slow::node(node, Duration::ZERO, back)
    });
    let builder = LockManager::builder().nodes(each);
    let locks = builder.clock(TokioClock::new()).connect_lazy().unwrap();
    drop(locks.try_acquire("another").await.unwrap());
    locks
}

/// At one node the slots are taken otherwise than at the rest.
#[tokio::test(start_paused = true)]
async fn what_a_node_grants_beside_the_others_is_given_back() {
    for late in [Duration::ZERO, 20 * MS] {
        let nodes = Nodes::five();
        let locks = with_late_replies(&nodes.0, late).await;
        occupy(&nodes.0[0], 0, 3_600 * SECOND).await;
        let locks = locks.permits(2).unwrap();
        for _ in 0..20 {
            let one = locks.try_acquire("order").await.unwrap();
            let other = locks.try_acquire("order").await.unwrap();
            assert!(locks.try_acquire("order").await.is_err());
            sleep(SECOND).await;
            // A node has what is ours there, and nothing else.
            let (first, ours) = (nodes.0[0].keys(), [slot(&one), slot(&other)]);
            assert_eq!(ours.iter().sum::<u32>(), 1);
            let mut first: Vec<_> = first
                .into_iter()
                .filter(|key| key.contains("permit:"))
                .collect();
            first.sort();
            assert_eq!(first, ["lk!permit:order:0", "lk!permit:order:1"]);
            one.release().await.unwrap();
            other.release().await.unwrap();
            sleep(SECOND).await;
            assert_eq!(slots(&nodes), 1);
        }
    }
}

/// It does not count for the permit, and gets the slot that the others granted.
#[tokio::test(start_paused = true)]
async fn a_node_that_granted_another_slot_is_asked_again_long_before_the_renewal() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.permits(2).unwrap();
    let guard = loop {
        occupy(&nodes.0[0], 0, 50 * MS).await;
        let guard = locks.try_acquire("order").await.unwrap();
        if slot(&guard) == 0 {
            break guard;
        }
        guard.release().await.unwrap();
        sleep(SECOND).await;
    };
    sleep(SECOND).await;
    let mut first = nodes.0[0].keys();
    first.retain(|key| key.contains("permit:"));
    assert_eq!(first, ["lk!permit:order:0"]);
    assert_eq!(slots(&nodes), 5);
    drop(guard);
}

/// Whatever a node has granted whose reply does not come in time, it is free of it with the permit.
#[tokio::test(start_paused = true)]
async fn what_a_node_grants_without_a_reply_in_time_is_given_back_with_the_permit() {
    for (back, held) in [150 * MS, 3_600 * SECOND]
        .into_iter()
        .flat_map(|back| [SECOND, Duration::ZERO].map(|held| (back, held)))
    {
        let nodes = nodes(3);
        let locks = with_late_replies(&nodes, back).await;
        occupy(&nodes[1], 0, 3_600 * SECOND).await;
        occupy(&nodes[2], 0, 3_600 * SECOND).await;
        let permits = locks.permits(2).unwrap();
        for _ in 0..10 {
            let guard = permits.try_acquire("order").await.unwrap();
            assert_eq!(slot(&guard), 1);
            sleep(held).await;
            let _ = guard.release().await;
            sleep(SECOND).await;
            let left: Vec<_> = nodes[0]
                .keys()
                .into_iter()
                .filter(|key| key.contains("permit:"))
                .collect();
            assert_eq!(left, [""; 0], "{back:?} {held:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_extended_and_lost_as_a_lock_is() {
    let nodes = nodes(3);
    let process = Process::on(&nodes);
    let locks = process.builder().ttl(TTL).connect().await.unwrap();
    let permits = locks.permits(2).unwrap();
    let guard = permits.try_acquire("order").await.unwrap();
    sleep(3 * TTL).await;
    assert!(!guard.is_lost());
    (0..3).for_each(|n| process.0[n].cut());
    let lost = guard.lost();
    assert_eq!(lost.await, LossReason::Expired);
    (0..3).for_each(|n| process.0[n].mend());
    drop(guard);
    sleep(2 * TTL).await;
    drop(permits.try_acquire("order").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn fencing_tokens_grow_in_each_slot() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.permits(3).unwrap();
    let mut last = [None; 3];
    for _ in 0..50 {
        let guard = locks.try_acquire("order").await.unwrap();
        let (slot, fence) = (slot(&guard) as usize, guard.fence());
        assert!(fence > last[slot]);
        last[slot] = fence;
        guard.release().await.unwrap();
    }
    assert!(last.iter().all(Option::is_some), "chosen at random");
}

#[tokio::test(start_paused = true)]
async fn while_slots_are_free_one_command_for_each_node_is_enough() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.permits(16).unwrap();
    let before = nodes.commands();
    let guard = locks.try_acquire("order").await.unwrap();
    nodes
        .settle("granted by all", |nodes| slots(nodes) == 5)
        .await;
    assert_eq!(nodes.commands() - before, 5);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_costs_a_vote_alone() {
    let nodes = Nodes::five();
    let locks = nodes.met().await.permits(2).unwrap();
    nodes.each(0..2, MemoryNode::go_down);
    let held = [
        locks.try_acquire("order").await.unwrap(),
        locks.try_acquire("order").await.unwrap(),
    ];
    assert!(locks.try_acquire("order").await.is_err());
    nodes.each(2..3, MemoryNode::go_down);
    assert!(matches!(
        locks.try_acquire("order").await,
        Err(AcquireError::NoQuorum(_))
    ));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_of_one_key_and_there_are_1_to_256() {
    let nodes = Nodes::five();
    let locks = nodes.met().await;
    let long = "x".repeat(512 - 3);
    let error = locks.permits(2).unwrap().try_acquire(long).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("at most 508"), "{error}");
    for limit in [0, 257] {
        let error = locks.permits(limit).unwrap_err().to_string();
        assert!(error.contains("use 1 to 256"), "{error}");
    }
    let all = locks.permits(256).unwrap();
    let guard = all.try_acquire("order").await.unwrap();
    assert_eq!((guard.keys().len(), guard.key().as_str()), (1, "order"));
    assert!(locks.try_acquire("plain").await.unwrap().slot().is_none());
    let keys = LockKeys::new(["a", "b"]).unwrap();
    let error = all.try_acquire(keys).await.unwrap_err().to_string();
    assert!(error.contains("have only one key"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_the_permits_of_all_processes_and_takes_one() {
    for groups in [1, 2] {
        let nodes = nodes(6);
        let process = || Process::on(&nodes).builder().groups(groups).instance("one");
        let (locks, operator) = (
            process().connect().await.unwrap(),
            process().connect().await.unwrap(),
        );
        let (permits, operator) = (locks.permits(3).unwrap(), operator.permits(1).unwrap());
        let held = [
            permits.try_acquire("tenant:7").await.unwrap(),
            permits.try_acquire("tenant:7").await.unwrap(),
            permits.try_acquire("other").await.unwrap(),
        ];
        let _lock = locks.try_acquire("tenant:7").await.unwrap();
        let name = format!("tenant:7:{}", slot(&held[0]));
        let list = operator.list("tenant:", 10).await;
        let mut keys: Vec<_> = list.locks.iter().map(|it| it.key.as_str()).collect();
        keys.sort_unstable();
        let mut wanted = [name.clone(), format!("tenant:7:{}", slot(&held[1]))];
        wanted.sort();
        assert_eq!(
            (keys, list.more),
            (wanted.iter().map(String::as_str).collect(), false)
        );

        let status = operator.holders(&name).await.unwrap();
        assert_eq!(status.holder().unwrap().instance.as_str(), "one");
        assert!(operator.force_release(&status, true).await.unwrap() >= 2);
        assert_eq!(held[0].lost().await, LossReason::Taken);
        assert!(!held[1].is_lost());
        let free = operator.holders(&name).await.unwrap();
        assert!(free.holder().is_none());
        for wrong in ["tenant", "tenant:x", "7", ":7"] {
            let error = operator.holders(wrong).await.unwrap_err().to_string();
            assert!(error.contains("the number of its slot"), "{wrong}: {error}");
        }
    }
}
