//! [`LayerBody`]: the body of every request and response that a layer makes or wraps.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::OwnedSemaphorePermit;

use crate::manager::{LockGuard, LossReason, Lost, RunError};

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a request or a response that has passed a layer.
    ///
    /// With [`hold_until_body`](crate::RedlockLayer::hold_until_body), a response body holds the lock. If the lock is
    /// lost before the body has ended, the body ends with the error [`RunError::Lost`](crate::error::RunError::Lost).
    #[must_use = "a body does nothing unless polled"]
    pub struct LayerBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = InnerProj]
    enum Inner<B> {
        Passed {
            #[pin]
            body: B,
        },
        Held {
            // Fields are dropped in order, so the body ends before the lock is released.
            #[pin]
            body: B,
            // In a box, so that `LayerBody` is `Unpin` if `B` is, and so that bodies without a lock stay small.
            lost: Pin<Box<Lost>>,
            guard: Option<LockGuard>,
        },
        Read {
            read: [Bytes; 2],
            rest: Rest<B>,
            // The room in the buffers that the bytes take until they are passed on.
            room: Option<OwnedSemaphorePermit>,
        },
    }
}

#[cfg_attr(
    not(feature = "idempotency"),
    expect(dead_code, reason = "no layer reads bodies")
)]
pub(crate) enum Rest<B> {
    Nothing,
    Trailers(HeaderMap),
    Body(Pin<Box<B>>),
    Error(BoxError),
}

impl<B> LayerBody<B> {
    pub(crate) const fn passed(body: B) -> Self {
        let inner = Inner::Passed { body };
        Self { inner }
    }

    pub(crate) fn held(body: B, lost: Lost, guard: LockGuard) -> Self {
        let (lost, guard) = (Box::pin(lost), Some(guard));
        let inner = Inner::Held { body, lost, guard };
        Self { inner }
    }

    pub(crate) fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self::read(
            [bytes, Bytes::new()],
            trailers.map_or(Rest::Nothing, Rest::Trailers),
        )
    }

    /// A body that was read in part: the bytes, and the rest.
    pub(crate) const fn read(read: [Bytes; 2], rest: Rest<B>) -> Self {
        let inner = Inner::Read {
            read,
            rest,
            room: None,
        };
        Self { inner }
    }

    /// A complete body that takes up `room` in the buffers until it is read.
    #[cfg(feature = "idempotency")]
    pub(crate) fn buffered(
        bytes: Bytes,
        trailers: Option<HeaderMap>,
        room: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let mut body = Self::whole(bytes, trailers);
        if let Inner::Read { room: of, .. } = &mut body.inner {
            *of = room;
        }
        body
    }
}

/// An empty body, for the responses of other layers.
impl<B> Default for LayerBody<B> {
    fn default() -> Self {
        Self::whole(Bytes::new(), None)
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl<B> Body for LayerBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let mut inner = self.project().inner;
        let (last, guard) = match inner.as_mut().project() {
            InnerProj::Passed { body } => return poll_inner(body, cx),
            InnerProj::Read { read, rest, room } => {
                *room = None;
                return poll_read(read, rest, cx);
            }
            InnerProj::Held { body, lost, guard } => {
                match ready!(poll_held(body, lost.as_mut(), cx)) {
                    Held::Next(frame) => return Poll::Ready(Some(Ok(frame))),
                    Held::Last(last) => (last, guard.take()),
                }
            }
        };
        // Drop the body before the lock is released.
        inner.set(Self::default().inner);
        drop(guard);
        Poll::Ready(last)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Passed { body } | Inner::Held { body, .. } => body.is_end_stream(),
            Inner::Read { read, .. } if !read.iter().all(Bytes::is_empty) => false,
            Inner::Read { rest, .. } => match rest {
                Rest::Nothing => true,
                Rest::Body(rest) => rest.is_end_stream(),
                Rest::Trailers(_) | Rest::Error(_) => false,
            },
        }
    }

    fn size_hint(&self) -> SizeHint {
        let (read, rest) = match &self.inner {
            Inner::Passed { body } | Inner::Held { body, .. } => return body.size_hint(),
            Inner::Read { read, rest, .. } => {
                (read.iter().map(|chunk| as_u64(chunk.len())).sum(), rest)
            }
        };
        let rest = match rest {
            Rest::Nothing => SizeHint::with_exact(0),
            Rest::Body(rest) => rest.size_hint(),
            // Give no exact length, because HTTP/1.1 would then not send trailers, and because a body that will fail
            // must not look complete.
            Rest::Trailers(_) | Rest::Error(_) => SizeHint::new(),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}

fn poll_inner<B>(body: Pin<&mut B>, cx: &mut Context<'_>) -> Polled
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let frame = ready!(body.poll_frame(cx));
    Poll::Ready(frame.map(|frame| match frame {
        Ok(frame) => Ok(frame.map_data(into_bytes)),
        Err(error) => Err(error.into()),
    }))
}

fn poll_read<B>(read: &mut [Bytes; 2], rest: &mut Rest<B>, cx: &mut Context<'_>) -> Polled
where
    B: Body,
    B::Error: Into<BoxError>,
{
    // Skip empty chunks, because some consumers take them for the end.
    if let Some(chunk) = read.iter_mut().find(|chunk| !chunk.is_empty()) {
        let chunk = std::mem::take(chunk);
        return Poll::Ready(Some(Ok(Frame::data(chunk))));
    }
    if let Rest::Body(body) = rest {
        return poll_inner(body.as_mut(), cx);
    }
    Poll::Ready(match std::mem::replace(rest, Rest::Nothing) {
        Rest::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
        Rest::Error(error) => Some(Err(error)),
        Rest::Nothing | Rest::Body(_) => None,
    })
}

enum Held {
    Next(Frame<Bytes>),
    /// Nothing follows, so the lock can be released.
    Last(Option<Result<Frame<Bytes>, BoxError>>),
}

/// Polls a body while its lock is held. Checks for a loss after each frame, too, because a body that is always ready
/// never waits.
fn poll_held<B>(mut body: Pin<&mut B>, mut lost: Pin<&mut Lost>, cx: &mut Context<'_>) -> Poll<Held>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let beside = lost.as_mut();
    let polled = ready!(beside.poll_beside(cx, |cx| poll_inner(body.as_mut(), cx)));
    Poll::Ready(match polled {
        // Check for the end here, too, because a consumer that knows the length may not poll again.
        Ok(Some(Ok(frame))) if !body.is_end_stream() => match lost.poll(cx) {
            Poll::Ready(reason) => Held::lost(reason),
            Poll::Pending => Held::Next(frame),
        },
        Ok(last) => Held::Last(last),
        Err(reason) => Held::lost(reason),
    })
}

impl Held {
    fn lost(reason: LossReason) -> Self {
        Self::Last(Some(Err(Box::new(RunError::Lost(reason)))))
    }
}

pub(crate) fn into_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

pub(crate) fn as_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl<B> fmt::Debug for LayerBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.inner {
            Inner::Passed { .. } => "passed",
            Inner::Held { .. } => "held",
            Inner::Read { .. } => "read",
        };
        f.debug_struct("LayerBody")
            .field("state", &format_args!("{state}"))
            .finish_non_exhaustive()
    }
}
