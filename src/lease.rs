use std::time::Duration;

use crate::lock_key::LockKey;
use crate::lock_key::LockKeys;
use crate::moment::Moment;
use crate::token::{FencingToken, OwnerToken};

/// A granted lock as a value. Whether the lock is still held is known to its [`LockHandle`](crate::LockHandle).
#[derive(Clone, Debug)]
pub struct Lease {
    /// What is locked.
    pub keys: LockKeys,
    // Not public, because handlers can see the lease through their handle, and the owner token is a secret.
    pub(crate) owner: OwnerToken,
    /// The fencing token of the first holder, if fencing is on. Holders to whom this lock is handed over have higher
    /// tokens.
    pub(crate) fence: Option<FencingToken>,
    /// How long nodes keep the counters of its fencing tokens after the last write.
    pub(crate) counter_ttl: Duration,
    /// The time to live that was sent to the nodes.
    pub ttl: Duration,
    /// When the acquires of the granted round were sent.
    pub started: Moment,
    /// The end of validity at the grant. Renewals do not change it.
    pub deadline: Moment,
}

impl Lease {
    /// The first of the keys.
    #[must_use]
    pub(crate) fn key(&self) -> &LockKey {
        self.keys.first()
    }
}
