//! Nodes that are slow rather than gone: everything they are asked is done, and the answer comes late.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::LockManager;
use tower_redlock::clock::TokioClock;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, ExtendReplies, ExtendRequest, Node,
    NodeContext, NodeError, NodeFuture, NodeState, Notifier, PromoteRequest, ReleaseReply,
    ReleaseRequest,
};

use super::{MS, Nodes};

/// A memory node that commands reach after a delay, and whose answers, also to `close`, come after another. Its
/// notices come at once, and so does what concerns its right to vote.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) node: MemoryNode,
    pub(super) there: Duration,
    pub(super) back: Duration,
}

impl Slow {
    fn later<T: Send + 'static>(&self, answer: NodeFuture<T>) -> NodeFuture<T> {
        let (there, back) = (self.there, self.back);
        Box::pin(async move {
            sleep(there).await;
            let answer = answer.await;
            sleep(back).await;
            answer
        })
    }
}

impl Node for Slow {
    fn name(&self) -> &str {
        self.node.name()
    }

    fn start(&self, context: NodeContext) {
        self.node.start(context);
    }

    fn state(&self) -> NodeState {
        self.node.state()
    }

    fn ready(&self) -> NodeFuture<Result<(), NodeError>> {
        self.node.ready()
    }

    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        self.later(self.node.acquire(request))
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        self.later(self.node.extend(requests))
    }

    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        self.later(self.node.release(request))
    }

    fn check_in(&self, request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>> {
        self.node.check_in(request)
    }

    fn promote(&self, request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>> {
        self.node.promote(request)
    }

    fn close(&self) -> NodeFuture<()> {
        self.later(self.node.close())
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        self.node.notifier()
    }
}

/// A manager over `nodes`, of which those in `slow` answer after `delay`.
fn manager(nodes: &Nodes, slow: std::ops::Range<usize>, delay: Duration) -> LockManager {
    let each = nodes.0.iter().enumerate().map(|(index, node)| Slow {
        node: node.clone(),
        there: Duration::ZERO,
        back: if slow.contains(&index) {
            delay
        } else {
            Duration::ZERO
        },
    });
    let builder = LockManager::builder().nodes(each).clock(TokioClock::new());
    builder.lazy().unwrap()
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
