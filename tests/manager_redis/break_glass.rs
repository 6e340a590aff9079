//! The runbook of the guide: each of its commands does on real servers what it says.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_redlock::error::LossReason;
use tower_redlock::lock::IdempotentRun;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{AcquireError, LockManager};

use crate::support::server::Server;
use crate::{Cluster, LONG, all_up, connected, eventually, is_contended};

const PAGE: &str = include_str!("../../src/docs/runbook.md");
const KEY: &str = "order:42";
const SECOND: Duration = Duration::from_secs(1);

/// All commands of the page, as a shell passes them on.
fn commands() -> Vec<String> {
    let lines = PAGE.lines().map(str::trim_start);
    lines
        .filter_map(|line| line.strip_prefix("redis-cli "))
        .map(|line| line.replace('\'', ""))
        .collect()
}

/// An interactive bash puts an earlier command in the place of `!` and a word, unless they are in single quotes.
#[test]
fn no_command_of_the_page_is_changed_by_a_shell() {
    let lines = PAGE.lines().filter(|line| line.contains("redis-cli "));
    for line in lines {
        let mut unquoted = line.split('\'').step_by(2);
        assert!(unquoted.all(|part| !part.contains('!')), "{line}");
    }
}

/// Runs the command of the page that begins so, on every server.
fn run(servers: &[Server], command: &str) -> Vec<String> {
    let found: Vec<String> = commands()
        .into_iter()
        .filter(|line| line.starts_with(command))
        .collect();
    let [line] = &*found else {
        panic!("{command}: {found:?}");
    };
    servers.iter().map(|server| server.run(line)).collect()
}

/// Every command there is run by a test here.
#[test]
fn the_page_has_these_commands_and_no_others() {
    let tried = [PTTL, FENCE, WAITING, TAKE, FREE, MARKER];
    let all = commands();
    assert_eq!(all.len(), tried.len(), "{all:?}");
    for (line, tried) in all.iter().zip(tried) {
        assert!(line.starts_with(tried), "{line}");
    }
}

const PTTL: &str = "PTTL ";
const FENCE: &str = "GET lk!fence:";
const WAITING: &str = "PUBSUB CHANNELS ";
const TAKE: &str = "SET ";
const FREE: &str = "DEL ";
const MARKER: &str = "HMGET lk!node ";

fn most(replies: &[String], claim: impl Fn(&str) -> bool) -> bool {
    replies.iter().filter(|reply| claim(reply)).count() >= 3
}

#[tokio::test]
async fn the_holder_of_a_key_and_those_who_wait_for_it_are_found() {
    let cluster = Cluster::start();
    let servers = &cluster.servers;
    let [ours, theirs] = [cluster.manager().await, cluster.manager().await];
    assert!(most(&run(servers, PTTL), |left| left == "-2"), "free");
    let guard = ours.acquire(KEY).await.unwrap();
    let left = |left: &str| (1..=60_000).contains(&left.parse::<i64>().unwrap());
    assert!(most(&run(servers, PTTL), left));
    let waiter = tokio::spawn(async move { theirs.acquire(KEY).await.map(drop) });
    let waits = |reply: &str| reply == "lk!free:order:42";
    eventually("one waits", || most(&run(servers, WAITING), waits)).await;
    // Which process, by the token. It is ours, though the lock has passed on in there.
    let next = tokio::spawn({
        let ours = ours.clone();
        async move { ours.acquire(KEY).await }
    });
    eventually("it waits here", || ours.snapshot().waiting == 1).await;
    guard.release().await.unwrap();
    let guard = next.await.unwrap().unwrap();
    let locks = ours.snapshot().locks;
    let shown: u64 = locks[0].fence.unwrap().to_string().parse().unwrap();
    let close = |reply: &str| {
        let told: u64 = reply.parse().unwrap();
        told <= shown && shown - told <= 1_023
    };
    assert!(most(&run(servers, FENCE), close), "{shown}");
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap();
    eventually("free", || most(&run(servers, PTTL), |left| left == "-2")).await;
}

/// The runbook's commands for an idempotency key, under the names that the page has for it.
#[tokio::test]
async fn the_lock_of_an_idempotency_key_is_where_the_page_says() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let run = |line: String| -> Vec<String> {
        let servers = cluster.servers.iter();
        servers.map(|server| server.run(&line)).collect()
    };
    let named = |start: &str| {
        let found = PAGE.lines().filter_map(|line| {
            let (name, means) = line.strip_prefix("| `")?.split_once("` | ")?;
            means.starts_with(start).then_some(name)
        });
        let [name] = *found.collect::<Vec<_>>() else {
            panic!("no single row says {start}");
        };
        name.replace("KEY", KEY)
    };
    let begin = async || {
        let begun = locks.begin_idempotent(KEY, LONG, Duration::ZERO);
        begun.await.unwrap()
    };
    let IdempotentRun::Execute(first) = begin().await else {
        panic!("nobody has done it");
    };
    let lock = named("its lock");
    let elsewhere = run(format!("PTTL lk:{KEY}"));
    assert!(elsewhere.iter().all(|left| left == "-2"), "{elsewhere:?}");
    let left = |left: &str| left.parse::<i64>().unwrap() > 0;
    assert!(most(&run(format!("PTTL {lock}")), left));
    let fence = first.fence().to_string();
    let told = run(format!("GET {}", named("its fencing token")));
    assert!(most(&told, |told| told == fence), "{told:?}");
    first.complete("done").await.unwrap();
    let repeat = begin().await;
    assert!(matches!(repeat, IdempotentRun::Replay(_)), "{repeat:?}");
    let record = named("the owner of its last run");
    let has_it = || run(format!("EXISTS {record}")).iter().all(|has| has == "1");
    eventually("all nodes have it", has_it).await;
    run(format!("DEL {record}"));
    let repeat = begin().await;
    assert!(matches!(repeat, IdempotentRun::Execute(_)), "{repeat:?}");
}

/// Another caller never gets in while the holder does not know.
#[tokio::test]
async fn a_lock_that_is_taken_over_is_lost_before_another_gets_it() {
    let cluster = Cluster::start();
    let ttl = 6 * SECOND;
    let ours = connected(cluster.short(ttl)).await;
    let theirs = connected(cluster.short(ttl)).await;
    let guard = ours.acquire(KEY).await.unwrap();
    let taken = run(&cluster.servers, TAKE);
    assert!(most(&taken, |reply| reply == "OK"), "{taken:?}");
    let error = theirs.try_acquire(KEY).await.unwrap_err();
    assert!(is_contended(&error), "{error}");
    // A third of its ttl later, and in any case within it.
    let reason = timeout(ttl, guard.lost()).await.unwrap();
    assert_eq!(reason, LossReason::Taken);
    drop(guard);
    for _ in 0..20 {
        let error = theirs.try_acquire(KEY).await.unwrap_err();
        assert!(
            is_contended(&error),
            "the release of the loser frees nothing: {error}"
        );
        sleep(Duration::from_millis(5)).await;
    }
    run(&cluster.servers, FREE);
    let guard = theirs.try_acquire(KEY).await.unwrap();
    guard.release().await.unwrap();
    // Where it is free nothing is taken.
    let taken = run(&cluster.servers, TAKE);
    assert!(most(&taken, |reply| reply == "(nil)"), "{taken:?}");
}

/// Why the page says never to begin with it.
#[tokio::test]
async fn a_key_that_is_deleted_under_its_holder_comes_back_or_has_two_holders() {
    let cluster = Cluster::start();
    let locks = connected(cluster.short(3 * SECOND)).await;
    let guard = locks.acquire(KEY).await.unwrap();
    run(&cluster.servers, FREE);
    eventually("its holder sets it again", || cluster.holding(KEY) >= 3).await;
    guard.release().await.unwrap();
    cluster.settle_free("released").await;
    // These are extended after twenty seconds.
    let cluster = Cluster::start();
    let [ours, theirs] = [cluster.manager().await, cluster.manager().await];
    let first = ours.acquire(KEY).await.unwrap();
    run(&cluster.servers, FREE);
    let second = theirs.try_acquire(KEY).await.unwrap();
    assert!(!first.is_lost() && !second.is_lost(), "both hold it");
}

fn quarantined(locks: &LockManager) -> usize {
    let nodes = locks.snapshot().nodes.into_iter();
    let waits = |voting: &VotingStatus| matches!(voting, VotingStatus::Quarantined { .. });
    nodes.filter(|node| waits(&node.voting)).count()
}

#[tokio::test]
async fn a_quorum_that_is_gone_is_seen_and_comes_back() {
    let mut cluster = Cluster::start();
    let locks = connected(cluster.builder().node_timeout(200 * crate::MS)).await;
    let fields = |replies: &[String], node: usize| -> Vec<String> {
        replies[node].lines().map(str::to_owned).collect()
    };
    let before = fields(&run(&cluster.servers, MARKER), 0);
    assert!(
        before[0] != "(nil)" && before[1] == "(nil)",
        "it votes: {before:?}"
    );
    assert!(before[2].contains("quorum 3"), "{before:?}");
    cluster.servers[..3].iter_mut().for_each(Server::kill);
    let error = locks.acquire(KEY).await.unwrap_err();
    let AcquireError::NoQuorum(error) = error else {
        panic!("{error}");
    };
    assert_eq!((error.needed(), error.failures().len()), (3, 3), "{error}");
    // They come back empty, and wait for the longest lease.
    cluster.servers[..3].iter_mut().for_each(Server::restart);
    eventually("quarantined", || quarantined(&locks) == 3).await;
    let after = fields(&run(&cluster.servers, MARKER), 0);
    assert!(
        after[0] == "(nil)" && after[1] != "(nil)",
        "in quarantine: {after:?}"
    );
    locks.acquire(KEY).await.unwrap_err();
    // Nobody holds a lock, as all processes were stopped for that long.
    locks.bootstrap().await.unwrap();
    all_up(&locks).await;
    let voting = fields(&run(&cluster.servers, MARKER), 0);
    assert!(voting[0] != "(nil)" && voting[1] == "(nil)", "{voting:?}");
    assert_eq!(voting[2], before[2], "what was agreed on is known again");
    locks.acquire(KEY).await.unwrap().release().await.unwrap();
}
