//! Nodes in groups: what is left of a manager, and what all groups together say.

use super::groups::{grouped, keys, two_groups};
use super::*;

/// What is left of a manager must see that a node serves another list, in its own group and in another.
#[tokio::test(start_paused = true)]
async fn a_guard_that_outlives_its_manager_is_lost_once_a_node_serves_others() {
    for groups in [1, 2] {
        let nodes = Nodes::of(6);
        let builder = nodes.builder().groups(groups).max_hold(600 * SECOND);
        let locks = connected(builder).await;
        let key = match groups {
            1 => "order:1".to_owned(),
            _ => keys(&locks, &nodes).await[1].clone(),
        };
        let guard = locks.try_acquire(key.as_str()).await.unwrap();
        drop(locks);
        let other = lazy(over(nodes.0[..3].to_vec()));
        other.adopt_nodes(None).await.unwrap();
        let second = other.try_acquire(key).await.unwrap();
        assert!(guard.is_lost(), "{guard:?} beside {second:?}");
    }
}

/// Whoever restarts servers one after the other goes on when this says so.
#[tokio::test(start_paused = true)]
async fn all_nodes_of_all_groups_vote_at_the_same_time() {
    for groups in [1, 2] {
        let nodes = Nodes::of(6);
        let locks = connected(nodes.builder().groups(groups)).await;
        nodes.0[4].forget();
        let waiting = locks.clone();
        let wait = tokio::spawn(async move { waiting.all_voting().await });
        sleep(2 * SECOND).await;
        nodes.0[0].go_down();
        sleep(3 * TTL).await;
        let verdict = locks.snapshot().verdict;
        assert!(!wait.is_finished(), "{groups}: {verdict}");
        nodes.0[0].come_up();
        wait.await.unwrap().unwrap();
    }
}

/// A node that left another list keeps all groups from granting, for a time that is known: it is worth the wait.
#[tokio::test(start_paused = true)]
async fn who_adopts_nodes_waits_for_one_of_any_group_that_has_left_others() {
    for (groups, left) in [(1, 4), (2, 1), (2, 4)] {
        let nodes = Nodes::of(6);
        let locks = connected(nodes.builder().groups(groups)).await;
        let one = Nodes(vec![nodes.0[left].clone()]);
        let other = lazy(one.builder());
        other.adopt_nodes(None).await.unwrap();
        sleep(2 * SECOND).await;
        drop(other);
        nodes.0[left].forget();
        sleep(2 * SECOND).await;
        let adopted = locks.adopt_nodes(None).await;
        adopted.unwrap_or_else(|error| panic!("n{left} in {groups} groups: {error}"));
        drop(locks.try_acquire("order:1").await.unwrap());
    }
}

#[test]
fn a_lock_of_the_second_group_is_lost_with_the_runtime() {
    let first = paused();
    let (locks, guards) = first.block_on(async {
        let (_nodes, locks, [one, two]) = grouped().await;
        let guards = [
            locks.try_acquire(one).await.unwrap(),
            locks.try_acquire(two).await.unwrap(),
        ];
        (locks, guards)
    });
    drop(first);
    assert!(guards.iter().all(|guard| guard.is_lost()));
    let error = paused().block_on(locks.try_acquire("order:1")).unwrap_err();
    assert_eq!(error, AcquireError::ShuttingDown);
    drop(guards);
}

/// Its bounds are those of the process.
#[tokio::test(start_paused = true)]
async fn all_groups_have_one_queue() {
    let nodes = Nodes::of(6);
    let locks = connected(two_groups(&nodes).max_waiters(1)).await;
    let [here, there] = keys(&locks, &nodes).await;
    let _guards = [
        locks.try_acquire(here.as_str()).await.unwrap(),
        locks.try_acquire(there.as_str()).await.unwrap(),
    ];
    let waiting = locks.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(here).await });
    sleep(MS).await;
    let error = locks.acquire(there.as_str()).await.unwrap_err();
    let is_full = matches!(
        error,
        AcquireError::QueueFull {
            limit: 1,
            of_key: false,
            ..
        }
    );
    assert!(is_full, "{error:?}");
    waiter.abort();
}

/// Without the first group it is known that nodes of the second have accepted the list, for they vote.
#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_reach_the_first_group_locks_in_the_second() {
    let (nodes, locks, [here, there]) = grouped().await;
    let process = Process::on(&nodes.0);
    process.0[..3].iter().for_each(Link::cut);
    let far = lazy(process.builder().ttl(TTL).groups(2));
    let begin = Instant::now();
    let guard = far.try_acquire(there.as_str()).await.unwrap();
    assert!(begin.elapsed() < 2 * SECOND, "{:?}", begin.elapsed());
    assert!(locks.try_acquire(there.as_str()).await.is_err());
    assert!(far.try_acquire(here.as_str()).await.is_err());
    let report = far.shutdown(SECOND).await;
    assert!(guard.is_lost() && report.lost == 1, "{report:?}");
}

/// A process and its ways to its nodes.
struct One {
    process: Process,
    locks: LockManager,
}

fn start(nodes: &[MemoryNode], groups: usize) -> One {
    let process = Process::on(nodes);
    let settings = process.builder().ttl(TTL).max_hold(600 * SECOND);
    let locks = lazy(settings.groups(groups));
    One { process, locks }
}

/// What was granted so far: no key has two holders, and fencing tokens grow.
#[derive(Default)]
struct Granted {
    held: Vec<(usize, LockGuard)>,
    fences: [Option<FencingToken>; KEYS],
    count: usize,
}

const KEYS: usize = 4;

impl Granted {
    async fn try_each(&mut self, dice: &mut Rng, processes: &[One]) {
        for key in 0..KEYS {
            let who = &processes[dice.usize(..processes.len())].locks;
            if let Ok(guard) = who.try_acquire(format!("order:{key}")).await {
                assert!(guard.fence() > self.fences[key], "{guard:?}");
                self.fences[key] = guard.fence();
                self.count += 1;
                self.held.push((key, guard));
            }
        }
    }

    fn look(&mut self, seed: u64) {
        self.held.retain(|(_, guard)| !guard.is_lost());
        for key in 0..KEYS {
            let holders = self.held.iter().filter(|(other, _)| *other == key);
            assert!(holders.count() <= 1, "seed {seed}: {:?}", self.held);
        }
    }
}

/// Processes that come and go and are cut off, groups that forget.
#[tokio::test(start_paused = true)]
async fn no_key_has_two_holders_whatever_groups_forget_and_processes_reach() {
    let mut granted = 0;
    for seed in 1..=8 {
        let nodes = Nodes::of(6);
        let mut dice = Rng::with_seed(seed);
        let mut all: Vec<One> = (0..3).map(|_| start(&nodes.0, 2)).collect();
        all[0].locks.bootstrap().await.unwrap();
        let mut now = Granted::default();
        for _ in 0..80 {
            let (who, group) = (dice.usize(..3), dice.usize(..2) * 3);
            match dice.usize(..12) {
                cut @ (0 | 1) => {
                    let links = &all[who].process.0[group..group + 3 - cut];
                    links.iter().for_each(Link::cut);
                }
                2..=4 => all[who].process.0.iter().for_each(Link::mend),
                5 => nodes.each(group..group + 3, MemoryNode::forget),
                6 => nodes.0[dice.usize(..6)].forget(),
                // Its guards stay.
                7 => all[who] = start(&nodes.0, 2),
                8 => nodes.each(group..group + 2, MemoryNode::go_down),
                9 | 10 => nodes.each(0..6, MemoryNode::come_up),
                _ => now.held.retain(|_| dice.usize(..2) == 0),
            }
            now.try_each(&mut dice, &all).await;
            sleep(MS * dice.u32(..4_000)).await;
            now.look(seed);
        }
        granted += now.count;
    }
    assert!(granted > 100, "{granted}");
}
