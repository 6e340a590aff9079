//! [`RedlockService`] and its future: acquire, run, release.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
#[cfg(feature = "idempotency")]
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admission::{Admission, Options};
use crate::http::body::LayerBody;
use crate::http::rejection::Cause;
use crate::http::state::{RequestState, RunId, UnlockedReason};
use crate::manager::{LockGuard, Lost};

/// The service of a [`RedlockLayer`](super::RedlockLayer).
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
        if !self.options.cover(request.method()) {
            RequestState::mark_unlocked(request.extensions_mut(), UnlockedReason::Method);
            let state = State::Running {
                inner: self.inner.call(request),
                lost: None,
                hold: None,
            };
            return ResponseFuture { state };
        }
        // Remove the caller's mark, so that an inner layer cannot reuse it.
        let run = RequestState::take_caller(request.extensions_mut());
        // Call the service whose `poll_ready` was called, because a fresh clone is not ready. See "Be careful when
        // cloning inner services" in the docs of `tower_service::Service`.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let (parts, body) = request.into_parts();
        let options = Arc::clone(&self.options);
        let admission = Arc::clone(&options.extractor).admit(Arc::clone(&options), parts);
        let call = Some(Call {
            service,
            body,
            options,
            run,
        });
        let state = State::Acquiring { admission, call };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The future of a [`RedlockService`](super::RedlockService).
    ///
    /// If the inner future becomes ready at the moment when the lock is lost, its response is returned. After the time
    /// of the lock has ended, the inner future is not polled again.
    ///
    /// # Panics
    ///
    /// If it is polled again after it was ready.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time. The inner future is dropped first, and then the lock is released in the
    /// background.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
    }
}

struct Call<S, B> {
    service: S,
    body: B,
    options: Arc<Options>,
    /// The run of the idempotency layer that called this service directly.
    run: Option<RunId>,
}

impl<S, B> Call<S, B> {
    fn refuse<ResBody>(self, cause: Cause) -> Response<LayerBody<ResBody>> {
        // Drop the service first, to give back the capacity that its `poll_ready` has reserved.
        drop((self.service, self.body));
        let refusal = self.options.common.refusal(cause, self.run.is_some());
        let response = refusal.map(|body| LayerBody::whole(body, None));
        match self.run {
            // Nothing was done for the request, because the idempotency layer called this service directly.
            Some(run) => run.mark(response),
            None => response,
        }
    }
}

struct Hold {
    guard: LockGuard,
    options: Arc<Options>,
}

pin_project! {
    #[project = StateProj]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        Acquiring {
            admission: Admission,
            call: Option<Call<S, B>>,
        },
        Running {
            // Fields are dropped in order, so the inner future ends before the lock is released.
            #[pin]
            inner: S::Future,
            #[pin]
            lost: Option<Lost>,
            hold: Option<Hold>,
        },
        Releasing {
            release: Pin<Box<dyn Future<Output = ()> + Send>>,
            result: Option<Result<S::Response, S::Error>>,
        },
        Done,
    }
}

impl<S, B, ResBody> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    ResBody: Body,
{
    type Output = Result<Response<LayerBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Acquiring { admission, call } => {
                    let admitted = ready!(admission.as_mut().poll(cx));
                    let Some(call) = call.take() else {
                        // An earlier poll has panicked.
                        state.set(State::Done);
                        continue;
                    };
                    match admitted {
                        Ok((parts, guard)) => {
                            let (mut service, options) = (call.service, call.options);
                            let lost = guard.as_ref().map(|guard| guard.lost());
                            let inner = service.call(Request::from_parts(parts, call.body));
                            let hold = guard.map(|guard| Hold { guard, options });
                            state.set(State::Running { inner, lost, hold });
                        }
                        Err(cause) => {
                            let response = call.refuse(cause);
                            state.set(State::Done);
                            return Poll::Ready(Ok(response));
                        }
                    }
                }
                StateProj::Running { inner, lost, hold } => {
                    let result = match lost.as_pin_mut() {
                        Some(lost) => ready!(lost.poll_beside(cx, |cx| inner.poll(cx))),
                        None => Ok(ready!(inner.poll(cx))),
                    };
                    let hold = hold.take();
                    // Drop the inner future before the lock is released.
                    state.set(State::Done);
                    match (result, hold) {
                        (Ok(result), None) => return Poll::Ready(plain(result)),
                        (Ok(Ok(response)), Some(Hold { guard, options }))
                            if options.holds_until_body && !response.body().is_end_stream() =>
                        {
                            let lost = guard.lost();
                            let held = response.map(|body| LayerBody::held(body, lost, guard));
                            return Poll::Ready(Ok(held));
                        }
                        (Ok(result), Some(Hold { guard, .. })) => state.set(State::Releasing {
                            release: Box::pin(async move {
                                // Ignore an error, because the client must get the response to the work. The manager
                                // retries the release in the background.
                                let _ = guard.release().await;
                            }),
                            result: Some(result),
                        }),
                        (Err(reason), Some(Hold { guard, options })) => {
                            drop(guard);
                            return Poll::Ready(Ok(options.common.refuse(reason)));
                        }
                        // `lost` resolves only for a request that holds a lock.
                        (Err(_), None) => {}
                    }
                }
                StateProj::Releasing { release, result } => {
                    ready!(release.as_mut().poll(cx));
                    let result = result.take();
                    state.set(State::Done);
                    if let Some(result) = result {
                        return Poll::Ready(plain(result));
                    }
                }
                StateProj::Done => panic!("`ResponseFuture` polled after it was ready"),
            }
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Acquiring { .. } => "acquiring",
            State::Running { .. } => "running",
            State::Releasing { .. } => "releasing",
            State::Done => "done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &format_args!("{state}"))
            .finish_non_exhaustive()
    }
}

fn plain<ResBody, E>(
    result: Result<Response<ResBody>, E>,
) -> Result<Response<LayerBody<ResBody>>, E> {
    result.map(|response| response.map(LayerBody::passed))
}
