//! Nodes that are far away, for one manager, and that can hold up whoever gives something back.

use std::sync::Condvar;

use tokio::sync::Notify;

use super::*;

/// A node that is far away, whose callers can be held up as they make ready to give something back, and that takes
/// nothing any more once it is closed.
#[derive(Clone, Debug)]
struct Remote {
    node: MemoryNode,
    way: Duration,
    gate: Option<Arc<Gate>>,
    closed: Arc<AtomicBool>,
}

/// A place where threads wait until they are let through.
#[derive(Debug, Default)]
pub(super) struct Gate {
    arrived: Notify,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        self.arrived.notify_one();
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    /// Waits until the first has come.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(super) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl Remote {
    /// `command`, if the node is open when it is sent, and its answer, there and back.
    fn far<T: Send + 'static>(&self, command: Reply<T>) -> Reply<T> {
        let (way, closed) = (self.way, Arc::clone(&self.closed));
        Box::pin(async move {
            if closed.load(Ordering::Acquire) {
                return Err(NodeError::of(NodeErrorKind::Closed, "it was closed"));
            }
            sleep(way).await;
            let answer = command.await;
            sleep(way).await;
            answer
        })
    }

    fn pass_gate(&self) {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
    }
}

impl Between for Remote {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        match call {
            // What concerns the right to vote comes at once.
            Call::CheckIn | Call::Promote => reply,
            Call::Release | Call::Complete => {
                self.pass_gate();
                self.far(reply)
            }
            Call::Close => {
                let closed = Arc::clone(&self.closed);
                Box::pin(async move {
                    closed.store(true, Ordering::Release);
                    reply.await
                })
            }
            _ => self.far(reply),
        }
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        None
    }
}

/// Three memory nodes, seen by one manager from far away.
pub(super) struct Far {
    pub(super) nodes: Nodes,
    remotes: Vec<Remote>,
    gate: Option<Arc<Gate>>,
}

impl Far {
    pub(super) fn new(way: Duration, gate: Option<Arc<Gate>>) -> Self {
        let nodes = Nodes::of(3);
        let remotes = nodes.0.iter().map(|node| Remote {
            node: node.clone(),
            way,
            gate: gate.clone(),
            closed: Arc::default(),
        });
        let remotes = remotes.collect();
        Self {
            nodes,
            remotes,
            gate,
        }
    }

    pub(super) fn builder(&self) -> Settings {
        let builder = LockManager::builder().nodes(self.remotes.iter().cloned().map(Wrapped));
        let builder = builder.ttl(TTL).without_restart_guard();
        if self.gate.is_some() {
            // Threads that are held up do not follow tokio's clock.
            return builder;
        }
        builder.clock(TokioClock::new()).node_timeout(SECOND)
    }

    pub(super) fn manager(&self) -> LockManager {
        lazy(self.builder())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.remotes
            .iter()
            .all(|remote| remote.closed.load(Ordering::Acquire))
    }

    /// How many nodes hold anything.
    pub(super) fn holding(&self) -> usize {
        let nodes = self.nodes.0.iter();
        nodes.filter(|node| !node.keys().is_empty()).count()
    }
}
