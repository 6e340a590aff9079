//! Callers of several keys among crowds of others: they are not starved, and starve nobody.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};
use tower_redlock::LockManager;
use tower_redlock::clock::TokioClock;
use tower_redlock::config::HandOff;

use super::slow::Slow;
use super::{MS, Nodes, assert_idle};

const SECOND: Duration = Duration::from_secs(1);

/// A manager so far from the nodes.
pub(super) fn far(nodes: &Nodes, each_way: Duration) -> LockManager {
    let nodes = nodes.0.iter();
    let nodes = nodes.map(|node| Slow::node(node, each_way, each_way));
    let builder = LockManager::builder().nodes(nodes);
    builder.clock(TokioClock::new()).lazy().unwrap()
}

/// Callers of `locks` for each of these keys alone, three at a time, who hold it for so long each, until told to end.
struct Crowd {
    ends: Arc<AtomicBool>,
    callers: Vec<JoinHandle<usize>>,
}

impl Crowd {
    fn new(locks: &LockManager, holds: &[(&'static str, u64)]) -> Self {
        let ends: Arc<AtomicBool> = Arc::default();
        let mut callers = Vec::new();
        for &(key, hold) in holds.iter().flat_map(|hold| [hold; 3]) {
            let (locks, ends) = (locks.clone(), Arc::clone(&ends));
            callers.push(tokio::spawn(async move {
                let mut turns = 0;
                while !ends.load(Ordering::Relaxed) {
                    let guard = locks.acquire(key).await.unwrap();
                    sleep(Duration::from_micros(hold)).await;
                    drop(guard);
                    turns += 1;
                }
                turns
            }));
        }
        Self { ends, callers }
    }

    async fn end(self) -> usize {
        self.ends.store(true, Ordering::Relaxed);
        let mut turns = 0;
        for caller in self.callers {
            turns += caller.await.unwrap();
        }
        turns
    }
}

#[tokio::test(start_paused = true)]
async fn callers_of_several_keys_that_overlap_have_the_same_right() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let crowd = [("a", 9_000), ("b", 10_000), ("c", 3_000), ("d", 7_000)];
    let callers = Crowd::new(&locks, &crowd);
    let mut tasks = JoinSet::new();
    for names in ["a b", "b c", "a c d", "a b c d", "b d", "a b"] {
        let (locks, ends) = (locks.clone(), Arc::clone(&callers.ends));
        tasks.spawn(async move {
            let mut longest = Duration::ZERO;
            while !ends.load(Ordering::Relaxed) {
                let before = Instant::now();
                let guard = locks.acquire_all(names.split(' ')).await.unwrap();
                longest = longest.max(before.elapsed());
                sleep(10 * MS).await;
                drop(guard);
            }
            (names, longest)
        });
    }
    sleep(20 * SECOND).await;
    callers.end().await;
    while let Some(longest) = tasks.join_next().await {
        let (names, longest) = longest.unwrap();
        // Each comes after up to five others.
        assert!(longest <= (25 + 5) * 10 * MS, "{names}: {longest:?}");
    }
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn who_wants_several_has_them_after_twenty_times_the_longest_hold() {
    let crowds: [&[(&str, u64)]; 7] = [
        &[("a", 10_000), ("b", 10_000)],
        &[("a", 10_000), ("b", 7_300)],
        &[("a", 1_000), ("b", 50_000)],
        &[("a", 60_000), ("b", 2_000)],
        &[("a", 85_000), ("b", 83_000)],
        &[("a", 9_000), ("b", 11_000), ("c", 5_000)],
        &[
            ("a", 1_000),
            ("b", 19_000),
            ("c", 3_700),
            ("d", 13_000),
            ("e", 7_900),
        ],
    ];
    for crowd in crowds {
        let names: Vec<&str> = crowd.iter().map(|(key, _)| *key).collect();
        let longest = crowd.iter().map(|(_, hold)| *hold).max().unwrap();
        for (hand_off, far_away) in [
            (HandOff::OFF, false),
            (HandOff::default(), false),
            (HandOff::default(), true),
        ] {
            let nodes = Nodes::five();
            let locks = if far_away {
                far(&nodes, MS)
            } else {
                nodes.builder().hand_off(hand_off).lazy().unwrap()
            };
            let callers = Crowd::new(&locks, crowd);
            sleep(Duration::from_micros(3 * longest)).await;
            for _ in 0..5 {
                let before = Instant::now();
                let guard = locks.acquire_all(names.iter().copied()).await.unwrap();
                // Those before it, and what a claim and the nodes take.
                let most = 20 * (Duration::from_micros(longest) + 4 * MS);
                assert!(
                    before.elapsed() <= most,
                    "{crowd:?}: {:?}",
                    before.elapsed()
                );
                sleep(Duration::from_micros(longest)).await;
                drop(guard);
            }
            callers.end().await;
            sleep(10 * MS).await;
            assert_idle(&locks).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_for_pairs_of_which_one_is_always_in_use_slow_the_other_down_and_no_more() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    // One after the other holds `mine`, for longer than a key may be kept.
    let callers = Crowd::new(&locks, &[("mine", 130_000)]);
    let ends = Arc::clone(&callers.ends);
    let pairs: Vec<_> = (0..40)
        .map(|_| {
            let (locks, ends) = (locks.clone(), Arc::clone(&ends));
            tokio::spawn(async move {
                let mut turns = 0;
                while !ends.load(Ordering::Relaxed) {
                    let pair = locks.acquire_all(["mine", "victim"]).await;
                    turns += usize::from(pair.is_ok());
                }
                turns
            })
        })
        .collect();
    let (mut waits, began) = (Vec::new(), Instant::now());
    while began.elapsed() < 20 * SECOND {
        let before = Instant::now();
        let guard = locks.acquire("victim").await.unwrap();
        waits.push(before.elapsed());
        sleep(5 * MS).await;
        drop(guard);
    }
    let longest = waits.iter().max().unwrap();
    assert!(*longest < locks.node_timeout(), "{longest:?}");
    // A pair may have it kept for an eighth of the time that it has waited.
    let in_all: Duration = waits.iter().sum();
    assert!(in_all <= began.elapsed() / 8, "{in_all:?}");
    callers.end().await;
    let mut turns = 0;
    for pair in pairs {
        turns += pair.await.unwrap();
    }
    assert!(turns >= 100, "{turns} pairs had their turn");
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_key_keep_their_order_around_those_who_want_more() {
    for hand_off in [HandOff::OFF, HandOff::default()] {
        let nodes = Nodes::five();
        let locks = nodes.builder().hand_off(hand_off).lazy().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let held = [
            locks.try_acquire("a").await.unwrap(),
            locks.try_acquire("b").await.unwrap(),
        ];
        let mut waiters = Vec::new();
        for number in 0..30 {
            let keys: &[&str] = match number % 3 {
                0 => &["a"],
                1 => &["b"],
                _ => &["a", "b"],
            };
            let (locks, order) = (locks.clone(), Arc::clone(&order));
            waiters.push(tokio::spawn(async move {
                let _guard = locks.acquire_all(keys.iter().copied()).await.unwrap();
                order.lock().unwrap().push(number);
                sleep((1 + number % 4) * MS).await;
            }));
            tokio::task::yield_now().await;
        }
        drop(held);
        for waiter in waiters {
            waiter.await.unwrap();
        }
        let order = order.lock().unwrap();
        for kind in 0..2 {
            let mut of_kind: Vec<u32> = order.clone();
            of_kind.retain(|number| number % 3 == kind);
            assert!(of_kind.is_sorted(), "{of_kind:?}");
        }
        assert_eq!(order.len(), 30);
    }
}
