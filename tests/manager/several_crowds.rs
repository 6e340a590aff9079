//! Callers of several keys among crowds of others: they hold nobody up, and have their turn when all keys are free.

use super::*;

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
async fn waiters_for_pairs_of_which_one_is_always_in_use_do_not_slow_the_other_down() {
    let (_nodes, [locks]) = five();
    // One after the other holds `mine`.
    let callers = Crowd::new(&locks, &[("mine", 130_000)]);
    let ends = Arc::clone(&callers.ends);
    let pairs: Vec<_> = (0..40)
        .map(|_| {
            let (locks, ends) = (locks.clone(), Arc::clone(&ends));
            tokio::spawn(async move {
                loop {
                    let pair = locks.acquire(["mine", "victim"]).await;
                    // Both are free in the end: then each has its turn.
                    if ends.load(Ordering::Relaxed) {
                        return drop(pair.unwrap());
                    }
                }
            })
        })
        .collect();
    let began = Instant::now();
    while began.elapsed() < 18 * SECOND {
        let before = Instant::now();
        let guard = locks.acquire("victim").await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO);
        sleep(5 * MS).await;
        drop(guard);
    }
    callers.end().await;
    for pair in pairs {
        pair.await.unwrap();
    }
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_key_keep_their_order_around_those_who_want_more() {
    for hand_off in [false, true] {
        let nodes = Nodes::five();
        let locks = lazy(nodes.builder().hand_off(hand_off));
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
                let _guard = locks.acquire(keys).await.unwrap();
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
