//! From the head of a request to the decision whether, and under which lock, it runs.

use std::pin::Pin;
use std::sync::Arc;

use http::Extensions;
use http::request::Parts;

use crate::manager::{AcquireError, LockGuard};

use super::key_extractor::KeyExtractor;
use super::loan::{self, LoanProofHeader};
use super::options::{OnNoQuorum, Options};
use super::rejection::Cause;
use super::request_state::{LockState, RequestState, UnlockedReason, lock_scope};

/// The boxed work that goes before a request runs. The body of the request is not in it, so the body need not be
/// `Send`.
pub(super) type Admission = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// Whether a request runs.
pub(super) enum Verdict {
    /// Under this lock, or without one where there is none.
    Run(Parts, Option<LockGuard>),
    /// Not at all.
    Refuse(Cause),
}

/// Extracts the key and acquires its lock, or borrows it if the request has the header of a loan.
///
/// # Cancel safety
///
/// May be dropped at any point: keys that the acquisition has set on nodes by then are released in the background.
pub(super) async fn admit<K: KeyExtractor>(
    options: Arc<Options>,
    extractor: Arc<K>,
    mut parts: Parts,
    shown: Option<LoanProofHeader>,
) -> Verdict {
    let keys = match extractor.extract(&mut parts).await {
        Ok(Some(keys)) => keys,
        Ok(None) => return unlocked(parts, UnlockedReason::NoKey),
        Err(error) => return Verdict::Refuse(AcquireError::InvalidKey(error).into()),
    };
    // Locks that outer layers hold for this request are shared, not waited for.
    let scope = lock_scope(&mut parts.extensions);
    let acquired = match (&options.borrow_from, shown) {
        (Some(trusts), Some(shown)) => {
            match loan::borrow(&options.locks, &scope, &**trusts, &parts, keys, shown).await {
                Ok(borrowed) => borrowed,
                Err(error) => return Verdict::Refuse(Cause::Loan(error)),
            }
        }
        _ => {
            let max_wait = options.max_wait_of(&parts);
            let acquired = options.locks.acquire_in(&scope, keys, max_wait);
            acquired.await
        }
    };
    match acquired {
        Ok(guard) => {
            RequestState::of(&mut parts.extensions).lock = LockState::Locked {
                handle: guard.handle(),
                locks: options.locks.clone(),
            };
            Verdict::Run(parts, Some(guard))
        }
        // Where the lists of nodes differ, the nodes work, and the key may be held.
        Err(AcquireError::NoQuorum(error)) if error.is_disagreement() => {
            Verdict::Refuse(AcquireError::NoQuorum(error).into())
        }
        Err(AcquireError::NoQuorum(_) | AcquireError::TooSlow(_))
            if options.on_no_quorum == OnNoQuorum::RunUnlocked =>
        {
            unlocked(parts, UnlockedReason::NoQuorum)
        }
        Err(error) => Verdict::Refuse(error.into()),
    }
}

/// Notes in a request that it runs without a lock.
///
/// This replaces the lock of an outer layer: of several layers the innermost decides, and a handler must not take the
/// outer lock for the one that the inner layer did not acquire.
pub(super) fn mark_unlocked(extensions: &mut Extensions, reason: UnlockedReason) {
    RequestState::of(extensions).lock = LockState::Unlocked(reason);
}

fn unlocked(mut parts: Parts, reason: UnlockedReason) -> Verdict {
    mark_unlocked(&mut parts.extensions, reason);
    Verdict::Run(parts, None)
}
