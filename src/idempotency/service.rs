//! [`IdempotencyService`], its future, and [`WithLock`].

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::exchange::Exchange;
use super::key::IdempotencyKey;
use super::settings::{IdempotencyLayer, Options};
use crate::http::body::{BoxError, LayerBody};
use crate::http::rejection::{Cause, RejectionKind};
use crate::layer::RedlockService;

/// A service that responds to a repeated request with the first response. Made by
/// [`IdempotencyLayer`](super::IdempotencyLayer).
///
/// Its error type is the inner service's: the layer refuses a request by a response.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    options: Arc<Options>,
    // How long requests wait at most in the lock layer that the inner service is, if its type is that.
    lock_inside: Option<Duration>,
}

impl<S> IdempotencyService<S> {
    pub(super) const fn new(inner: S, options: Arc<Options>) -> Self {
        Self {
            inner,
            options,
            lock_inside: None,
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
                let state = State::Passed { inner };
                return ResponseFuture { state };
            }
        };
        // The service whose `poll_ready` was called is the one that is called.
        let clone = self.inner.clone();
        let exchange = Exchange {
            service: mem::replace(&mut self.inner, clone),
            options: Arc::clone(options),
            lock_inside: self.lock_inside,
        };
        ResponseFuture::boxed(exchange.respond(request, key))
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
        state: State<F, B, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, B, E> {
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
        let state = State::Boxed { response };
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
            State::Passed { .. } => "passed",
            State::Boxed { .. } => "running",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &format_args!("{state}"))
            .finish_non_exhaustive()
    }
}

/// An [`IdempotencyLayer`] and a [`RedlockLayer`](crate::RedlockLayer) inside it, with nothing in between. Made by
/// [`IdempotencyLayer::with_lock`].
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct WithLock<L> {
    keys: IdempotencyLayer,
    lock: L,
}

impl IdempotencyLayer {
    /// Puts a [`RedlockLayer`](crate::RedlockLayer) directly inside, with nothing in between: its refusal, because
    /// another request holds the lock, is not stored, and a repeat runs. An idempotency layer
    /// further out, also this one put there once more, does store that refusal.
    ///
    /// For how long a request waits for that lock does not count towards the `max_hold` of the handle that was given to
    /// [`new`](Self::new): the handler has all of it. The lock inside has the `max_hold` of its own handle.
    ///
    /// Call it last: it returns both layers as one. `lock` may be any layer whose service is a
    /// [`RedlockService`]; no other compiles.
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
        IdempotencyService {
            lock_inside,
            ..self.keys.layer(lock)
        }
    }
}
