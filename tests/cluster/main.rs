//! Redis Clusters of real servers: a slot is a node. Masters are killed, frozen and demoted, slots move, and a master is
//! cut off from the others.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
mod support;

mod load;
mod moves;
mod nodes;
mod serverless;

use std::time::Duration;

use support::redis_cluster::RedisCluster;
use support::server::Kind;
use support::{all_vote, connected, eventually_or_tell, is_contended, voting};
use tower_redlock::node::RedisNode;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{AcquireError, LockGuard, LockManager, Settings};

const MS: Duration = Duration::from_millis(1);
/// A ttl that no test outlives.
const LONG: Duration = Duration::from_secs(60);
/// The slots of a cluster of three nodes.
const SLOTS: [u16; 3] = [2_731, 8_192, 13_654];

fn node(cluster: &RedisCluster) -> RedisNode {
    RedisNode::cluster(cluster.urls()).confirm_within(1_000 * MS)
}

/// As a process of its own has it.
fn settings(nodes: RedisNode, ttl: Duration) -> Settings {
    let settings = LockManager::builder().redis_nodes([nodes]);
    let settings = settings.bootstrap(true).ttl(ttl).max_ttl(ttl);
    settings.node_timeout(400 * MS)
}

/// Tries until the lock is granted; returns it with how often no quorum voted.
async fn granted(locks: &LockManager, key: &str) -> (LockGuard, u32) {
    let mut refused = 0;
    loop {
        match locks.try_acquire(key).await {
            Ok(guard) => return (guard, refused),
            Err(AcquireError::NoQuorum(_)) => refused += 1,
            Err(error) => assert!(is_contended(&error), "{error}"),
        }
        tokio::time::sleep(5 * MS).await;
    }
}
