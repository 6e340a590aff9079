//! How long a caller waits, and the error when the wait is over.

use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::error::acquire::{AcquireError, Contended, WaitTimeout};
use crate::manager::shared::Shared;
use crate::manager::waiting::holder::Holder;
use crate::moment::Moment;
use crate::namespace::NodeKeys;

/// How long a caller waits for a busy lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) began: Moment,
    limit: Duration,
}

impl Wait {
    pub(crate) const fn new(began: Moment, limit: Duration) -> Self {
        Self { began, limit }
    }

    /// Whether the caller waits at all.
    pub(crate) const fn is_patient(&self) -> bool {
        !self.limit.is_zero()
    }

    pub(crate) fn waited(&self, shared: &Shared) -> Duration {
        shared.clock.now().since(self.began)
    }

    pub(crate) fn left(&self, shared: &Shared) -> Duration {
        if !self.is_patient() {
            return Duration::ZERO;
        }
        self.limit.saturating_sub(self.waited(shared))
    }

    /// How long to wait in the queue. A caller that does not wait for locks is there only because a lock is being
    /// released or a record read, or because a key is reserved for a moment: none of it takes longer than a node
    /// time-out.
    pub(crate) fn left_in_queue(&self, shared: &Shared) -> Duration {
        if self.is_patient() {
            self.left(shared)
        } else {
            shared.node_timeout.saturating_sub(self.waited(shared))
        }
    }

    /// The error of a caller that waited in vain for `keys`.
    pub(crate) fn busy(&self, shared: &Shared, keys: &NodeKeys) -> AcquireError {
        let holder = keys
            .as_slice()
            .iter()
            .find_map(|key| shared.queue.note(key.shared()));
        self.busy_for(shared, holder.as_ref())
    }

    /// The error of a caller that waited in vain for a key with that holder.
    pub(crate) fn busy_for(&self, shared: &Shared, holder: Option<&Holder>) -> AcquireError {
        let remaining = holder.and_then(|holder| holder.remaining(&*shared.clock));
        if self.is_patient() {
            let waited = self.waited(shared);
            AcquireError::WaitTimeout(WaitTimeout { remaining, waited })
        } else {
            AcquireError::Contended(Contended { remaining })
        }
    }
}
