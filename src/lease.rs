//! [`Lease`]: what was granted, as a value.

use std::time::Duration;

use crate::lock_key::LockKey;
use crate::moment::Moment;
use crate::token::OwnerToken;

/// One granted lock as a value: what, to whom, and until when.
///
/// A lease is only a record of the grant; renewals are not seen in it. Whether the lock is still held is a
/// question for the [`LockHandle`](crate::LockHandle).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lease {
    /// What is locked.
    pub key: LockKey,
    // The secret that the nodes hold for it: not for handlers, which have the lease through their handle.
    pub(crate) token: OwnerToken,
    /// The time to live that was sent to the nodes. It never changes during a lease.
    pub ttl: Duration,
    /// When the attempt that won began.
    pub started: Moment,
    /// The end of validity, as of the grant.
    pub deadline: Moment,
}

impl Lease {
    pub(crate) const fn new(
        key: LockKey,
        token: OwnerToken,
        ttl: Duration,
        started: Moment,
        deadline: Moment,
    ) -> Self {
        Self {
            key,
            token,
            ttl,
            started,
            deadline,
        }
    }
}
