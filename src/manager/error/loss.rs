//! Why a lock was lost.

use std::fmt;

/// Why a lock ended before its guard did. `?` makes a [`Rejection`](crate::layer::Rejection) of it: 503 `lock-lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Validity ended without a successful extension.
    Expired,
    /// So many nodes hold another owner's token that no quorum can hold ours.
    Taken,
    /// It was held for as long as the manager's `max_hold` allows.
    MaxHold,
    /// The manager was shut down, or the runtime on which it was built has ended.
    Shutdown,
    /// The guard has released it. Only a handle that outlives its guard sees this.
    Released,
}

impl LossReason {
    /// Its label in metrics.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::MaxHold => "max-hold",
            Self::Shutdown => "shutdown",
            Self::Released => "released",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ended without a successful extension",
            Self::Taken => "another holder has taken too many nodes",
            Self::MaxHold => "it was held for as long as max_hold allows",
            Self::Shutdown => "the lock manager was shut down",
            Self::Released => "it was released",
        })
    }
}
