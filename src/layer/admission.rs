//! The settings of a [`RedlockLayer`](super::RedlockLayer), and how a request gets its lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;

use super::key::KeyExtractor;
use crate::http::rejection::Cause;
use crate::http::state;
use crate::http::state::{LockState, RequestState, UnlockedReason, lock_scope};
use crate::http::{Common, Methods};
use crate::manager::{AcquireError, LockGuard, LockManager};

#[derive(Clone)]
pub(super) struct Options {
    pub(super) common: Common,
    pub(super) extractor: Arc<dyn Admit>,
    pub(super) shared: Methods,
    pub(super) max_wait_with: Option<Arc<MaxWaitWith>>,
    pub(super) holds_until_body: bool,
}

pub(super) type MaxWaitWith = dyn Fn(&Parts) -> Option<Duration> + Send + Sync;

impl Options {
    pub(super) fn cover(&self, method: &Method) -> bool {
        self.common.methods.cover(method) || self.shared.cover(method)
    }

    fn locks_for(&self, method: &Method) -> LockManager {
        let locks = &self.common.locks;
        match self.shared.cover(method) {
            true => locks.shared(),
            false => locks.clone(),
        }
    }

    pub(super) fn max_wait_of(&self, request: &Parts) -> Duration {
        let own = self.max_wait_with.as_ref();
        let own = own.and_then(|own| own(request));
        own.map_or(self.common.max_wait, |own| own.min(self.longest_wait()))
    }

    pub(super) fn longest_wait(&self) -> Duration {
        match self.max_wait_with {
            Some(_) => self.common.max_wait.max(self.common.locks.times.max_wait),
            None => self.common.max_wait,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("common", &self.common)
            .field("shared", &self.shared)
            .field("max_wait_with", &self.max_wait_with.is_some())
            .field("holds_until_body", &self.holds_until_body)
            .finish_non_exhaustive()
    }
}

/// The work before a request runs. It does not own the request's body, so the body need not be `Send`.
pub(super) type Admission = Pin<Box<dyn Future<Output = Result<Admitted, Cause>> + Send>>;

type Admitted = (Parts, Option<LockGuard>);

pub(super) trait Admit: Send + Sync {
    fn admit(self: Arc<Self>, options: Arc<Options>, parts: Parts) -> Admission;
}

impl<K: KeyExtractor> Admit for K {
    fn admit(self: Arc<Self>, options: Arc<Options>, parts: Parts) -> Admission {
        Box::pin(admit(self, options, parts))
    }
}

async fn admit<K: KeyExtractor>(
    extractor: Arc<K>,
    options: Arc<Options>,
    mut parts: Parts,
) -> Result<Admitted, Cause> {
    options.common.may_begin()?;
    let keys = match extractor.extract(&mut parts).await {
        Ok(Some(keys)) => keys,
        Ok(None) => return Ok(unlocked(parts, UnlockedReason::NoKey)),
        Err(error) => {
            if error.is_misplaced() {
                state::misconfigured(&parts, &error);
            }
            return Err(error.into());
        }
    };
    // In the scope of the request, the layer shares locks that outer layers hold for it, and does not wait for them.
    let scope = lock_scope(&mut parts.extensions);
    let max_wait = options.max_wait_of(&parts);
    let locks = options.locks_for(&parts.method);
    match locks.acquire_in_within(&scope, keys, max_wait).await {
        Ok(guard) => {
            RequestState::of(&mut parts.extensions).lock = LockState::Locked {
                handle: guard.handle(),
                locks,
            };
            Ok((parts, Some(guard)))
        }
        Err(error) if options.common.on_no_quorum.lets_run(&error) => {
            Ok(unlocked(parts, UnlockedReason::NoQuorum))
        }
        Err(error) => {
            if let AcquireError::InvalidKey(error) = &error
                && error.is_misplaced()
            {
                state::misconfigured(&parts, error);
            }
            Err(error.into())
        }
    }
}

fn unlocked(mut parts: Parts, reason: UnlockedReason) -> Admitted {
    RequestState::mark_unlocked(&mut parts.extensions, reason);
    (parts, None)
}
