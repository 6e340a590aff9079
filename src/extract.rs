//! The axum extractors [`Held`] and [`Locked`].

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::ops::Deref;

use axum::Json;
use axum::body::Body;
use axum::extract::{
    FromRef, FromRequest, FromRequestParts, OptionalFromRequestParts, Path, Request,
};
use axum::response::{IntoResponse, Response};
#[cfg(feature = "idempotency")]
use http::StatusCode;
use http::request::Parts;

#[cfg(feature = "idempotency")]
use crate::http::rejection::By;
use crate::http::state;
#[cfg(feature = "idempotency")]
use crate::idempotency::Idempotent;
use crate::key_error::KeyError;
pub use crate::layer::Held;
#[cfg(feature = "idempotency")]
use crate::layer::RejectionKind;
use crate::layer::{Rejection, UnlockedReason, lock_scope};
use crate::lock_key::LockKeys;
use crate::manager::{LockGuard, LockManager, LockScope};

/// Says which keys [`Locked`] locks for a value from the request. [`Path`] and [`Json`] have the keys of the value
/// inside.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the name of a lock",
    label = "`Locked<{Self}>` needs to know which keys to lock",
    note = "implement `tower_redlock::extract::AsLockKeys` for `{Self}`: which keys does it stand for?",
    note = "for a value out of the path or a JSON body, implement it for your own type, such as `struct OrderId(u64)` with \
            `serde::Deserialize`, and take `Locked<Path<OrderId>>` or `Locked<Json<OrderId>>`"
)]
pub trait AsLockKeys {
    /// Returns the keys to lock. Either all of them are locked, or none.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the value has no valid key. The response is `400 invalid-key`.
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError>;
}

impl<T: AsLockKeys> AsLockKeys for Path<T> {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        self.0.to_lock_keys()
    }
}

impl<T: AsLockKeys> AsLockKeys for Json<T> {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        self.0.to_lock_keys()
    }
}

/// An axum extractor: extracts a `K` from the request, and then acquires the lock on its keys.
///
/// The lock is acquired from the [`LockManager`] in the router's state, and waits for at most the manager's `max_wait`.
/// It is released in the background when this is dropped. Keys that a layer has already locked for the request are
/// shared.
///
/// If the lock is lost, the handler continues. Watch [`lost`](crate::LockHandle::lost), or use a
/// [`RedlockLayer`](crate::RedlockLayer), which drops the handler.
///
/// If `K` consumes the body, like [`Json`], it must be the last argument of the handler. If a handler needs several
/// locks, use one `K` that returns all keys.
///
/// # If it does not compile
///
/// `K` must be an extractor and implement [`AsLockKeys`], and the state must be a [`LockManager`] or have one by
/// [`FromRef`]. `#[axum::debug_handler]` (axum's feature `macros`) names what is missing.
///
/// # Examples
///
/// ```
/// use axum::extract::Path;
/// use axum::{Router, routing::post};
/// use tower_redlock::Locked;
/// use tower_redlock::error::KeyError;
/// use tower_redlock::extract::AsLockKeys;
/// use tower_redlock::key::LockKeys;
/// use tower_redlock::{LockKey, LockManager};
///
/// #[derive(serde::Deserialize)]
/// struct OrderId(u64);
///
/// impl AsLockKeys for OrderId {
///     fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
///         Ok(LockKey::join(["order", &self.0.to_string()])?.into())
///     }
/// }
///
/// async fn pay(order: Locked<Path<OrderId>>) -> String {
///     format!("order {} is paid", order.0.0)
/// }
///
/// fn app(locks: LockManager) -> Router {
///     Router::new().route("/orders/{id}/pay", post(pay)).with_state(locks)
/// }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
#[clippy::has_significant_drop]
pub struct Locked<K> {
    value: K,
    guard: LockGuard,
}

impl<K> Locked<K> {
    /// The guard of the lock.
    #[cfg(tower_redlock_tests)]
    pub const fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Returns the value and the guard of its lock.
    pub fn into_parts(self) -> (K, LockGuard) {
        (self.value, self.guard)
    }
}

impl<K> Deref for Locked<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.value
    }
}

impl<S, K> FromRequestParts<S> for Locked<K>
where
    S: Send + Sync,
    K: FromRequestParts<S> + AsLockKeys + Send,
    LockManager: FromRef<S>,
{
    type Rejection = LockedRejection<K::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let value = K::from_request_parts(parts, state).await;
        let value = value.map_err(LockedRejection::Value)?;
        let scope = lock_scope(&mut parts.extensions);
        let locked = lock(value, &scope, &LockManager::from_ref(state)).await;
        locked.map_err(LockedRejection::Lock)
    }
}

impl<S, K> FromRequest<S> for Locked<K>
where
    S: Send + Sync,
    K: FromRequest<S> + AsLockKeys + Send,
    LockManager: FromRef<S>,
{
    type Rejection = LockedRejection<K::Rejection>;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, Self::Rejection> {
        // Take the scope first, because the extractor consumes the request.
        let scope = lock_scope(request.extensions_mut());
        let value = K::from_request(request, state).await;
        let value = value.map_err(LockedRejection::Value)?;
        let locked = lock(value, &scope, &LockManager::from_ref(state)).await;
        locked.map_err(LockedRejection::Lock)
    }
}

async fn lock<K: AsLockKeys>(
    value: K,
    scope: &LockScope,
    locks: &LockManager,
) -> Result<Locked<K>, Rejection> {
    let keys = value.to_lock_keys()?;
    let guard = locks.acquire_in(scope, keys, locks.times.max_wait).await?;
    Ok(Locked { value, guard })
}

impl<S: Send + Sync> FromRequestParts<S> for LockScope {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(lock_scope(&mut parts.extensions))
    }
}

/// Why a [`Locked`] could not be extracted. It responds like the error inside.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedRejection<R> {
    /// The value could not be extracted from the request.
    Value(R),
    /// The lock was not acquired.
    Lock(Rejection),
}

impl<R: IntoResponse> IntoResponse for LockedRejection<R> {
    fn into_response(self) -> Response {
        match self {
            Self::Value(rejection) => rejection.into_response(),
            Self::Lock(rejection) => rejection.into_response(),
        }
    }
}

impl<R: fmt::Display> fmt::Display for LockedRejection<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(rejection) => rejection.fmt(f),
            Self::Lock(rejection) => rejection.fmt(f),
        }
    }
}

impl<R: Error + 'static> Error for LockedRejection<R> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Value(rejection) => Some(rejection),
            Self::Lock(rejection) => rejection.source(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Held {
    type Rejection = UnlockedReason;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, UnlockedReason> {
        Self::of(&parts.extensions).inspect_err(|reason| log(parts, *reason))
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Held {
    type Rejection = UnlockedReason;

    async fn from_request_parts(
        parts: &mut Parts,
        _state: &S,
    ) -> Result<Option<Self>, UnlockedReason> {
        match Self::of(&parts.extensions) {
            Ok(held) => Ok(Some(held)),
            Err(reason @ UnlockedReason::NoLayer) => {
                log(parts, reason);
                Err(reason)
            }
            Err(_) => Ok(None),
        }
    }
}

fn log(parts: &Parts, reason: UnlockedReason) {
    if reason != UnlockedReason::NoQuorum {
        state::misconfigured(parts, &reason);
    }
}

impl IntoResponse for UnlockedReason {
    fn into_response(self) -> Response {
        Rejection::from(self).into_response()
    }
}

/// The [default response](Rejection::to_response).
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}

/// Refuses a request without an idempotency key with `500 misconfigured`.
#[cfg(feature = "idempotency")]
impl<S: Send + Sync> FromRequestParts<S> for Idempotent {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        Self::of(&parts.extensions).ok_or_else(|| {
            state::misconfigured(parts, &NO_KEY);
            let cause = RejectionKind::Misconfigured;
            Rejection::new(By::Idempotency, cause, StatusCode::CONFLICT).of_run(false)
        })
    }
}

/// `None` if the request has no idempotency key, or if there is no layer.
#[cfg(feature = "idempotency")]
impl<S: Send + Sync> OptionalFromRequestParts<S> for Idempotent {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _state: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        Ok(Self::of(&parts.extensions))
    }
}

#[cfg(feature = "idempotency")]
const NO_KEY: &str = "the handler needs an idempotency key and its request runs without one; put an `IdempotencyLayer` around its route that covers its method and is not `optional()`, or take an `Option<Idempotent>`";
