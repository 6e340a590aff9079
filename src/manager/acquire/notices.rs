//! [`Listening`]: one contender's subscriptions to the releases of its keys, on all nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::namespace::NodeKeys;
use crate::node::{Node, NoticeReceiver, Notices, Subscription};

/// Subscriptions on all nodes that can announce releases. Dropped, they end.
#[derive(Debug)]
pub(in crate::manager) struct Listening {
    receiver: NoticeReceiver,
    _subscriptions: Vec<Subscription>,
}

impl Listening {
    /// Begins to listen; whether and when each node is heard shows later.
    ///
    /// A release of any of several keys is heard: which of them was in the way is not known, and may change.
    pub(in crate::manager) fn start(nodes: &[Arc<dyn Node>], keys: &NodeKeys) -> Self {
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

    /// On how many nodes releases would be heard right now.
    pub(in crate::manager) fn open(&self) -> usize {
        self.receiver.notices().open
    }

    /// Forgets what was heard: the nodes are about to be asked.
    pub(in crate::manager) fn forget(&self) {
        self.receiver.forget();
    }

    /// Waits until there is reason to ask again: `needed` nodes announced a release, or fewer did and no more for
    /// `grace`, or enough of them can be heard at last and may have announced one before, if that is of interest.
    /// Returns how many contenders may have been woken by it, this one included; none if nothing was announced.
    pub(in crate::manager) async fn enough(
        &self,
        needed: usize,
        grace: Duration,
        opening: bool,
    ) -> usize {
        loop {
            let notices = self.receiver.notices();
            if notices.released >= needed {
                return rivals(notices);
            }
            if notices.released > 0 {
                tokio::select! {
                    biased;
                    rivals = self.released(needed) => return rivals,
                    () = sleep(grace) => return rivals(self.receiver.notices()),
                }
            }
            if opening && notices.open >= needed && notices.least_open < needed {
                return 0;
            }
            self.receiver.changed().await;
        }
    }

    /// Waits until `needed` nodes have announced a release. Returns how many contenders may have been woken by it.
    pub(in crate::manager) async fn released(&self, needed: usize) -> usize {
        loop {
            let notices = self.receiver.notices();
            if notices.released >= needed {
                return rivals(notices);
            }
            self.receiver.changed().await;
        }
    }
}

/// How many contenders a release has woken. A node that does not tell may have woken a few.
fn rivals(notices: Notices) -> usize {
    usize::try_from(notices.listeners.unwrap_or(UNTOLD)).unwrap_or(usize::MAX)
}

/// How many contenders to reckon with when the nodes do not tell.
const UNTOLD: u32 = 3;
