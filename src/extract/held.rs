//! [`Held`]: the handler's proof that its request is locked.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::manager::{LockGuard, LockHandle, LossReason};
use crate::middleware::{Along, Unlocked, UnlockedReason};

/// The lock under which the request runs, as an axum extractor.
///
/// A handler that takes it runs only where a [`RedlockLayer`](crate::middleware::RedlockLayer) holds the lock. It
/// is the [`LockHandle`] of the innermost layer; to let go of it does not release the lock.
///
/// All that the handle knows it knows: [`key`](LockHandle::key), [`is_lost`](LockHandle::is_lost),
/// [`remaining`](LockHandle::remaining), [`waited`](LockHandle::waited) and the rest.
///
/// Without a layer, or when the layer let the request through without a lock, the handler does not run:
/// [`HeldRejection`]. `Option<Held>` is for handlers that run either way; it is `None` where the layer decided
/// against a lock, and still an error where there is no layer.
#[derive(Clone, Debug)]
pub struct Held {
    handle: LockHandle,
    along: Arc<Along>,
}

/// A [`Held`], or `None` where the layer let the request through without a lock.
pub type OptionalHeld = Option<Held>;

impl Held {
    /// The handle, to be kept.
    #[must_use]
    pub fn into_handle(self) -> LockHandle {
        self.handle
    }

    /// A guard of the lock, to be taken along into a job, a WebSocket or a stream that goes on when the response is
    /// out: the lock is released when the last of its guards goes, so the response no longer releases it.
    ///
    /// Whoever has it watches [`lost`](LockGuard::lost): the layer watches for as long as the request runs, and no
    /// longer. The watchdog extends the lock for the manager's
    /// [`max_hold`](crate::LockManagerBuilder::max_hold) at most.
    ///
    /// WebSockets (over HTTP/1.1) and server-sent events are asked for by GET, which runs without a lock unless the
    /// layer is told [`all_methods`](crate::middleware::RedlockLayer::all_methods).
    ///
    /// # Errors
    ///
    /// Why the lock has ended, or is about to, if so.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_redlock::Held;
    ///
    /// async fn start(held: Held) -> StatusCode {
    ///     let Ok(guard) = held.into_guard() else { return StatusCode::SERVICE_UNAVAILABLE };
    ///     tokio::spawn(async move {
    ///         tokio::select! {
    ///             () = long_work() => {}
    ///             _ = guard.lost() => {}
    ///         }
    ///         let _ = guard.release().await;
    ///     });
    ///     StatusCode::ACCEPTED
    /// }
    ///
    /// async fn long_work() {}
    /// ```
    pub fn into_guard(self) -> Result<LockGuard, LossReason> {
        self.along.guard()
    }
}

impl Deref for Held {
    type Target = LockHandle;

    fn deref(&self) -> &LockHandle {
        &self.handle
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Held {
    type Rejection = HeldRejection;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, HeldRejection> {
        match find(parts)? {
            Ok(held) => Ok(held),
            Err(unlocked) => Err(HeldRejection(Missing::Lock(unlocked.reason()))),
        }
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Held {
    type Rejection = HeldRejection;

    async fn from_request_parts(
        parts: &mut Parts,
        _state: &S,
    ) -> Result<Option<Self>, HeldRejection> {
        find(parts).map(Result::ok)
    }
}

/// Why a handler could not have a [`Held`]. Its answer is plain text: 503 where too few nodes answered, and 500
/// else, for then the handler and the layers around it do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRejection(Missing);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Layer,
    Lock(UnlockedReason),
}

impl HeldRejection {
    /// The status of the answer.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self.0 {
            Missing::Lock(UnlockedReason::NoQuorum) => StatusCode::SERVICE_UNAVAILABLE,
            Missing::Layer | Missing::Lock(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Why the request runs without a lock; `None` if there is no layer at all.
    #[must_use]
    pub const fn unlocked_reason(&self) -> Option<UnlockedReason> {
        match self.0 {
            Missing::Layer => None,
            Missing::Lock(reason) => Some(reason),
        }
    }
}

impl fmt::Display for HeldRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Missing::Layer => f.write_str(
                "the handler needs a lock and there is no `RedlockLayer` around it; add one to its route",
            ),
            Missing::Lock(reason) => write!(
                f,
                "the handler needs a lock and its request runs without one: {reason}"
            ),
        }
    }
}

impl Error for HeldRejection {}

impl IntoResponse for HeldRejection {
    fn into_response(self) -> Response {
        (self.status(), self.to_string()).into_response()
    }
}

fn find(parts: &Parts) -> Result<Result<Held, Unlocked>, HeldRejection> {
    let handle = parts.extensions.get::<LockHandle>();
    if let (Some(handle), Some(along)) = (handle, parts.extensions.get::<Arc<Along>>()) {
        return Ok(Ok(Held {
            handle: handle.clone(),
            along: Arc::clone(along),
        }));
    }
    match parts.extensions.get::<Unlocked>() {
        Some(unlocked) => Ok(Err(*unlocked)),
        None => Err(HeldRejection(Missing::Layer)),
    }
}
