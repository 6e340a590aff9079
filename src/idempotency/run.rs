//! [`Idempotent`]: the run of a request under its key, for the handler.

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

/// The run of a request under its idempotency key: an axum extractor. Other services get it by [`Idempotent::of`].
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

/// The extension of a request. It is private, so that nobody else can insert one.
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

    /// A text for a unique column: `idempotency:` and the SHA-256 of the key, method, host, route and caller in 64
    /// hexadecimal digits. It is the same for each repeat and in all processes.
    ///
    /// A repeat to another host of the service has another id, and so has a repeat after the path of the route has changed,
    /// such as the name of a path parameter.
    #[must_use]
    pub fn id(&self) -> &str {
        self.name.as_str()
    }

    /// The fencing token of this run, greater than the token of every earlier run of the key. `None` as for
    /// [`handle`](Self::handle).
    #[must_use]
    pub fn fence(&self) -> Option<FencingToken> {
        self.handle.as_ref()?.fence()
    }

    /// The lock under which the request runs. `None` if the layer runs the request
    /// [without a record](crate::IdempotencyLayer::on_no_quorum), because too few nodes have answered.
    #[must_use]
    pub const fn handle(&self) -> Option<&LockHandle> {
        self.handle.as_ref()
    }

    /// Marks a response as the response of a run that did nothing: it is not stored, and a repeat runs. The guide has an
    /// example (`docs::one_effect`, "Refusals").
    ///
    /// The layer trusts the mark. Use it only if this run has begun nothing that must not happen twice, neither in the
    /// handler nor in a layer around it. The mark is an extension of the response, and only counts for this run.
    #[must_use = "the returned response has the mark"]
    pub fn not_processed<B>(&self, response: Response<B>) -> Response<B> {
        self.run.clone().mark(response)
    }

    /// Encodes a response, so that the handler can store it under [`id`](Self::id) in the transaction that has the effect
    /// of the request.
    ///
    /// The bytes have a fingerprint of the request and what the layer stores of a response. A body longer than
    /// [`max_response_body`](crate::IdempotencyLayer::max_response_body) is left out, and the response cannot be replayed.
    /// The bytes are neither encrypted nor signed.
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
    /// The response is a refusal, which the layer does not store, if the bytes are of a request with another payload (`422
    /// idempotency-key-reused`), if the body was too long (`409 not-replayable`), or if the bytes are damaged or from another
    /// version of this crate (`503 record-unreadable`).
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
