//! What a contender comes back with.

use crate::manager::guard::LockGuard;
use crate::record::Record;

/// What a contender comes back with.
#[derive(Debug)]
pub(in crate::manager) enum Acquired {
    /// The lock.
    Lock(LockGuard),
    /// The lock, to bring to a quorum what some nodes have.
    Adopted(LockGuard, Record),
    /// What a quorum has.
    Record(Record),
}
