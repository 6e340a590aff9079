//! One of the processes that take locks, which are told what to do by lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_redlock::{LockGuard, LockManager};

use crate::checker::Acquisition;
use crate::support::clocks::raw_now;
use crate::support::role::{self, Heard, Player};
use crate::support::{AheadClock, connected};
use crate::{SKEW, TTL, builder};

/// How many keys all contenders share, and how many each has for itself.
const SHARED_KEYS: usize = 64;
const OWN_KEYS: usize = 4;
const TASKS: usize = 12;

/// What the contenders do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Each takes keys that nobody else wants, one after the other.
    Own,
    /// All want the same keys.
    Shared,
}

/// What came of some work.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) records: Vec<Acquisition>,
    /// How many numbers the nodes agreed on at once, and how many were written back.
    pub(crate) agreed: u64,
    pub(crate) written_back: u64,
    /// How many attempts failed, for whatever reason.
    pub(crate) failed: usize,
}

impl Done {
    pub(crate) fn add(&mut self, other: Self) {
        self.records.extend(other.records);
        self.agreed += other.agreed;
        self.written_back += other.written_back;
        self.failed += other.failed;
    }

    /// How many of the numbers were agreed on, in percent.
    pub(crate) const fn share(&self) -> u64 {
        100 * self.agreed / (self.agreed + self.written_back)
    }
}

/// A contender as its parent sees it.
pub(crate) struct Contender {
    player: Player,
    heard: Heard,
}

impl Contender {
    pub(crate) fn start(test: &str, servers: &[String], index: usize) -> Self {
        let (player, heard) = Player::start(test, &(servers, index), &[]);
        Self { player, heard }
    }

    pub(crate) async fn begin(&mut self, work: Work, count: usize) {
        let order = serde_json::to_string(&(work, count)).unwrap();
        self.player.tell(&order).await;
    }

    /// Waits for the end of the work.
    pub(crate) async fn finish(&mut self) -> Done {
        self.heard.next().await.expect("a contender goes on")
    }
}

/// Does the work of a contender if this process is one. Tells whether it is.
pub(crate) async fn contend() -> bool {
    let Some((servers, index)) = role::role::<(Vec<String>, usize)>() else {
        return false;
    };
    let clock = AheadClock(SKEW * u32::try_from(index).unwrap());
    let locks = connected(builder(servers.iter().map(String::as_str)).clock(clock)).await;
    let mut orders = role::orders();
    while let Some(order) = orders.next_line().await.unwrap() {
        let (work, count) = serde_json::from_str(&order).unwrap();
        role::say(&act(&locks, work, index, count).await);
    }
    true
}

/// Takes locks `count` times.
async fn act(locks: &LockManager, work: Work, index: usize, count: usize) -> Done {
    let before = locks.snapshot();
    let left = Arc::new(AtomicUsize::new(count));
    let failed = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let keys: Vec<String> = match work {
            Work::Own if task >= OWN_KEYS => continue,
            // One task a key: the contender does not contend with itself.
            Work::Own => vec![format!("own:{index}:{task}")],
            Work::Shared => (0..SHARED_KEYS).map(|n| format!("shared:{n}")).collect(),
        };
        let seed = index * TASKS + task;
        let (locks, left, failed) = (locks.clone(), Arc::clone(&left), Arc::clone(&failed));
        tasks.spawn(async move { take_turns(&locks, &keys, seed, &left, &failed).await });
    }
    let records = tasks.join_all().await.into_iter().flatten().collect();
    let after = locks.snapshot();
    Done {
        records,
        agreed: after.fences_agreed - before.fences_agreed,
        written_back: after.fences_written_back - before.fences_written_back,
        failed: failed.load(Ordering::SeqCst),
    }
}

/// Takes the locks of `keys` in some order until nothing is `left` to be done.
async fn take_turns(
    locks: &LockManager,
    keys: &[String],
    seed: usize,
    left: &AtomicUsize,
    failed: &AtomicUsize,
) -> Vec<Acquisition> {
    let mut records = Vec::new();
    let mut turn = seed;
    let take_one = |left: usize| left.checked_sub(1);
    while left
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one)
        .is_ok()
    {
        turn += 1;
        let key = &keys[(turn * 37 + seed * 11) % keys.len()];
        let guard = loop {
            match locks.acquire(key.as_str()).await {
                Ok(guard) => break guard,
                Err(_) => {
                    failed.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_millis(5)).await;
                }
            }
        };
        let start = raw_now();
        if keys.len() > 1 && turn.is_multiple_of(199) {
            // Long enough to be renewed, and to be filled into nodes that have forgotten it.
            sleep(TTL * 3 / 2).await;
        }
        records.push(ended(&guard, key, start));
        // Confirmed or not: with servers killed half-way it may go on in the background.
        let _ = guard.release().await;
    }
    records
}

fn ended(guard: &LockGuard, key: &str, start: u64) -> Acquisition {
    let end = raw_now();
    Acquisition {
        key: key.to_owned(),
        fence: guard.fence().unwrap().get(),
        start,
        end,
        // After the end: what is held now was held then.
        held: !guard.is_lost(),
    }
}
