//! A host that is suspended while it holds a lock, step by step.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::timeout;
use tower_redlock::LockManager;

use super::ALONE;
use super::part::{KEYS, Measure, Part, Settings};
use super::program::Program;
use super::scene::Scene;
use crate::scene::NODES;
use crate::support::clocks::Clocks;
use crate::support::role::{self, Heard};
use crate::support::server::{Kind, Server};
use crate::support::{PATIENCE, eventually};

/// Under which name the harness knows the holder.
const TEST: &str = "processes::suspended::holds_a_lock";
/// Long enough for a busy machine to extend it in time.
const TTL: Duration = Duration::from_secs(1);
/// How often it is tried with the wrong clock: an extension that was under way may be the first to notice.
const TRIES: usize = 10;

/// Nothing, unless this process was started to hold a lock. It then does what it is told, line by line.
#[tokio::test]
async fn holds_a_lock() {
    let Some(part) = role::role::<Part>() else {
        return;
    };
    let connect = part.settings.builder(&part.ways).connect();
    let locks = connect.await.unwrap();
    let guard = locks
        .with_max_wait(PATIENCE)
        .acquire(KEYS[0])
        .await
        .unwrap();
    let mut lost = Some(guard.lost());
    let mut guard = Some(guard);
    role::say(&"held");
    let mut lines = role::orders();
    while let Some(line) = lines.next_line().await.unwrap() {
        let answer = match line.as_str() {
            "look" => {
                let held = guard.as_ref().unwrap();
                let (is_lost, left) = (held.is_lost(), held.remaining());
                let told = lost.take().unwrap().now_or_never();
                format!(
                    "lost: {is_lost}, left: {}, told: {}",
                    !left.is_zero(),
                    told.is_some()
                )
            }
            "release" => format!("{:?}", guard.take().unwrap().release().await),
            other => panic!("what is {other}?"),
        };
        role::say(&answer);
    }
}

/// What the process that holds the lock says next.
async fn hear(heard: &mut Heard) -> String {
    let heard = timeout(PATIENCE, heard.next()).await;
    heard.expect("it says nothing").expect("it has ended")
}

/// Who holds the lock on each server.
fn owners(servers: &[Server]) -> Vec<String> {
    let get = format!("GET lk:{}", KEYS[0]);
    servers.iter().map(|server| server.run(&get)).collect()
}

/// Has a host be suspended while it holds a lock, and another process take that. Returns what the first says when it
/// wakes up, and what comes of its release.
async fn wake_up(
    servers: &[Server],
    library: &Path,
    other: &LockManager,
    measure: Measure,
) -> [String; 2] {
    let clocks = Clocks::new(servers[0].file("clocks"), library.to_owned());
    let part = Part {
        ways: servers.iter().map(Server::url).collect(),
        settings: settings(measure),
        database: PathBuf::new(),
        rate: 0,
    };
    let (mut holder, mut heard) = Program::start(TEST, &part, &clocks);
    assert_eq!(hear(&mut heard).await, "held");
    holder.stop();
    // Only the end of its lease lets another one in.
    let guard = other
        .with_max_wait(PATIENCE)
        .acquire(KEYS[0])
        .await
        .unwrap();
    let mut owner = Vec::new();
    eventually("the other has it everywhere", || {
        owner = owners(servers);
        owner.iter().all(|one| *one == owner[0] && one != "(nil)")
    })
    .await;
    // The first that it reads when it wakes up.
    holder.player.tell("look").await;
    holder.wake();
    let seen = hear(&mut heard).await;
    holder.player.tell("release").await;
    let released = hear(&mut heard).await;
    holder.player.end().await;
    assert_eq!(owners(servers), owner, "released by another, which {seen}");
    assert!(!guard.is_lost(), "taken by another, which {seen}");
    guard.release().await.unwrap();
    [seen, released]
}

fn settings(measure: Measure) -> Settings {
    let usual = Scene::Suspends.settings(true);
    Settings {
        ttl: TTL,
        measure,
        ..usual
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_wakes_up_sees_its_lock_lost_at_once_and_frees_no_other() {
    let _alone = ALONE.lock().await;
    let servers = Server::start_many(Kind::Redis, NODES);
    let library = Clocks::library(servers[0].dir());
    let other = settings(Measure::SystemClock).first(&servers).await;
    let [seen, released] = wake_up(&servers, &library, &other, Measure::SystemClock).await;
    assert_eq!(seen, "lost: true, left: false, told: true");
    assert_eq!(released, "Err(Lost(Expired))");
    // By the clock of the standard library it would go on.
    for _ in 0..TRIES {
        let [seen, _] = wake_up(&servers, &library, &other, Measure::StandingClock).await;
        println!("by a clock that stands still: {seen}");
        if seen == "lost: false, left: true, told: false" {
            return;
        }
    }
    panic!("a clock that stands still makes no difference");
}
