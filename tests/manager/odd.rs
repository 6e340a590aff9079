//! Memory nodes some calls of which fail.

use super::*;

/// What a call to the node of this name comes to, unless the node itself is to answer.
type Fails = dyn Fn(&str, Call) -> Option<NodeError> + Send + Sync;

/// A node some calls of which fail. They are asked about when they would be sent.
#[derive(Clone)]
pub(super) struct Odd {
    node: MemoryNode,
    fails: Arc<Fails>,
}

impl Odd {
    /// A manager's builder over nodes all of which are odd in one way.
    pub(super) fn over(
        nodes: &[MemoryNode],
        fails: impl Fn(&str, Call) -> Option<NodeError> + Send + Sync + 'static,
    ) -> Settings {
        let fails: Arc<Fails> = Arc::new(fails);
        over(nodes.iter().cloned().map(|node| {
            let fails = Arc::clone(&fails);
            Wrapped(Self { node, fails })
        }))
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
        let Self { node, fails } = self.clone();
        Box::pin(async move {
            match fails(node.name(), call) {
                Some(error) => Err(error),
                None => reply.await,
            }
        })
    }
}
