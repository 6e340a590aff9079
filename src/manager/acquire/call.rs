use std::sync::Arc;
use std::time::Duration;

use crate::manager::acquire::pace::Times;
use crate::manager::acquire::wait::Wait;
#[cfg(feature = "idempotency")]
use crate::manager::asking::Asking;
use crate::manager::error::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::shared::Shared;
use crate::manager::want::Want;
#[cfg(feature = "idempotency")]
use crate::manager::want::recall::Granted;
use crate::namespace::NodeKeys;
use crate::protocol::renewal::Terms;
use crate::trace::Caller;

pub(crate) enum Acquired {
    Lock(LockGuard),
    #[cfg(feature = "idempotency")]
    Run(LockGuard, Granted),
    /// A round that found the stored result of a run, so that no lock is needed.
    #[cfg(feature = "idempotency")]
    Found(Box<Asking>),
}

pub(crate) struct Call<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) terms: Terms,
    pub(super) keys: NodeKeys,
    pub(super) want: Want,
    pub(super) wait: Wait,
    pub(super) caller: Caller,
}

impl Call<'_> {
    pub(super) fn is_free_here(&self) -> bool {
        !self
            .shared
            .common
            .queue
            .is_in_use(self.keys.first().as_str())
    }

    /// Joins the lock of other readers of this process, if they have one that this caller can share.
    pub(super) fn join(&self) -> Option<Acquired> {
        if !self.want.is_shared() || self.shared.registry.closing.is_given() {
            return None;
        }
        let tenancy = self
            .shared
            .open_leases
            .join(self.keys.first(), &self.terms)?;
        Some(self.handed_on(LockGuard::new(Arc::clone(self.shared), tenancy)))
    }

    pub(super) fn handed_on(&self, guard: LockGuard) -> Acquired {
        guard.tenancy.lease.belongs_to(self.caller.clone());
        Acquired::Lock(guard.waited_for(self.waited()))
    }

    pub(super) fn times(&self) -> Times {
        Times {
            waited: self.waited(),
            left: self.left(),
            node_timeout: self.shared.set.node_timeout,
        }
    }

    pub(super) fn waited(&self) -> Duration {
        self.wait.waited(self.shared)
    }

    pub(super) fn left(&self) -> Duration {
        self.wait.left(self.shared)
    }

    pub(super) fn busy(&self) -> AcquireError {
        self.wait.busy(self.shared, &self.keys)
    }
}
