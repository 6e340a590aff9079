//! Memory nodes that one process reaches and another does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tower_redlock::clock::TokioClock;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, CompleteReply, CompleteRequest,
    EndClaim, ExtendReplies, ExtendRequest, Node, NodeContext, NodeError, NodeErrorKind,
    NodeFuture, NodeState, PromoteRequest, RaiseReply, RaiseRequest, RecallRequest, ReleaseReply,
    ReleaseRequest, VerifyReply, VerifyRequest,
};
use tower_redlock::{LockManager, LockManagerBuilder};

/// The way of one process to one node.
#[derive(Clone, Debug)]
pub(super) struct Link {
    node: MemoryNode,
    way: Arc<Way>,
}

#[derive(Debug, Default)]
struct Way {
    cut: AtomicBool,
    // Check-ins and promotions alone do not get through.
    unheard: AtomicBool,
    // Commands arrive so many milliseconds late.
    late: AtomicU64,
    // For so many milliseconds others may count the server that the node had before.
    settle: AtomicU64,
}

impl Link {
    /// Nothing gets through any more.
    pub(super) fn cut(&self) {
        self.way.cut.store(true, Ordering::SeqCst);
    }

    /// Everything gets through again.
    pub(super) fn mend(&self) {
        self.way.cut.store(false, Ordering::SeqCst);
        self.way.unheard.store(false, Ordering::SeqCst);
    }

    /// Commands on locks get through, and nothing is told of who the process is.
    pub(super) fn hush(&self) {
        self.way.unheard.store(true, Ordering::SeqCst);
    }

    /// Check-ins and promotions get through again.
    pub(super) fn listen(&self) {
        self.way.unheard.store(false, Ordering::SeqCst);
    }

    /// From now on commands on locks arrive so late.
    pub(super) fn delay(&self, delay: Duration) {
        let late = u64::try_from(delay.as_millis()).unwrap();
        self.way.late.store(late, Ordering::SeqCst);
    }

    /// From now on other processes may count the server that the node had before for so long.
    pub(super) fn settle(&self, settle: Duration) {
        let settle = u64::try_from(settle.as_millis()).unwrap();
        self.way.settle.store(settle, Ordering::SeqCst);
    }

    fn send<T: Send + 'static>(
        &self,
        command: NodeFuture<Result<T, NodeError>>,
    ) -> NodeFuture<Result<T, NodeError>> {
        let way = Arc::clone(&self.way);
        Box::pin(async move {
            if way.cut.load(Ordering::SeqCst) {
                return Err(gone());
            }
            let late = way.late.load(Ordering::SeqCst);
            if late > 0 {
                sleep(Duration::from_millis(late)).await;
            }
            command.await
        })
    }

    fn introduce<T: Send + 'static>(
        &self,
        command: NodeFuture<Result<T, NodeError>>,
    ) -> NodeFuture<Result<T, NodeError>> {
        let way = Arc::clone(&self.way);
        Box::pin(async move {
            if way.cut.load(Ordering::SeqCst) || way.unheard.load(Ordering::SeqCst) {
                return Err(gone());
            }
            command.await
        })
    }
}

fn gone() -> NodeError {
    NodeError::new(NodeErrorKind::Unavailable, "the link is cut")
}

impl Node for Link {
    fn name(&self) -> &str {
        self.node.name()
    }

    fn start(&self, context: NodeContext) {
        self.node.start(context);
    }

    fn state(&self) -> NodeState {
        if self.way.cut.load(Ordering::SeqCst) {
            return NodeState::Down(gone());
        }
        self.node.state()
    }

    fn ready(&self) -> NodeFuture<Result<(), NodeError>> {
        let (way, node) = (Arc::clone(&self.way), self.node.clone());
        Box::pin(async move {
            while way.cut.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(10)).await;
            }
            node.ready().await
        })
    }

    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        self.send(self.node.acquire(request))
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        self.send(self.node.extend(requests))
    }

    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        self.send(self.node.release(request))
    }

    fn raise(&self, request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>> {
        self.send(self.node.raise(request))
    }

    fn recall(&self, request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        self.send(self.node.recall(request))
    }

    fn complete(&self, request: CompleteRequest) -> NodeFuture<Result<CompleteReply, NodeError>> {
        self.send(self.node.complete(request))
    }

    fn verify(&self, request: VerifyRequest) -> NodeFuture<Result<VerifyReply, NodeError>> {
        self.send(self.node.verify(request))
    }

    fn end_claim(&self, request: EndClaim) -> NodeFuture<Result<(), NodeError>> {
        self.send(self.node.end_claim(request))
    }

    fn check_in(&self, request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>> {
        self.introduce(self.node.check_in(request))
    }

    fn promote(&self, request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>> {
        self.introduce(self.node.promote(request))
    }

    fn settle_time(&self) -> Duration {
        Duration::from_millis(self.way.settle.load(Ordering::SeqCst))
    }

    fn close(&self) -> NodeFuture<()> {
        self.node.close()
    }
}

/// One process: a way to each of its nodes.
pub(super) struct Process(pub(super) Vec<Link>);

impl Process {
    /// A process with a way to each of `nodes`.
    pub(super) fn on<'a>(nodes: impl IntoIterator<Item = &'a MemoryNode>) -> Self {
        let link = |node: &MemoryNode| Link {
            node: node.clone(),
            way: Arc::default(),
        };
        Self(nodes.into_iter().map(link).collect())
    }

    /// A builder of its manager.
    pub(super) fn builder(&self) -> LockManagerBuilder {
        LockManager::builder()
            .nodes(self.0.iter().cloned())
            .clock(TokioClock::new())
    }
}

/// Nodes called `n0`, `n1`, and so on.
pub(super) fn nodes(count: usize) -> Vec<MemoryNode> {
    let name = |n| MemoryNode::new(format!("n{n}"));
    (0..count).map(name).collect()
}
