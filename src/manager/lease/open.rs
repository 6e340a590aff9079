//! [`OpenLeases`]: the leases that readers of a process share.
//!
//! A process asks the nodes once for several readers of a key: more readers may join the lease for a part of its ttl.
//! Callers that already wait for the key in this process come first, so a reader joins only when its turn has come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::manager::lease::held::{HeldLease, Tenancy};
use crate::moment::Moment;
use crate::namespace::NodeKey;
use crate::protocol::renewal::Terms;

#[derive(Default)]
pub(crate) struct OpenLeases(Mutex<HashMap<ShareKey, Leases>>);

/// The name of a key, with the ttl and the `max_hold` of the lease.
type ShareKey = (Arc<str>, Duration, Duration);

#[derive(Default)]
struct Leases {
    // How many leases with this key and these times the process has.
    count: u32,
    // The newest of these leases, and the moment until which it is open.
    last: Option<(Arc<HeldLease>, Moment)>,
}

impl OpenLeases {
    fn leases(&self) -> MutexGuard<'_, HashMap<ShareKey, Leases>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(&self, key: &NodeKey, terms: &Terms) -> Option<Tenancy> {
        let lease = {
            let leases = self.leases();
            let (lease, until) = leases.get(&share_key(key, terms))?.last.as_ref()?;
            (*until > lease.clock.now()).then(|| Arc::clone(lease))?
        };
        Tenancy::join(lease)
    }

    /// Lets readers join a `lease` that was granted just now. The more leases the process has, the longer a new lease
    /// is open, because each command for a reader makes the node look at all leases.
    pub(crate) fn open(&self, lease: &Arc<HeldLease>, terms: &Terms) {
        let share_key = share_key(lease.keys.first(), terms);
        let mut all = self.leases();
        let leases = all.entry(share_key).or_default();
        let time = terms.ttl / OPEN_FOR * leases.count.max(1);
        leases.count += 1;
        // This drops a reference to the lease before, but never the last one: the guard of that lease keeps one until
        // it has closed the lease.
        leases.last = Some((Arc::clone(lease), lease.clock.now() + time));
    }

    /// Forgets a lease that is about to be released. Returns whether the process has other leases on the key.
    pub(crate) fn close(&self, lease: &HeldLease) -> bool {
        let share_key = share_key(lease.keys.first(), &lease.terms());
        let mut all = self.leases();
        let Some(leases) = all.get_mut(&share_key) else {
            return false;
        };
        leases.count = leases.count.saturating_sub(1);
        // This is never the last reference to the lease, because the caller has one.
        drop(leases.last.take_if(|(last, _)| last.id == lease.id));
        let has_others = leases.count > 0;
        if !has_others {
            all.remove(&share_key);
        }
        has_others
    }
}

fn share_key(key: &NodeKey, terms: &Terms) -> ShareKey {
    (Arc::clone(key.shared()), terms.ttl, terms.max_hold)
}

/// A lease is open for at least the ttl divided by this.
const OPEN_FOR: u32 = 10;
