//! What the servers had to do, by their own account, and what processors did.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::support::server::Server;

/// How often every command was called, on all servers together.
pub(crate) struct Calls(BTreeMap<String, u64>);

/// What looking, connecting and probing cost; not what locks do.
const OVERHEAD: [&str; 9] = [
    "info", "ping", "hello", "client", "config", "command", "script", "auth", "select",
];

/// Clients send these; what else is counted was called by scripts, unless it is named beside them.
const SENT: [&str; 8] = [
    "eval",
    "evalsha",
    "fcall",
    "subscribe",
    "unsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "psubscribe",
];

impl Calls {
    pub(crate) fn of(servers: &[Server]) -> Self {
        let mut calls = BTreeMap::new();
        for server in servers {
            let info = server.run("INFO commandstats");
            for line in info
                .lines()
                .filter_map(|line| line.strip_prefix("cmdstat_"))
            {
                let (name, rest) = line.split_once(':').unwrap();
                let count = rest.trim_start_matches("calls=").split(',').next();
                let name = name.split('|').next().unwrap();
                if !OVERHEAD.contains(&name) {
                    let sum: &mut u64 = calls.entry(name.to_owned()).or_default();
                    *sum += count.unwrap().parse::<u64>().unwrap();
                }
            }
        }
        Self(calls)
    }

    /// What was called since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let calls = self.0.iter().map(|(name, count)| {
            let old = before.0.get(name).copied().unwrap_or_default();
            (name.clone(), count - old)
        });
        Self(calls.collect())
    }

    pub(crate) fn named(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// All commands, those that scripts call included.
    pub(crate) fn executed(&self) -> u64 {
        self.0.values().sum()
    }

    /// The commands that clients sent, if they send the commands in `direct` outside scripts.
    pub(crate) fn sent(&self, direct: &[&str]) -> u64 {
        let names = SENT.iter().chain(direct);
        names.map(|name| self.named(name)).sum()
    }
}

/// The time that processors have spent on this process.
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap(),
        time.tv_nsec.try_into().unwrap(),
    )
}

/// The same on these servers.
pub(crate) fn servers_cpu(servers: &[Server]) -> Duration {
    let of = |server: &Server| {
        let info = server.run("INFO cpu");
        let names = ["used_cpu_sys:", "used_cpu_user:"];
        let lines = info
            .lines()
            .filter_map(|line| names.iter().find_map(|name| line.strip_prefix(name)));
        lines
            .map(|time| Duration::from_secs_f64(time.trim().parse().unwrap()))
            .sum::<Duration>()
    };
    servers.iter().map(of).sum()
}
