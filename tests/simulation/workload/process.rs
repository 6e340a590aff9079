//! What a process does from its start on: it connects, and serves.

use std::future::pending;
use std::sync::Arc;

use tokio::time::sleep;
use tower_redlock::LockManager;
use tower_redlock::error::{ConfigError, ConnectError};
use tower_redlock::node::{LiveNode, RedisNode};

use super::history::What;
use super::http::Services;
use super::ms;
use super::scene::{Scene, Shop};
use crate::plan::{Replicas, Settings, USUAL_KEEP};
use crate::seam;
use tower_redlock_simulated::world::{MASTER_NAME, ProcessId, Topology};

/// How long it may take to make a connection, in milliseconds.
pub(super) const CONNECT_TIMEOUT: u64 = 400;
/// How long `connect` waits, in milliseconds.
pub(super) const CONNECT_LIMIT: u64 = BEGINNING - 200;
/// By then the word that no lock is held must have been given.
const BEGINNING: u64 = 1_000;

/// The life of a process.
pub(super) async fn program(scene: Arc<Scene>, id: ProcessId) {
    let clock = scene.world.clock(id);
    let date = scene.state().dates.get(&id.place).copied().unwrap_or(0);
    clock.step(date);
    let locks = connect(&scene, id).await;
    let settings = scene.settings(id);
    let connected = What::Connected {
        process: id,
        groups: settings.nodes.clone(),
    };
    scene.tell(id, "is connected", connected);
    let shop = Shop {
        services: Services::new(&scene, &locks, settings),
        locks,
        since: scene.world.millis(),
    };
    scene.state().shops.insert(id, shop);
    pending::<()>().await;
}

/// Tries until it is connected.
async fn connect(scene: &Scene, id: ProcessId) -> LockManager {
    let settings = scene.settings(id);
    loop {
        let is_first = scene.world.millis() < BEGINNING;
        let builder = builder(scene.world.topology(), settings)
            .clock(seam::clock(&scene.world, id))
            .bootstrap(settings.bootstrap && is_first);
        let made = if settings.lazy {
            builder.connect_lazy().map_err(ConnectError::Config)
        } else {
            builder.connect().await
        };
        match made {
            Ok(locks) => return locks,
            Err(ConnectError::Config(error)) => {
                let text = format!("is refused: {error}");
                scene.world.record(Some(id), text);
                pending::<()>().await;
            }
            Err(error) => {
                let text = format!("cannot connect: {error}");
                scene.world.record(Some(id), text);
            }
        }
        sleep(ms(150)).await;
    }
}

fn builder(topology: &Topology, settings: &Settings) -> tower_redlock::Settings {
    // That of a host would be another one in every run.
    let instance = "world";
    let builder = LockManager::builder();
    let builder = match settings.keep {
        Some(USUAL_KEEP) => builder,
        Some(keep) => builder.fencing_keep(ms(keep)),
        None => builder.without_fencing(),
    };
    let builder = match settings.skew {
        Some(skew) => builder.max_clock_skew(ms(skew)),
        None => builder.without_restart_guard(),
    };
    nodes(builder, topology, settings)
        .namespace(&settings.namespace)
        .instance(instance)
        .ttl(ms(settings.ttl))
        .max_ttl(ms(settings.max_ttl))
        .node_timeout(ms(settings.node_timeout))
        .max_wait(ms(settings.max_wait))
        .max_hold(ms(settings.max_hold))
        .mask_losses(settings.mask as usize)
        .max_waiters_per_key(settings.waiters as usize)
        .hand_off_limits(
            settings.passes,
            ms(settings.pass_time.min(settings.max_hold)),
        )
        .connect_timeout(ms(CONNECT_LIMIT))
}

/// With the nodes of its settings: those of a cluster are slots, one for each group.
fn nodes(
    builder: tower_redlock::Settings,
    topology: &Topology,
    settings: &Settings,
) -> tower_redlock::Settings {
    let groups = settings.nodes.iter().map(|group| *group as usize);
    if topology.cluster.is_some() {
        let masters = (0..topology.groups.len()).map(|group| topology.url(group));
        let cluster = RedisNode::cluster(masters.take(settings.watchers as usize))
            .slots(settings.nodes.len() as u16)
            .confirm_within(ms(settings.confirm))
            .connect_timeout(ms(CONNECT_TIMEOUT));
        return builder.redis_nodes([cluster]);
    }
    let nodes: Result<Vec<LiveNode>, ConfigError> = groups
        .map(|group| node(topology, group, settings))
        .collect();
    builder.nodes(nodes.unwrap_or_else(|error| panic!("a plan with nodes that are none: {error}")))
}

fn node(topology: &Topology, group: usize, settings: &Settings) -> Result<LiveNode, ConfigError> {
    let about = topology.groups[group];
    let name = format!("g{group}");
    if about.sentinels > 0 {
        let mut urls = topology.sentinel_urls(group);
        urls.truncate(settings.watchers as usize);
        let node = RedisNode::sentinel(urls, MASTER_NAME).confirm_within(ms(settings.confirm));
        return node.name(name).connect_timeout(ms(CONNECT_TIMEOUT)).build();
    }
    let node = RedisNode::new(&topology.url(group))
        .name(name)
        .connect_timeout(ms(CONNECT_TIMEOUT));
    match settings.replicas {
        Replicas::Plain => node,
        Replicas::Required if about.replicas == 0 => node.expect_replicas(true),
        Replicas::Expected => node.expect_replicas(true),
        Replicas::Required => node.require(1).within(ms(settings.node_timeout / 2)),
    }
    .build()
}
