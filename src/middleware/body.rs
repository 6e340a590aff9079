//! [`ResponseBody`]: the body of every response of a [`RedlockService`](super::RedlockService).

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::manager::{LockGuard, LossReason, Lost};

/// Any error, as bodies know it.
pub type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The inner service's body, or that of the layer's own response.
    ///
    /// Under [`HoldUntil::BodyEnd`](super::HoldUntil::BodyEnd) it holds the lock, and releases it as soon as the
    /// inner body has ended, failed, or was dropped; the inner body is dropped first. The release is detached. If the
    /// lock is lost before the end, and the layer is set to [abort](super::OnLost::Abort), the body ends with the
    /// error [`BodyLockLost`].
    ///
    /// The size hint and the end of the inner body are passed on unchanged.
    #[must_use = "a body does nothing unless polled"]
    pub struct ResponseBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = InnerProj]
    enum Inner<B> {
        Plain {
            #[pin]
            body: B,
        },
        Guarded {
            // Fields drop in order: the body ends before the lock is released.
            #[pin]
            body: B,
            // Boxed, so that this body is `Unpin` where the inner one is, and no larger where nothing is held.
            lost: Option<Pin<Box<Lost>>>,
            guard: Option<LockGuard>,
        },
        Whole {
            bytes: Option<Bytes>,
        },
        Ended,
    }
}

impl<B> ResponseBody<B> {
    pub(super) const fn plain(body: B) -> Self {
        Self {
            inner: Inner::Plain { body },
        }
    }

    pub(super) fn guarded(body: B, lost: Option<Lost>, guard: LockGuard) -> Self {
        Self {
            inner: Inner::Guarded {
                body,
                lost: lost.map(Box::pin),
                guard: Some(guard),
            },
        }
    }

    pub(super) fn whole(bytes: Bytes) -> Self {
        Self {
            inner: Inner::Whole {
                bytes: Some(bytes).filter(|bytes| !bytes.is_empty()),
            },
        }
    }
}

/// A body that has ended. Layers around this one, such as tower-http's time-out, use it for their responses.
impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        Self {
            inner: Inner::Ended,
        }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut inner = self.project().inner;
        let (last, guard) = match inner.as_mut().project() {
            InnerProj::Plain { body } => {
                return body
                    .poll_frame(cx)
                    .map(|frame| frame.map(|frame| frame.map_err(Into::into)));
            }
            InnerProj::Whole { bytes } => {
                let bytes = bytes.take();
                return Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes.into()))));
            }
            InnerProj::Ended => return Poll::Ready(None),
            InnerProj::Guarded { body, lost, guard } => {
                match ready!(poll_guarded(body, lost.as_mut().map(Pin::as_mut), cx)) {
                    Guarded::Next(frame) => return Poll::Ready(Some(Ok(frame))),
                    Guarded::Last(last) => (last, guard.take()),
                }
            }
        };
        // The body goes first, then the lock.
        inner.set(Inner::Ended);
        drop(guard);
        Poll::Ready(last)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Plain { body } | Inner::Guarded { body, .. } => body.is_end_stream(),
            Inner::Whole { bytes } => bytes.is_none(),
            Inner::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Plain { body } | Inner::Guarded { body, .. } => body.size_hint(),
            Inner::Whole { bytes } => {
                let left = bytes.as_ref().map_or(0, Buf::remaining);
                SizeHint::with_exact(u64::try_from(left).unwrap_or(u64::MAX))
            }
            Inner::Ended => SizeHint::with_exact(0),
        }
    }
}

/// What a poll of a body under its lock has come to.
enum Guarded<D> {
    /// A frame, with more to come.
    Next(Frame<D>),
    /// The end of body and lock, with a last frame or error where there is one.
    Last(Option<Result<Frame<D>, BoxError>>),
}

/// Polls a body, unless the time of its lock is over: it would go on until it next waits. A body that is always ready
/// never does, so the loss is looked at after each frame, too.
fn poll_guarded<B>(
    mut body: Pin<&mut B>,
    mut lost: Option<Pin<&mut Lost>>,
    cx: &mut Context<'_>,
) -> Poll<Guarded<B::Data>>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let is_overdue = lost.as_ref().is_some_and(|lost| lost.is_overdue());
    let mut loss = |cx: &mut Context<'_>| match &mut lost {
        Some(lost) => lost.as_mut().poll(cx),
        None => Poll::Pending,
    };
    if is_overdue && let Poll::Ready(reason) = loss(cx) {
        return Poll::Ready(Guarded::lost(reason));
    }
    match body.as_mut().poll_frame(cx) {
        // A consumer that knows the length may not poll again, so the end is checked here too.
        Poll::Ready(Some(Ok(frame))) if !body.is_end_stream() => match loss(cx) {
            Poll::Ready(reason) => Poll::Ready(Guarded::lost(reason)),
            Poll::Pending => Poll::Ready(Guarded::Next(frame)),
        },
        Poll::Ready(last) => {
            let last = last.map(|frame| frame.map_err(Into::into));
            Poll::Ready(Guarded::Last(last))
        }
        Poll::Pending => loss(cx).map(Guarded::lost),
    }
}

impl<D> Guarded<D> {
    fn lost(reason: LossReason) -> Self {
        Self::Last(Some(Err(Box::new(BodyLockLost { reason }))))
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.inner {
            Inner::Plain { .. } => "plain",
            Inner::Guarded { .. } => "guarded",
            Inner::Whole { .. } => "whole",
            Inner::Ended => "ended",
        };
        f.debug_struct("ResponseBody")
            .field("state", &format_args!("{state}"))
            .finish_non_exhaustive()
    }
}

/// The lock was lost while the response's body was on its way, so the body was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLockLost {
    reason: LossReason,
}

impl BodyLockLost {
    /// Why the lock was lost.
    #[must_use]
    pub const fn reason(&self) -> LossReason {
        self.reason
    }
}

impl fmt::Display for BodyLockLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the lock was lost before the response's body ended: {}",
            self.reason
        )
    }
}

impl Error for BodyLockLost {}
