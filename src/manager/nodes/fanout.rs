//! One command to several nodes at once.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::node::NodeFuture;

/// The futures of one command to several nodes, polled together by whoever waits for them.
///
/// There are a handful of nodes, so every wake-up polls every future that is left: cheaper than a task or a
/// waker for each.
pub(in crate::manager) struct Fanout<T> {
    pending: Vec<(usize, NodeFuture<T>)>,
    ready: Vec<(usize, T)>,
}

impl<T> Fanout<T> {
    /// Futures, each with the number of its node. Nothing is sent before the first poll.
    pub(in crate::manager) fn new(
        futures: impl IntoIterator<Item = (usize, NodeFuture<T>)>,
    ) -> Self {
        Self {
            pending: futures.into_iter().collect(),
            ready: Vec::new(),
        }
    }

    /// Adds one more future.
    pub(in crate::manager) fn push(&mut self, node: usize, future: NodeFuture<T>) {
        self.pending.push((node, future));
    }

    /// The next answer, or `None` when there are no more.
    ///
    /// Cancel safe: an answer is either returned or kept.
    pub(in crate::manager) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
        if self.ready.is_empty() {
            let mut index = 0;
            // Every node is polled before any answer is looked at, so that all commands are under way.
            while let Some((node, future)) = self.pending.get_mut(index) {
                if let Poll::Ready(answer) = future.as_mut().poll(cx) {
                    self.ready.push((*node, answer));
                    drop(self.pending.swap_remove(index));
                } else {
                    index += 1;
                }
            }
        }
        match self.ready.pop() {
            Some(answer) => Poll::Ready(Some(answer)),
            None if self.pending.is_empty() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// An answer that is there already.
    pub(in crate::manager) fn take_ready(&mut self) -> Option<(usize, T)> {
        self.ready.pop()
    }

    /// Whether no answer will come.
    pub(in crate::manager) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.ready.is_empty()
    }

    /// The nodes that have not answered.
    pub(in crate::manager) fn pending(&self) -> impl Iterator<Item = usize> + '_ {
        self.pending.iter().map(|(node, _)| *node)
    }

    /// Gives up on the nodes that have not answered, and names them. What they were sent may still take effect.
    pub(in crate::manager) fn abandon(&mut self) -> Vec<usize> {
        self.pending.drain(..).map(|(node, _)| node).collect()
    }

    /// Takes everything that is left.
    pub(in crate::manager) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new([]))
    }
}

impl<T> fmt::Debug for Fanout<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fanout")
            .field("pending", &self.pending.len())
            .field("ready", &self.ready.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn answers_come_as_they_are_ready_and_the_rest_can_be_abandoned() {
        let mut fanout: Fanout<&str> = Fanout::new([
            (0, Box::pin(ready("a")) as NodeFuture<_>),
            (1, Box::pin(pending())),
            (2, Box::pin(ready("c"))),
        ]);
        let mut seen = vec![fanout.next().await.unwrap()];
        seen.extend(std::iter::from_fn(|| fanout.take_ready()));
        seen.sort_unstable();
        assert_eq!(seen, [(0, "a"), (2, "c")]);
        assert!(!fanout.is_empty());
        assert_eq!(fanout.pending().collect::<Vec<_>>(), [1]);
        assert_eq!(fanout.abandon(), [1]);
        assert_eq!(fanout.next().await, None);
    }
}
