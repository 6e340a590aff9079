//! [`ReleaseNotices`]: one contender's subscriptions to the releases of its keys, on all nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::namespace::NodeKeys;
use crate::node::{Node, NoticeReceiver, Notices, Subscription};

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
    ///
    /// Returns how many contenders this may have woken, this one included; zero if no release was announced.
    pub(crate) async fn next(&self, needed: usize, grace: Duration, opening: bool) -> usize {
        loop {
            let notices = self.receiver.notices();
            if notices.released > 0 {
                let all = timeout(grace, self.released(needed)).await;
                return all.unwrap_or_else(|_| contenders(self.receiver.notices()));
            }
            if opening && notices.open >= needed && notices.least_open < needed {
                return 0;
            }
            self.receiver.changed().await;
        }
    }

    /// Waits until `needed` nodes have announced a release. Returns how many contenders this may have woken.
    pub(crate) async fn released(&self, needed: usize) -> usize {
        loop {
            let notices = self.receiver.notices();
            if notices.released >= needed {
                return contenders(notices);
            }
            self.receiver.changed().await;
        }
    }
}

/// How many contenders a release has woken.
fn contenders(notices: Notices) -> usize {
    usize::try_from(notices.listeners.unwrap_or(UNKNOWN)).unwrap_or(usize::MAX)
}

/// With how many contenders to reckon when the nodes do not tell.
const UNKNOWN: u32 = 3;
