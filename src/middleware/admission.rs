//! From the parts of a request to the decision whether, and under which lock, it runs.

use std::pin::Pin;
use std::sync::Arc;

use http::Extensions;
use http::request::Parts;

use crate::manager::{AcquireError, LockGuard, LockHandle, LockManager, LockScope, LossReason};

use super::key_extractor::KeyExtractor;
use super::loan::{self, Shown};
use super::options::{OnNoQuorum, Options, Unlocked, UnlockedReason};
use super::rejection::Rejection;

/// The boxed work that goes before a request runs. The body of the request is not in it, so it need not be
/// `Send` for the box's sake.
pub(super) type Admission = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// Whether a request runs.
pub(super) enum Verdict {
    /// Under this lock, or without one where there is none.
    Run(Parts, Option<LockGuard>),
    /// Not at all.
    Refuse(Rejection),
}

/// Extracts the key and acquires its lock, or borrows it where the request shows a loan that may be taken.
///
/// # Cancel safety
///
/// May be dropped at any point: what the acquisition has set on nodes by then is released in the background.
pub(super) async fn admit<K: KeyExtractor>(
    options: Arc<Options>,
    extractor: Arc<K>,
    mut parts: Parts,
    shown: Option<Shown>,
) -> Verdict {
    let keys = match extractor.extract(&mut parts).await {
        Ok(Some(keys)) => keys,
        Ok(None) => return unlocked(parts, UnlockedReason::NoKey),
        Err(error) => return refuse(&options, AcquireError::InvalidKey(error)),
    };
    // What layers further out hold for this request is shared, not waited for.
    let scope = parts
        .extensions
        .get_or_insert_default::<LockScope>()
        .clone();
    let acquired = match (&options.borrow_from, shown) {
        (Some(trusts), Some(shown)) => {
            match loan::borrow(&options.locks, &scope, &**trusts, &parts, keys, shown).await {
                Ok(borrowed) => borrowed,
                Err(error) => return Verdict::Refuse(Rejection::of_loan(&options, error)),
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
            parts.extensions.remove::<Unlocked>();
            parts.extensions.insert(guard.handle());
            let along = Along {
                locks: options.locks.clone(),
                handle: guard.handle(),
            };
            parts.extensions.insert(Arc::new(along));
            Verdict::Run(parts, Some(guard))
        }
        // Where lists disagree the nodes are there, and so may be the holder of the key.
        Err(AcquireError::NoQuorum(error)) if error.is_disagreement() => {
            refuse(&options, AcquireError::NoQuorum(error))
        }
        Err(AcquireError::NoQuorum(_) | AcquireError::TooSlow(_))
            if options.on_no_quorum == OnNoQuorum::RunUnlocked =>
        {
            unlocked(parts, UnlockedReason::NoQuorum)
        }
        Err(error) => refuse(&options, error),
    }
}

/// The way to a guard of its own, for what a request leaves behind when it is answered.
#[derive(Debug)]
pub(crate) struct Along {
    locks: LockManager,
    handle: LockHandle,
}

impl Along {
    /// One more guard of the request's lock.
    pub(crate) fn guard(&self) -> Result<LockGuard, LossReason> {
        self.locks.reenter(&self.handle)
    }
}

/// Notes in a request that it runs without a lock.
///
/// The handle of a layer further out is taken away: of several layers the innermost decides, and a handler must
/// not take another's lock for the one it was promised.
pub(super) fn mark_unlocked(extensions: &mut Extensions, unlocked: Unlocked) {
    extensions.remove::<LockHandle>();
    extensions.remove::<Arc<Along>>();
    extensions.insert(unlocked);
}

fn unlocked(mut parts: Parts, reason: UnlockedReason) -> Verdict {
    mark_unlocked(&mut parts.extensions, Unlocked::new(reason));
    Verdict::Run(parts, None)
}

fn refuse(options: &Options, error: AcquireError) -> Verdict {
    Verdict::Refuse(Rejection::not_acquired(options, error))
}
