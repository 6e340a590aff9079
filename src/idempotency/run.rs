//! [`Idempotent`]: the run of a request under its key, for the handler.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, Response};

use super::fingerprint::Fingerprint;
use super::key::IdempotencyKey;
use super::options::ExchangeOptions;
use super::stored_response::{Outcome, Replay, StoredResponse};
use crate::http::state::RunId;
use crate::lock_key::LockKey;
use crate::manager::LockHandle;
use crate::token::FencingToken;

/// The run of a request under its idempotency key. With the feature `axum` it is an extractor; other services get it by
/// [`Idempotent::of`].
#[derive(Clone)]
pub struct Idempotent {
    key: IdempotencyKey,
    name: LockKey,
    // `None` if too few nodes answered, and the request runs without a record.
    handle: Option<LockHandle>,
    run: RunId,
    fingerprint: Fingerprint,
    options: Arc<ExchangeOptions>,
}

/// In the extensions of a request. A type of our own, so that nobody else puts one there.
#[derive(Clone)]
struct Running(Idempotent);

impl Idempotent {
    /// The run of the request with these extensions; `None` if the request has no idempotency key or there is no
    /// [`IdempotencyLayer`](crate::IdempotencyLayer) around this service.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().map(|Running(run)| run.clone())
    }

    pub(super) fn of_run(
        handle: Option<LockHandle>,
        (key, name): (IdempotencyKey, LockKey),
        run: RunId,
        fingerprint: Fingerprint,
        options: Arc<ExchangeOptions>,
    ) -> Self {
        Self {
            key,
            name,
            handle,
            run,
            fingerprint,
            options,
        }
    }

    pub(super) fn enter(self, extensions: &mut Extensions) {
        extensions.insert(Running(self));
    }

    /// The key that the client chose.
    #[must_use]
    pub const fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The key with its method, host, route and caller, as a text for a unique column: `idempotency:` and a SHA-256 in 64
    /// hexadecimal digits. It is the same for each repeat, in all processes, and tells nothing of what it is made of.
    ///
    /// Without [`any_host`](crate::IdempotencyLayer::any_host) a repeat to another host of the service has another id.
    /// So has one after the text of its route has changed, such as the name of a path parameter, or that of its caller.
    #[must_use]
    pub fn id(&self) -> &str {
        self.name.as_str()
    }

    /// The fencing token of this run, greater than the token of every earlier run of the key. `None` if the request runs
    /// without a record, see [`handle`](Self::handle).
    #[must_use]
    pub fn fence(&self) -> Option<FencingToken> {
        self.handle.as_ref()?.fence()
    }

    /// The lock under which the request runs, with its remaining time and loss. `None` if too few nodes answered and the
    /// layer lets requests run [without a record](crate::IdempotencyLayer::on_no_quorum): then nothing of this request is
    /// stored on the nodes, and a repeat may run at the same time.
    #[must_use]
    pub const fn handle(&self) -> Option<&LockHandle> {
        self.handle.as_ref()
    }

    /// Marks the response to this request as one of a run that did nothing: it is not stored, and a repeat runs
    /// (`docs::one_effect`, "Refusals").
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
        self.run.clone().mark(response)
    }

    /// `response` as bytes, for the transaction that has the effect of the request to store beside it, under
    /// [`id`](Self::id) (`docs::one_effect`, "The response in the transaction"). They have the status, the body, the
    /// headers that the layer stores ([`recorded_headers`](crate::IdempotencyLayer::recorded_headers)), and a
    /// fingerprint of the request. Of a body longer than
    /// [`max_response_body`](crate::IdempotencyLayer::max_response_body) they say only that there was one.
    ///
    /// They are no secret, nor protected against change: who may write the column answers for the service.
    #[must_use]
    pub fn encode(&self, response: &Response<Bytes>) -> Bytes {
        let (status, body) = (response.status(), response.body());
        let outcome = match body.len() <= self.options.max_response_body {
            true => Outcome::Replayable(self.options.replay_of(
                status,
                response.headers(),
                body.clone(),
                None,
            )),
            false => Outcome::NotReplayable { status },
        };
        StoredResponse::new(self.fingerprint, outcome).encode()
    }

    /// The response that an earlier run of this request has [encoded](Self::encode), marked as replayed: return it as
    /// it is, and do nothing else.
    ///
    /// Where there is none for this request, it is a refusal, which the layer does not store: `422
    /// idempotency-key-reused` if the bytes are of a request with another payload, `409 not-replayable` if its body was
    /// too long, `503 record-unreadable` if they are damaged or from a later version of this crate.
    #[must_use]
    pub fn decode(&self, encoded: impl Into<Bytes>) -> Response<Bytes> {
        match Replay::find(encoded.into(), self.fingerprint) {
            Ok(replay) => replay.into_response(&self.options.replayed),
            Err(cause) => self.not_processed(self.options.common.refusal(cause, true)),
        }
    }
}

impl fmt::Debug for Idempotent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotent")
            .field("key", &self.key)
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}
