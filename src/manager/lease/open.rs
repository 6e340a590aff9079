//! [`OpenLeases`]: the shared leases of a process that further readers may join.
//!
//! A process asks the nodes once for all its readers of a key: their lease is a lock like any other, of which each of them
//! has a guard, and is open to further ones for a part of its ttl. Whoever waits for the key in this process comes before
//! them, so it is joined only by callers whose turn it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::manager::lease::held::{HeldLease, Tenancy};
use crate::moment::Moment;
use crate::namespace::NodeKey;
use crate::protocol::renewal::Terms;

/// By the names of their keys.
#[derive(Default)]
pub(crate) struct OpenLeases(Mutex<HashMap<Arc<str>, Open>>);

struct Open {
    lease: Arc<HeldLease>,
    until: Moment,
    // A caller with other times needs a lease of its own.
    times: (Duration, Duration),
}

impl OpenLeases {
    fn leases(&self) -> MutexGuard<'_, HashMap<Arc<str>, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more share in the lease on `key`, if that is open.
    pub(crate) fn join(&self, key: &NodeKey, terms: &Terms) -> Option<Tenancy> {
        let lease = {
            let leases = self.leases();
            let open = leases.get(key.shared())?;
            let lease = Arc::clone(&open.lease);
            let fits = open.until > lease.clock.now() && open.times == times(terms);
            fits.then_some(lease)?
        };
        // It is never handed on.
        let tenancy = Tenancy { lease, number: 0 };
        let shared = tenancy.lease.share(tenancy.number);
        shared.is_ok().then_some(tenancy)
    }

    pub(crate) fn open(&self, lease: &Arc<HeldLease>, terms: &Terms) {
        let open = Open {
            lease: Arc::clone(lease),
            until: lease.lease.started + terms.ttl / OPEN_FOR,
            times: times(terms),
        };
        let name = Arc::clone(lease.keys.first().shared());
        let former = self.leases().insert(name, open);
        // Outside the mutex.
        drop(former);
    }

    /// Forgets a lease that was given up.
    pub(crate) fn close(&self, lease: &HeldLease) {
        let name = lease.keys.first().shared();
        let closed = {
            let mut leases = self.leases();
            let is_this = leases
                .get(name)
                .is_some_and(|open| open.lease.id == lease.id);
            is_this.then(|| leases.remove(name))
        };
        drop(closed);
    }
}

const fn times(terms: &Terms) -> (Duration, Duration) {
    (terms.ttl, terms.max_hold)
}

/// A lease is open for this part of its ttl.
const OPEN_FOR: u32 = 10;
