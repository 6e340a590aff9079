//! [`IdempotencyLayer`] and its settings, [`WithLock`], and the service and future that they make.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, mem};

use bytes::Bytes;
use http::header::HeaderName;
use http::{Method, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::caller::CallerSource;
use super::exchange::respond;
use super::fingerprint::FingerprintHeaders;
use super::key::IdempotencyKey;
use super::options::{Buffers, ExchangeOptions};
use super::recorded::{
    DefaultRecordPolicy, IDEMPOTENT_REPLAYED, OnUnrecorded, RecordPolicy, RecordedHeaders,
};
use crate::http::body::{BoxError, LayerBody};
use crate::http::rejection::{By, Cause, Rejection, RejectionKind};
use crate::http::{Common, Methods, OnDisconnect, OnLost, OnNoQuorum};
use crate::layer::RedlockService;
use crate::manager::LockManager;

/// Responds to a repeated request with the first response, instead of running it again.
///
/// See the [module](super) for what it does, and for what it cannot do. A clone is cheap and shares everything.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct IdempotencyLayer {
    options: Arc<ExchangeOptions>,
}

impl IdempotencyLayer {
    /// A layer that stores responses on the nodes of `locks`, separately for each caller. A request may run for the
    /// `max_hold` of this handle; the wait for the lock of [`with_lock`](Self::with_lock) does not count. `callers` is
    /// a [source](super::caller).
    pub fn new(locks: LockManager, callers: impl CallerSource) -> Self {
        let options = ExchangeOptions {
            common: Common::new(By::Idempotency, locks),
            callers: Arc::new(callers),
            required: true,
            any_host: false,
            retention: Duration::from_secs(24 * 60 * 60),
            max_request_body: MIB,
            buffers: Buffers::new(64 * MIB),
            max_response_body: MIB,
            fingerprint: FingerprintHeaders::default(),
            headers: RecordedHeaders::default(),
            replayed: IDEMPOTENT_REPLAYED,
            policy: Arc::new(DefaultRecordPolicy),
            on_unrecorded: OnUnrecorded::default(),
        };
        Self {
            options: Arc::new(options),
        }
    }

    /// Lets requests without a key through, to run as if there were no layer. By default they are refused with
    /// `400 missing-idempotency-key`.
    pub fn optional(self) -> Self {
        self.with(|options| options.required = false)
    }

    /// Applies to requests of these methods and no others. Default: all except GET, HEAD, OPTIONS and TRACE, which are
    /// safe to repeat.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::Only(methods.into_iter().collect());
        self.with(|options| options.common.methods = methods)
    }

    /// Ignores the host: a request that is repeated under another name of the service gets the first response. For
    /// services that are one under all their names, not for those that serve a tenant under each.
    pub fn any_host(self) -> Self {
        self.with(|options| options.any_host = true)
    }

    /// How long a repeat waits for the response of the first request, also where the manager's `max_wait` is less.
    /// Default: zero, which responds `409 request-in-progress` at once. A request that holds the lock of an outer
    /// [`RedlockLayer`](crate::RedlockLayer) does not wait.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|options| options.common.max_wait = max_wait)
    }

    /// As [`RedlockLayer::retry_after`](crate::RedlockLayer::retry_after). Default: one second.
    pub fn retry_after(self, retry_after: Duration) -> Self {
        self.with(|options| options.common.retry_after = retry_after)
    }

    /// How long responses are stored, at least a second, to within the difference of the clocks of nodes and processes.
    /// Default: 24 hours. A later repeat runs again. A change does not affect responses that are stored already.
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|options| options.retention = retention)
    }

    /// The longest request body, in bytes; a longer one is refused with `413 body-too-large`. Default: 1 MiB. The whole
    /// body is read before the request runs.
    pub fn max_request_body(self, bytes: usize) -> Self {
        self.with(|options| options.max_request_body = bytes)
    }

    /// How many bytes of request bodies the layer holds at once, until their handlers read them. A request beyond it is
    /// refused with `503 buffers-full`. Default: 64 MiB.
    pub fn max_buffered(self, bytes: usize) -> Self {
        self.with(|options| options.buffers = Buffers::new(bytes))
    }

    /// The longest response body that is stored, in bytes. Default: 1 MiB. Up to this length the body is stored before
    /// the client gets it. A longer one, a `text/event-stream` and a 101 pass as they come, and a repeat gets `409
    /// not-replayable`.
    pub fn max_response_body(self, bytes: usize) -> Self {
        self.with(|options| options.max_response_body = bytes)
    }

    /// The headers that distinguish requests, besides method, path, query and body. Default: `content-type`.
    pub fn fingerprint_headers(self, headers: FingerprintHeaders) -> Self {
        self.with(|options| options.fingerprint = headers)
    }

    /// The response headers that are stored.
    pub fn recorded_headers(self, headers: RecordedHeaders) -> Self {
        self.with(|options| options.headers = headers)
    }

    /// The header that says of a response that it is replayed, with the value `true`. Default: `idempotent-replayed`.
    /// It is never stored.
    pub fn replayed_header(self, name: HeaderName) -> Self {
        self.with(|options| options.replayed = name)
    }

    /// Which responses are stored. Default: those below 500 except 408, 425 and 429. After any other response the key
    /// is free, and a repeat runs.
    pub fn record_if(self, policy: impl RecordPolicy) -> Self {
        self.with(|options| options.policy = Arc::new(policy))
    }

    /// What happens to a request whose lock is lost while it runs. Default: [`OnLost::Abort`].
    ///
    /// With [`OnLost::Continue`] its response is still stored if no repeat has started in the meantime.
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.with(|options| options.common.on_lost = on_lost)
    }

    /// What happens to a request when too few nodes answer. Default: [`OnNoQuorum::Reject`].
    ///
    /// Set [`OnNoQuorum::RunUnlocked`] only if the handler stores its response in the transaction that has the effect
    /// (`docs::one_effect`, "While the nodes are away"). The request then runs without a record on the nodes: nothing keeps
    /// a repeat from running at the same time, so the unique column of [`Idempotent::id`](super::Idempotent::id) decides
    /// between them, and neither `max_hold` nor [`on_lost`](Self::on_lost) ends the request. If its response would
    /// have been stored, the client gets it with the header `idempotent-unrecorded`. The metric
    /// `redlock_idempotency_total{outcome="without-record"}` counts such requests, and the log has one line a minute.
    ///
    /// With [`with_lock`](Self::with_lock) the lock layer inside still asks for its lock. Give it the same setting, unless
    /// its handler must not run without a lock.
    pub fn on_no_quorum(self, on_no_quorum: OnNoQuorum) -> Self {
        self.with(|options| options.common.on_no_quorum = on_no_quorum)
    }

    /// What happens to a response that too few nodes have stored. Default: [`OnUnrecorded::Refuse`].
    pub fn on_unrecorded(self, on_unrecorded: OnUnrecorded) -> Self {
        self.with(|options| options.on_unrecorded = on_unrecorded)
    }

    /// The fate of a request whose client disconnects while it runs. Default: [`OnDisconnect::RunToEnd`].
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> Self {
        self.with(|options| options.common.on_disconnect = on_disconnect)
    }

    /// As [`RedlockLayer::max_detached`](crate::RedlockLayer::max_detached). Default: 64.
    pub fn max_detached(self, requests: usize) -> Self {
        self.with(|options| options.common.max_detached = requests)
    }

    /// As [`RedlockLayer::rejection_response`](crate::RedlockLayer::rejection_response).
    pub fn rejection_response<F>(self, make: F) -> Self
    where
        F: Fn(&Rejection) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.with(|options| options.common.rejection_response = Arc::new(make))
    }

    fn with(mut self, change: impl FnOnce(&mut ExchangeOptions)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::clone(&self.options), None)
    }
}

/// An [`IdempotencyLayer`] and a [`RedlockLayer`](crate::RedlockLayer) inside it. Made by
/// [`IdempotencyLayer::with_lock`].
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct WithLock<L> {
    keys: IdempotencyLayer,
    lock: L,
}

impl IdempotencyLayer {
    /// Puts a [`RedlockLayer`](crate::RedlockLayer) directly inside, with nothing in between: its refusal, because
    /// another request holds the lock, is not stored, and a repeat runs.
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
    pub fn with_lock<L>(self, lock: L) -> WithLock<L> {
        WithLock { keys: self, lock }
    }
}

// The type guarantees that the service directly inside is a lock layer's, and nothing that acts before the lock is
// acquired.
impl<S, L, I> Layer<S> for WithLock<L>
where
    L: Layer<S, Service = RedlockService<I>>,
{
    type Service = IdempotencyService<RedlockService<I>>;

    fn layer(&self, inner: S) -> Self::Service {
        let lock = self.lock.layer(inner);
        // The mark of this service on the responses to requests that it refused is trusted.
        let lock_inside = Some(lock.longest_wait());
        IdempotencyService::new(lock, Arc::clone(&self.keys.options), lock_inside)
    }
}

const MIB: usize = 1 << 20;

/// A service that responds to a repeated request with the first response. Made by
/// [`IdempotencyLayer`](super::IdempotencyLayer).
///
/// Its error type is the inner service's: the layer refuses a request by a response.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    options: Arc<ExchangeOptions>,
    // How long requests wait at most in the lock layer that the inner service is, if its type is that.
    lock_inside: Option<Duration>,
}

impl<S> IdempotencyService<S> {
    pub(super) const fn new(
        inner: S,
        options: Arc<ExchangeOptions>,
        lock_inside: Option<Duration>,
    ) -> Self {
        Self {
            inner,
            options,
            lock_inside,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService")
            .field("inner", &self.inner)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for IdempotencyService<S>
where
    S: Service<Request<LayerBody<ReqBody>>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqBody: Body + Send + 'static,
    ReqBody::Data: Send,
    ReqBody::Error: Into<BoxError> + Send,
    ResBody: Body + Send + 'static,
    ResBody::Data: Send,
    ResBody::Error: Into<BoxError> + Send,
{
    type Response = Response<LayerBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, ResBody, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let options = &self.options;
        let key = || IdempotencyKey::from_headers(request.headers());
        let key = match options.common.methods.cover(request.method()).then(key) {
            Some(Ok(Some(key))) => key,
            Some(Ok(None)) if options.required => {
                let response = options.common.refuse(RejectionKind::MissingIdempotencyKey);
                return ResponseFuture::boxed(async { Ok(response) });
            }
            Some(Err(error)) => {
                let cause = Cause::because(RejectionKind::InvalidIdempotencyKey, error);
                let response = options.common.refuse(cause);
                return ResponseFuture::boxed(async { Ok(response) });
            }
            Some(Ok(None)) | None => {
                let inner = self.inner.call(request.map(LayerBody::passed));
                let state = Phase::Passed { inner };
                return ResponseFuture { state };
            }
        };
        // The service whose `poll_ready` was called is the one that is called.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let options = Arc::clone(options);
        ResponseFuture::boxed(respond(service, options, self.lock_inside, request, key))
    }
}

pin_project! {
    /// The response of an [`IdempotencyService`].
    ///
    /// # Panics
    ///
    /// When polled again after it was ready, as futures may; and where the inner service panics.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point. Before the request runs, nothing is left behind. Once it runs,
    /// [`OnDisconnect`](crate::layer::OnDisconnect) decides whether it continues.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, B, E> {
        #[pin]
        state: Phase<F, B, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum Phase<F, B, E> {
        Passed {
            #[pin]
            inner: F,
        },
        Boxed {
            response: Boxed<B, E>,
        },
    }
}

type Boxed<B, E> = Pin<Box<dyn Future<Output = Result<Response<LayerBody<B>>, E>> + Send>>;

impl<F, B, E> ResponseFuture<F, B, E> {
    fn boxed(
        response: impl Future<Output = Result<Response<LayerBody<B>>, E>> + Send + 'static,
    ) -> Self {
        let response = Box::pin(response);
        let state = Phase::Boxed { response };
        Self { state }
    }
}

impl<F, B, E> Future for ResponseFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<LayerBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Passed { inner } => {
                let result = ready!(inner.poll(cx));
                Poll::Ready(result.map(|response| response.map(LayerBody::passed)))
            }
            StateProj::Boxed { response } => response.as_mut().poll(cx),
        }
    }
}

impl<F, B, E> fmt::Debug for ResponseFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            Phase::Passed { .. } => "passed",
            Phase::Boxed { .. } => "running",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &format_args!("{state}"))
            .finish_non_exhaustive()
    }
}
