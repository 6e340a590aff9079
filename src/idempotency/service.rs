//! [`IdempotencyService`] and its future.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::exchange::{Exchange, Options};
use super::key::IdempotencyKey;
use crate::http::body::{BoxError, LayerBody};
use crate::http::rejection::{Cause, RejectionKind};

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
    pub(super) const fn new(
        inner: S,
        options: Arc<Options>,
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
