//! [`Idempotent`]: the run of a request under its idempotency key, for the handler.

use std::fmt;
use std::sync::Arc;

use http::{Extensions, Response};

use super::key::IdempotencyKey;
use crate::http::state::{RequestState, Run};
use crate::manager::LockHandle;
use crate::token::FencingToken;

/// The run of a request under its idempotency key. With the feature `axum` it is an extractor; other services get it by
/// [`Idempotent::of`].
#[derive(Clone)]
pub struct Idempotent {
    key: IdempotencyKey,
    run: Run,
}

impl Idempotent {
    /// The run of the request with these extensions; `None` if the request has no idempotency key or there is no
    /// [`IdempotencyLayer`](crate::IdempotencyLayer) around this service.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Self> {
        let run = RequestState::get(extensions)?.run.clone()?;
        let key = IdempotencyKey(Arc::clone(&run.key));
        Some(Self { key, run })
    }

    /// The key that the client chose.
    #[must_use]
    pub const fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The fencing token of this run, greater than that of every earlier run of the key.
    #[must_use]
    pub const fn fence(&self) -> FencingToken {
        self.run.fence
    }

    /// The lock under which the request runs, with its remaining time and loss.
    #[must_use]
    pub const fn handle(&self) -> &LockHandle {
        &self.run.handle
    }

    /// Marks the response to this request as one of a run that did nothing: it is not stored, and a repeat runs
    /// (`docs::idempotency`, "Refusals").
    ///
    /// The layer trusts the mark. Use it only where this run has begun nothing that must not happen twice, neither in
    /// the handler nor in a layer around it. The mark is an extension of the response and counts for this run alone.
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
    /// use tower_redlock::layer::Rejection;
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
    #[must_use = "the returned response has the mark"]
    pub fn not_processed<B>(&self, response: Response<B>) -> Response<B> {
        self.run.id.clone().mark(response)
    }
}

impl fmt::Debug for Idempotent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotent")
            .field("key", &self.key)
            .field("fence", &self.run.fence)
            .finish_non_exhaustive()
    }
}
