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

use super::body::{RequestBody, ResponseBody};
use super::caller::CallerSource;
use super::exchange::Exchange;
use super::key::IdempotencyKey;
use super::options::Options;
use super::rejection::Cause;
use crate::middleware::RedlockService;

/// A service that responds to a repeated request with the first response. Made by
/// [`IdempotencyLayer`](super::IdempotencyLayer).
///
/// Its error type is the inner service's: the layer refuses a request by a response.
pub struct IdempotencyService<S, C> {
    inner: S,
    options: Arc<Options>,
    callers: Arc<C>,
    // How long requests wait at most in the lock layer that the inner service is, if its type is that.
    lock_inside: Option<Duration>,
}

impl<S, C> IdempotencyService<S, C> {
    pub(super) const fn new(inner: S, options: Arc<Options>, callers: Arc<C>) -> Self {
        Self {
            inner,
            options,
            callers,
            lock_inside: None,
        }
    }

    /// The inner service.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, mutable.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Unwraps the inner service.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, C> IdempotencyService<RedlockService<S, K>, C> {
    /// Trusts the inner service's mark on the responses to requests that it refused.
    pub(super) fn with_lock_inside(self) -> Self {
        Self {
            lock_inside: Some(self.inner.longest_wait()),
            ..self
        }
    }
}

impl<S: Clone, C> Clone for IdempotencyService<S, C> {
    // By hand: the source of callers is shared and need not be `Clone`.
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            options: Arc::clone(&self.options),
            callers: Arc::clone(&self.callers),
            lock_inside: self.lock_inside,
        }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for IdempotencyService<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService")
            .field("inner", &self.inner)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<S, C, ReqBody, ResBody> Service<Request<ReqBody>> for IdempotencyService<S, C>
where
    S: Service<Request<RequestBody<ReqBody>>, Response = Response<ResBody>>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    C: CallerSource,
    ReqBody: Body + Send + 'static,
    ReqBody::Data: Send,
    ReqBody::Error: Send,
    ResBody: Body + Send + 'static,
    ResBody::Data: Send,
    ResBody::Error: Send,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, ResBody, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let options = &self.options;
        let refused = |cause| ResponseFuture::refused(options.refuse(cause));
        let key = || IdempotencyKey::from_headers(request.headers());
        let key = match options.methods.cover(request.method()).then(key) {
            Some(Ok(Some(key))) => key,
            Some(Ok(None)) if options.required => return refused(Cause::MissingKey),
            Some(Err(error)) => return refused(Cause::InvalidKey(error)),
            Some(Ok(None)) | None => {
                let request = request.map(RequestBody::untouched);
                return ResponseFuture::passed(self.inner.call(request));
            }
        };
        // The service whose `poll_ready` was called is the one that is called.
        let clone = self.inner.clone();
        let exchange = Exchange {
            service: mem::replace(&mut self.inner, clone),
            options: Arc::clone(options),
            callers: Arc::clone(&self.callers),
            lock_inside: self.lock_inside,
        };
        ResponseFuture::boxed(Box::pin(exchange.respond(request, key)))
    }
}

type Boxed<B, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<B>>, E>> + Send>>;

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
    /// [`OnDisconnect`](super::OnDisconnect) decides whether it continues.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, B, E>
    where
        B: Body,
    {
        #[pin]
        state: State<F, B, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, B, E>
    where
        B: Body,
    {
        Passed {
            #[pin]
            inner: F,
        },
        Boxed {
            response: Boxed<B, E>,
        },
        Refused {
            response: Option<Response<ResponseBody<B>>>,
        },
    }
}

impl<F, B: Body, E> ResponseFuture<F, B, E> {
    const fn passed(inner: F) -> Self {
        let state = State::Passed { inner };
        Self { state }
    }

    fn boxed(response: Boxed<B, E>) -> Self {
        let state = State::Boxed { response };
        Self { state }
    }

    const fn refused(response: Response<ResponseBody<B>>) -> Self {
        let response = Some(response);
        let state = State::Refused { response };
        Self { state }
    }
}

impl<F, B, E> Future for ResponseFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Passed { inner } => {
                let result = ready!(inner.poll(cx));
                Poll::Ready(result.map(|response| response.map(ResponseBody::untouched)))
            }
            StateProj::Boxed { response } => response.as_mut().poll(cx),
            StateProj::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => panic!("`ResponseFuture` polled after it was ready"),
            },
        }
    }
}

impl<F, B: Body, E> fmt::Debug for ResponseFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Passed { .. } => "passed",
            State::Boxed { .. } => "running",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &format_args!("{state}"))
            .finish_non_exhaustive()
    }
}
