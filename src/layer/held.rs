//! [`Held`]: the lock under which a request runs.

use std::ops::Deref;

use http::Extensions;

use crate::http::state::{RequestState, UnlockedReason};
use crate::manager::{LockGuard, LockHandle, LockManager, LossReason};

/// The lock under which a request runs: the [`LockHandle`] of the innermost [`RedlockLayer`](super::RedlockLayer).
/// Dropping it does not release the lock.
///
/// With the feature `axum` it is an extractor; other services get it by [`Held::of`]. A handler with this argument does
/// not run without a lock: [`UnlockedReason`](super::UnlockedReason). `Option<Held>` is for handlers that run either way, and still an error
/// where there is no layer.
#[derive(Clone, Debug)]
pub struct Held {
    handle: LockHandle,
    locks: LockManager,
}

impl Held {
    /// The lock of the request with these extensions.
    ///
    /// # Errors
    ///
    /// [`UnlockedReason`](super::UnlockedReason) if there is no layer around this service, or if it let the request through without a lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tower_redlock::Held;
    ///
    /// async fn pay(request: Request<String>) -> Response<String> {
    ///     match Held::of(request.extensions()) {
    ///         Ok(lock) => Response::new(format!("{} is paid", lock.key())),
    ///         Err(unlocked) => Response::new(unlocked.to_string()),
    ///     }
    /// }
    /// ```
    pub fn of(extensions: &Extensions) -> Result<Self, UnlockedReason> {
        let (handle, locks) = RequestState::lock(extensions)?;
        Ok(Self { handle, locks })
    }

    /// The handle, to be kept.
    #[must_use]
    pub fn into_handle(self) -> LockHandle {
        self.handle
    }

    /// A guard of the lock, for a job, a WebSocket or a stream that continues after the response: the lock is released
    /// when the last of its guards is dropped. The owner of the guard watches [`lost`](LockHandle::lost). A GET has a
    /// lock only with [`all_methods`](super::RedlockLayer::all_methods).
    ///
    /// # Errors
    ///
    /// The reason why the lock has ended, or is about to. `?` makes a [`Rejection`](super::Rejection) of it.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_redlock::Held;
    /// use tower_redlock::layer::Rejection;
    ///
    /// async fn start(held: Held) -> Result<StatusCode, Rejection> {
    ///     let guard = held.into_guard()?;
    ///     tokio::spawn(async move {
    ///         tokio::select! {
    ///             () = long_work() => {}
    ///             _ = guard.lost() => {}
    ///         }
    ///         let _ = guard.release().await;
    ///     });
    ///     Ok(StatusCode::ACCEPTED)
    /// }
    ///
    /// async fn long_work() {}
    /// ```
    pub fn into_guard(self) -> Result<LockGuard, LossReason> {
        self.locks.reenter(&self.handle)
    }
}

impl Deref for Held {
    type Target = LockHandle;

    fn deref(&self) -> &LockHandle {
        &self.handle
    }
}
