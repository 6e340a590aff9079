//! [`IdempotencyLayer`]: how a layer is told what to do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tower_layer::Layer;

use super::caller::CallerSource;
use super::fingerprint::FingerprintHeaders;
use super::headers::RecordedHeaders;
use super::options::{OnDisconnect, OnUnrecorded, Options};
use super::policy::RecordPolicy;
use super::problem::ResponseForIdempotencyRejection;
use super::service::IdempotencyService;
use super::with_lock::WithLock;
use crate::conduct::{Methods, OnLost};
use crate::manager::LockManager;

/// Gives a request that is sent again the first answer, in place of running it again.
///
/// See the [module](super) for what it does, and for what it cannot do. A clone is cheap and shares everything.
#[must_use = "a layer does nothing until it is put around a service"]
pub struct IdempotencyLayer<C> {
    options: Arc<Options>,
    // Apart from the options, so that it need not be `Clone`.
    callers: Arc<C>,
}

impl<C> IdempotencyLayer<C> {
    /// A layer that keeps answers on the nodes of `locks`, apart for each of the `callers`.
    ///
    /// `callers` is a [source](super::caller) such as [`caller::extension`](super::caller::extension); where there is
    /// but one client, or clients may see each other's answers, [`caller::nobody`](super::caller::nobody).
    pub fn new(locks: LockManager, callers: C) -> Self
    where
        // Asked for here, where the mistake is, and not where the layer is put around a service.
        C: CallerSource,
    {
        Self {
            options: Arc::new(Options::new(locks)),
            callers: Arc::new(callers),
        }
    }

    /// Lets requests without a key through, to run as if there were no layer. By default they are answered with
    /// `400 missing-idempotency-key`.
    pub fn optional(self) -> Self {
        self.with(|options| options.required = false)
    }

    /// The layer is for requests of these methods and no others. Default: all but GET, HEAD, OPTIONS and TRACE, which
    /// are safe to repeat by their definition.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::Only(methods.into_iter().collect());
        self.with(|options| options.methods = methods)
    }

    /// Makes one key of the keys of all hosts: a request that is repeated by another name of the same service gets the
    /// first answer. By default each host has keys of its own, and there it runs again; see [`Scope`](super::Scope).
    ///
    /// It is for services that are one under all their names, and not for those that serve a tenant under each.
    pub fn any_host(self) -> Self {
        self.with(|options| options.any_host = true)
    }

    /// How long a repeat waits for the first request to end, to get its answer. Default: zero, which is to answer
    /// `409 request-in-progress` at once.
    ///
    /// It never waits longer than the manager's own [`max_wait`](crate::LockManagerBuilder::max_wait), and not at all
    /// inside of a [`RedlockLayer`](crate::RedlockLayer), where it would keep others from a lock meanwhile.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|options| options.max_wait = max_wait)
    }

    /// What `Retry-After` says in refusals that are worth a retry, in whole seconds, rounded up, and at least one.
    /// Default: one second.
    pub fn retry_after(self, retry_after: Duration) -> Self {
        self.with(|options| options.retry_after = retry_after)
    }

    /// How long answers are kept, at least a second. Default: 24 hours. Tell your clients: a repeat that comes later
    /// runs. It holds to within what the clocks of nodes and processes
    /// [differ](crate::LockManager::begin_idempotent).
    ///
    /// What is there when this is changed keeps the end that it had.
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|options| options.retention = retention)
    }

    /// The longest request body, in bytes; a longer one is answered with `413 body-too-large`. Default: 1 MiB.
    ///
    /// A body is read whole before the request runs, for its [fingerprint](FingerprintHeaders), and handed on
    /// unchanged.
    pub fn max_request_body(self, bytes: usize) -> Self {
        self.with(|options| options.max_request = bytes)
    }

    /// The longest answer body that is kept, in bytes. Default: 1 MiB.
    ///
    /// Up to there a body is read whole, and kept by the nodes, before the client gets the answer. A longer one, and
    /// `text/event-stream` of any length, is passed on as it comes; so is an answer that hands the connection over,
    /// such as 101. That the request is done is kept in its place, and a repeat is told so: `409 not-replayable`.
    pub fn max_answer_body(self, bytes: usize) -> Self {
        self.with(|options| options.max_answer = bytes)
    }

    /// Which headers make a request another request, beside method, path, query and body. Default: `content-type`.
    pub fn fingerprint_headers(self, headers: FingerprintHeaders) -> Self {
        self.with(|options| options.fingerprint = headers)
    }

    /// Which headers of an answer are kept.
    pub fn recorded_headers(self, headers: RecordedHeaders) -> Self {
        self.with(|options| options.headers = headers)
    }

    /// Which answers are kept. Default: those below 500 except 408, 425 and 429. After any other the key is free.
    pub fn record_if(self, policy: impl RecordPolicy) -> Self {
        self.with(|options| options.policy = Arc::new(policy))
    }

    /// What becomes of a request whose lock is lost while it runs. Default: [`OnLost::Abort`].
    ///
    /// With [`OnLost::Continue`] its answer is still kept, and counts, as long as no repeat was let in meanwhile.
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.with(|options| options.on_lost = on_lost)
    }

    /// What becomes of an answer that too few nodes have kept. Default: [`OnUnrecorded::Refuse`].
    pub fn on_unrecorded(self, on_unrecorded: OnUnrecorded) -> Self {
        self.with(|options| options.on_unrecorded = on_unrecorded)
    }

    /// What becomes of a request whose client goes away. Default: [`OnDisconnect::RunToEnd`].
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> Self {
        self.with(|options| options.on_disconnect = on_disconnect)
    }

    /// Makes the answers to what is refused.
    pub fn response_for_rejection(self, responder: impl ResponseForIdempotencyRejection) -> Self {
        self.with(|options| options.responder = Arc::new(responder))
    }

    /// Puts a [`RedlockLayer`](crate::RedlockLayer) directly inside, with nothing in between: what that refuses,
    /// because another holds the lock, is [not kept](super#what-was-not-processed), and a repeat runs.
    ///
    /// This comes last: what it returns is the layer to be put around the service. `lock` may also be told
    /// [`on_disconnect`](crate::RedlockLayer::on_disconnect). Any layer will do whose service is a
    /// [`RedlockService`](crate::middleware::RedlockService), and no other compiles.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "axum")] mod example {
    /// use axum::{Router, routing::post};
    /// use tower_redlock::idempotency::caller;
    /// use tower_redlock::{IdempotencyLayer, LockManager, RedlockLayer, key};
    ///
    /// # async fn pay() {}
    /// fn app(locks: &LockManager) -> Router {
    ///     let account = key::path("account").prefix("account");
    ///     let one_at_a_time = RedlockLayer::new(locks.clone(), account);
    ///     let once = IdempotencyLayer::new(locks.clone(), caller::header("x-account"));
    ///     let pay = post(pay).route_layer(once.with_lock(one_at_a_time));
    ///     Router::new().route("/accounts/{account}/payments", pay)
    /// }
    /// # }
    /// ```
    pub const fn with_lock<L>(self, lock: L) -> WithLock<C, L> {
        WithLock::new(self, lock)
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }
}

impl<C> Clone for IdempotencyLayer<C> {
    fn clone(&self) -> Self {
        Self {
            options: Arc::clone(&self.options),
            callers: Arc::clone(&self.callers),
        }
    }
}

impl<C> fmt::Debug for IdempotencyLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<S, C> Layer<S> for IdempotencyLayer<C> {
    type Service = IdempotencyService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::clone(&self.options), Arc::clone(&self.callers))
    }
}
