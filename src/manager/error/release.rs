//! Errors of held locks: lost, not certainly released, result not certainly stored.

use std::fmt;

use crate::manager::error::acquire::AcquireError;
use crate::manager::error::loss::LossReason;

/// Why [`LockManager::run`](crate::LockManager::run) did not run the work to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// The lock was not acquired; the work did not begin.
    Acquire(AcquireError),
    /// The lock was lost; the work was dropped half-way and its result is unknown.
    Lost(LossReason),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(error) => error.fmt(f),
            Self::Lost(reason) => write!(f, "the lock was lost while the work ran: {reason}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<AcquireError> for RunError {
    fn from(error: AcquireError) -> Self {
        Self::Acquire(error)
    }
}

/// Why a release is not certain to have freed the lock. Its ttl ends the keys that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had been lost before it was released: the work may have run without it.
    Lost(LossReason),
    /// Fewer nodes than a quorum confirmed within the node time-out. Nothing is to be done: the others are tried again
    /// in the background.
    #[non_exhaustive]
    Unconfirmed {
        /// How many nodes confirmed.
        confirmed: usize,
        /// How many must.
        needed: usize,
    },
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => {
                write!(
                    f,
                    "the lock had been lost before it was released, and part of the work may have run without it: {reason}"
                )
            }
            Self::Unconfirmed { confirmed, needed } => write!(
                f,
                "the release was confirmed by {confirmed} nodes where {needed} are needed; it goes on in the background, and the lock may stay until its ttl ends"
            ),
        }
    }
}

impl std::error::Error for ReleaseError {}

/// Fewer nodes than a quorum confirmed a release in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseUnconfirmed {
    pub(crate) confirmed: usize,
    pub(crate) needed: usize,
}

impl From<ReleaseUnconfirmed> for ReleaseError {
    fn from(ReleaseUnconfirmed { confirmed, needed }: ReleaseUnconfirmed) -> Self {
        Self::Unconfirmed { confirmed, needed }
    }
}
