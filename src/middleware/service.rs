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

use super::admission;
use super::body::ResponseBody;
use super::future::{Call, ResponseFuture};
use super::key_extractor::KeyExtractor;
use super::options::Options;
use super::request_state::{RequestState, UnlockedReason};

/// A service whose requests hold a lock while they run. Made by [`RedlockLayer`](super::RedlockLayer).
///
/// Its error type is the inner service's: the layer refuses a request by a response.
pub struct RedlockService<S, K> {
    inner: S,
    options: Arc<Options>,
    extractor: Arc<K>,
}

impl<S, K> RedlockService<S, K> {
    pub(super) const fn new(inner: S, options: Arc<Options>, extractor: Arc<K>) -> Self {
        Self {
            inner,
            options,
            extractor,
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

#[cfg(feature = "idempotency")]
impl<S, K> RedlockService<S, K> {
    /// How long a request may wait at most for its lock.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.options.longest_wait()
    }
}

impl<S: Clone, K> Clone for RedlockService<S, K> {
    // By hand: the extractor is shared and need not be `Clone`. Readiness is the inner service's alone, and its
    // own `Clone` resets it.
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            options: Arc::clone(&self.options),
            extractor: Arc::clone(&self.extractor),
        }
    }
}

impl<S: fmt::Debug, K> fmt::Debug for RedlockService<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockService")
            .field("inner", &self.inner)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<S, K, ReqBody, ResBody> Service<Request<ReqBody>> for RedlockService<S, K>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    ResBody: Body,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        if !self.options.methods.cover(request.method()) {
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
        let (options, extractor) = (Arc::clone(&self.options), Arc::clone(&self.extractor));
        let admission = admission::admit(Arc::clone(&options), extractor, parts);
        let call = Call {
            service,
            body,
            options,
            run,
        };
        ResponseFuture::locked(Box::pin(admission), call)
    }
}
