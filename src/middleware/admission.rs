//! From the head of a request to the decision whether, and under which lock, it runs.

use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;

use crate::manager::{AcquireError, LockGuard};

use super::key_extractor::KeyExtractor;
use super::mistake;
use super::options::{OnNoQuorum, Options};
use super::rejection::Cause;
use super::request_state::{LockState, RequestState, UnlockedReason, lock_scope};

/// The boxed work that goes before a request runs. The body of the request is not in it, so the body need not be
/// `Send`.
pub(super) type Admission = Pin<Box<dyn Future<Output = Result<Admitted, Cause>> + Send>>;

/// The head of a request that runs, and its lock, if it has one.
pub(super) type Admitted = (Parts, Option<LockGuard>);

/// Extracts the key and acquires its lock.
///
/// # Cancel safety
///
/// May be dropped at any point: keys that the acquisition has set on nodes by then are released in the background.
pub(super) async fn admit<K: KeyExtractor>(
    options: Arc<Options>,
    extractor: Arc<K>,
    mut parts: Parts,
) -> Result<Admitted, Cause> {
    let keys = extractor.extract(&mut parts).await;
    if let Err(error) = &keys
        && error.is_misplaced()
    {
        mistake::tell(&parts, error);
    }
    let Some(keys) = keys.map_err(Cause::InvalidKey)? else {
        return Ok(unlocked(parts, UnlockedReason::NoKey));
    };
    // Locks that outer layers hold for this request are shared, not waited for.
    let scope = lock_scope(&mut parts.extensions);
    let max_wait = options.max_wait_of(&parts);
    let locks = &options.locks;
    match locks.acquire_in_within(&scope, keys, max_wait).await {
        Ok(guard) => {
            RequestState::of(&mut parts.extensions).lock = LockState::Locked {
                handle: guard.handle(),
                locks: options.locks.clone(),
            };
            Ok((parts, Some(guard)))
        }
        // Where the lists of nodes differ, the nodes work, and the key may be held.
        Err(AcquireError::NoQuorum(error)) if error.is_disagreement() => {
            Err(AcquireError::NoQuorum(error).into())
        }
        Err(AcquireError::NoQuorum(_) | AcquireError::TooSlow(_))
            if options.on_no_quorum == OnNoQuorum::RunUnlocked =>
        {
            Ok(unlocked(parts, UnlockedReason::NoQuorum))
        }
        Err(error) => Err(error.into()),
    }
}

fn unlocked(mut parts: Parts, reason: UnlockedReason) -> Admitted {
    RequestState::mark_unlocked(&mut parts.extensions, reason);
    (parts, None)
}
