//! Nodes that cannot be promoted: they say that they do not vote yet, and refuse what would end that, or leave it
//! unanswered.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::clock::TokioClock;
use tower_redlock::error::ConnectError;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::node::{NodeError, NodeErrorKind};
use tower_redlock::{LockManager, LockManagerBuilder};

use super::wrapper::{Between, Call, Reply, Wrapped};
use super::{MS, TTL};

/// How long a manager waits for its nodes.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest wait of a node that forgot, what is waited for after it, and as much again.
const BOUND: Duration = Duration::from_secs(40);

/// A node that does all it is asked but end its quarantine.
#[derive(Debug)]
struct Stuck {
    node: MemoryNode,
    answers: bool,
}

impl Between for Stuck {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        match (call, self.answers) {
            (Call::Promote, true) => {
                let error = NodeError::new(NodeErrorKind::Rejected, "no permission to promote");
                Box::pin(async move { Err(error) })
            }
            (Call::Promote, false) => Box::pin(pending()),
            _ => reply,
        }
    }
}

fn manager(nodes: &[MemoryNode], answers: bool) -> LockManagerBuilder {
    let stuck = nodes.iter().map(|node| {
        Wrapped(Stuck {
            node: node.clone(),
            answers,
        })
    });
    let builder = LockManager::builder().nodes(stuck);
    builder
        .clock(TokioClock::new())
        .ttl(TTL)
        .connect_timeout(CONNECT)
}

fn three() -> Vec<MemoryNode> {
    (0..3).map(|n| MemoryNode::new(format!("n{n}"))).collect()
}

/// Asserts that `connect` ends within `limit`, and says why.
async fn assert_refused(builder: LockManagerBuilder, limit: Duration, reason: &str) {
    let began = Instant::now();
    let error = tokio::time::timeout(BOUND, builder.connect()).await;
    let error = error.expect("it waits without end").unwrap_err();
    assert!(matches!(error, ConnectError::NoQuorum(_)), "{error:?}");
    assert!(error.to_string().contains(reason), "{error}");
    assert!(began.elapsed() <= limit, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn connect_ends_where_new_nodes_refuse_to_be_promoted() {
    let nodes = three();
    assert_refused(manager(&nodes, true), CONNECT + 200 * MS, "no permission").await;
}

#[tokio::test(start_paused = true)]
async fn connect_ends_where_new_nodes_do_not_answer_when_they_are_promoted() {
    let nodes = three();
    assert_refused(manager(&nodes, false), CONNECT + 200 * MS, "n0").await;
}

#[tokio::test(start_paused = true)]
async fn connect_ends_where_nodes_that_forgot_refuse_to_be_promoted() {
    let nodes = three();
    let usual = LockManager::builder().nodes(nodes.iter().cloned());
    let usual = usual.clock(TokioClock::new()).ttl(TTL).bootstrap(true);
    drop(usual.connect().await.unwrap());
    nodes.iter().for_each(MemoryNode::forget);
    // The longest lease that they may have forgotten, and the connect time-out.
    let limit = 2 * TTL + CONNECT;
    assert_refused(manager(&nodes, true), limit, "no permission").await;
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_ends_where_nodes_refuse_to_be_promoted() {
    let nodes = three();
    let locks = manager(&nodes, true).lazy().unwrap();
    sleep(MS).await;
    let began = Instant::now();
    let error = tokio::time::timeout(BOUND, locks.bootstrap()).await;
    let error = error.expect("it waits without end").unwrap_err();
    assert!(error.to_string().contains("no permission"), "{error}");
    assert!(
        began.elapsed() <= CONNECT + 200 * MS,
        "{:?}",
        began.elapsed()
    );
}
