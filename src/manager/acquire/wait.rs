//! The length of a wait, the error at its end, and the signals that end it early.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::acquire::pace::Woken;
use crate::manager::error::AcquireError;
use crate::manager::queue::Holder;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::{Node, NoticeReceiver, Subscription};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) began: Moment,
    limit: Duration,
}

impl Wait {
    pub(crate) const fn new(began: Moment, limit: Duration) -> Self {
        Self { began, limit }
    }

    pub(crate) const fn is_patient(&self) -> bool {
        !self.limit.is_zero()
    }

    pub(crate) fn waited(&self, shared: &Shared) -> Duration {
        shared.set.clock.now().since(self.began)
    }

    pub(crate) fn left(&self, shared: &Shared) -> Duration {
        if !self.is_patient() {
            return Duration::ZERO;
        }
        self.limit.saturating_sub(self.waited(shared))
    }

    /// How long to wait in the queue. Even a caller that does not wait for locks may wait there, for at most a node
    /// time-out.
    pub(crate) fn left_in_queue(&self, shared: &Shared) -> Duration {
        if self.is_patient() {
            self.left(shared)
        } else {
            shared.set.node_timeout.saturating_sub(self.waited(shared))
        }
    }

    pub(crate) fn busy(&self, shared: &Shared, keys: &NodeKeys) -> AcquireError {
        let holder = keys
            .as_slice()
            .iter()
            .find_map(|key| shared.common.queue.holder(key.shared()));
        self.busy_for(shared, holder.as_ref())
    }

    pub(crate) fn busy_for(&self, shared: &Shared, holder: Option<&Holder>) -> AcquireError {
        let remaining = holder.and_then(|holder| holder.remaining(&*shared.set.clock));
        if self.is_patient() {
            let waited = self.waited(shared);
            AcquireError::WaitTimeout { waited, remaining }
        } else {
            AcquireError::Contended { remaining }
        }
    }
}

#[derive(Debug)]
pub(crate) struct ReleaseNotices {
    receiver: NoticeReceiver,
    _subscriptions: Vec<Subscription>,
}

impl ReleaseNotices {
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

    /// How long the holder that released the key had waited for it; zero if that is not known.
    pub(crate) fn waited(&self) -> Duration {
        self.receiver.notices().waited
    }

    pub(crate) fn open(&self) -> usize {
        self.receiver.notices().open
    }

    pub(crate) fn forget(&self) {
        self.receiver.forget();
    }

    /// Waits until `needed` nodes have announced a release, but after the first notice for at most `grace`. If
    /// `opening`, it also returns when `needed` subscriptions have begun to work.
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

    pub(crate) async fn released(&self, needed: usize) {
        while self.receiver.notices().released < needed {
            self.receiver.changed().await;
        }
    }
}
