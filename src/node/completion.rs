//! Requests for the locks and records of idempotency keys.

use std::sync::Arc;
use std::time::Duration;

use crate::node::request::{AcquireRequest, ClusterConfig, ReleaseRequest};
use crate::record::Record;

/// A request to acquire the lock of an idempotency key, or to return its record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecallRequest {
    /// The lock: one key, with a fence.
    pub lock: AcquireRequest,
    /// Whether the lock is wanted even if there is a record, to bring a record of too few nodes to all of them.
    pub adopt: bool,
    /// How long a node remembers at least the owner of its last grant without a record: longer than that can believe to
    /// have the lock.
    pub linger: Duration,
}

impl RecallRequest {
    /// A request for `lock`, or for the record.
    #[must_use]
    pub const fn new(lock: AcquireRequest, adopt: bool, linger: Duration) -> Self {
        Self {
            lock,
            adopt,
            linger,
        }
    }
}

/// A request to store a record and to release the lock of its key, in one step.
///
/// A node stores the record if it has none of a higher ballot, and if it granted the lock to no other owner since it
/// granted it to us: a later owner may have looked for a record and found none. Where it remembers no grant, it stores
/// the record if the lock is ours there and the counter of the key is not above the ballot. It stores no record of a
/// lower ballot than the fencing token that it granted us, and none that has [ended](Record::until). In any case the
/// lock is released if it is ours.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompleteRequest {
    /// The lock that is released: one key.
    pub release: ReleaseRequest,
    /// The record; `None`: the request may run again, and the node forgets that it granted the lock.
    pub record: Option<Record>,
    /// Whether a quorum is known to have the record: then it is stored whatever was granted since.
    pub chosen: bool,
    /// As for an acquire.
    pub config: Option<Arc<ClusterConfig>>,
}

impl CompleteRequest {
    /// A request to store `record` and to run `release`.
    #[must_use]
    pub const fn new(release: ReleaseRequest, record: Option<Record>) -> Self {
        Self {
            release,
            record,
            chosen: false,
            config: None,
        }
    }

    /// The same for a record that a quorum has.
    #[must_use]
    pub const fn chosen(mut self) -> Self {
        self.chosen = true;
        self
    }

    /// The same under `config`.
    #[must_use]
    pub fn under(mut self, config: Option<Arc<ClusterConfig>>) -> Self {
        self.config = config;
        self
    }
}
