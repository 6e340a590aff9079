//! [`ReleaseNotices`]: one contender's subscriptions to the releases of its keys, on all nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::namespace::NodeKeys;
use crate::node::{Node, NoticeReceiver, Subscription};

/// Subscriptions on all nodes that can announce releases. Dropped, they end.
#[derive(Debug)]
pub(crate) struct ReleaseNotices {
    receiver: NoticeReceiver,
    _subscriptions: Vec<Subscription>,
}

impl ReleaseNotices {
    /// Subscribes. Whether and when each subscription works shows later.
    ///
    /// A release of any of several keys counts: which of them was in the way is not known, and may change.
    pub(crate) fn subscribe(nodes: &[Arc<dyn Node>], keys: &NodeKeys) -> Self {
        let receiver = NoticeReceiver::new(nodes.len());
        let notifiers = nodes.iter().enumerate();
        let notifiers = notifiers.filter_map(|(index, node)| Some((index, node.notifier()?)));
        let subscriptions = notifiers.flat_map(|(index, notifier)| {
            let receiver = &receiver;
            let keys = keys.as_slice().iter();
            keys.map(move |key| notifier.subscribe(key, receiver.sender(index)))
        });
        Self {
            _subscriptions: subscriptions.collect(),
            receiver,
        }
    }

    /// On how many nodes the subscriptions work right now.
    pub(crate) fn open(&self) -> usize {
        self.receiver.notices().open
    }

    /// Forgets the notices received so far: the nodes are about to be asked.
    pub(crate) fn forget(&self) {
        self.receiver.forget();
    }

    /// Waits for a reason to ask the nodes again: `needed` nodes announced a release; or fewer did, and no more
    /// within `grace`; or, if `opening`, the subscriptions on `needed` nodes work at last, and may have missed one.
    pub(crate) async fn next(&self, needed: usize, grace: Duration, opening: bool) -> Woken {
        loop {
            let notices = self.receiver.notices();
            if notices.released > 0 {
                let _ = timeout(grace, self.released(needed)).await;
                return Woken::Released;
            }
            if opening && notices.open >= needed && notices.least_open < needed {
                return Woken::Opened;
            }
            self.receiver.changed().await;
        }
    }

    /// Waits until `needed` nodes have announced a release.
    pub(crate) async fn released(&self, needed: usize) {
        while self.receiver.notices().released < needed {
            self.receiver.changed().await;
        }
    }
}

/// Why a contender asks the nodes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// A release was announced.
    Released,
    /// The subscriptions work at last.
    Opened,
}
