//! The runbook of the guide: what it says of keys and markers on real servers. `tests/cli` has its commands.

use std::time::Duration;

use tower_redlock::idempotency::IdempotentRun;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{AcquireError, LockManager};

use crate::support::server::Server;
use crate::{Cluster, LONG, all_up, connected, eventually};

const PAGE: &str = include_str!("../../src/docs/operating.md");
const KEY: &str = "order:42";
const SECOND: Duration = Duration::from_secs(1);

/// Runs a command on every server, past the nodes.
fn run(servers: &[Server], command: &str) -> Vec<String> {
    servers.iter().map(|server| server.run(command)).collect()
}

const FREE: &str = "DEL lk:order:42";
const MARKER: &str = "HMGET lk!node identity quarantine config";

fn most(replies: &[String], claim: impl Fn(&str) -> bool) -> bool {
    replies.iter().filter(|reply| claim(reply)).count() >= 3
}

/// The lock of an idempotency key, under the names that the page has for it.
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

/// Why the page says never to do it.
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
