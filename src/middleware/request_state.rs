//! [`RequestState`]: all that the layers of this crate keep in the extensions of a request.

use std::fmt;

use http::Extensions;

use crate::manager::{LockHandle, LockManager, LockScope};
#[cfg(feature = "idempotency")]
use crate::mutant::{self, Mutant};
#[cfg(feature = "idempotency")]
use crate::token::FencingToken;
use crate::unprocessed::RunId;

/// The one extension that the layers put into a request. Copies of the extensions share its locks.
#[derive(Clone, Default)]
pub(crate) struct RequestState {
    /// The decision of the innermost lock layer.
    pub(crate) lock: LockState,
    /// The locks that the request holds, so that layers and extractors share them. Made when the first one asks.
    scope: Option<LockScope>,
    /// The run under an idempotency key, as the innermost idempotency layer began it.
    #[cfg(feature = "idempotency")]
    pub(crate) run: Option<Run>,
    /// Set for a service that is called directly by the layer of this run. The service takes it out, so that no
    /// service further in finds it.
    pub(crate) called_by: Option<RunId>,
}

/// Whether a request runs under a lock.
#[derive(Clone, Default)]
pub(crate) enum LockState {
    /// No lock layer has seen the request.
    #[default]
    NoLayer,
    Unlocked(UnlockedReason),
    Locked {
        handle: LockHandle,
        /// The manager that made the lock, for further guards of it.
        locks: LockManager,
    },
}

/// A run under an idempotency key.
#[cfg(feature = "idempotency")]
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) key: std::sync::Arc<str>,
    pub(crate) fence: FencingToken,
    pub(crate) handle: LockHandle,
    pub(crate) id: RunId,
}

impl RequestState {
    /// The state of a request that may have met no layer.
    pub(crate) fn get(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The state of a request, which is added if it is not there.
    pub(crate) fn of(extensions: &mut Extensions) -> &mut Self {
        extensions.get_or_insert_default()
    }

    /// Whether the request holds a lock, of whichever of its layers, or runs under a borrowed one.
    #[cfg(feature = "idempotency")]
    pub(crate) fn holds_lock(&self) -> bool {
        let of_layer = match &self.lock {
            LockState::Locked { handle, .. } => !handle.is_lost(),
            LockState::NoLayer | LockState::Unlocked(_) => false,
        };
        let scope = self.scope.as_ref();
        let scope = scope.filter(|_| !mutant::is(Mutant::OuterLockUnseen));
        of_layer || scope.is_some_and(LockScope::holds)
    }

    /// The run whose layer called the service that has this request, taken out.
    pub(crate) fn take_caller(extensions: &mut Extensions) -> Option<RunId> {
        extensions.get_mut::<Self>()?.called_by.take()
    }
}

/// The [`LockScope`] of a request: the locks that its layers and extractors share. With the feature `axum` the type is
/// an extractor.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tower_redlock::middleware::lock_scope;
/// use tower_redlock::{AcquireError, LockKey, LockManager};
///
/// async fn audit<B>(locks: LockManager, mut request: Request<B>) -> Result<Response<String>, AcquireError> {
///     let scope = lock_scope(request.extensions_mut());
///     let report = LockKey::new("report")?.into();
///     let guard = locks.acquire_in(&scope, report, Duration::ZERO).await?;
///     Ok(Response::new(guard.key().to_string()))
/// }
/// ```
#[must_use]
pub fn lock_scope(extensions: &mut Extensions) -> LockScope {
    let scope = &mut RequestState::of(extensions).scope;
    scope.get_or_insert_default().clone()
}

/// Why a request runs without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnlockedReason {
    /// The layer does not lock requests of this method. By default it locks all except GET, HEAD, OPTIONS and TRACE.
    Method,
    /// The key extractor found that the request needs no lock: no route matched, or an optional part of the key
    /// is missing.
    NoKey,
    /// Too few nodes replied, and the layer is set to [run unlocked](super::OnNoQuorum::RunUnlocked) then.
    NoQuorum,
}

impl fmt::Display for UnlockedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "the layer does not lock requests of this method",
            Self::NoKey => "the layer found no lock key in the request",
            Self::NoQuorum => "too few lock nodes replied",
        })
    }
}
