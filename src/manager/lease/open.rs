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

#[derive(Default)]
pub(crate) struct OpenLeases(Mutex<HashMap<Sort, Open>>);

/// The name of a key, with the ttl and the `max_hold` of the lease: a caller with other times needs one of its own.
type Sort = (Arc<str>, Duration, Duration);

struct Open {
    lease: Arc<HeldLease>,
    until: Moment,
}

impl OpenLeases {
    fn leases(&self) -> MutexGuard<'_, HashMap<Sort, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more share in the lease on `key`, if that is open.
    pub(crate) fn join(&self, key: &NodeKey, terms: &Terms) -> Option<Tenancy> {
        let lease = {
            let leases = self.leases();
            let open = leases.get(&sort(key, terms))?;
            let lease = Arc::clone(&open.lease);
            (open.until > lease.clock.now()).then_some(lease)?
        };
        Tenancy::join(lease)
    }

    /// Opens a `lease` that was granted just now: however long the nodes took for it, those who wait here may join it.
    pub(crate) fn open(&self, lease: &Arc<HeldLease>, terms: &Terms) {
        let open = Open {
            lease: Arc::clone(lease),
            until: lease.clock.now() + terms.ttl / OPEN_FOR,
        };
        let sort = sort(lease.keys.first(), terms);
        let former = self.leases().insert(sort, open);
        // Outside the mutex.
        drop(former);
    }

    /// Forgets a lease that was given up.
    pub(crate) fn close(&self, lease: &HeldLease) {
        let sort = sort(lease.keys.first(), &lease.terms());
        let closed = {
            let mut leases = self.leases();
            let is_this = leases
                .get(&sort)
                .is_some_and(|open| open.lease.id == lease.id);
            is_this.then(|| leases.remove(&sort))
        };
        drop(closed);
    }
}

fn sort(key: &NodeKey, terms: &Terms) -> Sort {
    (Arc::clone(key.shared()), terms.ttl, terms.max_hold)
}

/// A lease is open for this part of its ttl.
const OPEN_FOR: u32 = 10;
