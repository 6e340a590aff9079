//! Nodes in groups: each key is locked on the nodes of its group alone, and all groups belong to one list.

use super::*;

/// Two groups of three.
pub(super) fn two_groups(nodes: &Nodes) -> Settings {
    nodes.builder().groups(2)
}

/// On how many nodes of each group a key is.
fn on(nodes: &Nodes, key: &str) -> [usize; 2] {
    let holds = |node: &&MemoryNode| node.holder(&format!("lk:{key}")).is_some();
    [&nodes.0[..3], &nodes.0[3..]].map(|group| group.iter().filter(holds).count())
}

/// A key of each group.
pub(super) async fn keys(locks: &LockManager, nodes: &Nodes) -> [String; 2] {
    let mut found = [None, None];
    for number in 0..64 {
        let key = format!("order:{number}");
        let guard = locks.try_acquire(key.as_str()).await.unwrap();
        let everywhere = |nodes: &Nodes| on(nodes, &key).contains(&3);
        nodes.settle("on all of a group", everywhere).await;
        let group = on(nodes, &key).iter().position(|count| *count == 3);
        assert_eq!(on(nodes, &key).iter().sum::<usize>(), 3, "in one alone");
        drop(guard);
        nodes.settle_free(&key).await;
        found[group.unwrap()].get_or_insert(key);
    }
    found.map(Option::unwrap)
}

/// Six nodes in two groups, a manager over them, and a key of each group.
pub(super) async fn grouped() -> (Nodes, LockManager, [String; 2]) {
    let nodes = Nodes::of(6);
    let locks = connected(two_groups(&nodes)).await;
    let keys = keys(&locks, &nodes).await;
    (nodes, locks, keys)
}

#[tokio::test(start_paused = true)]
async fn a_group_without_a_quorum_refuses_its_own_keys_alone() {
    let (nodes, locks, [here, there]) = grouped().await;
    assert!(locks.has_quorum());
    nodes.each([4, 5], MemoryNode::go_down);
    let text = no_quorum(&locks, &there).await.to_string();
    assert!(text.contains("1 of 3") || text.contains("2 of 3"), "{text}");
    assert!(text.contains("n4") && !text.contains("n0"), "{text}");
    drop(locks.try_acquire(here.as_str()).await.unwrap());
    let snapshot = locks.snapshot();
    assert!(!locks.has_quorum() && !snapshot.has_quorum);
    let verdict = &snapshot.verdict;
    let says = "group 2 of 2: quorum: 1 of 3 vote";
    assert!(verdict.starts_with(says), "{verdict}");
    assert_eq!(snapshot.nodes.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn locks_of_all_groups_are_extended_handed_on_told_of_and_released_at_the_end() {
    let (nodes, locks, pair) = grouped().await;
    let mut guards = Vec::new();
    for key in &pair {
        guards.push(locks.try_acquire(key.as_str()).await.unwrap());
    }
    sleep(2 * TTL).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    let snapshot = locks.snapshot();
    assert_eq!((snapshot.held, snapshot.locks.len()), (2, 2));
    assert!(snapshot.fences_agreed + snapshot.fences_written_back >= 2);
    let list = locks.list("order:", 10).await;
    let listed: Vec<&str> = list.locks.iter().map(|lock| &*lock.key).collect();
    let mut sorted: Vec<&str> = pair.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    assert_eq!(listed, sorted);
    assert!(!list.more && locks.list("order:", 1).await.more);
    for (key, guard) in pair.iter().zip(&guards) {
        let seen = locks.holders(key).await.unwrap();
        let fence = seen.holder().unwrap().fence;
        assert_eq!((seen.nodes.len(), fence), (3, guard.fence()));
    }
    // A waiter gets the lock of the first with it.
    let (waiting, key) = (locks.clone(), pair[1].clone());
    let waiter = tokio::spawn(async move { waiting.acquire(key).await.unwrap().fence() });
    sleep(MS).await;
    let before = guards[1].fence();
    drop(guards.pop());
    assert!(waiter.await.unwrap() > before);
    let report = locks.shutdown(Duration::ZERO).await;
    assert_eq!((report.lost, report.held), (1, 1));
    assert!(guards.pop().unwrap().is_lost());
    nodes.settle_free(&pair[0]).await;
    nodes.settle_free(&pair[1]).await;
    for key in &pair {
        let error = locks.try_acquire(key.as_str()).await.unwrap_err();
        assert_eq!(error, AcquireError::ShuttingDown);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_with_one_text_in_braces_are_in_one_group() {
    let (nodes, locks, [here, there]) = grouped().await;
    for number in 0..16 {
        let keys = ["cart", "stock"].map(|part| format!("{{shop-{number}}}:{part}"));
        let both = keys.each_ref().map(String::as_str);
        let guard = locks.try_acquire(both).await.unwrap();
        let has_it = |nodes: &Nodes| on(nodes, &keys[0]).contains(&3);
        nodes.settle("all of a group", has_it).await;
        assert_eq!(on(&nodes, &keys[0]), on(&nodes, &keys[1]));
        drop(guard);
    }
    // Parts of one piece of work may have locks in several.
    let scope = LockScope::new();
    let lock = |key: &String| LockKey::new(key).unwrap();
    let mut order = [lock(&here), lock(&there)];
    order.sort();
    let [first, second] = order;
    let outer = locks.acquire_in(&scope, first.into(), TTL).await.unwrap();
    let inner = locks
        .acquire_in(&scope, second.clone().into(), TTL)
        .await
        .unwrap();
    let again = locks.acquire_in(&scope, second.into(), TTL).await.unwrap();
    assert_eq!(inner.fence(), again.fence());
    drop((inner, outer));
    assert!(!again.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_lock_on_keys_of_several_groups_is_one_for_its_holder() {
    let (nodes, locks, pair) = grouped().await;
    let both = [pair[0].as_str(), &pair[1]];
    let names = both.map(|key| LockKey::new(key).unwrap());
    let guard = locks.try_acquire(both).await.unwrap();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(guard.keys(), sorted);
    // No number is above those of both counters.
    assert_eq!(guard.fence(), None);
    let fences = names.each_ref().map(|key| guard.fence_of(key));
    let owners = names.each_ref().map(|key| guard.owner_hash_of(key));
    assert!(owners[0] != owners[1] && owners.contains(&Some(guard.owner_hash())));
    for key in &pair {
        assert!(locks.try_acquire(key.as_str()).await.is_err());
    }
    sleep(3 * TTL).await;
    assert!(!guard.is_lost() && guard.remaining() > TTL / 2);
    // A further guard has both, too.
    let more = guard.reenter().unwrap();
    guard.release().await.unwrap();
    assert!(!more.is_lost());
    assert!(locks.try_acquire(both[1]).await.is_err());
    drop(more);
    for (key, name, fence) in [
        (both[0], &names[0], fences[0]),
        (both[1], &names[1], fences[1]),
    ] {
        nodes.settle_free(key).await;
        let alone = locks.try_acquire(key).await.unwrap();
        assert!(alone.fence() > fence && alone.fence_of(name) == alone.fence());
    }
    assert_idle(&locks).await;
}

/// Whichever group it is: the other one's lock ends with it.
#[tokio::test(start_paused = true)]
async fn a_lock_on_keys_of_several_groups_is_lost_with_one_of_them() {
    for group in [0..3, 3..6] {
        let (nodes, locks, pair) = grouped().await;
        let both = [pair[0].as_str(), &pair[1]];
        let guard = locks.try_acquire(both).await.unwrap();
        nodes.each(group, MemoryNode::go_down);
        assert_eq!(guard.lost().await, LossReason::Expired);
        // It tells so a little before.
        sleep(TTL).await;
        assert!(guard.is_lost() && guard.remaining().is_zero());
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Lost(_)), "{error:?}");
    }
}

/// A group that does not answer keeps the other one's key no longer.
#[tokio::test(start_paused = true)]
async fn a_lock_on_keys_of_several_groups_is_released_in_all_at_once() {
    for frozen in [0, 1] {
        let (nodes, locks, pair) = grouped().await;
        let both = [pair[0].as_str(), &pair[1]];
        let guard = locks.try_acquire(both).await.unwrap();
        let group = 3 * frozen..3 * frozen + 3;
        nodes.each(group.clone(), MemoryNode::freeze);
        let began = Instant::now();
        let mut releasing = Box::pin(guard.release());
        assert!(timeout(MS, &mut releasing).await.is_err());
        assert_eq!(on(&nodes, &pair[1 - frozen]), [0, 0]);
        assert_unconfirmed(&releasing.await);
        assert!(began.elapsed() <= locks.node_timeout() + MS);
        nodes.each(group, MemoryNode::thaw);
    }
}

/// All or none in the end, in time, and in no circle: each holds one while it waits for the other.
#[tokio::test(start_paused = true)]
async fn locks_on_keys_of_several_groups_wait_in_one_order() {
    let (nodes, locks, pair) = grouped().await;
    let [first, last] = [pair.iter().min().unwrap(), pair.iter().max().unwrap()];
    let held = locks.try_acquire(last.as_str()).await.unwrap();
    let began = Instant::now();
    assert_timed_out(locks.with_max_wait(TTL / 5).acquire([&**last, first]).await);
    assert_eq!(began.elapsed(), TTL / 5);
    nodes.settle_free(first).await;
    drop(held);
    let (other, scope) = (connected(two_groups(&nodes)).await, LockScope::new());
    let name = |key: &str| LockKey::new(key).unwrap().into();
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let locks = if task % 2 == 0 { &locks } else { &other };
        let (locks, first, last) = (locks.clone(), first.clone(), last.clone());
        let wait = 600 * TTL;
        tasks.spawn(async move {
            let locks = locks.with_max_wait(wait);
            let keys = [&*last, &*first];
            for _ in 0..10 {
                let guard = locks.acquire(keys).await.unwrap();
                sleep(MS).await;
                assert!(!guard.is_lost());
                drop(guard);
                let scope = LockScope::new();
                let one = locks.acquire_in(&scope, name(&first), wait).await.unwrap();
                let two = locks.acquire_in(&scope, name(&last), wait).await.unwrap();
                drop((one, two));
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    // In a scope that has one of them, the guard is of both.
    let one = locks.acquire_in(&scope, name(first), TTL).await.unwrap();
    let keys = LockKeys::new([&**first, last]).unwrap();
    let both = locks.acquire_in(&scope, keys, TTL).await.unwrap();
    assert_eq!(both.keys().len(), 2);
    drop(one);
    assert!(!both.is_lost());
    nodes.each(0..6, MemoryNode::go_down);
    assert_eq!(both.lost().await, LossReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn other_groups_are_another_list() {
    let nodes = Nodes::of(6);
    let locks = connected(two_groups(&nodes)).await;
    let text = "[format 2; nodes n0, n1, n2 | n3, n4, n5 (it is in group ";
    let ordered = |order: [usize; 6]| Nodes(order.map(|n| nodes.0[n].clone()).to_vec());
    let turned = ordered([3, 4, 5, 0, 1, 2]);
    for other in [
        nodes.builder(),
        nodes.builder().groups(3),
        two_groups(&turned),
    ] {
        let error = other.connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::Misconfigured(_)), "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
    }
    // The order in a group is no difference.
    let same = ordered([2, 0, 1, 5, 4, 3]);
    let same = connected(two_groups(&same)).await;
    let guard = locks.try_acquire("order:1").await.unwrap();
    assert!(same.try_acquire("order:1").await.is_err());
    drop(guard);
}

/// Otherwise those of the other list could have a key in the other group.
#[tokio::test(start_paused = true)]
async fn one_node_that_serves_another_list_keeps_all_groups_from_granting_and_extending() {
    let (nodes, locks, [_, there]) = grouped().await;
    let guard = locks.try_acquire(there.as_str()).await.unwrap();
    let one = Nodes(vec![nodes.0[0].clone()]);
    let other = lazy(one.builder());
    let begin = Instant::now();
    other.adopt_nodes(None).await.unwrap();
    assert!(begin.elapsed() >= TTL, "its locks may be held until then");
    let text = no_quorum(&locks, &there).await.to_string();
    assert!(text.contains("n0 (it serves processes"), "{text}");
    assert!(guard.is_lost(), "it was not extended");
    locks.adopt_nodes(None).await.unwrap();
    drop(locks.try_acquire(there.as_str()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_list_one_group_of_which_was_never_reached_grants_nothing() {
    let nodes = Nodes::of(6);
    nodes.each(0..3, MemoryNode::go_down);
    let locks = lazy(two_groups(&nodes));
    sleep(4 * TTL).await;
    nodes.each(0..6, MemoryNode::forget);
    sleep(4 * TTL).await;
    for number in 0..8 {
        no_quorum(&locks, &format!("order:{number}")).await;
    }
    nodes.each(0..3, MemoryNode::come_up);
    locks.all_voting().await.unwrap();
    keys(&locks, &nodes).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_forgot_is_quarantined_beside_the_others() {
    let (nodes, locks, [here, there]) = grouped().await;
    let guard = locks.try_acquire(there.as_str()).await.unwrap();
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    nodes.each(3..6, MemoryNode::forget);
    let other = lazy(two_groups(&nodes));
    let (begin, mut told) = (Instant::now(), false);
    let next = loop {
        drop(other.try_acquire(here.as_str()).await.unwrap());
        match other.try_acquire(there.as_str()).await {
            Ok(guard) => break guard,
            Err(AcquireError::NoQuorum(_)) => sleep(50 * MS).await,
            Err(error) => panic!("{error:?}"),
        }
        let forgot = |standing: &VotingStatus| match standing {
            VotingStatus::Quarantined { remembered, .. } => !remembered,
            _ => false,
        };
        let snapshot = other.snapshot();
        let found = snapshot.nodes.iter().position(|node| forgot(&node.voting));
        assert!(found.is_none_or(|node| node >= 3), "{snapshot:?}");
        told |= found.is_some();
        assert!(begin.elapsed() < 3 * TTL);
    };
    assert!(begin.elapsed() >= TTL, "{:?}", begin.elapsed());
    assert!(told, "only their own clock tells how fencing tokens go on");
    assert!(next.fence().unwrap() > fence);
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_request_has_its_response_in_its_group() {
    let nodes = Nodes::of(6);
    let locks = connected(two_groups(&nodes)).await;
    for number in 0..8 {
        let key = || format!("invoice:{number}");
        let begin = || locks.begin_idempotent(key(), TTL * 8, TTL);
        let run = to_run(begin().await);
        let name = format!("lk!idem:{}", key());
        let has = |node: &&MemoryNode| node.keys().contains(&name);
        let count =
            |nodes: &Nodes| [&nodes.0[..3], &nodes.0[3..]].map(|it| it.iter().filter(has).count());
        nodes
            .settle("in one group", |nodes| count(nodes).contains(&3))
            .await;
        assert!(count(&nodes).contains(&0));
        run.complete("sent").await.unwrap();
        assert_eq!(replayed(begin().await), "sent");
    }
}
