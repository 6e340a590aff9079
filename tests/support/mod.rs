//! What the tests share: real servers as processes, and shorthands around nodes.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test binary uses a part of it"
)]

#[cfg(not(tower_redlock_tests))]
compile_error!(
    "RUSTFLAGS in the environment hides those of .cargo/config.toml: unset it, or add `--cfg tower_redlock_tests`"
);

pub mod clocks;
pub mod copies;
pub mod fake;
pub mod nodes;
pub mod preload;
pub mod redis_cluster;
pub mod requests;
pub mod resp;
pub mod sentinel;
pub mod server;
pub mod serverless;
pub mod stalls;
pub mod wrapper;

use std::time::Duration;

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
