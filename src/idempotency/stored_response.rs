//! [`StoredResponse`]: the record of a request and its response on the nodes, and its encoding.
//!
//! One byte for the version, then for version 1:
//!
//! | bytes | meaning |
//! |---|---|
//! | 32 | the fingerprint of the request |
//! | 1 | the outcome: 1 a response, 2 one that cannot be replayed |
//! | 2 | the status |
//! | .. | of a response: its headers; its body, behind its length; 1 or 0, and its trailers if 1 |
//! | 8 | the first bytes of the SHA-256 of all before |
//!
//! Headers are their count, and for each the name behind its length, 1 or 0 for a sensitive value, and the value behind
//! its length. Lengths and counts are LEB128, as short as possible.

use std::error::Error;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha2::{Digest as _, Sha256};

use super::fingerprint::Fingerprint;
use crate::http::rejection::{Cause, RejectionKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredResponse {
    pub(super) fingerprint: Fingerprint,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "most records can be replayed, and none stays in memory for long"
)]
pub(super) enum Outcome {
    /// The response is stored.
    Replayable(Replay),
    /// The response had this status, and could not be stored. The request does not run again.
    NotReplayable { status: StatusCode },
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Replay {
    pub(super) status: StatusCode,
    /// Those of its headers that are [recorded](super::RecordedHeaders).
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

impl Replay {
    /// The response in the record `stored`, for a request with this `fingerprint`; or why there is none for it.
    pub(super) fn find(stored: Bytes, fingerprint: Fingerprint) -> Result<Self, Cause> {
        let unreadable = |error| Cause::because(RejectionKind::RecordUnreadable, error);
        let stored = StoredResponse::decode(stored).map_err(unreadable)?;
        match stored.outcome {
            _ if stored.fingerprint != fingerprint => {
                Err(RejectionKind::IdempotencyKeyReused.into())
            }
            Outcome::NotReplayable { .. } => Err(RejectionKind::NotReplayable.into()),
            Outcome::Replayable(replay) => Ok(replay),
        }
    }

    /// The response, but for its trailers, with the header `marker`.
    pub(super) fn into_response(self, marker: &HeaderName) -> Response<Bytes> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let yes = HeaderValue::from_static("true");
        response.headers_mut().insert(marker, yes);
        response
    }
}

// By hand: a response is private to its client.
impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("len", &self.body.len())
            .field("trailers", &self.trailers.is_some())
            .finish_non_exhaustive()
    }
}

impl StoredResponse {
    pub(super) const fn new(fingerprint: Fingerprint, outcome: Outcome) -> Self {
        Self {
            fingerprint,
            outcome,
        }
    }

    /// Encodes the record in the newest version.
    pub(super) fn encode(&self) -> Bytes {
        let body = match &self.outcome {
            Outcome::Replayable(replay) => replay.body.len(),
            Outcome::NotReplayable { .. } => 0,
        };
        let mut out = BytesMut::with_capacity(body.saturating_add(512));
        out.put_u8(VERSION);
        out.put_slice(&self.fingerprint.0);
        match &self.outcome {
            Outcome::Replayable(replay) => {
                out.put_u8(REPLAYABLE);
                out.put_u16(replay.status.as_u16());
                put_headers(&mut out, &replay.headers);
                put_bytes(&mut out, &replay.body);
                out.put_u8(u8::from(replay.trailers.is_some()));
                if let Some(trailers) = &replay.trailers {
                    put_headers(&mut out, trailers);
                }
            }
            Outcome::NotReplayable { status } => {
                out.put_u8(NOT_REPLAYABLE);
                out.put_u16(status.as_u16());
            }
        }
        let sum = checksum(&out);
        out.put_slice(&sum);
        out.freeze()
    }

    /// Decodes a record. Bodies and values share the memory of `encoded`. A length allocates nothing unless as many
    /// bytes follow.
    pub(super) fn decode(encoded: Bytes) -> Result<Self, StoredResponseError> {
        match encoded.first() {
            None => return Err(malformed("is empty")),
            Some(&VERSION) => {}
            // The place of the check sum in other versions is not known.
            Some(&version) => return Err(StoredResponseError(Fault::Version(version))),
        }
        let sum_at = encoded.len().saturating_sub(SUM_LEN);
        let mut rest = encoded;
        let sum = rest.split_off(sum_at);
        if checksum(&rest) != *sum {
            return Err(malformed("does not match its check sum"));
        }
        let mut input = Input(rest);
        input.byte()?;
        let stored = input.stored()?;
        if !input.0.is_empty() {
            return Err(malformed("goes on after its end"));
        }
        Ok(stored)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredResponseError(Fault);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Version(u8),
    Malformed(&'static str),
}

impl fmt::Display for StoredResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Fault::Version(version) => write!(
                f,
                "the record of a response is of version {version}, and this program reads version {VERSION} alone"
            ),
            Fault::Malformed(how) => write!(f, "the record of a response {how}"),
        }
    }
}

impl Error for StoredResponseError {}

const fn malformed(how: &'static str) -> StoredResponseError {
    StoredResponseError(Fault::Malformed(how))
}

/// The rest of the encoded bytes.
struct Input(Bytes);

impl Input {
    fn stored(&mut self) -> Result<StoredResponse, StoredResponseError> {
        let fingerprint = *self
            .take(32)?
            .first_chunk::<32>()
            .ok_or(malformed("ends too early"))?;
        let kind = self.byte()?;
        let status = self.status()?;
        let outcome = match kind {
            REPLAYABLE => Outcome::Replayable(Replay {
                status,
                headers: self.headers()?,
                body: self.bytes()?,
                trailers: match self.flag()? {
                    true => Some(self.headers()?),
                    false => None,
                },
            }),
            NOT_REPLAYABLE => Outcome::NotReplayable { status },
            _ => return Err(malformed("holds an outcome of an unknown kind")),
        };
        Ok(StoredResponse::new(Fingerprint(fingerprint), outcome))
    }

    fn headers(&mut self) -> Result<HeaderMap, StoredResponseError> {
        let count = self.len()?;
        let (mut headers, mut last) = (HeaderMap::new(), None);
        for _ in 0..count {
            let name = HeaderName::from_lowercase(&self.bytes()?)
                .map_err(|_| malformed("holds a header name that is none"))?;
            let sensitive = self.flag()?;
            let mut value = HeaderValue::from_maybe_shared(self.bytes()?)
                .map_err(|_| malformed("holds a header value that is none"))?;
            value.set_sensitive(sensitive);
            // A map keeps the values of a name together, so this order is the only one in which headers are written.
            let is_apart = last.as_ref() != Some(&name) && headers.contains_key(&name);
            if is_apart {
                return Err(malformed("holds headers out of their order"));
            }
            last = Some(name.clone());
            headers
                .try_append(name, value)
                .map_err(|_| malformed("holds more headers than there may be"))?;
        }
        Ok(headers)
    }

    fn status(&mut self) -> Result<StatusCode, StoredResponseError> {
        let status = u16::from_be_bytes([self.byte()?, self.byte()?]);
        StatusCode::from_u16(status).map_err(|_| malformed("holds a status that is none"))
    }

    fn bytes(&mut self) -> Result<Bytes, StoredResponseError> {
        let len = self.len()?;
        self.take(len)
    }

    /// A length, in its shortest encoding only.
    fn len(&mut self) -> Result<usize, StoredResponseError> {
        let mut len: usize = 0;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = usize::from(byte & 0x7F);
            let placed = bits << shift;
            if placed >> shift != bits || (byte == 0 && shift > 0) {
                break;
            }
            len |= placed;
            if byte & 0x80 == 0 {
                return Ok(len);
            }
        }
        Err(malformed("holds a length that is none"))
    }

    fn flag(&mut self) -> Result<bool, StoredResponseError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(malformed("says neither yes nor no")),
        }
    }

    fn byte(&mut self) -> Result<u8, StoredResponseError> {
        let byte = self.take(1)?;
        byte.first().copied().ok_or(malformed("ends too early"))
    }

    fn take(&mut self, len: usize) -> Result<Bytes, StoredResponseError> {
        if len > self.0.len() {
            return Err(malformed("ends too early"));
        }
        Ok(self.0.split_to(len))
    }
}

fn put_headers(out: &mut BytesMut, headers: &HeaderMap) {
    put_len(out, headers.len());
    for (name, value) in headers {
        put_bytes(out, name.as_str().as_bytes());
        out.put_u8(u8::from(value.is_sensitive()));
        put_bytes(out, value.as_bytes());
    }
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.put_slice(bytes);
}

fn put_len(out: &mut BytesMut, mut len: usize) {
    loop {
        let [low, ..] = len.to_le_bytes();
        len >>= 7;
        if len == 0 {
            out.put_u8(low & 0x7F);
            return;
        }
        out.put_u8(low | 0x80);
    }
}

/// Detects truncation and corruption; it is no protection against writers on the nodes.
fn checksum(bytes: &[u8]) -> [u8; SUM_LEN] {
    let mut sum = [0; SUM_LEN];
    for (to, from) in sum.iter_mut().zip(Sha256::digest(bytes)) {
        *to = from;
    }
    sum
}

const VERSION: u8 = 1;
const REPLAYABLE: u8 = 1;
const NOT_REPLAYABLE: u8 = 2;
const SUM_LEN: usize = 8;

#[cfg(test)]
mod tests;
