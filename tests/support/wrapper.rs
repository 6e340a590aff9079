//! One wrapper around nodes for all tests that make nodes slow, far away, cut off or odd: it forwards every call, and
//! tells what stands in between which call it is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_redlock::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, CompleteReply, CompleteRequest,
    ExtendReplies, ExtendRequest, KeyReply, Node, NodeContext, NodeError, NodeFuture, NodeKeys,
    NodeState, Notifier, PromoteRequest, RaiseReply, RaiseRequest, RecallRequest, ReleaseReply,
    ReleaseRequest, ScanReply, ScanRequest, TakeOverRequest,
};

/// A method of a node that returns a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Ready,
    Acquire,
    Extend,
    Release,
    Raise,
    Recall,
    Complete,
    CheckIn,
    Promote,
    Holders,
    Scan,
    TakeOver,
    Close,
}

/// The future of a call.
pub(crate) type Reply<T> = NodeFuture<Result<T, NodeError>>;

/// What stands between a manager and a node. All that it does not say is as with the node.
pub(crate) trait Between: fmt::Debug + Send + Sync + 'static {
    /// The kind of node behind it.
    type Node: Node;

    /// The node behind it.
    fn node(&self) -> &Self::Node;

    /// Called when the manager prepares a call. `reply` is that of the node, which is sent nothing before it is polled.
    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T>;

    /// Called with every release that the manager prepares.
    fn sees_release(&self, _request: &ReleaseRequest) {}

    /// As of [`Node`].
    fn state(&self) -> NodeState {
        self.node().state()
    }

    /// As of [`Node`].
    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        self.node().notifier()
    }

    /// As of [`Node`].
    fn settle_time(&self) -> Duration {
        self.node().settle_time()
    }
}

/// A node behind something.
#[derive(Clone, Debug)]
pub(crate) struct Wrapped<B>(pub(crate) B);

impl<B: Between> Node for Wrapped<B> {
    fn name(&self) -> &str {
        self.0.node().name()
    }

    fn start(&self, context: NodeContext) {
        self.0.node().start(context);
    }

    fn agreed(&self) -> String {
        self.0.node().agreed()
    }

    fn settle_time(&self) -> Duration {
        self.0.settle_time()
    }

    fn state(&self) -> NodeState {
        self.0.state()
    }

    fn ready(&self) -> Reply<()> {
        self.0.pass(Call::Ready, self.0.node().ready())
    }

    fn acquire(&self, request: AcquireRequest) -> Reply<AcquireReply> {
        self.0.pass(Call::Acquire, self.0.node().acquire(request))
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        self.0.pass(Call::Extend, self.0.node().extend(requests))
    }

    fn release(&self, request: ReleaseRequest) -> Reply<ReleaseReply> {
        self.0.sees_release(&request);
        self.0.pass(Call::Release, self.0.node().release(request))
    }

    fn raise(&self, request: RaiseRequest) -> Reply<RaiseReply> {
        self.0.pass(Call::Raise, self.0.node().raise(request))
    }

    fn recall(&self, request: RecallRequest) -> Reply<AcquireReply> {
        self.0.pass(Call::Recall, self.0.node().recall(request))
    }

    fn complete(&self, request: CompleteRequest) -> Reply<CompleteReply> {
        self.0.pass(Call::Complete, self.0.node().complete(request))
    }

    fn check_in(&self, request: CheckInRequest) -> Reply<CheckInReply> {
        self.0.pass(Call::CheckIn, self.0.node().check_in(request))
    }

    fn promote(&self, request: PromoteRequest) -> Reply<bool> {
        self.0.pass(Call::Promote, self.0.node().promote(request))
    }

    fn holders(&self, keys: NodeKeys) -> Reply<Vec<KeyReply>> {
        self.0.pass(Call::Holders, self.0.node().holders(keys))
    }

    fn scan(&self, request: ScanRequest) -> Reply<ScanReply> {
        self.0.pass(Call::Scan, self.0.node().scan(request))
    }

    fn take_over(&self, request: TakeOverRequest) -> Reply<Option<Duration>> {
        self.0
            .pass(Call::TakeOver, self.0.node().take_over(request))
    }

    fn close(&self) -> NodeFuture<()> {
        let closed = self.0.node().close();
        let closed = Box::pin(async move {
            closed.await;
            Ok(())
        });
        let closed = self.0.pass(Call::Close, closed);
        Box::pin(async move { drop(closed.await) })
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        self.0.notifier()
    }
}
