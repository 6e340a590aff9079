//! What clients get that send a request again and again, from several processes over five real servers: while servers
//! are killed and come back, and while processes are killed at every point of a request.
//!
//! `REDLOCK_SOAK_DUPLICATES` is how often five hundred duplicates are sent; once, unless it is set.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
mod support;

mod branch;
mod client;
mod crashes;
#[path = "../chaos/dice.rs"]
mod dice;
mod duplicates;
mod ends;
mod full;
mod gate;
mod ledger;
mod process;
mod refused;
mod rolled;

use std::time::Duration;

use support::server::{Kind, Server};
use support::stalls::Stopwatch;
use support::{PATIENCE, connected, eventually};
use tower_redlock::idempotency::{IdempotentRun, caller};
use tower_redlock::{IdempotencyLayer, LockManager, Settings};

/// Longer than a busy machine takes to answer, and short enough to wait for its end.
const NODE_TIMEOUT: Duration = Duration::from_millis(150);
/// No repeat waits longer for an answer; only a failing test comes near.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// What all managers have in common but their nodes.
fn builder(ttl: Duration) -> Settings {
    LockManager::builder()
        .ttl(ttl)
        .max_ttl(ttl)
        .node_timeout(NODE_TIMEOUT)
        .max_wait(MAX_WAIT)
        // All clocks are one here.
        .max_clock_skew(Duration::from_millis(10))
}

/// As [`builder`], on these servers.
fn on(servers: &[Server], ttl: Duration) -> Settings {
    builder(ttl).redis(servers.iter().map(Server::url))
}

/// The very first start of these servers: none of them can have forgotten anything.
async fn bootstrap(servers: &[Server], ttl: Duration, masked: usize) {
    let first = on(servers, ttl).mask_losses(masked);
    drop(connected(first.bootstrap(true)).await);
}

/// The records that the server keeps of requests, each with its ballot, in order.
fn records(server: &Server) -> Vec<String> {
    let script = "
        local found = {}
        for _, key in ipairs(redis.call('KEYS', 'lk!idem!record:*')) do
          local ballot = string.match(redis.call('GET', key), '^%S* %d* %d+ (%d+) ')
          if ballot then
            table.insert(found, key .. ' ' .. ballot)
          end
        end
        table.sort(found)
        return found
    ";
    let found = server.command(&["EVAL", script, "0"]);
    assert!(!found.starts_with('-'), "{found}");
    found.lines().map(str::to_owned).collect()
}
