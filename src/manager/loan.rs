//! [`Loan`]: a lock that is lent to another service for the time of one call.

use std::fmt;
use std::sync::Arc;

#[cfg(doc)]
use crate::manager::error::borrow::BorrowError;
use crate::manager::error::loss::LossReason;
use crate::manager::guard::{LockGuard, LockHandle};
use crate::manager::lease::held::{HeldLease, Tenancy};
use crate::mutant::{self, Mutant};
use crate::token::LoanProof;

impl LockHandle {
    /// Lends the lock to another service, which then runs under it: see [`Loan`].
    ///
    /// # Errors
    ///
    /// [`LendError::Ended`] if the lock has ended or is about to, or its guard has gone; [`LendError::Borrowed`] if it
    /// is not ours to lend; [`LendError::Run`] if it is that of a [`RunGuard`](crate::lock::RunGuard), which is
    /// released together with the result of its work and can wait for no borrower.
    pub fn lend(&self) -> Result<Loan, LendError> {
        let Tenancy { lease, number } = self.tenancy();
        if lease.is_of_a_run() && !mutant::is(Mutant::RunIsLent) {
            return Err(LendError::Run);
        }
        if self.is_borrowed() {
            return Err(LendError::Borrowed);
        }
        let loan = lease.lend(*number).map_err(LendError::Ended)?;
        Ok(Loan {
            lease: Arc::clone(lease),
            proof: LoanProof::new(self.owner_hash(), loan, self.fence()),
            answered: false,
        })
    }

    /// Whether the lock is that of another service which [lent](Self::lend) it. It ends with the lender's, and its
    /// fencing token is the lender's too, as the proof says.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.tenancy().lease.is_borrowed()
    }
}

impl LockGuard {
    /// As [`LockHandle::lend`].
    ///
    /// # Errors
    ///
    /// As for that.
    pub fn lend(&self) -> Result<Loan, LendError> {
        self.handle().lend()
    }

    /// As [`LockHandle::is_borrowed`].
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.handle().is_borrowed()
    }
}

/// A lock that is lent to another service for the time of one call. Made by [`LockHandle::lend`].
///
/// The call carries the [`proof`](Self::proof). The other service, which must use the same nodes, the same namespace
/// and the same keys, [borrows](crate::LockManager::borrow_keys) with it: it asks the nodes whether the owner of the
/// proof still holds the keys, and then runs under this lock, without waiting for it and never for longer than the
/// nodes keep it for us. For calls by HTTP, [`loan_header`](crate::middleware::loan_header) makes a header of the
/// proof and a [`RedlockLayer`](crate::RedlockLayer::borrow_from) borrows.
///
/// As long as a loan is out, the lock is extended here as usual, even if the guard has gone, up to
/// [`max_hold`](crate::LockManagerBuilder::max_hold), and it is not released. A lock that was ever lent is not handed
/// on inside the process.
///
/// # One borrower
///
/// A proof is good for one borrower, which the nodes remember: of several copies of a call, as a proxy that retries
/// makes them, one runs, and the others are [refused](BorrowError::Taken). Lend again for the next call. And while a
/// borrower is at work the nodes do not release the lock, whatever response the lender got: the 504 of a gateway, or
/// that of a copy which says that the loan is taken. Then it is as if no response had come (below), except that the
/// lock is released after all when the borrower ends within the ttl.
///
/// What remains: nothing keeps the lender from going on after such a response while the borrower is still at work, and
/// a borrower that was suspended may act when the lock has ended, as any holder may. The nodes remember a loan for as
/// long as [`max_hold`](crate::LockManagerBuilder::max_hold) allows, a day at most; one that forgets has no loans.
///
/// # How a loan ends
///
/// * [`returned`](Self::returned), when the borrower has answered: its work is done. If the guard has gone meanwhile
///   and this was the last loan, the lock is released now.
/// * Dropped without that, because the call was cancelled, timed out or failed: it is not known whether the borrower
///   still works. So the lock is *left to expire*: it is not extended any more, under a guard that lives on it is lost
///   when its validity ends, and nothing is released on the nodes. Others can acquire it when its ttl is over.
///
/// [`run`](Self::run) does the right one of the two.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # async fn call_billing(_proof: String) -> Result<(), std::io::Error> { Ok(()) }
/// # let locks = tower_redlock::LockManager::builder().memory(5).connect().await?;
/// let guard = locks.acquire("order:42").await?;
/// let loan = guard.lend()?;
/// let proof = loan.proof().expose();
/// let response = loan.run(call_billing(proof)).await?;
/// # Ok(response) }
/// ```
#[must_use = "a loan that is dropped without `returned` leaves the lock to expire"]
#[clippy::has_significant_drop]
pub struct Loan {
    lease: Arc<HeldLease>,
    proof: LoanProof,
    answered: bool,
}

impl Loan {
    /// The proof that the call carries.
    #[must_use]
    pub const fn proof(&self) -> LoanProof {
        self.proof
    }

    /// Says that the borrower has answered, or that the call was never made: no work goes on under the loan any more.
    ///
    /// A borrower that holds its lock until the end of its body
    /// ([`HoldUntil::BodyEnd`](crate::middleware::HoldUntil::BodyEnd)) has answered when that has ended.
    pub fn returned(mut self) {
        self.answered = true;
    }

    /// Awaits the call, and returns the loan if that is `Ok`: the borrower has answered.
    ///
    /// An `Err` is no response. A call that timed out or whose connection broke may still be worked on, so the loan is
    /// dropped and the lock left to expire. Where an error can say that the call was never made (no server listens
    /// there), await the call yourself and call [`returned`](Self::returned) in that case, too; otherwise a peer that
    /// is down blocks the key for a ttl:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = tower_redlock::LockManager::builder().memory(5).connect().await?;
    /// use std::io::{Error, ErrorKind};
    ///
    /// # async fn call_billing(_: String) -> Result<(), Error> { Err(ErrorKind::ConnectionRefused.into()) }
    /// let guard = locks.acquire("order:42").await?;
    /// let loan = guard.lend()?;
    /// let response = call_billing(loan.proof().expose()).await;
    /// if response.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionRefused, |()| true) {
    ///     loan.returned();
    /// }
    /// # assert!(guard.release().await.is_ok());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// That of the call.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call is too, and the loan with it: the lock is left to expire.
    pub async fn run<T, E>(self, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let response = call.await?;
        self.returned();
        Ok(response)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lease.loan_ended(self.answered);
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan")
            .field("key", self.lease.lease.key())
            .finish_non_exhaustive()
    }
}

/// Why a lock was not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LendError {
    /// It has ended, or is about to, for this reason.
    Ended(LossReason),
    /// It is borrowed itself. Its lender waits for our response only, and could not know of a third party at work.
    Borrowed,
    /// It is the lock of a run: of [`LockManager::begin_idempotent`](crate::LockManager::begin_idempotent), or of a
    /// request with an idempotency key. It is released in the step that writes the result: it can neither wait for a
    /// borrower nor be left to expire. Acquire a lock on what the other service is to work on, and lend that.
    Run,
}

impl fmt::Display for LendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(reason) => write!(f, "the lock cannot be lent, it has ended: {reason}"),
            Self::Borrowed => f.write_str("the lock cannot be lent, it is borrowed itself"),
            Self::Run => f.write_str(
                "the lock cannot be lent, it is that of a run, which is released together with its result; acquire a lock on what the other service is to work on, and lend that",
            ),
        }
    }
}

impl std::error::Error for LendError {}
