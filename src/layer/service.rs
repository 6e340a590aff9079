//! [`RedlockService`]: a service under a [`RedlockLayer`](super::RedlockLayer).

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
#[cfg(feature = "idempotency")]
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::admission::Options;
use super::future::{Call, ResponseFuture};
use crate::http::body::LayerBody;
use crate::http::state::{RequestState, UnlockedReason};

/// A service whose requests hold a lock while they run. Made by [`RedlockLayer`](super::RedlockLayer).
///
/// Its error type is the inner service's: the layer refuses a request by a response.
#[derive(Clone)]
pub struct RedlockService<S> {
    inner: S,
    options: Arc<Options>,
}

impl<S> RedlockService<S> {
    pub(super) const fn new(inner: S, options: Arc<Options>) -> Self {
        Self { inner, options }
    }

    #[cfg(feature = "idempotency")]
    pub(crate) fn longest_wait(&self) -> Duration {
        self.options.longest_wait()
    }
}

impl<S: fmt::Debug> fmt::Debug for RedlockService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockService")
            .field("inner", &self.inner)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for RedlockService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    ResBody: Body,
{
    type Response = Response<LayerBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        if !self.options.common.methods.cover(request.method()) {
            RequestState::mark_unlocked(request.extensions_mut(), UnlockedReason::Method);
            return ResponseFuture::unlocked(self.inner.call(request));
        }
        // Nothing further in may speak for this service.
        let run = RequestState::take_caller(request.extensions_mut());
        // The inner service is called later, by the future, and it must be the one whose `poll_ready` was
        // called: a fresh clone is not ready. See "Be careful when cloning inner services" in the docs of
        // `tower_service::Service`.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let (parts, body) = request.into_parts();
        let options = Arc::clone(&self.options);
        let admission = Arc::clone(&options.extractor).admit(Arc::clone(&options), parts);
        ResponseFuture::locked(
            admission,
            Call {
                service,
                body,
                options,
                run,
            },
        )
    }
}
