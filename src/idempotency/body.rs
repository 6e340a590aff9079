//! Bodies that are read up to a limit, and passed on unchanged: [`RequestBody`] and [`ResponseBody`].

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a request, or the copy that the layer has read for its fingerprint.
    ///
    /// All bytes and trailers are those that the client sent; the chunks may differ.
    #[must_use = "a body does nothing unless polled"]
    pub struct RequestBody<B>
    where
        B: Body,
    {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    /// The body of a response: the inner service's, a stored one, or that of the layer's own response.
    ///
    /// Where the layer has begun to read the inner body in order to store it, the bytes that it has read come first,
    /// and then the rest or the error that the inner body ended with. All bytes and trailers are the inner service's;
    /// the chunks may differ.
    #[must_use = "a body does nothing unless polled"]
    pub struct ResponseBody<B>
    where
        B: Body,
    {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = InnerProj]
    enum Inner<B>
    where
        B: Body,
    {
        Untouched {
            #[pin]
            body: B,
        },
        Whole {
            bytes: Bytes,
            trailers: Option<HeaderMap>,
        },
        Resumed {
            read: Chunks,
            rest: Pin<Box<B>>,
        },
        Broken {
            read: Chunks,
            error: Option<B::Error>,
        },
    }
}

impl<B: Body> ResponseBody<B> {
    /// The bytes that were read of a body, and the rest of it.
    pub(super) const fn resumed(read: Chunks, rest: Pin<Box<B>>) -> Self {
        Self {
            inner: Inner::Resumed { read, rest },
        }
    }

    /// The bytes that were read of a body before it failed, and the error.
    pub(super) const fn broken(read: Chunks, error: B::Error) -> Self {
        let error = Some(error);
        Self {
            inner: Inner::Broken { read, error },
        }
    }
}

/// A body that has ended. Layers around this one, such as tower-http's time-out, use it for their responses.
impl<B: Body> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::whole(Bytes::new(), None)
    }
}

impl<B: Body> Inner<B> {
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let rest = match self.project() {
            InnerProj::Untouched { body } => body,
            InnerProj::Whole { bytes, .. } if !bytes.is_empty() => {
                let bytes = std::mem::take(bytes);
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            InnerProj::Whole { trailers, .. } => {
                let trailers = trailers.take().map(Frame::trailers);
                return Poll::Ready(trailers.map(Ok));
            }
            InnerProj::Resumed { read, rest } => match read.pop() {
                Some(chunk) => return Poll::Ready(Some(Ok(Frame::data(chunk)))),
                None => rest.as_mut(),
            },
            InnerProj::Broken { read, error } => {
                let chunk = read.pop().map(|chunk| Ok(Frame::data(chunk)));
                return Poll::Ready(chunk.or_else(|| error.take().map(Err)));
            }
        };
        let frame = ready!(rest.poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(into_bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Untouched { body } => body.is_end_stream(),
            Self::Whole { bytes, trailers } => bytes.is_empty() && trailers.is_none(),
            Self::Resumed { read, rest } => read.len() == 0 && rest.is_end_stream(),
            Self::Broken { read, error } => read.len() == 0 && error.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Untouched { body } => body.size_hint(),
            // With an exact length HTTP/1.1 would not send the trailers.
            Self::Whole {
                bytes,
                trailers: Some(_),
            } => at_least(as_u64(bytes.len())),
            Self::Whole { bytes, .. } => SizeHint::with_exact(as_u64(bytes.len())),
            Self::Resumed { read, rest } => {
                let rest = rest.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read.len()));
                let upper = rest.upper().and_then(|upper| upper.checked_add(read.len()));
                if let Some(upper) = upper {
                    hint.set_upper(upper);
                }
                hint
            }
            // The full length is unknown, so the body must not look complete.
            Self::Broken { read, .. } => at_least(read.len()),
        }
    }

    const fn state(&self) -> &'static str {
        match self {
            Self::Untouched { .. } => "untouched",
            Self::Whole { .. } => "whole",
            Self::Resumed { .. } => "resumed",
            Self::Broken { .. } => "broken",
        }
    }
}

macro_rules! as_inner {
    ($($body:ident)*) => {$(
        impl<B: Body> $body<B> {
            /// `body`, of which nothing was read.
            pub(super) const fn untouched(body: B) -> Self {
                let inner = Inner::Untouched { body };
                Self { inner }
            }

            /// A body that was read to its end, or made whole.
            pub(super) const fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
                let inner = Inner::Whole { bytes, trailers };
                Self { inner }
            }
        }

        impl<B: Body> Body for $body<B> {
            type Data = Bytes;
            type Error = B::Error;

            fn poll_frame(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
                self.project().inner.poll_frame(cx)
            }

            fn is_end_stream(&self) -> bool {
                self.inner.is_end_stream()
            }

            fn size_hint(&self) -> SizeHint {
                self.inner.size_hint()
            }
        }

        impl<B: Body> fmt::Debug for $body<B> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($body))
                    .field("state", &format_args!("{}", self.inner.state()))
                    .finish_non_exhaustive()
            }
        }
    )*};
}

as_inner!(RequestBody ResponseBody);

/// The result of reading a body.
pub(super) enum Collected<B: Body> {
    /// It has ended within the limit.
    All {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    },
    /// It is longer than the limit.
    TooLarge { read: Chunks, rest: Pin<Box<B>> },
    /// It has failed.
    Failed { read: Chunks, error: B::Error },
}

/// Reads `body` to its end, if that is not beyond `limit` bytes; trailers do not count.
///
/// A body whose size hint is longer is not read at all. The bytes that are read stay in memory: up to the limit, and
/// one chunk beyond it.
///
/// Dropped half-way, it drops the body and the bytes that were read.
pub(super) async fn collect_up_to<B: Body>(body: B, limit: usize) -> Collected<B> {
    // Boxed, so that it can be passed on after it was polled, `Unpin` or not.
    let mut rest = Box::pin(body);
    if rest.size_hint().lower() > as_u64(limit) {
        let read = Chunks::default();
        return Collected::TooLarge { read, rest };
    }
    let mut joined = Joined::default();
    let mut trailers = None;
    while let Some(frame) = poll_fn(|cx| rest.as_mut().poll_frame(cx)).await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                let read = Chunks::from([joined.finish()]);
                return Collected::Failed { read, error };
            }
        };
        match frame.into_data() {
            Ok(data) if data.remaining() > limit.saturating_sub(joined.len) => {
                let read = Chunks::from([joined.finish(), into_bytes(data)]);
                return Collected::TooLarge { read, rest };
            }
            Ok(data) => joined.push(into_bytes(data)),
            // Nothing comes behind trailers.
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                break;
            }
        }
    }
    let bytes = joined.finish();
    Collected::All { bytes, trailers }
}

/// The bytes that were read of a body, to be read again.
#[derive(Debug, Default)]
pub(super) struct Chunks(VecDeque<Bytes>);

impl<const N: usize> From<[Bytes; N]> for Chunks {
    // Some consumers take an empty chunk for the end.
    fn from(chunks: [Bytes; N]) -> Self {
        let chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty());
        Self(chunks.collect())
    }
}

impl Chunks {
    fn pop(&mut self) -> Option<Bytes> {
        self.0.pop_front()
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|chunk| as_u64(chunk.len())).sum()
    }
}

/// Chunks put together. A body in one chunk is not copied, and one in a million chunks takes no more memory than its
/// bytes do.
#[derive(Default)]
struct Joined {
    first: Bytes,
    all: BytesMut,
    len: usize,
}

impl Joined {
    fn push(&mut self, chunk: Bytes) {
        self.len = self.len.saturating_add(chunk.len());
        if self.first.is_empty() && self.all.is_empty() {
            self.first = chunk;
            return;
        }
        self.all
            .reserve(self.first.len().saturating_add(chunk.len()));
        self.all.put(std::mem::take(&mut self.first));
        self.all.put(chunk);
    }

    fn finish(self) -> Bytes {
        if self.all.is_empty() {
            self.first
        } else {
            self.all.freeze()
        }
    }
}

/// No copy if the data are `Bytes` already.
fn into_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

fn at_least(len: u64) -> SizeHint {
    let mut hint = SizeHint::new();
    hint.set_lower(len);
    hint
}

fn as_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
