//! What a process is told.

use std::path::PathBuf;
use std::time::Duration;

use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use tower_redlock::LockManager;
use tower_redlock::clock::{Clock, Moment};
use tower_redlock::node::RedisNode;

use crate::support::clocks::shown;
use crate::support::connected;
use crate::support::server::Server;

pub(crate) const KEYS: [&str; 2] = ["order:1", "order:2"];
/// The ttl of all scenes.
pub(crate) const TTL: Duration = Duration::from_millis(300);

/// The part of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The way to each node.
    pub(crate) ways: Vec<String>,
    pub(crate) settings: Settings,
    /// The database that all processes share: a file, as it would be a server elsewhere.
    pub(crate) database: PathBuf,
    /// By how many millionths its clocks run too fast.
    pub(crate) rate: i64,
}

impl Part {
    /// How long that takes which takes `time` by the clocks of the process.
    pub(crate) fn true_span(&self, time: Duration) -> u64 {
        let rate = u128::try_from(1_000_000 + self.rate).unwrap();
        u64::try_from(time.as_nanos() * 1_000_000 / rate).unwrap()
    }
}

/// With what all processes of a run are set up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) drift: f64,
    /// How many losses the quorum masks.
    pub(crate) masked: usize,
    /// Whether nodes that have forgotten are quarantined.
    pub(crate) restart_guard: bool,
    pub(crate) measure: Measure,
}

/// By which clock leases are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Measure {
    /// That of the crate.
    SystemClock,
    /// One that stands still while the host is suspended.
    StandingClock,
}

impl Settings {
    /// A manager of the nodes to which these ways lead, not built yet.
    pub(crate) fn builder(self, ways: &[String]) -> tower_redlock::Settings {
        let nodes = ways.iter().enumerate().map(|(index, url)| {
            // A name that all processes have in common, whatever way leads there.
            let builder = RedisNode::new(url).name(format!("node-{index}"));
            builder.build().unwrap()
        });
        let builder = LockManager::builder()
            .nodes(nodes)
            .ttl(self.ttl)
            .max_ttl(self.ttl)
            // Enough for a busy machine, and what is left of the ttl is enough for a lock.
            .node_timeout(self.ttl / 5)
            .drift_factor(self.drift)
            .mask_losses(self.masked)
            .max_clock_skew(Duration::from_millis(10));
        let builder = match self.restart_guard {
            true => builder,
            false => builder.without_restart_guard(),
        };
        match self.measure {
            Measure::SystemClock => builder,
            Measure::StandingClock => builder.clock(StandingClock),
        }
    }

    /// The very first start of servers, of which none can have forgotten anything.
    pub(crate) async fn first(self, servers: &[Server]) -> LockManager {
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        connected(self.builder(&urls).bootstrap(true)).await
    }
}

/// The clock of the standard library and of tokio.
#[derive(Debug)]
struct StandingClock;

impl Clock for StandingClock {
    fn now(&self) -> Moment {
        let time = shown(ClockId::Monotonic).as_nanos();
        Moment::from_nanos(u64::try_from(time).unwrap())
    }
}
