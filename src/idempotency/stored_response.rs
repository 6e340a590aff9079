//! [`StoredResponse`]: what the nodes store about a request, and its encoding: one byte for the version, a [`Record`]
//! in the format of postcard, and a checksum.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::fingerprint::Fingerprint;
use super::recorded::{IDEMPOTENT_REPLAYED, kept};
use crate::http::rejection::{Cause, RejectionKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredResponse {
    pub(super) fingerprint: Fingerprint,
    /// `None` if the response could not be stored. The request does not run again.
    pub(super) replay: Option<Replay>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Replay {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

impl Replay {
    pub(super) fn new(
        status: StatusCode,
        headers: &HeaderMap,
        body: Bytes,
        trailers: Option<&HeaderMap>,
    ) -> Self {
        Self {
            status,
            headers: kept(headers),
            body,
            trailers: trailers.map(kept),
        }
    }

    /// The response in the record `stored`, if the request had the same `fingerprint`.
    pub(super) fn find(stored: &Bytes, fingerprint: Fingerprint) -> Result<Self, Cause> {
        let unreadable = |error| Cause::because(RejectionKind::RecordUnreadable, error);
        let stored = StoredResponse::decode(stored).map_err(unreadable)?;
        if stored.fingerprint != fingerprint {
            return Err(RejectionKind::IdempotencyKeyReused.into());
        }
        Ok(stored.replay.ok_or(RejectionKind::NotReplayable)?)
    }

    /// The response with the mark of a replay, but without its trailers.
    pub(super) fn into_response(self) -> Response<Bytes> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let yes = HeaderValue::from_static("true");
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, yes);
        response
    }
}

// Shows no values, because they are private to the client.
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

#[derive(Serialize, Deserialize)]
struct Record<'a> {
    fingerprint: [u8; 32],
    #[serde(borrow)]
    response: Option<Content<'a>>,
}

#[derive(Serialize, Deserialize)]
struct Content<'a> {
    status: u16,
    #[serde(borrow)]
    headers: Vec<Header<'a>>,
    // Serialise the slice in one piece, because serde would otherwise serialise it byte by byte.
    #[serde(serialize_with = "as_bytes")]
    body: &'a [u8],
    trailers: Option<Vec<Header<'a>>>,
}

/// Name, whether the value is sensitive, and value.
type Header<'a> = (&'a str, bool, &'a [u8]);

fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl StoredResponse {
    pub(super) fn encode(&self) -> Bytes {
        let record = Record {
            fingerprint: self.fingerprint.0,
            response: self.replay.as_ref().map(|replay| Content {
                status: replay.status.as_u16(),
                headers: listed(&replay.headers),
                body: &replay.body,
                trailers: replay.trailers.as_ref().map(listed),
            }),
        };
        let body = self.replay.as_ref().map_or(0, |replay| replay.body.len());
        let mut out = Vec::with_capacity(body.saturating_add(512));
        out.push(VERSION);
        // This cannot fail, because only sequences of unknown length fail.
        let mut out = postcard::to_extend(&record, out).unwrap_or_default();
        out.extend(checksum(&out));
        out.into()
    }

    /// Decodes a record. The body and the values of headers share the memory of `encoded`.
    pub(super) fn decode(encoded: &Bytes) -> Result<Self, StoredResponseError> {
        let (rest, sum) = match encoded.split_first() {
            None => return Err(malformed("is empty")),
            Some((&VERSION, rest)) => rest.split_at(rest.len().saturating_sub(SUM_LEN)),
            // Check the version before the checksum, because other versions may have no checksum at this place.
            Some((&version, _)) => return Err(StoredResponseError(Fault::Version(version))),
        };
        if sum != checksum(encoded.get(..=rest.len()).unwrap_or_default()) {
            return Err(malformed("does not match its check sum"));
        }
        match postcard::take_from_bytes::<Record<'_>>(rest) {
            Ok((record, [])) => Self::of_record(&record, encoded),
            Ok(_) => Err(malformed("goes on after its end")),
            Err(_) => Err(malformed("has another form than this version")),
        }
    }

    fn of_record(record: &Record<'_>, encoded: &Bytes) -> Result<Self, StoredResponseError> {
        let replay = |content: &Content<'_>| {
            Ok(Replay {
                status: StatusCode::from_u16(content.status)
                    .map_err(|_| malformed("has an invalid status"))?,
                headers: headers(&content.headers, encoded)?,
                body: encoded.slice_ref(content.body),
                trailers: (content.trailers.as_ref())
                    .map(|trailers| headers(trailers, encoded))
                    .transpose()?,
            })
        };
        Ok(Self {
            fingerprint: Fingerprint(record.fingerprint),
            replay: record.response.as_ref().map(replay).transpose()?,
        })
    }
}

fn listed(headers: &HeaderMap) -> Vec<Header<'_>> {
    let headers = headers.iter();
    headers
        .map(|(name, value)| (name.as_str(), value.is_sensitive(), value.as_bytes()))
        .collect()
}

fn headers(listed: &[Header<'_>], encoded: &Bytes) -> Result<HeaderMap, StoredResponseError> {
    let mut headers = HeaderMap::new();
    for (name, is_sensitive, value) in listed {
        let name = HeaderName::from_lowercase(name.as_bytes())
            .map_err(|_| malformed("has an invalid header name"))?;
        let mut value = HeaderValue::from_maybe_shared(encoded.slice_ref(value))
            .map_err(|_| malformed("has an invalid header value"))?;
        value.set_sensitive(*is_sensitive);
        (headers.try_append(name, value)).map_err(|_| malformed("has too many headers"))?;
    }
    Ok(headers)
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
                "the record of a response is of version {version}, and this program only reads version {VERSION}"
            ),
            Fault::Malformed(how) => write!(f, "the record of a response {how}"),
        }
    }
}

impl Error for StoredResponseError {}

const fn malformed(how: &'static str) -> StoredResponseError {
    StoredResponseError(Fault::Malformed(how))
}

/// Detects damage, but not deliberate changes.
fn checksum(bytes: &[u8]) -> [u8; SUM_LEN] {
    let mut sum = [0; SUM_LEN];
    for (to, from) in sum.iter_mut().zip(Sha256::digest(bytes)) {
        *to = from;
    }
    sum
}

const VERSION: u8 = 2;
const SUM_LEN: usize = 8;

#[cfg(test)]
mod tests;
