//! Why a lock was not borrowed.

use std::fmt;

use crate::key_error::KeyError;
use crate::manager::error::acquire::{NoEntropy, NoQuorum, ShuttingDown};

/// Why a lock was not borrowed. The lender's lock is not affected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BorrowError {
    /// The keys cannot be lock keys.
    InvalidKey(KeyError),
    /// The owner of the proof does not hold the keys: not any more, or it never did.
    NotOwner,
    /// The owner holds them, and the loan has or had another borrower: another copy of the same call. A loan is for one
    /// borrower.
    Taken,
    /// The owner held them when the nodes were asked, and by the time they had replied its validity was over.
    TooLate,
    /// Too few nodes replied.
    NoQuorum(NoQuorum),
    /// The operating system gave no random bytes for a claim.
    NoEntropy(NoEntropy),
    /// The manager is shutting down.
    ShuttingDown(ShuttingDown),
}

impl fmt::Display for BorrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidKey(error) => error.fmt(f),
            Self::NotOwner => {
                f.write_str("the lock cannot be borrowed: the owner of the proof does not hold it")
            }
            Self::Taken => f.write_str(
                "the lock cannot be borrowed: another copy of this call has or had the loan, which is good for one; lend again for another call",
            ),
            Self::TooLate => f.write_str(
                "the lock cannot be borrowed: the lender's validity was over when the nodes had answered",
            ),
            Self::NoQuorum(error) => error.fmt(f),
            Self::NoEntropy(error) => error.fmt(f),
            Self::ShuttingDown(error) => error.fmt(f),
        }
    }
}

// Each variant's text is that of its content, so the content is not a source: a chain would print it twice.
impl std::error::Error for BorrowError {}
