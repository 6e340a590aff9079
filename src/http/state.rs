//! What the layers keep in the extensions of requests and responses.

#![cfg_attr(
    not(feature = "idempotency"),
    expect(dead_code, reason = "only the idempotency layer has runs")
)]

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::Uri;
use http::request::Parts;
use http::{Extensions, Response};

use crate::manager::{LockGuard, LockHandle, LockManager, LockScope};
use crate::trace;

/// The extension with the locks of a request. Clones share the locks.
#[derive(Clone, Default)]
pub(crate) struct RequestState {
    /// The decision of the innermost lock layer.
    pub(crate) lock: LockState,
    scope: Option<LockScope>,
    /// The run of the idempotency layer that calls this service directly.
    pub(crate) called_by: Option<RunId>,
}

#[derive(Clone)]
pub(crate) enum LockState {
    Unlocked(UnlockedReason),
    Locked {
        handle: LockHandle,
        locks: LockManager,
    },
}

impl Default for LockState {
    fn default() -> Self {
        Self::Unlocked(UnlockedReason::NoLayer)
    }
}

/// Instead of a [`RequestState`], marks a request that runs without a lock. A type without a size needs no allocation.
#[derive(Clone, Copy)]
struct SkippedByMethod;
#[derive(Clone, Copy)]
struct SkippedWithoutKey;

impl RequestState {
    pub(crate) fn get(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    pub(crate) fn of(extensions: &mut Extensions) -> &mut Self {
        let skipped = skipped(extensions);
        if let Some(reason) = skipped {
            forget_skipped(extensions);
            let lock = LockState::Unlocked(reason);
            let state = Self {
                lock,
                ..Self::default()
            };
            extensions.insert(state);
        }
        extensions.get_or_insert_default()
    }

    /// Marks a request as running without a lock, even if an outer layer holds one, because the innermost layer
    /// decides.
    pub(crate) fn mark_unlocked(extensions: &mut Extensions, reason: UnlockedReason) {
        if let Some(state) = extensions.get_mut::<Self>() {
            state.lock = LockState::Unlocked(reason);
            state.called_by = None;
            return;
        }
        // Insert as little as possible, because this is most of the cost of an unlocked request.
        match reason {
            UnlockedReason::Method => {
                extensions.remove::<SkippedWithoutKey>();
                extensions.insert(SkippedByMethod);
            }
            UnlockedReason::NoKey => {
                extensions.remove::<SkippedByMethod>();
                extensions.insert(SkippedWithoutKey);
            }
            UnlockedReason::NoQuorum | UnlockedReason::NoLayer => {
                Self::of(extensions).lock = LockState::Unlocked(reason);
            }
        }
    }

    pub(crate) fn lock(
        extensions: &Extensions,
    ) -> Result<(LockHandle, LockManager), UnlockedReason> {
        match Self::get(extensions).map(|state| &state.lock) {
            Some(LockState::Locked { handle, locks }) => Ok((handle.clone(), locks.clone())),
            Some(LockState::Unlocked(reason)) => Err(*reason),
            None => Err(skipped(extensions).unwrap_or(UnlockedReason::NoLayer)),
        }
    }

    pub(super) fn share_lock(extensions: &Extensions) -> Option<LockGuard> {
        match &Self::get(extensions)?.lock {
            LockState::Locked { handle, locks } => locks.reenter(handle).ok(),
            LockState::Unlocked(_) => None,
        }
    }

    pub(crate) fn holds_lock(&self) -> bool {
        let of_layer = match &self.lock {
            LockState::Locked { handle, .. } => !handle.is_lost(),
            LockState::Unlocked(_) => false,
        };
        of_layer || self.scope.as_ref().is_some_and(LockScope::holds)
    }

    /// Takes out the run of the layer that called this service directly.
    pub(crate) fn take_caller(extensions: &mut Extensions) -> Option<RunId> {
        extensions.get_mut::<Self>()?.called_by.take()
    }
}

fn skipped(extensions: &Extensions) -> Option<UnlockedReason> {
    if extensions.get::<SkippedByMethod>().is_some() {
        Some(UnlockedReason::Method)
    } else {
        let without_key = extensions.get::<SkippedWithoutKey>();
        without_key.map(|SkippedWithoutKey| UnlockedReason::NoKey)
    }
}

fn forget_skipped(extensions: &mut Extensions) {
    extensions.remove::<SkippedByMethod>();
    extensions.remove::<SkippedWithoutKey>();
}

/// Returns the [`LockScope`] of a request, in which its layers and extractors share locks. With the feature `axum`,
/// [`LockScope`] is also an extractor.
#[must_use]
pub fn lock_scope(extensions: &mut Extensions) -> LockScope {
    let scope = &mut RequestState::of(extensions).scope;
    scope.get_or_insert_default().clone()
}

#[derive(Clone, Debug)]
pub(crate) struct RunId(Arc<()>);

#[derive(Clone, Debug)]
struct Unprocessed(RunId);

impl RunId {
    pub(crate) fn new() -> Self {
        Self(Arc::new(()))
    }

    /// Marks a response of a run that did nothing.
    pub(crate) fn mark<B>(self, mut response: Response<B>) -> Response<B> {
        response.extensions_mut().insert(Unprocessed(self));
        response
    }

    pub(crate) fn is_unprocessed(&self, response: &Extensions) -> bool {
        let mark = response.get::<Unprocessed>();
        mark.is_some_and(|Unprocessed(run)| Arc::ptr_eq(&self.0, &run.0))
    }
}

/// Marks a response that refuses a request for a temporary reason, with the kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(pub(crate) &'static str);

/// Why a request runs without a lock. If its handler needs a [`Held`](crate::Held), the response is `503 no-quorum` for
/// [`NoQuorum`](Self::NoQuorum), and `500 misconfigured` for the other reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnlockedReason {
    /// No [`RedlockLayer`](crate::RedlockLayer) is around the handler.
    NoLayer,
    /// The layer does not lock requests of this method.
    Method,
    /// The key extractor found that the request needs no lock.
    NoKey,
    /// Too few nodes replied, and the layer then lets requests [run unlocked](crate::layer::OnNoQuorum::RunUnlocked).
    NoQuorum,
}

impl fmt::Display for UnlockedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self {
            Self::NoLayer => {
                return f.write_str(
                    "the handler needs a lock and there is no `RedlockLayer` around it; add one to its route",
                );
            }
            Self::Method => {
                "the layer does not lock requests of this method; name it in `methods` or `shared_for`, or take `Option<Held>`"
            }
            Self::NoKey => {
                "the layer found no lock key in the request; take `Option<Held>` where a key may be missing"
            }
            Self::NoQuorum => "too few lock nodes replied",
        };
        write!(
            f,
            "the handler needs a lock and its request runs without one: {reason}"
        )
    }
}

impl Error for UnlockedReason {}

/// The path of the matched route in axum's router, such as `/orders/{id}`.
pub(crate) fn route_of(parts: &Parts) -> Option<&str> {
    #[cfg(feature = "axum")]
    return Some(
        parts
            .extensions
            .get::<axum::extract::MatchedPath>()?
            .as_str(),
    );
    #[cfg(not(feature = "axum"))]
    {
        let _ = parts;
        None
    }
}

/// The URI as the client sent it, if a router has changed it.
pub(crate) fn original_uri(parts: &Parts) -> Option<&Uri> {
    #[cfg(feature = "axum")]
    return parts
        .extensions
        .get::<axum::extract::OriginalUri>()
        .map(|original| &original.0)
        .filter(|original| original.path_and_query() != parts.uri.path_and_query());
    #[cfg(not(feature = "axum"))]
    {
        let _ = parts;
        None
    }
}

/// Logs that requests for this route fail because of a mistake in the program, once for each route and reason.
pub(crate) fn misconfigured(parts: &Parts, reason: &dyn fmt::Display) {
    // Do not log the path of the request, because a client chooses it.
    let route = route_of(parts).or_else(|| nested_path(parts));
    let mistake = (route.unwrap_or(NO_ROUTE).to_owned(), reason.to_string());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.len() < MOST && !told.contains(&mistake) {
        trace::misconfigured(&mistake.0, &mistake.1);
        told.insert(mistake);
    }
}

/// The path under which axum's routers have nested this service.
fn nested_path(parts: &Parts) -> Option<&str> {
    #[cfg(feature = "axum")]
    return Some(
        parts
            .extensions
            .get::<axum::extract::NestedPath>()?
            .as_str(),
    );
    #[cfg(not(feature = "axum"))]
    {
        let _ = parts;
        None
    }
}

const NO_ROUTE: &str = "none: no router has matched one";
const MOST: usize = 1_000;

static TOLD: Mutex<BTreeSet<(String, String)>> = Mutex::new(BTreeSet::new());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_layer_that_skips_a_request_decides_whatever_else_is_kept_of_it() {
        use UnlockedReason::{Method, NoKey, NoLayer, NoQuorum};

        let mut extensions = Extensions::new();
        let unlocked = |extensions: &Extensions| RequestState::lock(extensions).unwrap_err();
        assert_eq!(unlocked(&extensions), NoLayer);
        for reason in [Method, NoKey, Method, NoQuorum, NoKey, Method] {
            RequestState::mark_unlocked(&mut extensions, reason);
            assert_eq!(unlocked(&extensions), reason);
        }
        for reason in [Method, NoKey] {
            let mut extensions = Extensions::new();
            RequestState::mark_unlocked(&mut extensions, Method);
            RequestState::mark_unlocked(&mut extensions, NoKey);
            RequestState::mark_unlocked(&mut extensions, reason);
            assert_eq!(extensions.len(), 1, "one decision is kept");
            assert!(RequestState::get(&extensions).is_none(), "it takes no room");
            let _ = lock_scope(&mut extensions);
            assert_eq!(unlocked(&extensions), reason);
            RequestState::mark_unlocked(&mut extensions, NoQuorum);
            assert_eq!(unlocked(&extensions), NoQuorum);
        }
    }

    #[cfg(feature = "idempotency")]
    #[test]
    fn nothing_further_in_than_a_layer_that_skips_a_request_speaks_for_its_service() {
        let mut extensions = Extensions::new();
        RequestState::of(&mut extensions).called_by = Some(RunId::new());
        RequestState::mark_unlocked(&mut extensions, UnlockedReason::Method);
        assert!(RequestState::take_caller(&mut extensions).is_none());
    }
}
