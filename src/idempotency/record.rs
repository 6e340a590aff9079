//! [`Stored`]: what the nodes keep of a request and its answer, and how it is written.
//!
//! One byte for the version, then for version 1:
//!
//! | bytes | what |
//! |---|---|
//! | 32 | the fingerprint of the request |
//! | 1 | the outcome: 1 an answer, 2 one that cannot be replayed |
//! | 2 | the status |
//! | .. | of an answer: its headers; its body, behind its length; 1 or 0, and its trailers if 1 |
//! | 8 | the first bytes of the SHA-256 of all before |
//!
//! Headers are their count, and for each the name behind its length, 1 or 0 for a sensitive value, and the value behind
//! its length. Lengths and counts are LEB128, as short as can be.

use std::error::Error;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};

use super::fingerprint::Fingerprint;

/// What is kept of a request: which it was, and what it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// Of the request that was answered.
    pub fingerprint: Fingerprint,
    /// What it came to.
    pub outcome: Outcome,
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "all but a few are answers, and none is kept in memory for long"
)]
pub enum Outcome {
    /// It was answered like this.
    Answer(Answer),
    /// It was answered, and the answer was too large to keep. The request does not run again.
    NotReplayable {
        /// The status of the answer.
        status: StatusCode,
    },
}

/// An answer, whole.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Those of its headers that are [kept](super::RecordedHeaders).
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Its trailers, if there were any.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// An answer without trailers.
    #[must_use]
    pub const fn new(status: StatusCode, headers: HeaderMap, body: Bytes) -> Self {
        Self {
            status,
            headers,
            body,
            trailers: None,
        }
    }
}

// By hand: an answer is its client's own business.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("len", &self.body.len())
            .field("trailers", &self.trailers.is_some())
            .finish_non_exhaustive()
    }
}

impl Stored {
    /// What is kept of the request with this fingerprint.
    #[must_use]
    pub const fn new(fingerprint: Fingerprint, outcome: Outcome) -> Self {
        Self {
            fingerprint,
            outcome,
        }
    }

    /// As it is kept, in the newest version.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let body = match &self.outcome {
            Outcome::Answer(answer) => answer.body.len(),
            Outcome::NotReplayable { .. } => 0,
        };
        let mut out = BytesMut::with_capacity(body.saturating_add(512));
        out.put_u8(VERSION);
        out.put_slice(self.fingerprint.as_bytes());
        match &self.outcome {
            Outcome::Answer(answer) => {
                out.put_u8(ANSWER);
                out.put_u16(answer.status.as_u16());
                put_headers(&mut out, &answer.headers);
                put_bytes(&mut out, &answer.body);
                out.put_u8(u8::from(answer.trailers.is_some()));
                if let Some(trailers) = &answer.trailers {
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

    /// Reads what was kept. Bodies and values are not copied: they share the memory of `encoded`.
    ///
    /// Nothing is allocated for a length before as many bytes are there.
    ///
    /// # Errors
    ///
    /// [`StoredError`] if it is of a version that is not known here, or is not what [`encode`](Self::encode) writes.
    pub fn decode(encoded: Bytes) -> Result<Self, StoredError> {
        match encoded.first() {
            None => return Err(malformed("is empty")),
            Some(&VERSION) => {}
            // Where the check sum of other versions stands is not known.
            Some(&version) => return Err(StoredError(Fault::Version(version))),
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

/// Why a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredError(Fault);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Version(u8),
    Malformed(&'static str),
}

impl StoredError {
    /// The version of the record, if it is one that this program does not know: another program, most likely a newer
    /// one, has written it.
    #[must_use]
    pub const fn unknown_version(&self) -> Option<u8> {
        match self.0 {
            Fault::Version(version) => Some(version),
            Fault::Malformed(_) => None,
        }
    }
}

impl fmt::Display for StoredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Fault::Version(version) => write!(
                f,
                "the record of an answer is of version {version}, and this program reads version {VERSION} alone"
            ),
            Fault::Malformed(how) => write!(f, "the record of an answer {how}"),
        }
    }
}

impl Error for StoredError {}

const fn malformed(how: &'static str) -> StoredError {
    StoredError(Fault::Malformed(how))
}

/// What is still to be read.
struct Input(Bytes);

impl Input {
    fn stored(&mut self) -> Result<Stored, StoredError> {
        let fingerprint = *self
            .take(32)?
            .first_chunk::<32>()
            .ok_or(malformed("ends too early"))?;
        let kind = self.byte()?;
        let status = self.status()?;
        let outcome = match kind {
            ANSWER => Outcome::Answer(Answer {
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
        Ok(Stored::new(Fingerprint::from_bytes(fingerprint), outcome))
    }

    fn headers(&mut self) -> Result<HeaderMap, StoredError> {
        let count = self.len()?;
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            let name = HeaderName::from_lowercase(&self.bytes()?)
                .map_err(|_| malformed("holds a header name that is none"))?;
            let sensitive = self.flag()?;
            let mut value = HeaderValue::from_maybe_shared(self.bytes()?)
                .map_err(|_| malformed("holds a header value that is none"))?;
            value.set_sensitive(sensitive);
            headers
                .try_append(name, value)
                .map_err(|_| malformed("holds more headers than there may be"))?;
        }
        Ok(headers)
    }

    fn status(&mut self) -> Result<StatusCode, StoredError> {
        let status = u16::from_be_bytes([self.byte()?, self.byte()?]);
        StatusCode::from_u16(status).map_err(|_| malformed("holds a status that is none"))
    }

    fn bytes(&mut self) -> Result<Bytes, StoredError> {
        let len = self.len()?;
        self.take(len)
    }

    /// A length, of which only the shortest spelling is read.
    fn len(&mut self) -> Result<usize, StoredError> {
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

    fn flag(&mut self) -> Result<bool, StoredError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(malformed("says neither yes nor no")),
        }
    }

    fn byte(&mut self) -> Result<u8, StoredError> {
        let byte = self.take(1)?;
        byte.first().copied().ok_or(malformed("ends too early"))
    }

    fn take(&mut self, len: usize) -> Result<Bytes, StoredError> {
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

/// Finds what was cut off or changed on the way; it is no protection against those who may write to the nodes.
fn checksum(bytes: &[u8]) -> [u8; SUM_LEN] {
    let mut sum = [0; SUM_LEN];
    for (to, from) in sum.iter_mut().zip(Sha256::digest(bytes)) {
        *to = from;
    }
    sum
}

const VERSION: u8 = 1;
const ANSWER: u8 = 1;
const NOT_REPLAYABLE: u8 = 2;
const SUM_LEN: usize = 8;

#[cfg(test)]
mod tests;
