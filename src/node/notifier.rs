//! The [`Notifier`] port: notices of releases on a node.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::namespace::NodeKey;

/// Notifies waiting callers when a lock is released on one node. Notices may be missing, late, repeated or wrong. They
/// never grant a lock, and waiting callers also poll.
pub trait Notifier: fmt::Debug + Send + Sync + 'static {
    /// Reports the releases of `key` to `sender` until the subscription is dropped.
    fn subscribe(&self, key: &NodeKey, sender: NoticeSender) -> Subscription;
}

/// A subscription to notices, which ends when it is dropped.
#[must_use = "a subscription that is dropped ends"]
pub struct Subscription(Box<dyn Fn() + Send + Sync>);

impl Subscription {
    pub(crate) fn new(end: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Box::new(end))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

/// Collects the notices of several nodes about the keys of one lock.
#[derive(Debug)]
pub struct NoticeReceiver {
    inbox: Arc<Inbox>,
}

#[derive(Debug)]
struct Inbox {
    arrivals: Mutex<Arrivals>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Arrivals {
    nodes: Vec<NodeNotices>,
    least_open: usize,
    waited: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeNotices {
    // One bit of `open` for each sender.
    senders: u32,
    open: u64,
    released: bool,
}

impl NodeNotices {
    const fn is_open(&self) -> bool {
        self.senders > 0 && self.open.count_ones() == self.senders
    }
}

/// The notices since the last [`NoticeReceiver::forget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notices {
    /// The number of nodes that announced a release.
    pub released: usize,
    /// The number of nodes on which all subscriptions are open now.
    pub open: usize,
    /// The lowest value of [`open`](Self::open) since the last `forget`.
    pub least_open: usize,
    /// The longest time that a former holder had waited, according to the notices.
    pub waited: Duration,
}

impl NoticeReceiver {
    /// A receiver for the notices of this many nodes.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self {
            inbox: Arc::new(Inbox {
                arrivals: Mutex::new(Arrivals {
                    nodes: vec![NodeNotices::default(); nodes],
                    ..Arrivals::default()
                }),
                changed: Notify::new(),
            }),
        }
    }

    /// Adds a sender for the node with the index `node`. Each key needs a sender of its own, and there can be at most
    /// 64 for a node.
    #[must_use]
    pub fn sender(&self, node: usize) -> NoticeSender {
        let mut bit = 0;
        self.inbox.change(node, |own| {
            bit = own.senders.min(u64::BITS - 1);
            own.senders = bit + 1;
        });
        NoticeSender {
            inbox: Arc::clone(&self.inbox),
            node,
            bit: 1 << bit,
        }
    }

    /// The notices since the last [`forget`](Self::forget).
    #[must_use]
    pub fn notices(&self) -> Notices {
        let arrivals = self.inbox.arrivals();
        Notices {
            released: arrivals.count(|own| own.released),
            open: arrivals.count(NodeNotices::is_open),
            least_open: arrivals.least_open,
            waited: arrivals.waited,
        }
    }

    /// Forgets all notices.
    pub fn forget(&self) {
        let mut arrivals = self.inbox.arrivals();
        arrivals
            .nodes
            .iter_mut()
            .for_each(|own| own.released = false);
        arrivals.least_open = arrivals.count(NodeNotices::is_open);
        arrivals.waited = Duration::ZERO;
    }

    /// Waits until something changes. Only one task can wait.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because it changes nothing.
    pub async fn changed(&self) {
        self.inbox.changed.notified().await;
    }
}

impl Inbox {
    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        // Ignore poison, because no code that holds this mutex can panic half-way.
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, node: usize, change: impl FnOnce(&mut NodeNotices)) {
        self.change(node, change);
        self.changed.notify_one();
    }

    fn change(&self, node: usize, change: impl FnOnce(&mut NodeNotices)) {
        let mut arrivals = self.arrivals();
        if let Some(own) = arrivals.nodes.get_mut(node) {
            change(own);
        }
        arrivals.least_open = arrivals
            .least_open
            .min(arrivals.count(NodeNotices::is_open));
    }
}

impl Arrivals {
    fn count(&self, what: fn(&NodeNotices) -> bool) -> usize {
        self.nodes.iter().filter(|own| what(own)).count()
    }
}

/// Receives the notices about one key from the [`Notifier`] of one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NoticeSender {
    inbox: Arc<Inbox>,
    node: usize,
    // The bit of this sender in `NodeNotices::open`.
    bit: u64,
}

impl NoticeSender {
    /// Reports that releases are announced from now on. Earlier ones may be missing.
    pub(crate) fn opened(&self) {
        self.inbox.note(self.node, |own| own.open |= self.bit);
    }

    pub(crate) fn closed(&self) {
        self.inbox.note(self.node, |own| own.open &= !self.bit);
    }

    /// `waited` is zero if it is unknown.
    pub(crate) fn released(&self, waited: Duration) {
        let mut arrivals = self.inbox.arrivals();
        arrivals.waited = arrivals.waited.max(waited);
        drop(arrivals);
        self.inbox.note(self.node, |own| own.released = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn news_of_several_nodes_come_together() {
        let receiver = NoticeReceiver::new(3);
        let (first, second) = (receiver.sender(0), receiver.sender(1));
        first.opened();
        receiver.changed().await;
        let notices = Notices {
            open: 1,
            ..Notices::default()
        };
        assert_eq!(receiver.notices(), notices, "it was deaf before");
        receiver.forget();
        first.released(Duration::ZERO);
        second.released(Duration::ZERO);
        second.released(Duration::ZERO);
        let notices = Notices {
            released: 2,
            open: 1,
            least_open: 1,
            waited: Duration::ZERO,
        };
        assert_eq!(receiver.notices(), notices);
        first.closed();
        first.opened();
        assert_eq!(
            (receiver.notices().open, receiver.notices().least_open),
            (1, 0),
            "it may have missed something"
        );
        receiver.forget();
        assert_eq!(receiver.notices().released, 0);
        for (sender, waited) in [(&first, 3), (&second, 5), (&first, 4)] {
            sender.released(Duration::from_millis(waited));
        }
        assert_eq!(receiver.notices().waited, Duration::from_millis(5));
        receiver.forget();
        assert_eq!(receiver.notices().waited, Duration::ZERO);
        receiver.sender(9).opened();
        assert_eq!(receiver.notices().open, 1);
    }

    #[test]
    fn a_node_is_open_when_it_is_for_every_key() {
        let receiver = NoticeReceiver::new(1);
        let (a, b) = (receiver.sender(0), receiver.sender(0));
        a.opened();
        receiver.forget();
        assert_eq!(
            receiver.notices().open,
            0,
            "releases of the other are missed"
        );
        b.opened();
        assert_eq!(
            (receiver.notices().open, receiver.notices().least_open),
            (1, 0)
        );
        receiver.forget();
        a.closed();
        a.closed();
        a.opened();
        assert_eq!(
            (receiver.notices().open, receiver.notices().least_open),
            (1, 0)
        );
    }

    #[test]
    fn sixty_four_keys_fit() {
        let receiver = NoticeReceiver::new(1);
        let all: Vec<NoticeSender> = (0..64).map(|_| receiver.sender(0)).collect();
        for sender in &all {
            assert_eq!(receiver.notices().open, 0);
            sender.opened();
        }
        assert_eq!(receiver.notices().open, 1);
    }
}
