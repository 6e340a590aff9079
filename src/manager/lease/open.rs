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
pub(crate) struct OpenLeases(Mutex<HashMap<ShareKey, Leases>>);

/// The name of a key, with the ttl and the `max_hold` of the lease: a caller with other times needs one of its own.
type ShareKey = (Arc<str>, Duration, Duration);

#[derive(Default)]
struct Leases {
    // How many this process has.
    count: u32,
    // The last of them, and until when it is open.
    last: Option<(Arc<HeldLease>, Moment)>,
}

impl OpenLeases {
    fn leases(&self) -> MutexGuard<'_, HashMap<ShareKey, Leases>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more share in the lease on `key`, if that is open.
    pub(crate) fn join(&self, key: &NodeKey, terms: &Terms) -> Option<Tenancy> {
        let lease = {
            let leases = self.leases();
            let (lease, until) = leases.get(&share_key(key, terms))?.last.as_ref()?;
            (*until > lease.clock.now()).then(|| Arc::clone(lease))?
        };
        Tenancy::join(lease)
    }

    /// Opens a `lease` that was granted just now: however long the nodes took for it, those who wait here may join it. The
    /// longer reads last, the longer it is open: else a process would have a lease for each tenth of a ttl, and each command
    /// of a reader looks at all of them. A writer waits for those reads anyway.
    pub(crate) fn open(&self, lease: &Arc<HeldLease>, terms: &Terms) {
        let share_key = share_key(lease.keys.first(), terms);
        let former = {
            let mut leases = self.leases();
            let leases = leases.entry(share_key).or_default();
            let time = terms.ttl / OPEN_FOR * leases.count.max(1);
            leases.count += 1;
            let last = (Arc::clone(lease), lease.clock.now() + time);
            leases.last.replace(last)
        };
        // Outside the mutex.
        drop(former);
    }

    /// Forgets a lease that was given up. Returns whether there are others with its times.
    pub(crate) fn close(&self, lease: &HeldLease) -> bool {
        let share_key = share_key(lease.keys.first(), &lease.terms());
        let closed = {
            let mut all = self.leases();
            let Some(leases) = all.get_mut(&share_key) else {
                return false;
            };
            leases.count = leases.count.saturating_sub(1);
            let closed = leases.last.take_if(|(last, _)| last.id == lease.id);
            let is_last = leases.count == 0;
            if is_last {
                all.remove(&share_key);
            }
            (closed, !is_last)
        };
        // Outside the mutex.
        drop(closed.0);
        closed.1
    }
}

fn share_key(key: &NodeKey, terms: &Terms) -> ShareKey {
    (Arc::clone(key.shared()), terms.ttl, terms.max_hold)
}

/// A lease is open for this part of its ttl at least.
const OPEN_FOR: u32 = 10;
