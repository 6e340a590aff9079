//! How long a caller waits.

use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::error::acquire::{AcquireError, Contended, WaitTimeout};
use crate::manager::shared::Shared;
use crate::manager::waiting::holder::Holder;
use crate::moment::Moment;
use crate::namespace::NodeKey;

/// How long a caller waits for a busy lock.
#[derive(Clone, Copy, Debug)]
pub(in crate::manager) struct Wait {
    pub(in crate::manager) began: Moment,
    pub(in crate::manager) limit: Duration,
}

impl Wait {
    pub(in crate::manager) const fn new(began: Moment, limit: Duration) -> Self {
        Self { began, limit }
    }

    pub(in crate::manager) const fn is_patient(&self) -> bool {
        !self.limit.is_zero()
    }

    pub(in crate::manager) fn waited(&self, shared: &Shared) -> Duration {
        shared.clock.now().since(self.began)
    }

    pub(in crate::manager) const fn began(&self) -> Moment {
        self.began
    }

    pub(in crate::manager) fn left(&self, shared: &Shared) -> Duration {
        self.limit.saturating_sub(self.waited(shared))
    }

    /// How long to wait in line. Who does not wait at all is there only because a lock is being given back or a record
    /// being asked for, or because a key is kept for somebody for a moment: none takes longer than a node time-out.
    pub(in crate::manager) fn patience(&self, shared: &Shared) -> Duration {
        if self.is_patient() {
            self.left(shared)
        } else {
            shared.node_timeout.saturating_sub(self.waited(shared))
        }
    }

    /// The error of one who waited in vain for `keys`.
    pub(in crate::manager) fn busy(&self, shared: &Shared, keys: &[NodeKey]) -> AcquireError {
        let holder = keys.iter().find_map(|key| shared.queue.note(key.shared()));
        self.busy_for(shared, holder.as_ref())
    }

    pub(in crate::manager) fn busy_for(
        &self,
        shared: &Shared,
        holder: Option<&Holder>,
    ) -> AcquireError {
        let remaining = holder.and_then(|holder| holder.remaining(&*shared.clock));
        if self.is_patient() {
            let waited = self.waited(shared);
            AcquireError::WaitTimeout(WaitTimeout { remaining, waited })
        } else {
            AcquireError::Contended(Contended { remaining })
        }
    }
}
