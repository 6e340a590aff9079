//! Thousands of waiters in one process, over a thousand keys: do all get their turn, how late, and what does one
//! that waits weigh?

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockGuard, LockManager};

use crate::clock::{millis, now};
use crate::measure::Spread;
use crate::support::server::{Kind, Server};

const KEYS: usize = 1_000;
const WAITERS: usize = 8;
/// How long they are left to wait before the keys are released.
const REST: Duration = Duration::from_millis(1_500);
/// How long they have for their turns then.
const PATIENCE: Duration = Duration::from_secs(15);

/// Those who wait: each gives the number of its key, and when it had its turn.
type Waiters = JoinSet<Result<(usize, u64), String>>;

pub(crate) fn run(runtime: &Runtime) {
    println!(
        "\n1 process, {KEYS} keys x {WAITERS} waiters; all keys are held elsewhere, then released at once"
    );
    println!("It shows that nobody is left behind, and what a waiter weighs while it waits.");
    println!(
        "`bytes`: live on the heap per waiter, its task included; `late`: from the release of its key to its turn, in\n\
         ms; `all`: from the first release to the last turn.\n"
    );
    println!(
        "{:28} {:>7} {:>9} | {:>10} | {:>8} {:>8} {:>8} {:>8}",
        "", "bytes", "x Mutex", "turns", "late p50", "p99", "max", "all"
    );
    let base = mutexes(runtime);
    let nodes: Vec<_> = (0..5)
        .map(|n| MemoryNode::new(format!("memory-{n}")))
        .collect();
    let connect = || async {
        let builder = LockManager::builder().nodes(nodes.clone());
        builder.max_wait(REST + PATIENCE).connect().await.unwrap()
    };
    managers(runtime, "tower-redlock, 5 memory nodes", base, connect);
    let servers = Server::start_many(Kind::Redis, 5);
    let connect = || async {
        let builder = LockManager::builder()
            .bootstrap(true)
            .redis(servers.iter().map(Server::url));
        builder.max_wait(REST + PATIENCE).connect().await.unwrap()
    };
    managers(runtime, "tower-redlock, 5 servers", base, connect);
}

/// The floor: a mutex of tokio for every key. Returns what a waiter weighs.
fn mutexes(runtime: &Runtime) -> f64 {
    let mutexes: Vec<Arc<Mutex<()>>> = (0..KEYS).map(|_| Arc::default()).collect();
    let held: Vec<_> = mutexes
        .iter()
        .map(|mutex| Arc::clone(mutex).try_lock_owned().unwrap())
        .collect();
    let (weight, waiters) = weigh(runtime, |index| {
        let mutex = Arc::clone(&mutexes[index]);
        async move {
            let _guard = mutex.lock().await;
            Ok((index, now()))
        }
    });
    let (released, turns) = runtime.block_on(async {
        let released = held.into_iter().map(|guard| {
            let released = now();
            drop(guard);
            released
        });
        let released: Vec<u64> = released.collect();
        (released, collect(waiters).await)
    });
    print("tokio Mutex (floor)", weight, weight, &released, turns);
    weight
}

fn managers<F: Future<Output = LockManager>>(
    runtime: &Runtime,
    name: &str,
    base: f64,
    connect: impl Fn() -> F,
) {
    let (elsewhere, here) = runtime.block_on(async { (connect().await, connect().await) });
    let held: Vec<LockGuard> = runtime.block_on(async {
        let mut held = Vec::with_capacity(KEYS);
        for index in 0..KEYS {
            held.push(elsewhere.acquire(key(index)).await.unwrap());
        }
        held
    });
    let (weight, waiters) = weigh(runtime, |index| {
        let locks = here.clone();
        async move {
            let guard = locks.acquire(key(index)).await.map_err(|e| e.to_string())?;
            let turn = now();
            // It had its turn, whatever becomes of the release.
            let _ = guard.release().await;
            Ok((index, turn))
        }
    });
    let (released, turns) = runtime.block_on(async {
        let mut released = Vec::with_capacity(KEYS);
        let mut releases = JoinSet::new();
        for guard in held {
            released.push(now());
            releases.spawn(guard.release());
        }
        let turns = collect(waiters).await;
        releases.join_all().await;
        (released, turns)
    });
    print(name, weight, base, &released, turns);
}

fn key(index: usize) -> String {
    format!("bench:herd:{index}")
}

/// Lets them all wait. Returns what one of them weighs by then, in bytes.
fn weigh<F>(runtime: &Runtime, waiter: impl Fn(usize) -> F) -> (f64, Waiters)
where
    F: Future<Output = Result<(usize, u64), String>> + Send + 'static,
{
    let mut waiters = JoinSet::new();
    // The runtime has one thread, this one, and only this one is counted.
    let info = allocation_counter::measure(|| {
        runtime.block_on(async {
            for _ in 0..WAITERS {
                for index in 0..KEYS {
                    waiters.spawn(waiter(index));
                }
            }
            sleep(REST).await;
        });
    });
    #[allow(clippy::cast_precision_loss, reason = "some megabytes")]
    let weight = info.bytes_current as f64 / (KEYS * WAITERS) as f64;
    (weight, waiters)
}

/// Those who had a turn in time, and the first reason of those who had none.
async fn collect(mut waiters: Waiters) -> (Vec<(usize, u64)>, Option<String>) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let (mut turns, mut reason) = (Vec::new(), None);
    while let Ok(Some(turn)) = timeout_at(deadline, waiters.join_next()).await {
        match turn.unwrap() {
            Ok(turn) => turns.push(turn),
            Err(error) => reason = reason.or(Some(error)),
        }
    }
    let left = waiters.len();
    if left > 0 {
        reason = reason.or(Some(format!("{left} still waiting after {PATIENCE:?}")));
    }
    (turns, reason)
}

fn print(
    name: &str,
    weight: f64,
    base: f64,
    released: &[u64],
    (turns, reason): (Vec<(usize, u64)>, Option<String>),
) {
    let late = turns
        .iter()
        .map(|(index, turn)| millis(released[*index], *turn));
    let late = Spread::of(late.collect());
    let last = turns
        .iter()
        .map(|(_, turn)| *turn)
        .max()
        .unwrap_or_default();
    print!(
        "{name:28} {weight:>7.0} {:>9.1} | {:>5}/{} |",
        weight / base,
        turns.len(),
        KEYS * WAITERS
    );
    if turns.is_empty() {
        println!(" nobody");
    } else {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| late.part(part));
        let all = millis(released[0], last);
        println!(" {p50:>8.1} {p99:>8.1} {max:>8.1} {all:>8.1}");
    }
    if let Some(reason) = reason {
        println!("{:28} the first without a turn: {reason}", "");
    }
}
