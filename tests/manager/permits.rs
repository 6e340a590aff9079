//! Permits: at most so many holders of a key at once.

use super::*;

/// The slots that a node holds.
fn slots_on(node: &MemoryNode) -> Vec<String> {
    let mut keys = node.keys();
    keys.retain(|key| key.starts_with("lk!permit:"));
    keys.sort();
    keys
}

/// How many slots the nodes hold, all nodes together.
fn slots(nodes: &Nodes) -> usize {
    nodes.0.iter().map(|node| slots_on(node).len()).sum()
}

/// Every slot comes free, and nothing is left of the callers.
async fn all_given_back(nodes: &Nodes, locks: &LockManager) {
    nodes.settle("free", |nodes| slots(nodes) == 0).await;
    assert_idle(locks).await;
}

/// A slot of `order` as nodes know it.
fn place_of(slot: u32) -> NodeKey {
    let key = LockKey::new(format!("order:{slot}")).unwrap();
    Namespace::default().permits().node_key(&key)
}

fn slot(guard: &LockGuard) -> u32 {
    guard.slot().unwrap()
}

#[tokio::test(start_paused = true)]
async fn as_many_hold_a_key_as_there_are_permits_each_in_a_slot_of_its_own() {
    for limit in [1, 2, 5, 16] {
        let (nodes, processes): (_, [_; 2]) = five_met().await;
        let (mut held, before) = (Vec::new(), nodes.commands());
        for number in 0..limit as usize {
            let locks = processes[number % 2].permits(limit).unwrap();
            held.push(locks.try_acquire("order").await.unwrap());
            if number == 0 {
                nodes.settle("by all", |nodes| slots(nodes) == 5).await;
                assert_eq!(nodes.commands() - before, 5, "one for each node");
            }
        }
        let mut taken: Vec<u32> = held.iter().map(slot).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..limit).collect::<Vec<_>>());
        for locks in &processes {
            let locks = locks.permits(limit).unwrap();
            assert!(remaining(&locks, "order").await > Some(Duration::ZERO));
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
        all_given_back(&nodes, &processes[0]).await;
        assert_idle(&processes[1]).await;
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
    // Who does not wait does not overtake them.
    assert_contended(locks.try_acquire("order").await);
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
    all_given_back(&nodes, &locks).await;
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
    all_given_back(&nodes, &locks).await;
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
    all_given_back(&nodes, &locks).await;
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
            let locks = lazy(Odd::slow(&nodes, MS / 2, MS / 2));
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

/// A manager to which the first node's replies come so late, and which knows already who votes.
async fn with_late_replies(nodes: &[MemoryNode], late: Duration) -> LockManager {
    let locks = lazy(Odd::late(nodes, late));
    drop(locks.try_acquire("another").await.unwrap());
    locks
}

/// At one node the slots are taken otherwise than at the rest.
#[tokio::test(start_paused = true)]
async fn what_a_node_grants_beside_the_others_is_given_back() {
    for late in [Duration::ZERO, 20 * MS] {
        let nodes = Nodes::five();
        let locks = with_late_replies(&nodes.0, late).await;
        occupy(&nodes.0[0], place_of(0), 7, 3_600 * SECOND).await;
        let locks = locks.permits(2).unwrap();
        for _ in 0..20 {
            let one = locks.try_acquire("order").await.unwrap();
            let other = locks.try_acquire("order").await.unwrap();
            assert!(locks.try_acquire("order").await.is_err());
            sleep(SECOND).await;
            // A node has what is ours there, and nothing else.
            assert_eq!(slot(&one) + slot(&other), 1);
            let first = slots_on(&nodes.0[0]);
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
        occupy(&nodes.0[0], place_of(0), 7, 50 * MS).await;
        let guard = locks.try_acquire("order").await.unwrap();
        if slot(&guard) == 0 {
            break guard;
        }
        guard.release().await.unwrap();
        sleep(SECOND).await;
    };
    sleep(SECOND).await;
    assert_eq!(slots_on(&nodes.0[0]), ["lk!permit:order:0"]);
    assert_eq!(slots(&nodes), 5);
    drop(guard);
}

/// Whatever a node has granted whose reply does not come in time, it is free of it with the permit.
#[tokio::test(start_paused = true)]
async fn what_a_node_grants_without_a_reply_in_time_is_given_back_with_the_permit() {
    let (slow, never) = (150 * MS, 3_600 * SECOND);
    let (no_time, a_while) = (Duration::ZERO, SECOND);
    let cases = [
        (slow, no_time),
        (slow, a_while),
        (never, no_time),
        (never, a_while),
    ];
    for (back, held) in cases {
        let nodes = nodes(3);
        let locks = with_late_replies(&nodes, back).await;
        occupy(&nodes[1], place_of(0), 7, 3_600 * SECOND).await;
        occupy(&nodes[2], place_of(0), 7, 3_600 * SECOND).await;
        let permits = locks.permits(2).unwrap();
        for _ in 0..10 {
            let guard = permits.try_acquire("order").await.unwrap();
            assert_eq!(slot(&guard), 1);
            sleep(held).await;
            let _ = guard.release().await;
            sleep(SECOND).await;
            assert_eq!(slots_on(&nodes[0]), [""; 0], "{back:?} {held:?}");
        }
    }
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
async fn a_permit_is_of_one_key_and_there_are_1_to_256() {
    let (_nodes, [locks]) = five_met().await;
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
        let process = || over(nodes.clone()).groups(groups).instance("one");
        let (locks, operator) = (connected(process()).await, connected(process()).await);
        let (permits, operator) = (locks.permits(3).unwrap(), operator.permits(1).unwrap());
        let held = [
            permits.try_acquire("tenant:7").await.unwrap(),
            permits.try_acquire("tenant:7").await.unwrap(),
            permits.try_acquire("other").await.unwrap(),
        ];
        let _lock = locks.try_acquire("tenant:7").await.unwrap();
        let mut names = [0, 1].map(|n| format!("tenant:7:{}", slot(&held[n])));
        let name = names[0].clone();
        let list = operator.list("tenant:", 10).await;
        let mut keys: Vec<_> = list.locks.into_iter().map(|it| it.key).collect();
        keys.sort_unstable();
        names.sort();
        assert_eq!((&keys[..], list.more), (&names[..], false));

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
