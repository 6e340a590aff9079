//! What the tests share: real servers as processes, and shorthands around nodes.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test binary uses a part of it"
)]

#[cfg(not(tower_redlock_tests))]
compile_error!(
    "the tests and benchmarks need the flags of the repository's .cargo/config.toml. RUSTFLAGS in the environment hides \
     these: unset it, or add `--cfg tower_redlock_tests`. The published package does not have them: clone the repository"
);

pub mod clocks;
pub mod copies;
pub mod fake;
pub mod nodes;
pub mod preload;
pub mod redis_cluster;
pub mod requests;
pub mod resp;
pub mod role;
pub mod sentinel;
pub mod server;
pub mod serverless;
pub mod stalls;
pub mod wrapper;

use std::time::Duration;

use tower_redlock::clock::{Clock, Moment, SystemClock};
use tower_redlock::node::NodeState;
use tower_redlock::snapshot::{NodeStatus, VotingStatus};
use tower_redlock::{AcquireError, LockManager, Settings};

/// The bound of every wait: long enough for a busy machine, and only ever reached by a failing test.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long what must come may take, pauses of the machine left out.
const SOON: Duration = Duration::from_secs(10);

/// Waits until `claim` holds, looking every millisecond.
///
/// # Panics
///
/// If it does not come to hold.
pub async fn eventually(what: &str, claim: impl FnMut() -> bool) {
    eventually_or_tell(what, claim, String::new).await;
}

/// As [`eventually`], and a failure tells how things stand.
pub async fn eventually_or_tell(
    what: &str,
    mut claim: impl FnMut() -> bool,
    state: impl Fn() -> String,
) {
    let begin = stalls::Stopwatch::start();
    while !claim() {
        assert!(begin.elapsed() < SOON, "waited in vain: {what} {}", state());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A manager that is connected to all of its nodes, all of which vote.
pub async fn connected(settings: Settings) -> LockManager {
    let locks = settings.connect().await.unwrap();
    all_vote(&locks).await;
    locks
}

/// Waits until all nodes of a manager vote.
pub async fn all_vote(locks: &LockManager) {
    let all = || voting(locks) == locks.snapshot().nodes.len();
    let state = || format!("{:?}", locks.snapshot().nodes);
    eventually_or_tell("all nodes vote", all, state).await;
}

/// How many nodes of a manager are up and vote.
pub fn voting(locks: &LockManager) -> usize {
    let nodes = locks.snapshot().nodes;
    let votes =
        |node: &&NodeStatus| node.state == NodeState::Up && node.voting == VotingStatus::Voting;
    nodes.iter().filter(votes).count()
}

/// Whether others have the lock.
pub const fn is_contended(error: &AcquireError) -> bool {
    matches!(
        error,
        AcquireError::Contended { .. } | AcquireError::WaitTimeout { .. }
    )
}

/// A clock that people have set ahead, of a process in this one. Without that, clocks alone would order the holders, and
/// counters that do not count would go unnoticed.
#[derive(Debug)]
pub struct AheadClock(pub Duration);

impl Clock for AheadClock {
    fn now(&self) -> Moment {
        SystemClock::new().now()
    }

    fn unix_micros(&self) -> u64 {
        SystemClock::new().unix_micros() + u64::try_from(self.0.as_micros()).unwrap()
    }
}
