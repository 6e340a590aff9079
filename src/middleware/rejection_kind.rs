//! [`RejectionKind`]: the kinds of rejections, and their texts for clients.

use std::fmt;

use crate::problem::word;

/// The kinds of [`Rejection`](super::Rejection).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// The request has no key, or none that can be used: 400.
    InvalidKey,
    /// The key cannot exist at this place; a mistake in the program: 500.
    Misconfigured,
    /// Another request holds the lock, and this one does not wait: the layer's [`BusyStatus`](super::BusyStatus).
    Contended,
    /// Others held the lock for as long as this request waits: the layer's [`BusyStatus`](super::BusyStatus).
    WaitTimeout,
    /// Too many requests wait already, for this lock or in all: 503.
    QueueFull,
    /// Too few nodes replied in time: 503.
    NoQuorum,
    /// The lock was lost while the request ran. Whether it took effect is unknown: 503.
    LockLost,
    /// The lock manager is shutting down: 503.
    ShuttingDown,
}

impl RejectionKind {
    /// The kind as a word, the last part of [`Rejection::problem_type`](super::Rejection::problem_type).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        word(self.urn())
    }

    pub(super) const fn urn(self) -> &'static str {
        match self {
            Self::InvalidKey => "urn:tower-redlock:problem:invalid-key",
            Self::Misconfigured => "urn:tower-redlock:problem:misconfigured",
            Self::Contended => "urn:tower-redlock:problem:contended",
            Self::WaitTimeout => "urn:tower-redlock:problem:wait-timeout",
            Self::QueueFull => "urn:tower-redlock:problem:queue-full",
            Self::NoQuorum => "urn:tower-redlock:problem:no-quorum",
            Self::LockLost => "urn:tower-redlock:problem:lock-lost",
            Self::ShuttingDown => "urn:tower-redlock:problem:shutting-down",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::InvalidKey => "Invalid lock key",
            Self::Misconfigured => "Lock layer misconfigured",
            Self::Contended => "Locked by another request",
            Self::WaitTimeout => "Timed out waiting for the lock",
            Self::QueueFull => "Too many requests wait",
            Self::NoQuorum => "Locks unavailable",
            Self::LockLost => "Lock lost",
            Self::ShuttingDown => "Shutting down",
        }
    }

    pub(super) const fn detail(self) -> &'static str {
        match self {
            Self::InvalidKey => "The lock key of this request cannot be used.",
            Self::Misconfigured => "The lock layer of this server is in the wrong place.",
            Self::Contended => {
                "Another request holds the lock on this resource. This request was not processed."
            }
            Self::WaitTimeout => {
                "Other requests held the lock on this resource for as long as this request may wait. \
                 This request was not processed."
            }
            Self::QueueFull => {
                "As many requests as may wait for a lock on this server do so already. \
                 This request was not processed."
            }
            Self::NoQuorum => {
                "Too few lock nodes vote and replied in time, so the resource could not be locked. \
                 This request was not processed."
            }
            Self::LockLost => {
                "The lock on this resource was lost while the request was processed. \
                 Whether the request took effect is unknown."
            }
            Self::ShuttingDown => {
                "This server is shutting down and takes no new locks. This request was not processed."
            }
        }
    }
}

impl fmt::Display for RejectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
