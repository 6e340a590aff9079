//! Nodes that say that they do not vote yet, and refuse what would end that, leave it unanswered, or take their time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::clock::TokioClock;
use tower_redlock::error::ConnectError;
use tower_redlock::node::MemoryNode;
use tower_redlock::node::{NodeError, NodeErrorKind};
use tower_redlock::{LockManager, Settings};

use super::wrapper::{Between, Call, Reply, Wrapped};
use super::{MS, TTL};

/// How long a manager waits for its nodes.
const CONNECT: Duration = Duration::from_secs(5);
/// How much longer nodes are awaited that need not wait.
const MOMENT: Duration = Duration::from_millis(2_500);
/// The longest wait of a node that forgot, what is waited for after it, and as much again.
const BOUND: Duration = Duration::from_secs(40);

/// How a node takes what would end its quarantine.
#[derive(Clone, Copy, Debug)]
enum Promotion {
    Refused,
    Silent,
    /// It and all check-ins take so long.
    Slow(Duration),
}

/// A node that does all else at once.
#[derive(Debug)]
struct Stuck {
    node: MemoryNode,
    promotion: Promotion,
    /// How many promotions and check-ins it was sent.
    asked: Arc<AtomicUsize>,
}

impl Between for Stuck {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        if matches!(call, Call::Promote | Call::CheckIn) {
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
        match (call, self.promotion) {
            (Call::Promote, Promotion::Refused) => {
                let error = NodeError::of(NodeErrorKind::Rejected, "no permission to promote");
                Box::pin(async move { Err(error) })
            }
            (Call::Promote, Promotion::Silent) => Box::pin(pending()),
            (Call::Promote | Call::CheckIn, Promotion::Slow(time)) => Box::pin(async move {
                sleep(time).await;
                reply.await
            }),
            _ => reply,
        }
    }
}

fn manager(nodes: &[MemoryNode], promotion: Promotion) -> Settings {
    counted(nodes, promotion, &Arc::default())
}

/// The same, and how often its nodes are asked about their votes.
fn counted(nodes: &[MemoryNode], promotion: Promotion, asked: &Arc<AtomicUsize>) -> Settings {
    let stuck = nodes.iter().map(|node| {
        Wrapped(Stuck {
            node: node.clone(),
            promotion,
            asked: Arc::clone(asked),
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
async fn assert_refused(builder: Settings, limit: Duration, reason: &str) {
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
    assert_refused(
        manager(&nodes, Promotion::Refused),
        CONNECT + MOMENT,
        "no permission",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_refuse_to_be_promoted_are_asked_five_times_a_second() {
    let (nodes, asked) = (three(), Arc::default());
    let locks = counted(&nodes, Promotion::Refused, &asked)
        .connect_lazy()
        .unwrap();
    sleep(Duration::from_secs(10)).await;
    let asked = asked.load(Ordering::SeqCst);
    // Each is sent both, and another check-in for each of the others.
    assert!((240..=720).contains(&asked), "{asked}");
    drop(locks);
}

#[tokio::test(start_paused = true)]
async fn connect_ends_where_new_nodes_do_not_answer_when_they_are_promoted() {
    let nodes = three();
    assert_refused(manager(&nodes, Promotion::Silent), CONNECT + MOMENT, "n0").await;
}

#[tokio::test(start_paused = true)]
async fn connect_ends_where_nodes_that_forgot_refuse_to_be_promoted() {
    let nodes = three();
    let usual = LockManager::builder()
        .clock(TokioClock::new())
        .nodes(nodes.iter().cloned());
    let usual = usual.clock(TokioClock::new()).ttl(TTL).bootstrap(true);
    drop(usual.connect().await.unwrap());
    nodes.iter().for_each(MemoryNode::forget);
    // The longest lease that they may have forgotten, and the connect time-out.
    let limit = 2 * TTL + CONNECT + MOMENT;
    assert_refused(manager(&nodes, Promotion::Refused), limit, "no permission").await;
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_ends_where_nodes_refuse_to_be_promoted() {
    let nodes = three();
    let locks = manager(&nodes, Promotion::Refused).connect_lazy().unwrap();
    sleep(MS).await;
    let began = Instant::now();
    let error = tokio::time::timeout(BOUND, locks.bootstrap()).await;
    let error = error.expect("it waits without end").unwrap_err();
    assert!(error.to_string().contains("no permission"), "{error}");
    assert!(began.elapsed() <= CONNECT + MOMENT, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn connect_waits_a_moment_for_new_nodes_that_are_about_to_vote() {
    for forget in [false, true] {
        let nodes = three();
        if forget {
            let usual = LockManager::builder()
                .clock(TokioClock::new())
                .nodes(nodes.iter().cloned());
            let usual = usual.clock(TokioClock::new()).ttl(TTL).bootstrap(true);
            drop(usual.connect().await.unwrap());
            nodes.iter().for_each(MemoryNode::forget);
        }
        let slow = manager(&nodes, Promotion::Slow(40 * MS));
        slow.connect_timeout(100 * MS).connect().await.unwrap();
    }
}

/// Each time there is a quorum that is about to vote.
#[tokio::test(start_paused = true)]
async fn nodes_are_taken_over_though_one_of_them_goes_away_for_a_moment_again_and_again() {
    let nodes = three();
    let usual = LockManager::builder()
        .clock(TokioClock::new())
        .nodes(nodes.iter().cloned());
    let usual = usual.clock(TokioClock::new()).ttl(TTL).bootstrap(true);
    drop(usual.connect().await.unwrap());
    let other = LockManager::builder()
        .clock(TokioClock::new())
        .nodes(nodes[..2].iter().cloned());
    let other = other.clock(TokioClock::new()).ttl(TTL).max_ttl(3 * TTL);
    let other = other.connect_lazy().unwrap();
    let node = nodes[1].clone();
    let blips = tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(7)).await;
            node.go_down();
            sleep(1_200 * MS).await;
            node.come_up();
        }
    });
    other.adopt_nodes(None).await.unwrap();
    blips.abort();
}
