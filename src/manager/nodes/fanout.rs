//! One command to several nodes at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Sleep;

use crate::node::NodeFuture;

/// The futures of one command to several nodes, polled together: cheaper than a task or a waker for each of a handful.
pub(crate) struct Fanout<T> {
    slots: Vec<(usize, Slot<T>)>,
    // Replies are awaited until then; `None` for as long as it takes.
    deadline: Option<Pin<Box<Sleep>>>,
}

enum Slot<T> {
    Pending(NodeFuture<T>),
    Ready(T),
}

impl<T> Fanout<T> {
    pub(crate) fn new(futures: impl IntoIterator<Item = (usize, NodeFuture<T>)>) -> Self {
        let futures = futures.into_iter();
        // Room for all at once: what is filtered has no least length, and would grow step by step.
        let mut slots = Vec::with_capacity(futures.size_hint().1.unwrap_or(0));
        slots.extend(futures.map(|(node, future)| (node, Slot::Pending(future))));
        Self {
            slots,
            deadline: None,
        }
    }

    pub(crate) fn push(&mut self, node: usize, future: NodeFuture<T>) {
        self.slots.push((node, Slot::Pending(future)));
    }

    pub(crate) fn until(&mut self, deadline: Sleep) {
        self.deadline = Some(Box::pin(deadline));
    }

    pub(crate) fn no_deadline(&mut self) {
        self.deadline = None;
    }

    /// The next reply; `None` when there are no more, or at the [deadline](Self::until). Cancel safe: a reply is either
    /// returned or kept.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next); a deadline is made only if there is something to wait for. Cancel safe.
    pub(crate) async fn next_within(
        &mut self,
        mut deadline: impl FnMut() -> Sleep,
    ) -> Option<(usize, T)> {
        poll_fn(|cx| {
            let next = self.poll_reply(cx);
            if next.is_pending() && self.deadline.is_none() {
                self.until(deadline());
            }
            self.or_deadline(next, cx)
        })
        .await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
        let next = self.poll_reply(cx);
        self.or_deadline(next, cx)
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
        let mut reply = self.take_ready();
        if reply.is_none() {
            // Every node is polled before any reply is looked at, so that all commands are under way.
            for (_, slot) in &mut self.slots {
                if let Slot::Pending(future) = slot
                    && let Poll::Ready(reply) = future.as_mut().poll(cx)
                {
                    *slot = Slot::Ready(reply);
                }
            }
            reply = self.take_ready();
        }
        match reply {
            None if !self.slots.is_empty() => Poll::Pending,
            reply => Poll::Ready(reply),
        }
    }

    fn or_deadline(
        &mut self,
        next: Poll<Option<(usize, T)>>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(usize, T)>> {
        match (next, &mut self.deadline) {
            (Poll::Pending, Some(deadline)) => deadline.as_mut().poll(cx).map(|()| None),
            (next, _) => next,
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
        let slots = self.slots.iter();
        slots
            .filter(|(_, slot)| matches!(slot, Slot::Pending(_)))
            .map(|(node, _)| *node)
    }

    /// Gives up on the nodes that have not answered, and names them. Their commands may still take effect.
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
    async fn a_deadline_is_made_where_one_has_to_wait_and_kept() {
        let mut fanout = one_is_silent();
        let mut made = 0;
        let mut deadline = || {
            made += 1;
            assert_eq!(made, 1, "it would never be over");
            sleep(Duration::from_secs(1))
        };
        let start = tokio::time::Instant::now();
        for _ in 0..2 {
            assert!(fanout.next_within(&mut deadline).await.is_some());
        }
        let waited = timeout(
            Duration::from_millis(600),
            fanout.next_within(&mut deadline),
        );
        assert!(waited.await.is_err());
        assert_eq!(fanout.next_within(&mut deadline).await, None);
        assert_eq!(made, 1);
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        fanout.no_deadline();
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
