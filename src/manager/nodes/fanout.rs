//! One command to several nodes at once.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Sleep;

use crate::node::NodeFuture;

/// The futures of one command to several nodes, polled together where their replies are awaited.
///
/// There are a handful of nodes, so every wake-up polls every future that is left: cheaper than a task or a
/// waker for each.
pub(crate) struct Fanout<T> {
    pending: Vec<(usize, NodeFuture<T>)>,
    ready: Vec<(usize, T)>,
    // Replies are awaited until then; `None` for as long as it takes.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T> Fanout<T> {
    /// Futures, each with the number of its node. Nothing is sent before the first poll.
    pub(crate) fn new(futures: impl IntoIterator<Item = (usize, NodeFuture<T>)>) -> Self {
        let futures = futures.into_iter();
        // Room for all at once: what is filtered has no least length, and would grow step by step.
        let mut pending = Vec::with_capacity(futures.size_hint().1.unwrap_or(0));
        pending.extend(futures);
        Self {
            ready: Vec::with_capacity(pending.len()),
            pending,
            deadline: None,
        }
    }

    /// Adds one more future.
    pub(crate) fn push(&mut self, node: usize, future: NodeFuture<T>) {
        self.pending.push((node, future));
    }

    /// Awaits replies until `deadline` from now on, in place of any deadline before.
    pub(crate) fn until(&mut self, deadline: Sleep) {
        self.deadline = Some(Box::pin(deadline));
    }

    /// The next reply, or `None` when there are no more, or the [deadline](Self::until) has passed. Then
    /// [`abandon`](Self::abandon) tells which nodes have not answered.
    ///
    /// Cancel safe: a reply is either returned or kept.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
        if self.ready.is_empty() {
            let mut index = 0;
            // Every node is polled before any reply is looked at, so that all commands are under way.
            while let Some((node, future)) = self.pending.get_mut(index) {
                if let Poll::Ready(reply) = future.as_mut().poll(cx) {
                    self.ready.push((*node, reply));
                    drop(self.pending.swap_remove(index));
                } else {
                    index += 1;
                }
            }
        }
        match (self.ready.pop(), &mut self.deadline) {
            (Some(reply), _) => Poll::Ready(Some(reply)),
            (None, _) if self.pending.is_empty() => Poll::Ready(None),
            (None, Some(deadline)) => deadline.as_mut().poll(cx).map(|()| None),
            (None, None) => Poll::Pending,
        }
    }

    /// A reply that is there already.
    pub(crate) fn take_ready(&mut self) -> Option<(usize, T)> {
        self.ready.pop()
    }

    /// Whether no reply will come.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.ready.is_empty()
    }

    /// The nodes that have not answered.
    pub(crate) fn pending(&self) -> impl Iterator<Item = usize> + '_ {
        self.pending.iter().map(|(node, _)| *node)
    }

    /// Gives up on the nodes that have not answered, and names them. What they were sent may still take effect.
    pub(crate) fn abandon(&mut self) -> Vec<usize> {
        self.pending.drain(..).map(|(node, _)| node).collect()
    }

    /// Takes everything that is left.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new([]))
    }
}

impl<T> fmt::Debug for Fanout<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fanout")
            .field("pending", &self.pending.len())
            .field("ready", &self.ready.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::time::Duration;
    use tokio::time::sleep;

    fn one_is_silent() -> Fanout<&'static str> {
        Fanout::new([
            (0, Box::pin(ready("a")) as NodeFuture<_>),
            (1, Box::pin(pending())),
            (2, Box::pin(ready("c"))),
        ])
    }

    #[tokio::test]
    async fn replies_come_as_they_are_ready_and_the_rest_can_be_abandoned() {
        let mut fanout = one_is_silent();
        let mut seen = vec![fanout.next().await.unwrap()];
        seen.extend(std::iter::from_fn(|| fanout.take_ready()));
        seen.sort_unstable();
        assert_eq!(seen, [(0, "a"), (2, "c")]);
        assert!(!fanout.is_empty());
        assert_eq!(fanout.pending().collect::<Vec<_>>(), [1]);
        assert_eq!(fanout.abandon(), [1]);
        assert_eq!(fanout.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_comes_before_the_deadline_and_what_is_not_is_given_up() {
        let mut fanout = one_is_silent();
        fanout.until(sleep(Duration::ZERO));
        let mut seen = vec![fanout.next().await, fanout.next().await];
        seen.sort_unstable();
        assert_eq!(seen, [Some((0, "a")), Some((2, "c"))]);
        assert_eq!(fanout.next().await, None);
        assert_eq!(fanout.next().await, None, "it stays over");
        fanout.until(sleep(Duration::from_secs(1)));
        fanout.push(3, Box::pin(ready("d")));
        assert_eq!(fanout.next().await, Some((3, "d")), "until a new deadline");
        assert_eq!(fanout.next().await, None);
        assert_eq!(fanout.abandon(), [1]);
    }
}
