//! The part of a process that takes locks, and counts what it has done under them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_redlock::{LockGuard, LockManager};

use super::counters::{Counters, Holder};
use super::part::{KEYS, Part};
use crate::clients::hold;
use crate::dice::{chance, millis};
use crate::order::Acquisition;
use crate::support::clocks::raw_now;
use crate::support::role;

/// Under which name the harness knows this part.
pub(crate) const TEST: &str = "processes::contender::plays_its_part";
/// From then on, locks are held briefly.
pub(crate) const BRIEF: &str = "brief";
/// From then on, and at first, some of them are held for long.
pub(crate) const LONG: &str = "long";
/// How many callers a process has.
pub(crate) const TASKS: usize = 2;

/// Nothing, unless this process was started to take locks.
#[tokio::test]
async fn plays_its_part() {
    let Some(part) = role::role::<Part>() else {
        return;
    };
    // Whatever it is cut off from, it begins.
    let locks = part.settings.builder(&part.ways).connect_lazy().unwrap();
    let caller = Caller {
        locks,
        counters: Counters::open(&part.database),
        part: Arc::new(part),
        brief: Arc::default(),
        stop: Arc::default(),
    };
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(caller.clone().contend(task));
    }
    let mut lines = role::orders();
    while let Some(line) = lines.next_line().await.unwrap() {
        assert!([BRIEF, LONG].contains(&line.as_str()), "what is {line}?");
        caller.brief.store(line == BRIEF, Ordering::SeqCst);
    }
    // The parent has ended, or is done.
    caller.stop.store(true, Ordering::SeqCst);
    tasks.join_all().await;
}

#[derive(Clone)]
struct Caller {
    locks: LockManager,
    counters: Counters,
    part: Arc<Part>,
    brief: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Caller {
    async fn contend(self, task: usize) {
        while !self.stop.load(Ordering::SeqCst) {
            let key = KEYS[fastrand::usize(..KEYS.len())];
            let outcome = if chance(1, 4) {
                let locks = self.locks.with_max_wait(millis(50..=500));
                locks.acquire(key).await
            } else {
                self.locks.try_acquire(key).await
            };
            // Whatever is wrong with the nodes, it is tried again.
            if let Ok(guard) = outcome {
                let held = self.count(&guard, key).await;
                // What had ended before the first look was never held, and is in no order with others.
                if held.start < held.end {
                    role::say(&(task, held));
                }
                // It may be late, or confirmed by too few while it is cut off.
                let _ = guard.release().await;
            }
            sleep(millis(10..=40)).await;
        }
    }

    /// Counts one more under the lock.
    async fn count(&self, guard: &LockGuard, key: &'static str) -> Acquisition {
        let start = raw_now();
        let holder = Holder::of(guard, key);
        let seen = self.counters.read(&holder).await;
        // Some hold it for longer than it lasts if it is not extended: those are there when it ends.
        let time = if self.brief.load(Ordering::SeqCst) || chance(1, 2) {
            millis(0..=40)
        } else {
            millis(300..=1_000)
        };
        let span = |left| self.part.true_span(left);
        let (end, held) = hold(guard, start, time, span, None).await;
        // Some do not ask whether they still hold the lock.
        if held || chance(1, 3) {
            // And nobody can tell what happens on the way to the database.
            sleep(millis(0..=20)).await;
            self.counters.write(&holder, seen).await;
        }
        Acquisition {
            key: key.to_owned(),
            fence: guard.fence().unwrap().get(),
            start,
            end,
            held,
        }
    }
}
