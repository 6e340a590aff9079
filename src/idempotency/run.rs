//! [`Idempotent`]: what a handler knows about the run of its request.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, Response};

use super::fingerprint::Fingerprint;
use super::key::IdempotencyKey;
use super::options::ExchangeOptions;
use super::stored_response::{Replay, StoredResponse};
use crate::http::state::RunId;
use crate::lock_key::LockKey;
use crate::manager::LockHandle;
use crate::token::FencingToken;

/// The run of a request under its idempotency key. With the feature `axum` it is an extractor. Without axum, use
/// [`Idempotent::of`].
#[derive(Clone)]
pub struct Idempotent {
    key: IdempotencyKey,
    name: LockKey,
    // `None` if the request runs without a record because too few nodes have answered.
    handle: Option<LockHandle>,
    run: RunId,
    fingerprint: Fingerprint,
    options: Arc<ExchangeOptions>,
}

/// The extension of a request. The type is private, so that no other code can insert it.
#[derive(Clone)]
struct Running(Idempotent);

impl Idempotent {
    /// Gets the run from the extensions of a request. `None` if the request has no idempotency key, or if no
    /// [`IdempotencyLayer`](crate::IdempotencyLayer) is around this service.
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

    /// A text for a unique column: `idempotency:` and 64 hexadecimal digits, the SHA-256 of the key, method, host,
    /// route and caller. It is the same for each repeat and in all processes.
    ///
    /// A repeat has another id if it is sent to another host of the service, or if the path of the route has changed.
    #[must_use]
    pub fn id(&self) -> &str {
        self.name.as_str()
    }

    /// The fencing token of this run, greater than the token of every earlier run of the key. `None` if there is no
    /// [`handle`](Self::handle), or if fencing tokens are turned off.
    #[must_use]
    pub fn fence(&self) -> Option<FencingToken> {
        self.handle.as_ref()?.fence()
    }

    /// The lock under which the request runs. `None` if the request runs
    /// [without a record](crate::IdempotencyLayer::on_no_quorum).
    #[must_use]
    pub const fn handle(&self) -> Option<&LockHandle> {
        self.handle.as_ref()
    }

    /// Marks the response of a run that did nothing, so that it is not stored and a repeat runs. The guide has an
    /// example (`docs::one_effect`, "Refusals").
    ///
    /// Use it only if this run has begun nothing that must not happen twice, neither in the handler nor in a layer
    /// around it.
    #[must_use = "the returned response has the mark"]
    pub fn not_processed<B>(&self, response: Response<B>) -> Response<B> {
        self.run.clone().mark(response)
    }

    /// Encodes a response, so that the handler can store it under [`id`](Self::id) in the transaction of the effect.
    /// The bytes are neither encrypted nor signed.
    ///
    /// If the body is longer than [`max_response_body`](crate::IdempotencyLayer::max_response_body), it is left out,
    /// and the response cannot be replayed.
    #[must_use]
    pub fn encode(&self, response: &Response<Bytes>) -> Bytes {
        let (status, headers, body) = (response.status(), response.headers(), response.body());
        let fits = body.len() <= self.options.max_response_body;
        let stored = StoredResponse {
            fingerprint: self.fingerprint,
            replay: fits.then(|| Replay::new(status, headers, body.clone(), None)),
        };
        stored.encode()
    }

    /// Decodes the response that an earlier run of this request has [encoded](Self::encode), and marks it as replayed.
    /// Return it unchanged, and do nothing else.
    ///
    /// The response is a refusal if the earlier request had another payload (`422 idempotency-key-reused`), if the body
    /// was too long (`409 not-replayable`), or if the bytes cannot be read (`503 record-unreadable`).
    #[must_use]
    pub fn decode(&self, encoded: impl Into<Bytes>) -> Response<Bytes> {
        match Replay::find(&encoded.into(), self.fingerprint) {
            Ok(replay) => replay.into_response(),
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
