//! The lock manager over five real servers: what it promises when servers are killed, frozen and restarted under
//! load, and what is seen on servers alone.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
mod support;

mod break_glass;
mod commands;
mod connect;
mod crash;
mod credentials;
mod failback;
mod failover;
mod freeze;
mod kept;
mod killed;
mod limits;
mod members;
mod partition;
mod readers;
mod release;
mod room;
mod secrets;
mod shutdown;
mod standing;
mod transfer;
mod waiting;

use std::time::Duration;

use support::server::{Kind, Server};
use support::stalls::Stopwatch;
use support::{PATIENCE, all_vote, connected, eventually, is_contended, voting};
use tower_redlock::node::{LiveNode, NodeState, RedisNode};
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{AcquireError, LockGuard, LockManager, Settings};

const MS: Duration = Duration::from_millis(1);
/// A ttl that no test outlives: a key that goes away was released.
const LONG: Duration = Duration::from_secs(60);

/// Five servers and what a test asks about them.
struct Cluster {
    servers: Vec<Server>,
}

impl Cluster {
    fn start() -> Self {
        Self {
            servers: Server::start_many(Kind::Redis, 5),
        }
    }

    fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// A builder on these servers with a ttl that no test outlives, and a node time-out that a busy machine does not
    /// reach.
    fn builder(&self) -> Settings {
        let builder = LockManager::builder().bootstrap(true).redis(self.urls());
        builder.ttl(LONG).max_ttl(LONG).node_timeout(1_000 * MS)
    }

    /// A builder with a ttl that ends within the test.
    fn short(&self, ttl: Duration) -> Settings {
        self.builder()
            .ttl(ttl)
            .max_ttl(ttl)
            .node_timeout(ttl.min(200 * MS))
    }

    /// One more manager, as another process would have it, connected to every server.
    async fn manager(&self) -> LockManager {
        connected(self.builder()).await
    }

    fn each(&self, nodes: impl IntoIterator<Item = usize>, act: impl Fn(&Server)) {
        nodes.into_iter().for_each(|n| act(&self.servers[n]));
    }

    /// Runs a command line on every server, past the nodes.
    fn run(&self, line: &str) -> Vec<String> {
        self.servers.iter().map(|server| server.run(line)).collect()
    }

    /// The locks on all servers, each with the number of its server.
    fn keys(&self) -> Vec<(usize, String)> {
        let servers = self.servers.iter().enumerate();
        servers
            .flat_map(|(n, server)| server.locks().into_iter().map(move |key| (n, key)))
            .collect()
    }

    /// How many servers hold `key` (in the default namespace).
    fn holding(&self, key: &str) -> usize {
        let exists = self.run(&format!("EXISTS lk:{key}"));
        exists.iter().filter(|it| *it == "1").count()
    }

    /// Asserts that within a few round trips no key is left on any server.
    ///
    /// It counts looks, not time, so a busy machine does not matter: each look is a round trip to every server, and
    /// what was sent before it is done before it.
    async fn settle_free(&self, what: &str) {
        let mut left = Vec::new();
        for _ in 0..50 {
            left = self.keys();
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(MS).await;
        }
        panic!("{what}: not released everywhere: {left:?}");
    }
}

fn is_quarantined(locks: &LockManager, node: usize) -> bool {
    let voting = &locks.snapshot().nodes[node].voting;
    matches!(voting, VotingStatus::Quarantined { .. })
}

fn is_down(locks: &LockManager, node: usize) -> bool {
    matches!(locks.snapshot().nodes[node].state, NodeState::Down(_))
}

/// Waits until all of them have seen that a server came back empty, and then until it votes.
async fn seen_by_all(managers: &[LockManager], node: usize) {
    for locks in managers {
        eventually("its restart is noticed", || is_quarantined(locks, node)).await;
    }
    for locks in managers {
        all_vote(locks).await;
    }
}

/// The lock `order:1`, unless others had it for too long.
async fn acquired(locks: &LockManager) -> Option<LockGuard> {
    match locks.acquire("order:1").await {
        Ok(guard) => Some(guard),
        Err(error) => {
            assert!(is_contended(&error), "only contention: {error}");
            None
        }
    }
}
