//! Reading a body up to a limit, so that it can be stored, and passed on unchanged.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;

use crate::http::body::{BoxError, LayerBody, Rest, as_u64, into_bytes};

/// The result of reading a body.
pub(super) enum Collected<B> {
    /// It has ended within the limit.
    All {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    },
    /// It is longer than the limit.
    TooLarge { read: [Bytes; 2], rest: Pin<Box<B>> },
    /// It has failed.
    Failed { read: Bytes, error: BoxError },
}

impl<B> Collected<B> {
    pub(super) fn again(self) -> LayerBody<B> {
        match self {
            Self::All { bytes, trailers } => LayerBody::whole(bytes, trailers),
            Self::TooLarge { read, rest } => LayerBody::read(read, Rest::Body(rest)),
            Self::Failed { read, error } => {
                LayerBody::read([read, Bytes::new()], Rest::Error(error))
            }
        }
    }
}

/// Reads `body` to its end, if that is not beyond `limit` bytes; trailers do not count. A body whose size hint is
/// longer is not read at all.
pub(super) async fn collect_up_to<B>(body: B, limit: usize) -> Collected<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    // Boxed, so that it can be passed on after it was polled, `Unpin` or not.
    let mut rest = Box::pin(body);
    if rest.size_hint().lower() > as_u64(limit) {
        let read = Default::default();
        return Collected::TooLarge { read, rest };
    }
    let mut joined = Joined::default();
    let mut trailers = None;
    while let Some(frame) = poll_fn(|cx| rest.as_mut().poll_frame(cx)).await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                let (read, error) = (joined.finish(), error.into());
                return Collected::Failed { read, error };
            }
        };
        match frame.into_data() {
            Ok(data) if data.remaining() > limit.saturating_sub(joined.len) => {
                let read = [joined.finish(), into_bytes(data)];
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

#[cfg(test)]
mod tests;
