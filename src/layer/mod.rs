//! [`RedlockLayer`]: requests that touch the same resource run one at a time.
//!
//! It works around any tower service that speaks `http`; axum is not needed. The inner service must be `Clone`, and its
//! error type is unchanged: the layer refuses a request by a response.
//!
//! GET, HEAD, OPTIONS and TRACE, unless [set](RedlockLayer::all_methods) [otherwise](RedlockLayer::shared_for), and requests for which the
//! extractor returns no key run without a lock and send no command to any node.
//!
//! The guide has the rest in `docs::requests`, and the responses in `docs::errors`.

mod admission;
pub(crate) mod key;
mod service;
mod settings;

use std::ops::Deref;

use http::Extensions;
#[cfg(tower_redlock_tests)]
pub use key::IntoKey;
pub use key::KeyExtractor;
pub use service::RedlockService;
#[cfg(tower_redlock_tests)]
pub use service::ResponseFuture;
pub use settings::RedlockLayer;

pub use crate::http::body::LayerBody;
pub use crate::http::rejection::{Rejection, RejectionKind};
#[cfg(tower_redlock_tests)]
pub use crate::http::run_to_end::RunToEndService;
use crate::http::state::RequestState;
pub use crate::http::state::{UnlockedReason, lock_scope};
pub use crate::http::{OnDisconnect, OnNoQuorum};
use crate::manager::{LockGuard, LockHandle, LockManager, LossReason};

/// The lock under which a request runs: the [`LockHandle`] of the innermost [`RedlockLayer`], with its methods such as
/// `key`, `remaining` and `fence`. Dropping it does not release the lock.
///
/// With the feature `axum` it is an extractor; other services get it by [`Held::of`]. A handler with this argument does
/// not run without a lock. A handler that may run without a lock takes `Option<Held>`, which is refused only if there is
/// no layer.
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
    /// [`UnlockedReason`] if there is no layer around this service, or if it let the request through without a lock.
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

    /// A guard of the lock, for a job, a WebSocket or a stream that continues after the response: the lock is released
    /// when the last of its guards is dropped. The owner of the guard watches [`lost`](LockHandle::lost).
    ///
    /// # Errors
    ///
    /// The reason why the lock has ended, or is about to. `?` makes a [`Rejection`] of it.
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
