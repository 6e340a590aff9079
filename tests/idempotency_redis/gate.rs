//! Nodes that keep back what a request came to.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::sleep;
use tower_redlock::node::redis::RedisNode;
use tower_redlock::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, CompleteReply, CompleteRequest,
    ExtendReplies, ExtendRequest, Node, NodeContext, NodeError, NodeFuture, NodeState, Notifier,
    PromoteRequest, RaiseReply, RaiseRequest, RecallRequest, ReleaseReply, ReleaseRequest,
    VerifyReply, VerifyRequest,
};

use crate::branch::Point;
use crate::process::{MOMENT, here};

/// A server as a node, which completes as far as the process gets.
#[derive(Debug)]
pub(crate) struct Gate {
    node: RedisNode,
    stops_at: Option<Point>,
    is_first: bool,
    // Whether there was a completion before.
    seen: AtomicBool,
}

impl Gate {
    pub(crate) const fn new(node: RedisNode, stops_at: Option<Point>, is_first: bool) -> Self {
        Self {
            node,
            stops_at,
            is_first,
            seen: AtomicBool::new(false),
        }
    }
}

type Reply<T> = NodeFuture<Result<T, NodeError>>;

impl Node for Gate {
    fn complete(&self, request: CompleteRequest) -> Reply<CompleteReply> {
        let (node, is_first) = (self.node.clone(), self.is_first);
        match self.stops_at {
            Some(Point::BeforeRecord) => Box::pin(async move {
                if is_first {
                    here();
                }
                pending().await
            }),
            Some(Point::AfterOneNode) => Box::pin(async move {
                if is_first {
                    node.complete(request).await.unwrap();
                    here();
                }
                pending().await
            }),
            Some(Point::RecordToBeOvertaken) => {
                let seen = self.seen.swap(true, Ordering::SeqCst);
                Box::pin(async move {
                    if !seen {
                        if is_first {
                            here();
                        }
                        // The parent stops the process meanwhile.
                        sleep(MOMENT).await;
                    }
                    let reply = node.complete(request).await;
                    here();
                    reply
                })
            }
            _ => node.complete(request),
        }
    }

    fn name(&self) -> &str {
        self.node.name()
    }

    fn start(&self, context: NodeContext) {
        self.node.start(context);
    }

    fn state(&self) -> NodeState {
        self.node.state()
    }

    fn ready(&self) -> Reply<()> {
        self.node.ready()
    }

    fn acquire(&self, request: AcquireRequest) -> Reply<AcquireReply> {
        self.node.acquire(request)
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        self.node.extend(requests)
    }

    fn release(&self, request: ReleaseRequest) -> Reply<ReleaseReply> {
        self.node.release(request)
    }

    fn raise(&self, request: RaiseRequest) -> Reply<RaiseReply> {
        self.node.raise(request)
    }

    fn recall(&self, request: RecallRequest) -> Reply<AcquireReply> {
        self.node.recall(request)
    }

    fn verify(&self, request: VerifyRequest) -> Reply<VerifyReply> {
        self.node.verify(request)
    }

    fn check_in(&self, request: CheckInRequest) -> Reply<CheckInReply> {
        self.node.check_in(request)
    }

    fn promote(&self, request: PromoteRequest) -> Reply<bool> {
        self.node.promote(request)
    }

    fn close(&self) -> NodeFuture<()> {
        self.node.close()
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        self.node.notifier()
    }
}
