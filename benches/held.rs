//! What locks cost while they are held, and what keys cost the nodes: 10,000 held locks, and up to 100,000 keys.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_redlock::{LockGuard, LockManager, Settings};

use crate::cost::{Calls, cpu, servers_cpu};
use crate::fleet::{bytes, field};
use crate::measure::{ratio, seconds};
use crate::support::server::{Kind, Server};

const HELD: usize = 10_000;
const KEYS: [usize; 4] = [1, 100, 10_000, 100_000];
const AT_ONCE: usize = 64;

/// What holding 10,000 locks on five nodes costs.
pub(crate) struct Held {
    /// In percent of a core.
    pub(crate) ours: f64,
    pub(crate) servers: f64,
    /// For each lock in a ttl, on all nodes: commands, those in scripts included, and bytes.
    pub(crate) commands: f64,
    pub(crate) bytes: f64,
}

/// What one key costs one node, in bytes: held, and after its release.
pub(crate) struct Keys {
    pub(crate) keys: usize,
    pub(crate) fencing: bool,
    pub(crate) held: f64,
    pub(crate) left: f64,
}

/// Locks on keys of their own.
async fn acquire(locks: &LockManager, count: usize) -> Vec<LockGuard> {
    let mut tasks = JoinSet::new();
    for task in 0..AT_ONCE {
        let locks = locks.clone();
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for number in (task..count).step_by(AT_ONCE) {
                guards.push(locks.acquire(format!("order:{number}")).await.unwrap());
            }
            guards
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

fn builder(servers: &[Server]) -> Settings {
    let builder = LockManager::builder().redis(servers.iter().map(Server::url));
    // None of them ends while others are acquired.
    builder.bootstrap(true).max_hold(Duration::from_secs(3_600))
}

pub(crate) async fn held() -> Held {
    let servers = Server::start_many(Kind::Redis, 5);
    let ttl = Duration::from_secs(10);
    let locks = builder(&servers).ttl(ttl).connect().await.unwrap();
    let guards = acquire(&locks, HELD).await;
    // In the usual rhythm of their extensions by then.
    tokio::time::sleep(ttl).await;
    let length = seconds(20);
    let before = (
        cpu(),
        servers_cpu(&servers),
        Calls::of(&servers),
        bytes(&servers),
    );
    tokio::time::sleep(length).await;
    let after = (
        cpu(),
        servers_cpu(&servers),
        Calls::of(&servers),
        bytes(&servers),
    );
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    let percent = |time: Duration| time.as_secs_f64() / length.as_secs_f64() * 100.0;
    let ttls = length.as_secs_f64() / ttl.as_secs_f64() * ratio(HELD.try_into().unwrap(), 1);
    let held = Held {
        ours: percent(after.0 - before.0),
        servers: percent(after.1 - before.1),
        commands: ratio(after.2.since(&before.2).executed(), 1) / ttls,
        bytes: ratio(after.3 - before.3, 1) / ttls,
    };
    println!(
        "\n{HELD} held locks, ttl {ttl:?}, 5 nodes: {:.1} % of a core, {:.1} % over all servers; for each lock in a ttl {:.2} commands and {:.0} bytes on all nodes; {lost} lost",
        held.ours, held.servers, held.commands, held.bytes
    );
    held
}

pub(crate) async fn keys() -> Vec<Keys> {
    println!("\nbytes of memory for each key on each node: held, and after its release");
    let mut rows = Vec::new();
    for fencing in [true, false] {
        for keys in KEYS {
            let servers = Server::start_many(Kind::Redis, 3);
            let mut builder = builder(&servers)
                .ttl(Duration::from_secs(60))
                .max_ttl(Duration::from_secs(60));
            if !fencing {
                builder = builder.without_fencing().without_restart_guard();
            }
            let locks = builder.connect().await.unwrap();
            // Connections have their buffers by then.
            drop(acquire(&locks, AT_ONCE).await);
            let memory = || field(&servers[0], "memory", "used_memory");
            let before = memory();
            let guards = acquire(&locks, keys).await;
            let held = memory();
            for guard in guards {
                guard.release().await.unwrap();
            }
            let each = |after: u64| {
                (ratio(after, 1) - ratio(before, 1)) / ratio(keys.try_into().unwrap(), 1)
            };
            let row = Keys {
                keys,
                fencing,
                held: each(held),
                left: each(memory()),
            };
            let with = if fencing {
                "with fencing tokens"
            } else {
                "without"
            };
            println!(
                "{keys:>7} keys, {with:20} {:>8.0} {:>8.0}",
                row.held, row.left
            );
            rows.push(row);
        }
    }
    rows
}
