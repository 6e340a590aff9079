//! [`RunToEndService`]: requests that continue after their clients have disconnected.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Request;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::detach::Detached;
use crate::manager::{LockHandle, LossReason};
use crate::policy::{OnDisconnect, OnLost};

use super::held::Held;

/// A service inside a [`RedlockLayer`](super::RedlockLayer) that runs requests with a lock to their end, whether or not
/// the client waits for them. Made by a layer that was told
/// [`on_disconnect`](super::RedlockLayer::on_disconnect).
#[derive(Clone, Debug)]
pub struct RunToEndService<S> {
    inner: S,
    on_lost: OnLost,
    on_disconnect: OnDisconnect,
}

impl<S> RunToEndService<S> {
    pub(super) const fn new(inner: S, on_lost: OnLost, on_disconnect: OnDisconnect) -> Self {
        Self {
            inner,
            on_lost,
            on_disconnect,
        }
    }
}

impl<S, B> Service<Request<B>> for RunToEndService<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = RunToEndFuture<S::Future, S::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // One more guard: the lock is held until the task has ended, too. A request without a lock has nothing that
        // could protect the rest of its work.
        let guard = match self.on_disconnect {
            OnDisconnect::RunToEnd => Held::of(request.extensions()).map(Held::into_guard),
            OnDisconnect::Cancel => return RunToEndFuture::attached(self.inner.call(request)),
        };
        let inner = self.inner.call(request);
        let Ok(Ok(guard)) = guard else {
            return RunToEndFuture::attached(inner);
        };
        let on_lost = self.on_lost;
        let work = async move { unless_lost(inner, on_lost, &guard.handle()).await.ok() };
        let work = Detached::new(work);
        RunToEndFuture {
            state: State::Detached { work },
        }
    }
}

/// The result of `work`; or why `lock` was lost before, if `on_lost` ends work then.
pub(crate) async fn unless_lost<T>(
    work: impl Future<Output = T>,
    on_lost: OnLost,
    lock: &LockHandle,
) -> Result<T, LossReason> {
    match on_lost {
        OnLost::Continue => Ok(work.await),
        OnLost::Abort => lock.lost().or_done(work).await,
    }
}

pin_project! {
    /// The response of a [`RunToEndService`].
    ///
    /// # Cancel safety
    ///
    /// If it is dropped after its first poll, work that holds a lock continues in a task of the tokio runtime in which
    /// the service was called, until it has ended or the lock is lost. With [`OnDisconnect::Cancel`], and without a
    /// lock, the inner future is dropped.
    #[must_use = "futures do nothing unless polled"]
    pub struct RunToEndFuture<F, T, E>
    where
        T: 'static,
        E: 'static,
    {
        #[pin]
        state: State<F, T, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, T, E>
    where
        T: 'static,
        E: 'static,
    {
        Attached {
            #[pin]
            inner: F,
        },
        Detached {
            work: Detached<Option<Result<T, E>>>,
        },
    }
}

impl<F, T, E> RunToEndFuture<F, T, E> {
    const fn attached(inner: F) -> Self {
        Self {
            state: State::Attached { inner },
        }
    }
}

impl<F, T, E> Future for RunToEndFuture<F, T, E>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Attached { inner } => inner.poll(cx),
            StateProj::Detached { work } => match ready!(Pin::new(work).poll(cx)) {
                Some(result) => Poll::Ready(result),
                // The layer around this observes the loss itself, and responds.
                None => Poll::Pending,
            },
        }
    }
}

impl<F, T, E> fmt::Debug for RunToEndFuture<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs_to_end = matches!(self.state, State::Detached { .. });
        f.debug_struct("RunToEndFuture")
            .field("runs_to_end", &runs_to_end)
            .finish_non_exhaustive()
    }
}
