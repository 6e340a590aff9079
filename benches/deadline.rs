//! How well is `max_wait` kept while the processors are busy with something else?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::task::JoinSet;
use tower_redlock::{AcquireError, LockManager};

use crate::clock::{millis, nanos, now};
use crate::measure::Spread;
use crate::support::server::{Kind, Server};

const WAITERS: u64 = 200;
const TURNS: usize = 5;
const KEY: &str = "bench:deadline";

/// Threads that do nothing but burn, as many as there are processors. They end with this value.
struct Load(Arc<AtomicBool>);

impl Load {
    fn start() -> Self {
        let running = Arc::new(AtomicBool::new(true));
        let count = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..count {
            let running = Arc::clone(&running);
            thread::spawn(move || {
                while running.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(running)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

pub(crate) async fn run() {
    let servers = Server::start_many(Kind::Redis, 5);
    let connect = async || {
        let builder = LockManager::builder()
            .bootstrap(true)
            .redis(servers.iter().map(Server::url));
        // Room for them all.
        builder.max_waiters_per_key(1_000).connect().await.unwrap()
    };
    let (elsewhere, here) = (connect().await, connect().await);
    let guard = elsewhere.acquire(KEY).await.unwrap();
    println!(
        "\n{WAITERS} waiters on a held key, each with a max_wait of 50 to 250 ms, 5 nodes, {TURNS} turns"
    );
    println!(
        "It shows how much later than asked for a waiter is sent away: the wait less its max_wait, in ms.\n"
    );
    println!(
        "{:40} {:>8} {:>8} {:>8} {:>8} | {:>9} | {:>9}",
        "", "min", "p50", "p99", "max", "p99 x", "other end"
    );
    for loaded in [false, true] {
        let load = loaded.then(Load::start);
        let [mut floor, mut ours] = [Vec::new(), Vec::new()];
        let mut other = 0;
        for _ in 0..TURNS {
            let lates = at_once(|wait| async move {
                tokio::time::sleep(wait).await;
                true
            });
            floor.extend(lates.await.into_iter().map(|(late, _)| late));
            let lates = at_once(|wait| {
                let locks = here.clone();
                async move {
                    let outcome = locks.with_max_wait(wait).acquire(KEY).await;
                    matches!(outcome, Err(AcquireError::WaitTimeout { .. }))
                }
            });
            for (late, as_due) in lates.await {
                other += usize::from(!as_due);
                ours.push(late);
            }
        }
        drop(load);
        let with = if loaded {
            "all processors busy"
        } else {
            "idle"
        };
        let (floor, ours) = (Spread::of(floor), Spread::of(ours));
        print(&format!("tokio sleep (floor), {with}"), &floor, &floor, 0);
        print(&format!("tower-redlock, {with}"), &ours, &floor, other);
    }
    // The servers end with this function, whatever became of it.
    let _ = guard.release().await;
}

/// One wait for each of the waiters: how late it ended, and whether as it had to.
async fn at_once<F>(wait: impl Fn(Duration) -> F) -> Vec<(f64, bool)>
where
    F: Future<Output = bool> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for number in 0..WAITERS {
        let length = Duration::from_millis(50 + 200 * number / (WAITERS - 1));
        let work = wait(length);
        tasks.spawn(async move {
            let due = now() + nanos(length);
            let as_due = work.await;
            (millis(due, now()), as_due)
        });
    }
    tasks.join_all().await
}

fn print(name: &str, spread: &Spread, floor: &Spread, other: usize) {
    let [min, p50, p99, max] = [0.0, 0.5, 0.99, 1.0].map(|part| spread.part(part));
    let ratio = p99 / floor.part(0.99);
    println!("{name:40} {min:>8.2} {p50:>8.2} {p99:>8.2} {max:>8.2} | {ratio:>9.2} | {other:>9}");
}
