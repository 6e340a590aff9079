use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::time::Sleep;

use crate::node::NodeFuture;

/// The futures of one command to several nodes, polled together. For few nodes this is cheaper than a task per node.
pub(crate) struct Fanout<T> {
    slots: SmallVec<[(usize, Slot<T>); 1]>,
}

enum Slot<T> {
    Pending(NodeFuture<T>),
    Ready(T),
}

impl<T> Fanout<T> {
    pub(crate) fn new(futures: impl IntoIterator<Item = (usize, NodeFuture<T>)>) -> Self {
        let futures = futures.into_iter();
        // Reserve by the upper size hint. `extend` alone would reserve by the lower one, which is zero for a filtered
        // iterator, and grow the vector step by step.
        let mut slots = SmallVec::with_capacity(futures.size_hint().1.unwrap_or(0));
        slots.extend(futures.map(|(node, future)| (node, Slot::Pending(future))));
        Self { slots }
    }

    pub(crate) fn push(&mut self, node: usize, future: NodeFuture<T>) {
        self.slots.push((node, Slot::Pending(future)));
    }

    /// The next reply; `None` when there are no more. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|cx| self.poll_reply(cx)).await
    }

    pub(crate) async fn next_before(
        &mut self,
        mut deadline: Pin<&mut Sleep>,
    ) -> Option<(usize, T)> {
        poll_fn(|cx| match self.poll_reply(cx) {
            Poll::Pending => deadline.as_mut().poll(cx).map(|()| None),
            reply => reply,
        })
        .await
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
        if let Some(reply) = self.take_ready() {
            return Poll::Ready(Some(reply));
        }
        // Poll every future before returning a reply, so that the commands to all nodes are sent.
        for (_, slot) in &mut self.slots {
            if let Slot::Pending(future) = slot
                && let Poll::Ready(reply) = future.as_mut().poll(cx)
            {
                *slot = Slot::Ready(reply);
            }
        }
        match self.take_ready() {
            None if !self.slots.is_empty() => Poll::Pending,
            reply => Poll::Ready(reply),
        }
    }

    pub(crate) fn take_ready(&mut self) -> Option<(usize, T)> {
        let is_ready = |(_, slot): &(usize, Slot<T>)| matches!(slot, Slot::Ready(_));
        let index = self.slots.iter().position(is_ready)?;
        match self.slots.swap_remove(index) {
            (node, Slot::Ready(reply)) => Some((node, reply)),
            (_, Slot::Pending(_)) => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().filter_map(|(node, slot)| match slot {
            Slot::Pending(_) => Some(*node),
            Slot::Ready(_) => None,
        })
    }

    /// Gives up on the nodes that have not answered, and returns them. Their commands can still run.
    pub(crate) fn abandon(&mut self) -> Vec<usize> {
        let late = self.pending().collect();
        self.slots
            .retain(|(_, slot)| matches!(slot, Slot::Ready(_)));
        late
    }

    pub(crate) fn into_pending(self) -> impl Iterator<Item = (usize, NodeFuture<T>)> {
        let slots = self.slots.into_iter();
        slots.filter_map(|(node, slot)| match slot {
            Slot::Pending(future) => Some((node, future)),
            Slot::Ready(_) => None,
        })
    }

    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new([]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};

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
    async fn a_wait_that_is_dropped_loses_no_reply_and_moves_no_deadline() {
        let mut fanout = one_is_silent();
        let start = tokio::time::Instant::now();
        let mut deadline = pin!(sleep(Duration::from_secs(1)));
        for _ in 0..2 {
            assert!(fanout.next_before(deadline.as_mut()).await.is_some());
        }
        let waited = fanout.next_before(deadline.as_mut());
        assert!(timeout(Duration::from_millis(600), waited).await.is_err());
        assert_eq!(fanout.next_before(deadline.as_mut()).await, None);
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        fanout.push(
            3,
            Box::pin(async {
                sleep(Duration::from_secs(5)).await;
                "d"
            }),
        );
        assert_eq!(fanout.next().await, Some((3, "d")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_comes_before_the_deadline_and_what_is_not_is_given_up() {
        let mut fanout = one_is_silent();
        let mut deadline = pin!(sleep(Duration::ZERO));
        let mut seen = Vec::new();
        while let Some(reply) = fanout.next_before(deadline.as_mut()).await {
            seen.push(reply);
        }
        seen.sort_unstable();
        assert_eq!(seen, [(0, "a"), (2, "c")]);
        fanout.push(3, Box::pin(ready("d")));
        let mut later = pin!(sleep(Duration::from_secs(1)));
        let reply = fanout.next_before(later.as_mut()).await;
        assert_eq!(reply, Some((3, "d")), "until a new deadline");
        assert_eq!(fanout.next_before(later.as_mut()).await, None);
        assert_eq!(fanout.abandon(), [1]);
    }
}
