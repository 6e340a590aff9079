//! Memory nodes that one process reaches and another does not.

use super::*;

/// The way of one process to one node.
#[derive(Clone, Debug)]
pub(super) struct Link {
    node: MemoryNode,
    way: Arc<Way>,
}

#[derive(Debug, Default)]
struct Way {
    cut: AtomicBool,
    // The first connection is being made.
    connecting: AtomicBool,
    // The node refuses to be promoted.
    unpromoted: AtomicBool,
    // Commands arrive so many milliseconds late, and check-ins if it is far.
    late: AtomicU64,
    far: AtomicBool,
    // For so many milliseconds others may count the server that the node had before.
    settle: AtomicU64,
}

impl Link {
    /// Nothing gets through any more.
    pub(super) fn cut(&self) {
        self.way.cut.store(true, Ordering::SeqCst);
    }

    /// It takes so long until there is a connection.
    pub(super) fn connect_for(&self, time: Duration) {
        self.way.connecting.store(true, Ordering::SeqCst);
        let way = Arc::clone(&self.way);
        tokio::spawn(async move {
            sleep(time).await;
            way.connecting.store(false, Ordering::SeqCst);
        });
    }

    /// Everything gets through again.
    pub(super) fn mend(&self) {
        self.way.cut.store(false, Ordering::SeqCst);
    }

    /// From now on the node refuses to be promoted.
    pub(super) fn refuse_promotion(&self) {
        self.way.unpromoted.store(true, Ordering::SeqCst);
    }

    /// From now on commands on locks arrive so late.
    pub(super) fn delay(&self, delay: Duration) {
        let late = u64::try_from(delay.as_millis()).unwrap();
        self.way.late.store(late, Ordering::SeqCst);
    }

    /// From now on everything arrives so late.
    pub(super) fn recede(&self, delay: Duration) {
        self.delay(delay);
        self.way.far.store(true, Ordering::SeqCst);
    }

    /// From now on other processes may count the server that the node had before for so long.
    pub(super) fn settle(&self, settle: Duration) {
        let settle = u64::try_from(settle.as_millis()).unwrap();
        self.way.settle.store(settle, Ordering::SeqCst);
    }

    fn send<T: Send + 'static>(&self, command: Reply<T>) -> Reply<T> {
        let way = Arc::clone(&self.way);
        Box::pin(async move {
            if way.is_closed() {
                return Err(gone());
            }
            let late = way.late.load(Ordering::SeqCst);
            if late > 0 {
                sleep(Duration::from_millis(late)).await;
            }
            command.await
        })
    }

    fn introduce<T: Send + 'static>(&self, command: Reply<T>) -> Reply<T> {
        let way = Arc::clone(&self.way);
        Box::pin(async move {
            if way.is_closed() {
                return Err(gone());
            }
            command.await
        })
    }
}

impl Way {
    /// Whether nothing gets through.
    fn is_closed(&self) -> bool {
        self.cut.load(Ordering::SeqCst) || self.connecting.load(Ordering::SeqCst)
    }
}

fn gone() -> NodeError {
    NodeError::of(NodeErrorKind::Unavailable, "the link is cut")
}

impl Between for Link {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        match call {
            Call::Close => reply,
            Call::Promote if self.way.unpromoted.load(Ordering::SeqCst) => Box::pin(async {
                let text = "OOM command not allowed";
                Err(NodeError::of(NodeErrorKind::Rejected, text))
            }),
            Call::CheckIn | Call::Promote if !self.way.far.load(Ordering::SeqCst) => {
                self.introduce(reply)
            }
            Call::Ready => {
                let way = Arc::clone(&self.way);
                Box::pin(async move {
                    while way.is_closed() {
                        sleep(Duration::from_millis(10)).await;
                    }
                    reply.await
                })
            }
            _ => self.send(reply),
        }
    }

    fn state(&self) -> NodeState {
        if self.way.cut.load(Ordering::SeqCst) {
            return NodeState::Down(gone());
        }
        if self.way.is_closed() {
            return NodeState::Connecting;
        }
        self.node.state()
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        None
    }

    fn settle_time(&self) -> Duration {
        Duration::from_millis(self.way.settle.load(Ordering::SeqCst))
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
    pub(super) fn builder(&self) -> Settings {
        over(self.0.iter().cloned().map(Wrapped))
    }
}
