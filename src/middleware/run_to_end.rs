//! [`RunToEndLayer`]: requests that outlive their clients.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Request;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::conduct::OnLost;
use crate::detach::Detached;

use super::admission::Along;
use super::key_extractor::KeyExtractor;
use super::layer::RedlockLayer;
use super::service::RedlockService;

/// What [`RedlockLayer::on_disconnect`] is told: a request that runs is finished though its client has gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "it is a word, and holds nothing")]
pub struct RunToEnd;

/// A [`RedlockLayer`] whose requests are finished, under their lock, though their clients have gone. Made by
/// [`RedlockLayer::on_disconnect`].
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RunToEndLayer<K> {
    outer: RedlockLayer<K>,
}

impl<K> RunToEndLayer<K> {
    pub(super) const fn new(outer: RedlockLayer<K>) -> Self {
        Self { outer }
    }
}

impl<K> Clone for RunToEndLayer<K> {
    fn clone(&self) -> Self {
        Self::new(self.outer.clone())
    }
}

impl<K> fmt::Debug for RunToEndLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunToEndLayer").field(&self.outer).finish()
    }
}

impl<S, K: KeyExtractor> Layer<S> for RunToEndLayer<K> {
    type Service = RedlockService<RunToEndService<S>, K>;

    fn layer(&self, inner: S) -> Self::Service {
        let on_lost = self.outer.lost_policy();
        self.outer.layer(RunToEndService { inner, on_lost })
    }
}

/// A service that finishes requests which hold a lock, whether or not somebody waits for them. It stands inside a
/// [`RedlockLayer`].
#[derive(Clone, Debug)]
pub struct RunToEndService<S> {
    inner: S,
    on_lost: OnLost,
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
    type Future = FinishingFuture<S::Future, S::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let along = request.extensions().get::<Arc<Along>>().cloned();
        let inner = self.inner.call(request);
        // One more guard: the lock stays until the task has ended, too. Without one there is nothing to finish under.
        let guard = along.and_then(|along| along.guard().ok());
        let Some(guard) = guard else {
            return FinishingFuture {
                state: State::Here { inner },
            };
        };
        let on_lost = self.on_lost;
        let work = Detached::new(async move {
            let mut inner = pin!(inner);
            match on_lost {
                OnLost::Continue => Some(inner.await),
                OnLost::Abort => {
                    let mut lost = pin!(guard.lost());
                    tokio::select! {
                        biased;
                        result = &mut inner => Some(result),
                        _ = &mut lost => None,
                    }
                }
            }
        });
        FinishingFuture {
            state: State::Detached { work },
        }
    }
}

pin_project! {
    /// The response of a [`RunToEndService`].
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, what holds a lock and has been polled goes on, in a task of the tokio runtime in which the
    /// service was called, until it has ended or the lock is lost.
    #[must_use = "futures do nothing unless polled"]
    pub struct FinishingFuture<F, T, E>
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
        Here {
            #[pin]
            inner: F,
        },
        Detached {
            work: Detached<Option<Result<T, E>>>,
        },
    }
}

impl<F, T, E> Future for FinishingFuture<F, T, E>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Here { inner } => inner.poll(cx),
            StateProj::Detached { work } => match ready!(Pin::new(work).poll(cx)) {
                Some(result) => Poll::Ready(result),
                // The layer around this sees the loss itself, and answers.
                None => Poll::Pending,
            },
        }
    }
}

impl<F, T, E> fmt::Debug for FinishingFuture<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasts = matches!(self.state, State::Detached { .. });
        f.debug_struct("FinishingFuture")
            .field("lasts", &lasts)
            .finish_non_exhaustive()
    }
}
