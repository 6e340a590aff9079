//! A server that comes back with the counters of an hour ago knows less than one that comes back with none: it does not
//! know that it lacks something.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tower_redlock::idempotency::IdempotentRun;
use tower_redlock::node::RedisNode;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{FencingToken, LockManager, Settings};

use crate::support::server::{Kind, Server, free_port};
use crate::support::{AheadClock, all_vote, eventually};
use crate::{connected, settings};

/// Longer than any quarantine here, and shorter than what nodes take for a clock that went mad.
const AHEAD: Duration = Duration::from_secs(30 * 60);
const DAY: Duration = Duration::from_secs(86_400);
const TTL: Duration = Duration::from_secs(1);
/// Nothing here depends on how fast the servers are, and a busy machine takes its time.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// How a server comes to have old data.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// What it saved once.
    Snapshot,
    /// A log whose end is missing.
    Log,
}

impl Kept {
    const fn args(self) -> &'static [&'static str] {
        match self {
            Self::Snapshot => &[],
            // Written before each reply, and never synced: a killed server loses nothing of it, and waits for no disk.
            Self::Log => &["--appendonly", "yes", "--appendfsync", "no"],
        }
    }

    /// Notes what `server` has now, to be what it has when it comes [back](Self::back).
    fn note(self, server: &Server) -> u64 {
        match self {
            Self::Snapshot => {
                assert_eq!(server.run("SAVE"), "OK");
                0
            }
            Self::Log => fs::metadata(log_of(server)).unwrap().len(),
        }
    }

    /// Has `server` come back with what it had when that was noted.
    fn back(self, server: &mut Server, noted: u64) {
        server.kill();
        if matches!(self, Self::Log) {
            let log = fs::OpenOptions::new().write(true).open(log_of(server));
            let log = log.unwrap();
            assert!(log.metadata().unwrap().len() > noted, "nothing to lose");
            log.set_len(noted).unwrap();
        }
        server.restart();
    }
}

/// The file to which `server` appends.
fn log_of(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    let is_log = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
    paths.find(is_log).unwrap()
}

/// A process that cannot reach the server `away`.
fn cut_off(servers: &[Server], away: Option<usize>) -> Settings {
    let nodes = servers.iter().enumerate().map(|(n, server)| {
        let url = match away {
            Some(away) if away == n => format!("redis://127.0.0.1:{}", free_port()),
            _ => server.url(),
        };
        let node = RedisNode::new(&url).name(format!("n{n}"));
        node.build().unwrap()
    });
    settings(LockManager::builder().nodes(nodes))
        .ttl(TTL)
        .max_ttl(TTL)
        .node_timeout(NODE_TIMEOUT)
}

/// Waits until all servers that `locks` reaches vote for it.
async fn settled(builder: Settings) -> LockManager {
    let locks = builder.connect().await.unwrap();
    eventually("two nodes vote", || {
        let nodes = locks.snapshot().nodes;
        let voting = nodes
            .iter()
            .filter(|node| node.voting == VotingStatus::Voting);
        voting.count() == 2
    })
    .await;
    locks
}

async fn number(locks: &LockManager, key: &str) -> FencingToken {
    let guard = locks.acquire(key).await.unwrap();
    let number = guard.fence().unwrap();
    guard.release().await.unwrap();
    number
}

/// Three servers on which `count` was called, of which the first comes back with what it had then; meanwhile `lose` was
/// called for a process that did not reach the third and whose clock is ahead. Returns the servers and a process that
/// does not reach the second.
async fn forget_what_came_since<T>(
    kept: Kept,
    count: impl AsyncFnOnce(&LockManager),
    lose: impl AsyncFnOnce(&LockManager) -> T,
) -> (Vec<Server>, LockManager, T) {
    let mut servers = Server::start_many_with(Kind::Redis, 3, kept.args());
    let all = connected(cut_off(&servers, None).bootstrap(true)).await;
    count(&all).await;
    let noted = kept.note(&servers[0]);
    let first = settled(cut_off(&servers, Some(2)).clock(AheadClock(AHEAD))).await;
    let lost = lose(&first).await;
    kept.back(&mut servers[0], noted);
    // It has its old marker. Only who reaches all servers can tell how far the numbers have come, and lets it vote.
    let run_id = servers[0].info("run_id");
    let knows_itself = || servers[0].run("HGET lk!node identity").starts_with(&run_id);
    eventually("it votes again", knows_itself).await;
    all_vote(&all).await;
    let second = settled(cut_off(&servers, Some(1))).await;
    (servers, second, lost)
}

async fn assert_tokens_grow(kept: Kept) {
    let count = async |locks: &LockManager| {
        for key in ["counted", "extended"] {
            number(locks, key).await;
        }
    };
    let lose = async |locks: &LockManager| {
        [
            number(locks, "counted").await,
            number(locks, "new").await,
            number(locks, "extended").await,
        ]
    };
    let (_servers, locks, [counted, new, extended]) =
        forget_what_came_since(kept, count, lose).await;
    for (key, before) in [("counted", counted), ("new", new), ("extended", extended)] {
        for _ in 0..2 {
            let after = number(&locks, key).await;
            assert!(after > before, "{key}, {kept:?}: {after} after {before}");
        }
    }
}

#[tokio::test]
async fn tokens_go_on_after_a_server_came_back_with_an_old_snapshot() {
    assert_tokens_grow(Kept::Snapshot).await;
}

#[tokio::test]
async fn tokens_go_on_after_a_server_came_back_with_a_log_cut_short() {
    assert_tokens_grow(Kept::Log).await;
}

async fn run(locks: &LockManager, key: &str) -> tower_redlock::idempotency::RunGuard {
    match locks
        .begin_idempotent(key, DAY, Duration::ZERO)
        .await
        .unwrap()
    {
        IdempotentRun::Execute(run) => run,
        other => panic!("already done: {other:?}"),
    }
}

#[tokio::test]
async fn a_run_after_a_server_came_back_with_old_data_has_the_higher_ballot() {
    // It was begun and given up before, so that it is counted everywhere.
    let count = async |locks: &LockManager| run(locks, "pay").await.abandon().await.unwrap();
    let lose = async |locks: &LockManager| {
        let run = run(locks, "pay").await;
        let ballot = run.fence();
        run.complete("first").await.unwrap();
        ballot
    };
    let (servers, locks, ballot) = forget_what_came_since(Kept::Snapshot, count, lose).await;
    // One node too many has lost what it was told, so it runs again; but what is said then is the last word.
    let again = run(&locks, "pay").await;
    assert!(again.fence() > ballot, "{} after {ballot}", again.fence());
    again.complete("second").await.unwrap();
    for away in [1, 2, 0] {
        let locks = settled(cut_off(&servers, Some(away))).await;
        match locks
            .begin_idempotent("pay", DAY, Duration::ZERO)
            .await
            .unwrap()
        {
            IdempotentRun::Replay(told) => assert_eq!(told, "second", "without n{away}"),
            other => panic!("without n{away} it runs a third time: {other:?}"),
        }
    }
}
