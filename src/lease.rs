//! [`Lease`]: what was granted, as a value.

use std::time::Duration;

use crate::lock_key::LockKey;
use crate::lock_keys::LockKeys;
use crate::moment::Moment;
use crate::token::{FencingToken, Owner};

/// One granted lock as a value: what, to whom, and until when.
///
/// A lease is only a record of the grant; renewals are not seen in it. Whether the lock is still held is a
/// question for the [`LockHandle`](crate::LockHandle).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lease {
    /// What is locked.
    pub keys: LockKeys,
    // With the secret that the nodes hold for it: not for handlers, which have the lease through their handle.
    pub(crate) owner: Owner,
    /// The number of the first holder, if holders are numbered. Others to whom the lock is handed on have higher ones.
    pub fence: Option<FencingToken>,
    /// The time to live that was sent to the nodes. It never changes during a lease. Of a borrowed lock: what the
    /// borrower's manager would have sent.
    pub ttl: Duration,
    /// When the attempt that won began.
    pub started: Moment,
    /// The end of validity, as of the grant.
    pub deadline: Moment,
}

impl Lease {
    /// What is locked; the first of several keys.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        self.keys.first()
    }
}
