//! For axum: the extractors [`Held`] and [`Locked`].

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

/// The lock keys of a value from the request. [`Locked`] has an example.
///
/// [`Path`] and [`Json`] pass it on to what they hold: `Locked<Path<OrderId>>`, `Locked<Json<Transfer>>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the name of a lock",
    label = "`Locked<{Self}>` needs to know which keys to lock",
    note = "implement `tower_redlock::extract::AsLockKeys` for `{Self}`: which keys does it stand for?",
    note = "for a value out of the path or a JSON body, implement it for your own type, such as `struct OrderId(u64)` with \
            `serde::Deserialize`, and take `Locked<Path<OrderId>>` or `Locked<Json<OrderId>>`"
)]
pub trait AsLockKeys {
    /// The keys to lock: all of them or none.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the value has no valid key: the response is `400 invalid-key`.
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

/// A value of the request and the lock on its keys, as an axum extractor.
///
/// The lock is acquired with the [`LockManager`] of the router's state when the handler's arguments are extracted, which
/// takes up to the manager's `max_wait`. It is released in the background when this is dropped. Keys that a layer has
/// locked for the request are shared. A refusal has the same response as a layer's.
///
/// If the lock is lost, the handler continues: watch [`lost`](crate::LockHandle::lost), or use a
/// [`RedlockLayer`](crate::RedlockLayer).
///
/// A `K` that consumes the body, such as [`Json`], is the last argument of the handler. The body is read before the lock
/// is acquired. If a handler needs several locks, take one `K` with all their keys.
///
/// # If it does not compile
///
/// `K` must be an extractor and [`AsLockKeys`], and [`FromRef`] must make a [`LockManager`] of the state.
/// `#[axum::debug_handler]` (axum's feature `macros`) names the missing one.
///
/// # Examples
///
/// ```
/// use axum::extract::{FromRef, Path};
/// use axum::{Json, Router, routing::post};
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
/// /// `{"from": 3, "to": 7}`
/// #[derive(serde::Deserialize)]
/// struct Transfer { from: u64, to: u64 }
///
/// impl AsLockKeys for Transfer {
///     fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
///         LockKeys::new([self.from, self.to].map(|account| format!("account:{account}")))
///     }
/// }
///
/// async fn transfer(transfer: Locked<Json<Transfer>>) -> String {
///     format!("from {} to {}", transfer.from, transfer.to)
/// }
///
/// #[derive(Clone)]
/// struct App { locks: LockManager }
///
/// impl FromRef<App> for LockManager {
///     fn from_ref(app: &App) -> Self { app.locks.clone() }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = LockManager::builder().memory(5).connect().await?;
/// let app: Router = Router::new()
///     .route("/orders/{id}/pay", post(pay))
///     .route("/transfers", post(transfer))
///     .with_state(App { locks });
/// # let _ = app;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
#[clippy::has_significant_drop]
pub struct Locked<K> {
    value: K,
    guard: LockGuard,
}

impl<K> Locked<K> {
    /// The lock.
    #[cfg(tower_redlock_tests)]
    pub const fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// The value and the guard of its lock.
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
        // The extractor takes the request with all that is in it.
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

/// The scope of the request, which its layers and extractors share.
impl<S: Send + Sync> FromRequestParts<S> for LockScope {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(lock_scope(&mut parts.extensions))
    }
}

/// Why a [`Locked`] could not be extracted.
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

/// `500 misconfigured` for a request without an idempotency key.
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

/// `None` for a request without a key, where the layer lets those in, and where there is no layer.
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
const NO_KEY: &str = "the handler needs an idempotency key and its request runs without one; put an `IdempotencyLayer` around its route, not told `optional()` and not for other methods, or take an `Option<Idempotent>`";
