//! Nodes that are slow rather than gone: everything they are asked is done, and the answer comes late.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::LockManager;
use tower_redlock::clock::TokioClock;
use tower_redlock::node::MemoryNode;

use super::wrapper::{Between, Call, Reply, Wrapped};
use super::{MS, Nodes};

/// What commands to a memory node, also `close`, take there, and their answers back. Notices come at once, and so does
/// what concerns the node's right to vote.
#[derive(Debug)]
pub(super) struct Slow {
    node: MemoryNode,
    there: Duration,
    back: Duration,
}

impl Slow {
    /// `node`, so far away.
    pub(super) fn node(node: &MemoryNode, there: Duration, back: Duration) -> Wrapped<Self> {
        Wrapped(Self {
            node: node.clone(),
            there,
            back,
        })
    }
}

impl Between for Slow {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        if matches!(call, Call::Ready | Call::CheckIn | Call::Promote) {
            return reply;
        }
        let (there, back) = (self.there, self.back);
        Box::pin(async move {
            sleep(there).await;
            let answer = reply.await;
            sleep(back).await;
            answer
        })
    }
}

/// A manager over `nodes`, of which those in `slow` answer after `delay`.
fn manager(nodes: &Nodes, slow: std::ops::Range<usize>, delay: Duration) -> LockManager {
    let each = nodes.0.iter().enumerate().map(|(index, node)| {
        let back = if slow.contains(&index) {
            delay
        } else {
            Duration::ZERO
        };
        Slow::node(node, Duration::ZERO, back)
    });
    let builder = LockManager::builder().nodes(each).clock(TokioClock::new());
    builder.connect_lazy().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_releases_of_a_node_that_answers_after_the_time_out_come_to_an_end() {
    let nodes = Nodes::five();
    let locks = manager(&nodes, 0..1, 150 * MS);
    assert!(locks.node_timeout() < 150 * MS);
    for _ in 0..100 {
        let guard = locks.try_acquire("order:1").await.unwrap();
        guard.release().await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    let report = locks.shutdown(Duration::ZERO).await;
    assert_eq!(report.unconfirmed, 0, "long before the ttl");
}

#[tokio::test(start_paused = true)]
async fn more_releases_than_there_is_room_for_do_not_cost_a_lock_that_is_held() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let mut guards = Vec::new();
    for order in 2..11_000 {
        guards.push(locks.try_acquire(format!("order:{order}")).await.unwrap());
    }
    nodes.each([4], MemoryNode::freeze);
    drop(guards);
    let guard = locks.try_acquire("order:1").await.unwrap();
    // As long as the releases on the frozen node are tried, which is for a ttl.
    sleep(Duration::from_millis(9_950)).await;
    assert!(guard.remaining() > Duration::from_secs(5), "it was renewed");

    let guard = locks.try_acquire("order:0").await.unwrap();
    nodes.each([4], MemoryNode::thaw);
    guard.release().await.unwrap();
    nodes.settle_free("order:0").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_slow_to_close_do_not_add_up() {
    let nodes = Nodes::five();
    let locks = manager(&nodes, 0..5, Duration::from_secs(10));
    let began = Instant::now();
    locks.shutdown(Duration::ZERO).await;
    assert!(
        began.elapsed() <= Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}
