//! [`Lease`]: a granted lock as a value.

use std::time::Duration;

use crate::lock_key::LockKey;
use crate::lock_key::LockKeys;
use crate::moment::Moment;
use crate::token::{FencingToken, OwnerToken};

/// One granted lock as a value: its keys, its owner and its deadline at the grant. The
/// [`LockHandle`](crate::LockHandle) tells whether the lock is still held.
#[derive(Clone, Debug)]
pub struct Lease {
    /// What is locked.
    pub keys: LockKeys,
    // It contains the secret owner token, so handlers, which see the lease through their handle, must not see it.
    pub(crate) owner: OwnerToken,
    /// The fencing token of the first holder, if fencing is on. Holders to whom the lock is handed over have higher
    /// ones.
    pub(crate) fence: Option<FencingToken>,
    /// How long nodes keep the counters of its fencing tokens after they were written.
    pub(crate) counter_ttl: Duration,
    /// The time to live that was sent to the nodes. It never changes during a lease.
    pub ttl: Duration,
    /// When the round that won began.
    pub started: Moment,
    /// The end of validity, as of the grant.
    pub deadline: Moment,
}

impl Lease {
    /// What is locked; the first of several keys.
    #[must_use]
    pub(crate) fn key(&self) -> &LockKey {
        self.keys.first()
    }
}
