//! [`IdempotencyLayer`] with its settings and its service.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, mem};

use bytes::Bytes;
use http::{Method, Request, Response, request, response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::exchange::respond;
use super::key::IdempotencyKey;
use super::options::{Buffers, ExchangeOptions};
use super::recorded::{OnUnrecorded, by_default};
use crate::http::body::{BoxError, LayerBody};
use crate::http::rejection::{By, Cause, Rejection, RejectionKind};
use crate::http::{Common, Methods, OnDisconnect, OnNoQuorum};
use crate::layer::RedlockService;
use crate::manager::LockManager;

/// Responds to a repeated request with the first response, instead of running the request again. The
/// [module](super) says when the handler can still run twice.
///
/// A request is a repeat if it has the same `Idempotency-Key`, [caller](super::caller), host, method and route. If its
/// path, query, `content-type` or body is different, it is refused with `422 idempotency-key-reused`.
///
/// # Examples
///
/// ```
/// use tower_redlock::idempotency::caller;
/// use tower_redlock::{IdempotencyLayer, LockManager};
///
/// fn once(locks: LockManager) -> IdempotencyLayer {
///     IdempotencyLayer::new(locks, caller::header("x-account"))
/// }
/// ```
///
/// # Stored headers
///
/// The status, headers, body and trailers of a response are stored, except the headers that `connection` names and
/// these headers:
///
/// * of one exchange: `set-cookie`, `date`, `age`, `alt-svc`, `server-timing`, `request-id`, `x-request-id`,
///   `x-amzn-requestid`, `x-correlation-id`, `ratelimit`, `ratelimit-policy`, `idempotent-replayed`
/// * of a connection: `connection`, `keep-alive`, `proxy-connection`, `te`, `trailer`, `transfer-encoding`, `upgrade`,
///   `content-length`
/// * of authentication: `www-authenticate`, `authentication-info`, `proxy-authenticate`, `proxy-authentication-info`,
///   `dpop-nonce`, `replay-nonce`
/// * of tracing: `traceparent`, `tracestate`, `traceresponse`, `baggage`, `b3`, `x-b3-traceid`, `x-b3-spanid`,
///   `x-b3-parentspanid`, `x-b3-sampled`, `x-b3-flags`, `uber-trace-id`, `sentry-trace`, `x-amzn-trace-id`,
///   `x-cloud-trace-context`, `x-datadog-trace-id`, `x-datadog-parent-id`
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct IdempotencyLayer {
    options: Arc<ExchangeOptions>,
}

impl IdempotencyLayer {
    /// Makes a layer that stores responses on the nodes of `locks`. A request may run for at most the `max_hold` of
    /// `locks`, not counting the wait for the lock of [`with_lock`](Self::with_lock).
    ///
    /// `caller` returns the identity of the caller, for example by a function of the module [`caller`](super::caller).
    /// If it returns `None` or an empty text, the request is refused with `403 caller-unknown`.
    pub fn new(
        locks: LockManager,
        caller: impl Fn(&request::Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let options = ExchangeOptions {
            common: Common::new(By::Idempotency, locks),
            caller: Arc::new(caller),
            required: true,
            retention: Duration::from_secs(24 * 60 * 60),
            max_request_body: MIB,
            buffers: Buffers::new(64 * MIB),
            max_response_body: MIB,
            record_if: Arc::new(by_default),
            on_unrecorded: OnUnrecorded::default(),
        };
        Self {
            options: Arc::new(options),
        }
    }

    /// Lets requests without a key run as if there were no layer. By default they are refused with
    /// `400 missing-idempotency-key`.
    pub fn optional(self) -> Self {
        self.with(|options| options.required = false)
    }

    /// Applies only to requests of these methods. Default: all except GET, HEAD, OPTIONS and TRACE.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::Only(methods.into_iter().collect());
        self.with(|options| options.common.methods = methods)
    }

    /// How long a repeat waits for the response to the first request before it gets `409 request-in-progress`. Default:
    /// zero. A request that holds the lock of an outer [`RedlockLayer`](crate::RedlockLayer) does not wait.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|options| options.common.max_wait = max_wait)
    }

    /// How long a response is stored, at least a second. A later repeat runs again. Default: 24 hours.
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|options| options.retention = retention)
    }

    /// The longest request body, in bytes. Default: 1 MiB. A request with a longer body is refused with
    /// `413 body-too-large`.
    ///
    /// A layer holds at most 64 MiB of request bodies at the same time, and refuses further requests with
    /// `503 buffers-full`.
    pub fn max_request_body(self, bytes: usize) -> Self {
        self.with(|options| options.max_request_body = bytes)
    }

    #[cfg(tower_redlock_tests)]
    #[doc(hidden)]
    pub fn max_buffered(self, bytes: usize) -> Self {
        self.with(|options| options.buffers = Buffers::new(bytes))
    }

    /// The longest response body that is stored, in bytes. Default: 1 MiB.
    ///
    /// A response with a longer body, a `text/event-stream` and a 101 are not stored. A repeat gets
    /// `409 not-replayable`.
    pub fn max_response_body(self, bytes: usize) -> Self {
        self.with(|options| options.max_response_body = bytes)
    }

    /// Stores a response only if `policy` returns true for its head. Default: all statuses below 500, except 408, 425
    /// and 429.
    ///
    /// After a response that is not stored, a repeat runs, so leave out only responses to requests without an effect.
    /// If a temporary failure is stored, every repeat gets it until the [`retention`](Self::retention) ends.
    pub fn record_if(
        self,
        policy: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.record_if = Arc::new(policy))
    }

    /// What happens to a request when too few nodes answer in time. Default: [`OnNoQuorum::Reject`].
    ///
    /// With [`OnNoQuorum::RunUnlocked`], a repeat can run at the same time as the first request, and `max_hold` does
    /// not limit either of them. Use it only if the handler stores its response in the transaction of the effect, as
    /// `docs::one_effect` shows ("While the nodes are away"). A response that would have been stored gets the header
    /// `idempotent-unrecorded: true`.
    pub fn on_no_quorum(self, on_no_quorum: OnNoQuorum) -> Self {
        self.with(|options| options.common.on_no_quorum = on_no_quorum)
    }

    /// What the client gets if too few nodes have stored its response. Default: [`OnUnrecorded::Refuse`].
    pub fn on_unrecorded(self, on_unrecorded: OnUnrecorded) -> Self {
        self.with(|options| options.on_unrecorded = on_unrecorded)
    }

    /// What happens to a request whose client disconnects while the request runs. Default: [`OnDisconnect::RunToEnd`].
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> Self {
        self.with(|options| options.common.on_disconnect = on_disconnect)
    }

    /// How many requests may run without their clients.
    #[cfg(tower_redlock_tests)]
    pub fn max_detached(self, requests: usize) -> Self {
        self.with(|options| options.common.max_detached = requests)
    }

    /// Makes the responses to refused requests. Default: [`Rejection::to_response`].
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
        IdempotencyService {
            inner,
            options: Arc::clone(&self.options),
            lock_inside: None,
        }
    }
}

/// An [`IdempotencyLayer`] with a [`RedlockLayer`](crate::RedlockLayer) inside.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct WithLock<L> {
    keys: IdempotencyLayer,
    lock: L,
}

impl IdempotencyLayer {
    /// Puts a [`RedlockLayer`](crate::RedlockLayer) directly inside this layer. If the lock layer refuses a request
    /// because another request holds the lock, the refusal is not stored, and a repeat runs. `docs::one_effect` begins
    /// with an example.
    pub fn with_lock<L>(self, lock: L) -> WithLock<L> {
        WithLock { keys: self, lock }
    }
}

// `L` must make a `RedlockService`, so that nothing runs between the two layers.
impl<S, L, I> Layer<S> for WithLock<L>
where
    L: Layer<S, Service = RedlockService<I>>,
{
    type Service = IdempotencyService<RedlockService<I>>;

    fn layer(&self, inner: S) -> Self::Service {
        let lock = self.lock.layer(inner);
        // If this is set, the layer trusts the mark by which the lock layer says that it refused the request.
        let lock_inside = Some(lock.longest_wait());
        IdempotencyService {
            inner: lock,
            options: Arc::clone(&self.keys.options),
            lock_inside,
        }
    }
}

const MIB: usize = 1 << 20;

/// The service of an [`IdempotencyLayer`].
///
/// # Cancel safety
///
/// The future may be dropped at any time. If the inner service already runs, [`OnDisconnect`] decides whether it
/// continues.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    options: Arc<ExchangeOptions>,
    // If the inner service is a lock layer, the longest time that a request waits there.
    lock_inside: Option<Duration>,
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
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

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
                return Box::pin(ready(Ok(response)));
            }
            Some(Err(error)) => {
                let cause = Cause::because(RejectionKind::InvalidIdempotencyKey, error);
                let response = options.common.refuse(cause);
                return Box::pin(ready(Ok(response)));
            }
            Some(Ok(None)) | None => {
                let response = self.inner.call(request.map(LayerBody::passed));
                return Box::pin(async { Ok(response.await?.map(LayerBody::passed)) });
            }
        };
        // Call the service whose `poll_ready` was called, because a fresh clone is not ready.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let options = Arc::clone(options);
        Box::pin(respond(service, options, self.lock_inside, request, key))
    }
}
