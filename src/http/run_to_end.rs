//! Work that continues after its client has disconnected: [`Detached`] and, for the lock layer, [`RunToEndService`].

use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use tokio::runtime::Handle;
use tower_service::Service;

use super::Detachments;
use super::state::RequestState;
use crate::seam;
use crate::trace::Caller;

/// A service inside a [`RedlockLayer`](crate::RedlockLayer) that runs requests with a lock to their end, even if their
/// clients disconnect.
///
/// # Cancel safety
///
/// If the future is dropped after its first poll, a request that holds a lock continues in a new task, until the
/// request has ended or the lock is lost. With [`OnDisconnect::Cancel`](super::OnDisconnect::Cancel), or without a
/// lock, the inner future is dropped.
#[derive(Clone, Debug)]
pub struct RunToEndService<S> {
    inner: S,
    detachments: Option<Detachments>,
}

impl<S> RunToEndService<S> {
    pub(crate) const fn new(inner: S, detachments: Option<Detachments>) -> Self {
        Self { inner, detachments }
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
    type Future = Work<Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Take another guard, so that the lock is held until the task has ended. A request without a lock is cancelled,
        // because nothing protects the rest of its work.
        let detachments = self.detachments.as_ref();
        let guard = detachments.and_then(|_| RequestState::share_lock(request.extensions()));
        let inner = self.inner.call(request);
        let Some((guard, detachments)) = guard.zip(detachments) else {
            return Box::pin(inner);
        };
        let work = async move { guard.lost().or_done(inner).await.ok() };
        let work = Detached::new(work, detachments);
        Box::pin(async move {
            match work.await {
                Some(result) => result,
                // The lock is lost. The layer around this service observes that, too, and responds.
                None => pending().await,
            }
        })
    }
}

/// Work that runs in its caller's task. After the caller has dropped it, it continues in a new task.
///
/// # Cancel safety
///
/// If this is dropped after its first poll, the work continues in the tokio runtime in which it was made, unless the
/// runtime has ended. If this is dropped before, the work never runs.
#[must_use = "nothing of it runs unless it is polled"]
pub(crate) struct Detached<T: 'static> {
    // `None` during a poll, so that work that has panicked is never polled again.
    work: Option<Work<T>>,
    begun: bool,
    runtime: Handle,
    caller: Caller,
    detachments: Detachments,
}

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T: 'static> Detached<T> {
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn new(
        work: impl Future<Output = T> + Send + 'static,
        detachments: &Detachments,
    ) -> Self {
        Self {
            work: Some(Box::pin(work)),
            begun: false,
            runtime: Handle::current(),
            caller: Caller::current(),
            detachments: detachments.clone(),
        }
    }
}

impl<T: 'static> Future for Detached<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.begun = true;
        let Some(mut work) = self.work.take() else {
            return Poll::Pending;
        };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        if let (Some(work), true) = (self.work.take(), self.begun) {
            let counted = self.detachments.one();
            let rest = async move {
                drop(work.await);
                drop(counted);
            };
            seam::spawn_on(&self.runtime, self.caller.around(rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    tokio::task_local! { static WHO: u8; }

    fn work() -> (oneshot::Sender<u8>, oneshot::Receiver<u8>, Detached<u8>) {
        let (go, gone) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let work = async move {
            let value = gone.await.unwrap();
            let _ = tell.send(value);
            value
        };
        let work = Detached::new(work, &Detachments::default());
        (go, told, work)
    }

    #[tokio::test]
    async fn it_runs_where_it_is_waited_for() {
        let work = Detached::new(async { WHO.get() }, &Detachments::default());
        assert_eq!(WHO.scope(7, work).await, 7);
    }

    #[tokio::test]
    async fn it_goes_on_when_nobody_waits_any_more() {
        let (go, told, mut work) = work();
        assert!(timeout(Duration::ZERO, &mut work).await.is_err());
        drop(work);
        go.send(3).unwrap();
        assert_eq!(told.await, Ok(3));
    }

    #[tokio::test]
    async fn what_has_not_begun_never_does() {
        let (go, mut told, work) = work();
        drop(work);
        // Check this immediately, because a task that continued the work would keep the receiver of `go` open.
        assert!(go.is_closed());
        assert_eq!(told.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[tokio::test]
    async fn it_is_done_once() {
        let (go, told, work) = work();
        go.send(4).unwrap();
        assert_eq!(work.await, 4);
        assert_eq!(told.await, Ok(4));
    }

    #[tokio::test]
    async fn what_panics_is_not_run_again() {
        let (tell, told) = oneshot::channel::<()>();
        let work = async move {
            let _tell = tell;
            panic!("out of tea");
        };
        let mut work = Detached::new(work, &Detachments::default());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut poll = || Pin::new(&mut work).poll(&mut cx);
        let panic =
            catch_unwind(AssertUnwindSafe(|| matches!(poll(), Poll::Ready(())))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of tea"));
        drop(work);
        assert!(told.await.is_err());
    }

    #[test]
    fn with_the_end_of_its_runtime_it_ends() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (go, mut told, mut work) = {
            let _inside = runtime.enter();
            work()
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut work).poll(&mut cx).is_pending());
        drop(runtime);
        drop(work);
        assert!(go.is_closed());
        assert!(told.try_recv().is_err());
    }
}
