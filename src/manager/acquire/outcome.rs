//! The result of a contender.

use crate::manager::guard::LockGuard;
use crate::record::Record;

/// The result of a contender.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// The lock.
    Lock(LockGuard),
    /// The lock, with the record of some nodes that is to be written to a quorum under it.
    Adopted(LockGuard, Record),
    /// The record that a quorum has.
    Record(Record),
}
