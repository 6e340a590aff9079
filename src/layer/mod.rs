//! [`RedlockLayer`]: requests that touch the same resource run one at a time.
//!
//! The layer works around any tower service with the types of the crate `http`, with or without axum. The inner service
//! must be `Clone`. Its error type does not change, because the layer refuses a request with a response.
//!
//! By default, requests of the methods GET, HEAD, OPTIONS and TRACE run without a lock, and so do requests for which
//! the extractor returns no key. They send no command to the nodes.
//!
//! The guide has more in `docs::requests`, and all responses in `docs::errors`.

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

/// The lock under which a request runs: the [`LockHandle`] of the innermost [`RedlockLayer`]. Dropping a `Held` does
/// not release the lock.
///
/// With the feature `axum` it is an extractor, and a handler with this argument never runs without a lock. A handler
/// that may run without a lock takes `Option<Held>`. Without axum, use [`Held::of`].
#[derive(Clone, Debug)]
pub struct Held {
    handle: LockHandle,
    locks: LockManager,
}

impl Held {
    /// Gets the lock from the extensions of a request.
    ///
    /// # Errors
    ///
    /// [`UnlockedReason`] if there is no layer around this service, or if the layer let the request run without a lock.
    pub fn of(extensions: &Extensions) -> Result<Self, UnlockedReason> {
        let (handle, locks) = RequestState::lock(extensions)?;
        Ok(Self { handle, locks })
    }

    /// Returns a guard of the lock, for work that continues after the response, such as a job or a WebSocket. The lock
    /// is released when the last of its guards is dropped. The work must watch [`lost`](LockHandle::lost) itself.
    ///
    /// # Errors
    ///
    /// [`LossReason`] if the lock has ended, or is about to end. `?` converts it into a [`Rejection`].
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
