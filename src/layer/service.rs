//! [`RedlockService`], and the way of a request to its lock.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
#[cfg(feature = "idempotency")]
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::future::{Call, ResponseFuture};
use super::key::KeyExtractor;
use super::settings::{OnNoQuorum, Options};
use crate::http::body::LayerBody;
use crate::http::rejection::Cause;
use crate::http::route;
use crate::http::state::{LockState, RequestState, UnlockedReason, lock_scope};
use crate::manager::{AcquireError, LockGuard};

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

    /// How long a request may wait at most for its lock.
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

/// The boxed work that goes before a request runs. The body of the request is not in it, so the body need not be
/// `Send`.
pub(super) type Admission = Pin<Box<dyn Future<Output = Result<Admitted, Cause>> + Send>>;

/// The head of a request that runs, and its lock, if it has one.
type Admitted = (Parts, Option<LockGuard>);

/// A [`KeyExtractor`] of any type: its future is boxed together with what follows it.
pub(super) trait Admit: Send + Sync {
    fn admit(self: Arc<Self>, options: Arc<Options>, parts: Parts) -> Admission;
}

impl<K: KeyExtractor> Admit for K {
    fn admit(self: Arc<Self>, options: Arc<Options>, parts: Parts) -> Admission {
        Box::pin(admit(self, options, parts))
    }
}

/// Extracts the key and acquires its lock.
///
/// # Cancel safety
///
/// May be dropped at any point: keys that the acquisition has set on nodes by then are released in the background.
async fn admit<K: KeyExtractor>(
    extractor: Arc<K>,
    options: Arc<Options>,
    mut parts: Parts,
) -> Result<Admitted, Cause> {
    let keys = match extractor.extract(&mut parts).await {
        Ok(Some(keys)) => keys,
        Ok(None) => return Ok(unlocked(parts, UnlockedReason::NoKey)),
        Err(error) => {
            if error.is_misplaced() {
                route::misconfigured(&parts, &error);
            }
            return Err(error.into());
        }
    };
    // Locks that outer layers hold for this request are shared, not waited for.
    let scope = lock_scope(&mut parts.extensions);
    let max_wait = options.max_wait_of(&parts);
    let locks = &options.common.locks;
    match locks.acquire_in_within(&scope, keys, max_wait).await {
        Ok(guard) => {
            RequestState::of(&mut parts.extensions).lock = LockState::Locked {
                handle: guard.handle(),
                locks: locks.clone(),
            };
            Ok((parts, Some(guard)))
        }
        Err(error) if may_run_unlocked(&error, options.on_no_quorum) => {
            Ok(unlocked(parts, UnlockedReason::NoQuorum))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a request runs whose lock could not be acquired. Where the lists of nodes differ, the nodes work, and the
/// key may be held.
const fn may_run_unlocked(error: &AcquireError, on_no_quorum: OnNoQuorum) -> bool {
    let nodes_fail = match error {
        AcquireError::NoQuorum(error) => !error.is_disagreement(),
        AcquireError::TooSlow(_) => true,
        _ => false,
    };
    nodes_fail && matches!(on_no_quorum, OnNoQuorum::RunUnlocked)
}

fn unlocked(mut parts: Parts, reason: UnlockedReason) -> Admitted {
    RequestState::mark_unlocked(&mut parts.extensions, reason);
    (parts, None)
}
