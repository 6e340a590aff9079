//! [`Idempotent`]: what a handler is told of the idempotency key under which it runs.

use std::fmt;

use http::Response;

use super::key::IdempotencyKey;
use crate::manager::{LockHandle, RunGuard};
use crate::token::FencingToken;
use crate::unprocessed::RunId;

/// What a handler is told of the idempotency key under which it runs. The layer puts it into the request's extensions;
/// with the feature `axum` it is an extractor.
#[derive(Clone)]
pub struct Idempotent {
    key: IdempotencyKey,
    fence: FencingToken,
    handle: LockHandle,
    id: RunId,
}

impl Idempotent {
    pub(super) fn new(key: IdempotencyKey, guard: &RunGuard, id: RunId) -> Self {
        Self {
            key,
            fence: guard.fence(),
            handle: guard.handle(),
            id,
        }
    }

    /// The key that the client chose.
    #[must_use]
    pub const fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The number of this run, greater than that of every run of the same key before. A database that keeps the highest
    /// number of each key, and refuses lower ones in the same transaction as the effect, excludes a run that was
    /// overtaken.
    #[must_use]
    pub const fn fence(&self) -> FencingToken {
        self.fence
    }

    /// The lock under which the request runs: whether it is lost, and how long it lasts. It cannot be
    /// [lent](LockHandle::lend).
    #[must_use]
    pub const fn handle(&self) -> &LockHandle {
        &self.handle
    }

    /// Says of an answer to this request that nothing was done: it is not kept, whatever the
    /// [policy](super::RecordPolicy) says, and a repeat runs. See [the rule](super#what-was-not-processed).
    ///
    /// The layer takes it on trust. Say it only where this run has begun nothing that must not happen twice, neither in
    /// the handler nor in a layer around it. It goes with the answer, in its extensions, and holds for this run alone:
    /// in the answer to another it means nothing, and in one that is made anew from the body it is lost, so that the
    /// answer is kept.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "axum")] mod example {
    /// use axum::body::Body;
    /// use axum::extract::{Path, State};
    /// use axum::response::Response;
    /// use tower_redlock::LockManager;
    /// use tower_redlock::idempotency::Idempotent;
    /// use tower_redlock::middleware::Rejection;
    ///
    /// async fn order(
    ///     run: Idempotent,
    ///     State(locks): State<LockManager>,
    ///     Path(item): Path<u64>,
    /// ) -> Result<String, Response> {
    ///     // Up to here nothing was done.
    ///     let busy = |error| {
    ///         let response = Rejection::from(error).to_response();
    ///         run.not_processed(response.map(Body::from))
    ///     };
    ///     let stock = locks.acquire(format!("stock:{item}")).await.map_err(busy)?;
    ///     Ok(format!("{item} is taken under {}", stock.key()))
    /// }
    /// # fn is_a_handler() -> axum::Router<LockManager> {
    /// #     axum::Router::new().route("/{item}", axum::routing::post(order))
    /// # }
    /// # }
    /// ```
    #[must_use = "it is the answer that says so"]
    pub fn not_processed<B>(&self, answer: Response<B>) -> Response<B> {
        self.id.clone().mark(answer)
    }
}

impl fmt::Debug for Idempotent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotent")
            .field("key", &self.key)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}
