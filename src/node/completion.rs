//! What is asked of a node that keeps records beside the locks of idempotency keys.

use std::sync::Arc;
use std::time::Duration;

use super::{AcquireRequest, ClusterConfig, ReleaseRequest};
use crate::record::Record;

/// A request to take the lock of an idempotency key, or to be told of the record that its request came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecallRequest {
    /// The lock: of one key, and numbered.
    pub lock: AcquireRequest,
    /// Whether the lock is wanted in any case, to bring a record that too few nodes have to all of them. Else a node
    /// that has a record which has not ended answers with it and grants nothing.
    pub adopt: bool,
    /// For how long a node remembers at least whom it granted the lock last, should no record come of it. Longer than
    /// the lock can outlive the belief of its holder.
    pub linger: Duration,
}

impl RecallRequest {
    /// A request for the lock of `lock`, or for the record.
    #[must_use]
    pub const fn new(lock: AcquireRequest, adopt: bool, linger: Duration) -> Self {
        Self {
            lock,
            adopt,
            linger,
        }
    }
}

/// A request to keep a record and to give the lock of its key back, in one step.
///
/// A node keeps the record if it has none of a higher ballot, and if it granted the lock to nobody since it granted it
/// to us: whoever came later may have looked for a record and found none. (A node that does not remember any grant
/// keeps it if the lock is ours there.) It keeps nothing that has [ended](Record::until) by its clock, and what it has
/// that has ended is to it as if it were not there. In any case the lock is released where it is ours.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompleteRequest {
    /// The lock that is given back: of one key.
    pub release: ReleaseRequest,
    /// The record; `None`: the request may run again, and the node forgets that it granted the lock.
    pub record: Option<Record>,
    /// Whether a quorum is known to have the record. Then it is right whoever was granted the lock meanwhile: they were
    /// told of it.
    pub chosen: bool,
    /// As for an acquire: a node that may have forgotten a grant must not keep a record, unless a quorum has it.
    pub config: Option<Arc<ClusterConfig>>,
}

impl CompleteRequest {
    /// A request to keep `record` and to do what `release` says.
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
