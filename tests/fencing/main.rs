//! The numbers of holders on five real servers: eight processes take locks while a minority of the servers is killed
//! and comes back empty, again and again. Numbers must grow strictly in the order in which holders came, key by key,
//! and nodes that are well must agree on them without a second round trip. And what the numbers are for: databases that
//! stop late holders.
//!
//! `REDLOCK_SOAK_ACQUISITIONS` is how often locks are taken in all; `make soak` sets it.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a panic is how a test fails, in its helpers too; processes talk by their output"
)]

#[path = "../support/mod.rs"]
mod support;

mod checker;
mod contender;
mod databases;
mod old_data;
mod responses;
mod sessions;

use std::env;
use std::time::Duration;

use support::server::{Kind, Server};
use support::{connected, eventually};
use tokio::time::sleep;
use tower_redlock::{LockManager, Settings};

use checker::violations;
use contender::{Contender, Done, Work, contend};

const TTL: Duration = Duration::from_millis(400);
/// By how much the clock of each process is ahead of that of the one before.
const SKEW: Duration = Duration::from_millis(10);
const SERVERS: usize = 5;
const PROCESSES: usize = 8;
/// How often locks are taken unless the environment says otherwise.
const ACQUISITIONS: usize = 10_000;

fn builder<'a>(servers: impl Iterator<Item = &'a str>) -> Settings {
    settings(LockManager::builder().redis(servers))
}

fn settings(builder: Settings) -> Settings {
    builder
        .ttl(TTL)
        .max_ttl(TTL)
        .node_timeout(Duration::from_millis(150))
        .max_wait(Duration::from_secs(5))
        .max_clock_skew(10 * SKEW)
}

/// Has all contenders take locks `count` times in all, and waits until they have.
async fn all(contenders: &mut [Contender], work: Work, count: usize) -> Done {
    for contender in contenders.iter_mut() {
        contender.begin(work, count / PROCESSES).await;
    }
    let mut all = Done::default();
    for contender in contenders {
        all.add(contender.finish().await);
    }
    all
}

/// Has one or two servers come back empty, and waits until they vote again.
async fn strike(servers: &mut [Server], number: usize) {
    let mut struck = vec![number % SERVERS];
    if !number.is_multiple_of(3) {
        struck.push((number + 2) % SERVERS);
    }
    // Sometimes they are back before anybody has missed them. A process that pauses before it connects again may see
    // fewer than a majority after the next strike: then its attempts fail, and locks it holds may be lost.
    let away = Duration::from_millis([0, 30, 150][number / 3 % 3]);
    for server in &struck {
        servers[*server].kill();
    }
    sleep(away).await;
    for server in &struck {
        servers[*server].restart();
    }
    // The marker is the contenders' work: nobody else writes it.
    let votes = |server: &usize| servers[*server].run("HEXISTS lk!node identity") == "1";
    eventually("they vote again", || struck.iter().all(votes)).await;
    sleep(Duration::from_millis(50)).await;
}

fn report(what: &str, done: &Done) {
    let lost = done.records.iter().filter(|one| !one.held).count();
    println!(
        "{what}: {} acquisitions, {lost} of them lost, {} attempts failed; {} numbers agreed, {} written back",
        done.records.len(),
        done.failed,
        done.agreed,
        done.written_back,
    );
}

#[tokio::test]
async fn tokens_grow_strictly_while_a_minority_forgets_again_and_again() {
    if contend().await {
        return;
    }
    let wanted = env::var("REDLOCK_SOAK_ACQUISITIONS");
    let wanted: usize = wanted.map_or(ACQUISITIONS, |count| count.parse().unwrap());
    let mut servers = Server::start_many(Kind::Redis, SERVERS);
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    // The very first start. From here on the contenders see to the nodes.
    drop(connected(builder(urls.iter().map(String::as_str)).bootstrap(true)).await);
    let test = "tokens_grow_strictly_while_a_minority_forgets_again_and_again";
    let mut contenders: Vec<_> = (0..PROCESSES)
        .map(|index| Contender::start(test, &urls, index))
        .collect();

    let calm = wanted / 5;
    let healthy = all(&mut contenders, Work::Own, calm).await;
    report("each its own keys, all servers well", &healthy);

    let mut strikes = 0;
    let struck = {
        let work = all(&mut contenders, Work::Shared, wanted - calm);
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => break done,
                () = strike(&mut servers, strikes) => strikes += 1,
            }
        }
    };
    report("the same keys, servers killed", &struck);
    println!("{strikes} times one or two servers came back empty");
    assert!(healthy.share() >= 95, "{} %", healthy.share());
    let records = [healthy.records, struck.records].concat();

    let found = violations(&records);
    let first: Vec<_> = found.iter().take(10).collect();
    assert!(found.is_empty(), "{} violations: {first:#?}", found.len());
    assert!(records.len() > wanted - 2 * PROCESSES && strikes > 0);
}
