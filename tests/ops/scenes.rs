//! Faults, each with what was scraped before and after.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tower_redlock::clock::TokioClock;
use tower_redlock::error::LossReason;
use tower_redlock::node::Credentials;
use tower_redlock::node::MemoryNode;
use tower_redlock::{AcquireError, LockManager, Settings};

use super::scrape::{Scrapes, recorder};
use super::support::eventually;
use super::support::server::{Kind, Server};

/// A process with five nodes, and what was scraped of it.
pub(crate) struct Site {
    pub(crate) servers: Vec<Server>,
    pub(crate) locks: LockManager,
    process: PrometheusHandle,
    pub(crate) scrapes: Scrapes,
    _recording: metrics::LocalRecorderGuard<'static>,
}

impl Site {
    /// With five servers, all of which vote.
    pub(crate) async fn new() -> Self {
        Self::of(Server::start_many(Kind::Redis, 5), |builder| builder).await
    }

    pub(crate) async fn of(servers: Vec<Server>, set: impl FnOnce(Settings) -> Settings) -> Self {
        let (recorder, process) = recorder();
        // One for each test, for as long as the program runs: only tests that run after it on this thread would wait.
        let recording = metrics::set_default_local_recorder(Box::leak(Box::new(recorder)));
        // A manager without a thread of its own, as the recorder is that of this thread.
        let builder = LockManager::builder()
            .clock(TokioClock::new())
            .redis(servers.iter().map(Server::url))
            .ttl(Duration::from_secs(5))
            .max_ttl(Duration::from_secs(5))
            .node_timeout(Duration::from_millis(500))
            .bootstrap(true);
        let locks = set(builder).connect().await.unwrap();
        let mut site = Self {
            servers,
            locks,
            process,
            scrapes: Scrapes::default(),
            _recording: recording,
        };
        site.use_once().await;
        let calm = site.gauges("redlock_node_up", 1);
        site.until(&calm).await;
        let calm = site.gauges("redlock_node_voting", 1);
        site.until(&calm).await;
        site.until(&["redlock_without_quorum 0".to_owned()]).await;
        let clocks = site.gauges("redlock_node_clock_skew_seconds", 0);
        let clocks = clocks
            .iter()
            .map(|line| line.trim_end_matches('0').to_owned());
        let clocks: Vec<_> = clocks.collect();
        site.until(&clocks).await;
        site.scrape();
        site
    }

    pub(crate) fn scrape(&mut self) {
        self.scrapes.take(&self.process);
    }

    /// What was scraped, the last time now.
    fn end(mut self) -> Scrapes {
        self.scrape();
        self.scrapes
    }

    /// Locks something and releases it.
    pub(crate) async fn use_once(&self) {
        let guard = self.locks.acquire("order:1").await.unwrap();
        guard.release().await.unwrap();
    }

    /// The lines of these gauges of all nodes, at this number.
    fn gauges(&self, name: &str, number: u8) -> Vec<String> {
        let nodes = self.locks.snapshot().nodes.into_iter();
        let line = |node: &str| format!("{name}{{node=\"{node}\"}} {number}");
        nodes.map(|node| line(&node.name)).collect()
    }

    /// Waits until the process shows these lines.
    async fn until(&self, lines: &[String]) {
        let shown = || {
            let text = self.process.render();
            lines.iter().all(|line| text.contains(line.as_str()))
        };
        eventually(&format!("{lines:?}"), shown).await;
    }

    async fn until_down(&self, count: usize) {
        let down = self.gauges("redlock_node_up", 0);
        self.until(&down[..count]).await;
    }

    /// Kills the first servers, and waits until that is seen.
    async fn kill(&mut self, count: usize) {
        self.servers[..count].iter_mut().for_each(Server::kill);
        self.until_down(count).await;
    }
}

pub(crate) async fn all_is_well() -> Scrapes {
    let site = Site::new().await;
    site.use_once().await;
    site.end()
}

/// What a majority does not need.
pub(crate) async fn a_node_is_dead() -> Scrapes {
    let mut site = Site::new().await;
    site.kill(1).await;
    site.use_once().await;
    site.end()
}

async fn without_quorum(losses: usize, dead: usize) -> Scrapes {
    let servers = Server::start_many(Kind::Redis, 5);
    let mut site = Site::of(servers, |builder| builder.mask_losses(losses)).await;
    site.kill(dead).await;
    let refused = site.locks.try_acquire("order:1").await;
    assert!(matches!(refused, Err(AcquireError::NoQuorum(_))));
    site.end()
}

pub(crate) async fn a_quorum_is_lost() -> Scrapes {
    without_quorum(0, 3).await
}

/// What would be a majority, but not enough for two quorums to share more than one node.
pub(crate) async fn a_quorum_that_masks_a_loss_is_lost() -> Scrapes {
    without_quorum(1, 2).await
}

pub(crate) async fn a_lock_is_lost() -> Scrapes {
    let site = Site::new().await;
    let guard = site.locks.acquire("order:1").await.unwrap();
    // All nodes are there, and another owner.
    for server in &site.servers {
        server.run("SET lk:order:1 another");
    }
    assert_eq!(guard.lost().await, LossReason::Taken);
    drop(guard);
    site.end()
}

/// A node that restarted without its data, for as long as the locks may last that it has forgotten.
pub(crate) async fn a_node_is_quarantined() -> Scrapes {
    let hour = Duration::from_secs(3_600);
    let servers = Server::start_many(Kind::Redis, 5);
    let mut site = Site::of(servers, |builder| builder.max_ttl(hour).ttl(hour)).await;
    site.kill(1).await;
    site.servers[0].restart();
    let up = site.gauges("redlock_node_up", 1).remove(0);
    let quiet = site.gauges("redlock_node_voting", 0).remove(0);
    site.until(&[up, quiet]).await;
    site.end()
}

pub(crate) async fn a_clock_is_set() -> Scrapes {
    let mut servers = Server::start_many(Kind::Redis, 4);
    servers.push(Server::start_clocked(Kind::Redis));
    let site = Site::of(servers, |builder| builder).await;
    site.servers[4].step_clock(30);
    let ahead = format!(
        "redlock_node_clock_skew_seconds{{node=\"{}\"}} 30.",
        site.locks.snapshot().nodes[4].name
    );
    let late = ahead.replace("30.", "29.");
    let shown = || {
        let text = site.process.render();
        text.contains(&ahead) || text.contains(&late)
    };
    eventually(&ahead, shown).await;
    site.end()
}

pub(crate) async fn a_node_fills_up() -> Scrapes {
    let site = Site::new().await;
    let mut limits = Vec::new();
    for (server, node) in site.servers[..3].iter().zip(site.locks.snapshot().nodes) {
        let used: f64 = server.info("used_memory").parse().unwrap();
        let limit = (used / 0.85) as u64;
        server.run(&format!("CONFIG SET maxmemory {limit}"));
        let node = node.name;
        limits.push(format!(
            "redlock_node_memory_limit_bytes{{node=\"{node}\"}} {limit}"
        ));
    }
    site.until(&limits).await;
    // This is no lack of a quorum, whose alarm would say to look at the network.
    let refused = site
        .locks
        .begin_idempotent("order:1", Duration::from_secs(60), Duration::ZERO)
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("must vote and have room"), "{refused}");
    site.until(&["redlock_acquire_total{outcome=\"nodes-full\"} 1".to_owned()])
        .await;
    site.end()
}

/// The callback fails, and the connections go on.
pub(crate) async fn credentials_cannot_be_renewed() -> Scrapes {
    let servers = Server::start_many(Kind::Redis, 5);
    for server in &servers {
        server.run("ACL SETUSER locks on >secret ~* &* +@all");
    }
    let is_sealed = Arc::new(AtomicBool::new(false));
    let vault = Arc::clone(&is_sealed);
    let credentials = move || {
        let credentials = Credentials::password("secret").user("locks");
        std::future::ready(match vault.load(Ordering::Relaxed) {
            true => Err(std::io::Error::other("it is sealed")),
            false => Ok(credentials.valid_for(Duration::from_millis(200))),
        })
    };
    let mut site = Site::of(servers, |builder| builder.credentials(credentials)).await;
    is_sealed.store(true, Ordering::Relaxed);
    let stale = site.gauges("redlock_node_credentials_stale", 1);
    site.until(&stale).await;
    site.use_once().await;
    site.scrape();
    is_sealed.store(false, Ordering::Relaxed);
    let renewed = site.gauges("redlock_node_credentials_stale", 0);
    site.until(&renewed).await;
    site.scrapes
}

/// More callers than may wait, and a release that no quorum confirms.
pub(crate) async fn a_queue_is_full_and_a_release_is_late() -> Scrapes {
    let (recorder, process) = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut scrapes = Scrapes::default();
    let nodes: Vec<_> = (0..5).map(|n| MemoryNode::new(format!("n{n}"))).collect();
    let locks = LockManager::builder()
        .clock(TokioClock::new())
        .nodes(nodes.iter().cloned())
        .max_waiters_per_key(1)
        .without_restart_guard()
        .connect()
        .await
        .unwrap();
    scrapes.take(&process);
    let guard = locks.acquire("order:1").await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("order:1").await }
    });
    let waits = || locks.snapshot().waiting == 1;
    eventually("a caller waits", waits).await;
    let refused = locks.acquire("order:1").await;
    assert!(matches!(refused, Err(AcquireError::QueueFull { .. })));
    waiting.abort();
    let _aborted = waiting.await;
    nodes.iter().for_each(MemoryNode::freeze);
    guard.release().await.unwrap_err();
    nodes.iter().for_each(MemoryNode::thaw);
    scrapes.take(&process);
    scrapes
}
