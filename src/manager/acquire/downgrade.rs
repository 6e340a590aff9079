//! A lock that its holder makes a shared one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::Clock as _;
use crate::key_error::KeyError;
use crate::manager::error::{AcquireError, LossReason};
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::HeldLease;
use crate::manager::release::{Freeing, Release};
use crate::manager::round::{Attempt, Decision, Lock, Purpose as _};
use crate::protocol::round::Verdict;

impl LockGuard {
    /// Makes this lock a [shared](crate::LockManager::shared) one: its holder goes on as a reader, and no writer comes in
    /// between. Those who wait to read are told; [`max_hold`](crate::Settings::max_hold) counts anew. A guard of a shared
    /// lock stays as it is. The handles that it gave out say that their lock was released; a
    /// [`LockScope`](crate::LockScope) goes on with the reader.
    ///
    /// # Errors
    ///
    /// The lock is released if it cannot be made a shared one. [`AcquireError::InvalidKey`] if it is on several keys, is a
    /// permit, or has other guards, which keep it: while a request runs its layer has one; [`AcquireError::Lost`] if it had
    /// ended; else as for an acquire.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = tower_redlock::LockManager::builder().memory(3).connect().await?;
    /// let writer = locks.try_acquire("document:7").await?;
    /// // Written; what follows only reads it, and others may, too.
    /// let reader = writer.downgrade().await?;
    /// let other = locks.shared().try_acquire("document:7").await?;
    /// # drop((reader, other));
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<Self, AcquireError> {
        if self.is_shared() {
            return Ok(self);
        }
        let shared = Arc::clone(self.shared());
        let held = Arc::clone(&self.tenancy().lease);
        if self.keys().len() > 1 || self.slot().is_some() {
            return Err(KeyError::several().into());
        }
        let (terms, deadline) = (held.terms(), held.view().deadline);
        let _followed = Followed::new(&held);
        // From here on nothing extends it, and nobody is given it.
        let pending = self.resign_alone();
        let pending = pending.ok_or_else(KeyError::guards)?;
        if let Some(reason) = pending.left.lost {
            drop(Release::aside(Freeing::of(&shared, &held, pending)));
            return Err(AcquireError::Lost(reason));
        }
        // What nodes still have of it in the end goes when this is dropped.
        let _rest = Release::aside(Freeing::of(&shared, &held, pending));
        let purpose = Lock::<true> {
            instead: Some(Box::new(held.lease.owner)),
        };
        let mut attempt = Attempt::new(&shared, &held.keys.shared(), purpose, terms)?;
        match attempt.decide().await {
            Decision::Lock(Verdict::Granted) => Lock::settle(&mut attempt).await?,
            Decision::Lock(Verdict::Contended { .. } | Verdict::Split { .. }) => {
                return Err(AcquireError::Lost(LossReason::Taken));
            }
            _ => return Err(attempt.no_quorum()),
        }
        // Until then each node of a quorum had the one or the other.
        if shared.clock.now() >= deadline {
            return Err(AcquireError::Lost(LossReason::Expired));
        }
        let reader = Self::first(&shared, attempt.win(None)?);
        let reader = reader.ok_or(AcquireError::ShuttingDown)?;
        // Nobody else has set it.
        let _ = held.successor.set(reader.tenancy().clone());
        shared.open_leases.open(&reader.tenancy().lease, &terms);
        Ok(reader)
    }
}

/// While it is there, a scope keeps the lock that has ended, for the one that comes in its place.
struct Followed(Arc<HeldLease>);

impl Followed {
    fn new(held: &Arc<HeldLease>) -> Self {
        held.is_followed.store(true, Ordering::Release);
        Self(Arc::clone(held))
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.is_followed.store(false, Ordering::Release);
    }
}
