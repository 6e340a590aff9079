//! A lock that nobody else wants, on 1, 3 and 5 servers: ours, the two floors, and rslock.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tower_redlock::LockManager;

use crate::cost::{cpu, servers_cpu};
use crate::fanout::Fanout;
use crate::floors::Sockets;
use crate::measure::{Candidate, Watch, in_turns, print};
use crate::support::server::{Kind, Server};

const TTL: Duration = Duration::from_secs(10);
const CROWD: u32 = 16;
pub(crate) const OURS: &str = "tower-redlock";
const BARE: &str = "  no fencing, no guard";

pub(crate) async fn run() {
    for count in [1, 3, 5] {
        let servers = Server::start_many(Kind::Redis, count);
        one_at_a_time(&servers).await;
    }
    for count in [1, 5] {
        let servers = Server::start_many(Kind::Redis, count);
        crowd(&servers).await;
    }
}

pub(crate) async fn ours(servers: &[Server]) -> LockManager {
    ours_at(servers.iter().map(Server::url)).await
}

pub(crate) async fn ours_at(urls: impl IntoIterator<Item = String>) -> LockManager {
    // For as long as this, the first fencing tokens of new nodes are ahead of the clock, which takes the scripts longer.
    let builder = LockManager::builder().bootstrap(true).redis(urls).ttl(TTL);
    let builder = builder.max_clock_skew(Duration::from_millis(1));
    builder.connect().await.unwrap()
}

/// The same without fencing tokens and without the guard: what other Redlocks promise, and no more.
async fn bare(servers: &[Server]) -> LockManager {
    let builder = LockManager::builder().redis(servers.iter().map(Server::url));
    // In a namespace of its own: processes with and without a guard refuse each other.
    let builder = builder
        .namespace("bare")
        .without_fencing()
        .without_restart_guard();
    builder.ttl(TTL).connect().await.unwrap()
}

pub(crate) fn theirs(servers: &[Server]) -> rslock::LockManager {
    let mut theirs = rslock::LockManager::new(servers.iter().map(Server::url).collect());
    theirs.set_retry(1, Duration::from_millis(1));
    theirs
}

async fn one_at_a_time(servers: &[Server]) {
    let mut candidates = [
        sockets(servers).await,
        fanout(servers).await,
        manager(OURS, ours(servers).await),
        manager(BARE, bare(servers).await),
        rslock(theirs(servers)),
    ];
    let rows = in_turns(&mut candidates, 30, 100).await;
    let title = format!("{} node(s), uncontended, one at a time", servers.len());
    print(&title, &rows, &[0, 1]);
}

async fn sockets(servers: &[Server]) -> Candidate {
    let sockets = Sockets::connect(servers, "bench:sockets").await;
    let sockets = Rc::new(RefCell::new(sockets));
    Candidate {
        name: "sockets (floor 1)",
        batch: Box::new(move |size| {
            let sockets = Rc::clone(&sockets);
            #[allow(clippy::await_holding_refcell_ref, reason = "one batch runs at a time")]
            Box::pin(async move {
                let mut sockets = sockets.borrow_mut();
                let mut samples = Vec::with_capacity(size);
                for _ in 0..size {
                    let mut watch = Watch::start();
                    sockets.acquire().await;
                    watch.half();
                    sockets.release().await;
                    samples.push(watch.stop());
                }
                samples
            })
        }),
    }
}

async fn fanout(servers: &[Server]) -> Candidate {
    let fanout = Fanout::connect(servers.iter().map(Server::url), "bench:fanout").await;
    Candidate {
        name: "redis-rs (floor 2)",
        batch: Box::new(move |size| {
            let fanout = fanout.clone();
            Box::pin(async move {
                let mut samples = Vec::with_capacity(size);
                for _ in 0..size {
                    let mut watch = Watch::start();
                    fanout.acquire().await;
                    watch.half();
                    fanout.release().await;
                    samples.push(watch.stop());
                }
                samples
            })
        }),
    }
}

pub(crate) fn manager(name: &'static str, locks: LockManager) -> Candidate {
    Candidate {
        name,
        batch: Box::new(move |size| {
            let locks = locks.clone();
            Box::pin(async move {
                let mut samples = Vec::with_capacity(size);
                for _ in 0..size {
                    let mut watch = Watch::start();
                    let guard = locks.try_acquire("bench:ours").await.unwrap();
                    watch.half();
                    guard.release().await.unwrap();
                    samples.push(watch.stop());
                }
                samples
            })
        }),
    }
}

pub(crate) fn rslock(locks: rslock::LockManager) -> Candidate {
    Candidate {
        name: "rslock 0.10",
        batch: Box::new(move |size| {
            let locks = locks.clone();
            Box::pin(async move {
                let mut samples = Vec::with_capacity(size);
                for _ in 0..size {
                    let mut watch = Watch::start();
                    let lock = locks.lock("bench:rslock", TTL).await.unwrap();
                    watch.half();
                    locks.unlock(&lock).await;
                    samples.push(watch.stop());
                }
                samples
            })
        }),
    }
}

/// Cycles a second when sixteen tasks run them at once, each on a key of its own.
async fn crowd(servers: &[Server]) {
    const CYCLES: u32 = 150;
    const TURNS: u32 = 8;
    let fanout = Fanout::connect(servers.iter().map(Server::url), "").await;
    let (ours, bare) = (ours(servers).await, bare(servers).await);
    let theirs = theirs(servers);
    let mut took = [Took::default(); 4];
    // The first turn warms up.
    for turn in 0..=TURNS {
        let turns = [
            at_once(servers, CROWD, |n| fanout_cycles(fanout.clone(), n, CYCLES)).await,
            at_once(servers, CROWD, |n| manager_cycles(ours.clone(), n, CYCLES)).await,
            at_once(servers, CROWD, |n| manager_cycles(bare.clone(), n, CYCLES)).await,
            at_once(servers, CROWD, |n| rslock_cycles(theirs.clone(), n, CYCLES)).await,
        ];
        if turn > 0 {
            for (sum, turn) in took.iter_mut().zip(turns) {
                sum.time += turn.time;
                sum.client += turn.client;
                sum.servers += turn.servers;
            }
        }
    }
    println!(
        "\n{} node(s), {CROWD} tasks, each on a key of its own; processor time of a cycle in µs: client, all servers",
        servers.len()
    );
    let cycles = CROWD * CYCLES * TURNS;
    let names = ["redis-rs (floor 2)", OURS, BARE, "rslock 0.10"];
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(cycles);
    for (name, sum) in names.iter().zip(took) {
        let rate = f64::from(cycles) / sum.time.as_secs_f64();
        let ratio = took[0].time.as_secs_f64() / sum.time.as_secs_f64();
        let (client, servers) = (each(sum.client), each(sum.servers));
        println!(
            "{name:30} {rate:>10.0} cycles/s {ratio:>6.2} x redis-rs {client:>8.1} {servers:>8.1}"
        );
    }
}

/// How long some cycles took, and how long processors were at it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) time: Duration,
    pub(crate) client: Duration,
    pub(crate) servers: Duration,
}

async fn fanout_cycles(mut fanout: Fanout, n: u32, cycles: u32) {
    fanout.key(&format!("bench:fanout:{n}"));
    for _ in 0..cycles {
        fanout.acquire().await;
        fanout.release().await;
    }
}

async fn manager_cycles(locks: LockManager, n: u32, cycles: u32) {
    for _ in 0..cycles {
        let guard = locks.try_acquire(format!("bench:ours:{n}")).await.unwrap();
        guard.release().await.unwrap();
    }
}

async fn rslock_cycles(locks: rslock::LockManager, n: u32, cycles: u32) {
    for _ in 0..cycles {
        let lock = locks.lock(format!("bench:rslock:{n}").as_str(), TTL).await;
        locks.unlock(&lock.unwrap()).await;
    }
}

/// What so many of them take.
pub(crate) async fn at_once<F: Future<Output = ()> + Send + 'static>(
    servers: &[Server],
    count: u32,
    task: impl Fn(u32) -> F,
) -> Took {
    let before = (cpu(), servers_cpu(servers));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..count {
        tasks.spawn(task(n));
    }
    tasks.join_all().await;
    Took {
        time: began.elapsed(),
        client: cpu() - before.0,
        servers: servers_cpu(servers) - before.1,
    }
}
