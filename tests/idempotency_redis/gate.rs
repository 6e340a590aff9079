//! Nodes that keep back what a request came to.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::sleep;
use tower_redlock::node::LiveNode;

use crate::branch::Point;
use crate::process::{MOMENT, here};
use crate::support::wrapper::{Between, Call, Reply, Wrapped};

/// A server as a node, which completes as far as the process gets.
#[derive(Debug)]
pub(crate) struct Gate {
    node: LiveNode,
    stops_at: Option<Point>,
    is_first: bool,
    // Whether there was a completion before.
    seen: AtomicBool,
}

impl Gate {
    pub(crate) const fn new(
        node: LiveNode,
        stops_at: Option<Point>,
        is_first: bool,
    ) -> Wrapped<Self> {
        Wrapped(Self {
            node,
            stops_at,
            is_first,
            seen: AtomicBool::new(false),
        })
    }
}

impl Between for Gate {
    type Node = LiveNode;

    fn node(&self) -> &LiveNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        let is_first = self.is_first;
        match self.stops_at.filter(|_| call == Call::Complete) {
            Some(Point::BeforeRecord) => Box::pin(async move {
                if is_first {
                    here();
                }
                pending().await
            }),
            Some(Point::AfterOneNode) => Box::pin(async move {
                if is_first {
                    reply.await.unwrap();
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
                    let reply = reply.await;
                    here();
                    reply
                })
            }
            _ => reply,
        }
    }
}
