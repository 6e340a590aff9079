//! Memory nodes some calls of which fail, or take their time.

use super::*;

/// What a call comes to.
#[derive(Clone)]
pub(super) enum Fate {
    /// What it comes to at the node.
    Usual,
    /// It is not sent.
    Fails(NodeError),
    /// It is not sent, and never answered.
    Silent,
    /// It takes so long to the node, and the answer so long back.
    Takes(Duration, Duration),
}

impl From<Option<NodeError>> for Fate {
    fn from(error: Option<NodeError>) -> Self {
        error.map_or(Self::Usual, Self::Fails)
    }
}

/// The fate of a call to the node of this name.
type Fates = dyn Fn(&str, Call) -> Fate + Send + Sync;

/// A node with calls that have a fate. It is asked for when they would be sent.
#[derive(Clone)]
pub(super) struct Odd {
    node: MemoryNode,
    fates: Arc<Fates>,
}

impl Odd {
    /// A manager's builder over nodes all of which are odd in one way.
    pub(super) fn over<F: Into<Fate>>(
        nodes: &[MemoryNode],
        fates: impl Fn(&str, Call) -> F + Send + Sync + 'static,
    ) -> Settings {
        let fates: Arc<Fates> = Arc::new(move |name, call| fates(name, call).into());
        over(nodes.iter().cloned().map(|node| {
            let fates = Arc::clone(&fates);
            Wrapped(Self { node, fates })
        }))
    }

    /// The same over nodes that are so far away. Notices come at once, and so does what concerns the right to vote.
    pub(super) fn slow(nodes: &[MemoryNode], there: Duration, back: Duration) -> Settings {
        Self::over(nodes, move |_, call| Fate::slow(call, there, back))
    }

    /// The same, where only the answers of the first node come so late.
    pub(super) fn late(nodes: &[MemoryNode], back: Duration) -> Settings {
        Self::over(nodes, move |name, call| {
            let back = if name == "n0" { back } else { Duration::ZERO };
            Fate::slow(call, Duration::ZERO, back)
        })
    }
}

impl Fate {
    fn slow(call: Call, there: Duration, back: Duration) -> Self {
        match call {
            Call::Ready | Call::CheckIn | Call::Promote => Self::Usual,
            _ => Self::Takes(there, back),
        }
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

impl Between for Odd {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        let Self { node, fates } = self.clone();
        Box::pin(async move {
            match fates(node.name(), call) {
                Fate::Usual => reply.await,
                Fate::Fails(error) => Err(error),
                Fate::Silent => pending().await,
                Fate::Takes(there, back) => {
                    sleep(there).await;
                    let answer = reply.await;
                    sleep(back).await;
                    answer
                }
            }
        })
    }
}
