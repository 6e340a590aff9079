//! Gates before the nodes: what becomes of the commands that one manager sends them.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use tower_redlock::node::MemoryNode;
use tower_redlock::node::{NodeError, NodeErrorKind};

use super::wrapper::{Between, Call, Reply};

/// How long a command that is slow takes there, and its answer back. Less than the node time-out.
const WAY: Duration = Duration::from_millis(10);

/// What becomes of a command at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// It is done, and answered at once.
    Ready,
    /// It is refused, and not done.
    Error,
    /// It is done after a while, whether or not anybody waits for it then, and answered after another.
    Slow,
    /// It is done, and never answered.
    Never,
    /// It is done, and the connection breaks before the answer.
    Dropped,
    /// It never comes to the node, and nobody says so.
    Lost,
}

impl Behaviour {
    /// All that are worse than an answer at once.
    pub(crate) const ODD: [Self; 5] = [
        Self::Error,
        Self::Slow,
        Self::Never,
        Self::Dropped,
        Self::Lost,
    ];
}

/// Which commands meet which behaviour; all others are answered at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) behaviour: Behaviour,
    /// Commands of this kind; `None`: of all kinds.
    pub(crate) call: Option<Call>,
    /// To the first so many nodes.
    pub(crate) nodes: usize,
}

impl Setting {
    /// All commands are answered at once.
    pub(crate) const OPEN: Self = Self {
        behaviour: Behaviour::Ready,
        call: None,
        nodes: 0,
    };

    fn behaviour(&self, call: Call, node: usize) -> Behaviour {
        let is_meant = node < self.nodes && self.call.is_none_or(|only| only == call);
        match (self.behaviour, self.call, call) {
            _ if !is_meant => Behaviour::Ready,
            // A node that refuses all commands is not ready, and may be some time.
            (Behaviour::Error, None, Call::Ready) => Behaviour::Lost,
            (behaviour, ..) => behaviour,
        }
    }
}

/// The gates of one manager. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Gates(Arc<State>);

#[derive(Debug)]
struct State {
    setting: watch::Sender<Setting>,
    // The kinds of commands since the setting was made.
    calls: Mutex<BTreeSet<Call>>,
    count: AtomicUsize,
}

/// More commands than there can be where anybody pauses before a next try. With paused time, those who do not would go
/// on without end.
const MOST: usize = 50_000;

impl Gates {
    /// Gates that are open.
    pub(crate) fn new() -> Self {
        Self(Arc::new(State {
            setting: watch::Sender::new(Setting::OPEN),
            calls: Mutex::default(),
            count: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn set(&self, setting: Setting) {
        self.0.calls.lock().unwrap().clear();
        self.0.setting.send_replace(setting);
    }

    /// Opens all gates. Commands that were never to be answered are not answered now either.
    pub(crate) fn lift(&self) {
        self.0.setting.send_replace(Setting::OPEN);
    }

    /// The kinds of commands that were sent since the gates were set.
    pub(crate) fn calls(&self) -> BTreeSet<Call> {
        self.0.calls.lock().unwrap().clone()
    }

    /// `node`, the one with this index, behind these gates.
    pub(crate) fn before(&self, node: &MemoryNode, index: usize) -> Gated {
        Gated {
            node: node.clone(),
            index,
            gates: self.clone(),
            lane: Arc::default(),
        }
    }

    fn meet(&self, call: Call, node: usize) -> Behaviour {
        let count = self.0.count.fetch_add(1, Ordering::Relaxed);
        assert!(count < MOST, "{call:?} is sent without end");
        self.0.calls.lock().unwrap().insert(call);
        self.0.setting.borrow().behaviour(call, node)
    }

    /// Waits until the gate is open for commands of this kind.
    async fn opened(&self, call: Call, node: usize) {
        let mut setting = self.0.setting.subscribe();
        let is_open = |setting: &Setting| setting.behaviour(call, node) == Behaviour::Ready;
        // The sender lives as long as the gates do.
        let _ = setting.wait_for(is_open).await;
    }
}

/// A node behind a gate.
#[derive(Debug)]
pub(crate) struct Gated {
    node: MemoryNode,
    index: usize,
    gates: Gates,
    lane: Arc<Lane>,
}

impl Between for Gated {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        let (gates, index, lane) = (self.gates.clone(), self.index, Arc::clone(&self.lane));
        Box::pin(async move {
            let behaviour = gates.meet(call, index);
            match (behaviour, call) {
                (Behaviour::Ready, _) => reply.await,
                (Behaviour::Slow, _) => slow(lane, reply).await,
                // No command is sent for it: a node is not ready, or says that it never will be.
                (Behaviour::Error, Call::Ready) => Err(error(NodeErrorKind::Misconfigured)),
                (_, Call::Ready) => {
                    gates.opened(call, index).await;
                    reply.await
                }
                (Behaviour::Error, _) => Err(error(NodeErrorKind::Unavailable)),
                (Behaviour::Never, _) => {
                    drop(reply.await);
                    pending().await
                }
                (Behaviour::Dropped, _) => {
                    drop(reply.await);
                    Err(error(NodeErrorKind::Interrupted))
                }
                (Behaviour::Lost, _) => {
                    drop(reply);
                    pending().await
                }
            }
        })
    }
}

fn error(kind: NodeErrorKind) -> NodeError {
    NodeError::of(kind, "the gate")
}

/// The commands to one node that are under way. They come there one after the other, as on one connection.
#[derive(Default)]
struct Lane(Mutex<VecDeque<Job>>);

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lane")
    }
}

async fn slow<T: Send + 'static>(lane: Arc<Lane>, reply: Reply<T>) -> Result<T, NodeError> {
    let (answer, answered) = oneshot::channel();
    let job = async move { drop(answer.send(reply.await)) };
    lane.0.lock().unwrap().push_back(Box::pin(job));
    tokio::spawn(async move {
        sleep(WAY).await;
        // All take as long, so the first is the one that has come.
        let job = lane.0.lock().unwrap().pop_front();
        if let Some(job) = job {
            job.await;
        }
    });
    let reply = answered.await;
    sleep(WAY).await;
    reply.unwrap_or_else(|_| Err(error(NodeErrorKind::Interrupted)))
}
