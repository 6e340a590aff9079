//! [`Problem`]: a response of a layer in place of the inner service's, in the form of RFC 9457.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

/// In the extensions of a response: it refuses a lock for a temporary reason of this kind. It says nothing about
/// effects that happened before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(
    #[cfg_attr(
        not(feature = "idempotency"),
        expect(dead_code, reason = "no other layer stores responses")
    )]
    pub(crate) &'static str,
);

/// The refusal of a request. None of its text comes from the client.
pub(crate) struct Problem<'a> {
    /// A name to compare: `urn:tower-redlock:problem:` and a word.
    pub(crate) r#type: &'static str,
    pub(crate) title: &'static str,
    pub(crate) status: StatusCode,
    pub(crate) detail: &'a str,
    /// The remaining time of the lease that is in the way.
    pub(crate) remaining: Option<Duration>,
    pub(crate) retry_after: Option<Duration>,
}

impl Problem<'_> {
    /// `application/problem+json`, `Cache-Control: no-store`, and `Retry-After` where a retry helps.
    pub(crate) fn to_response(&self) -> Response<Bytes> {
        let members = Members {
            r#type: self.r#type,
            title: self.title,
            status: self.status.as_u16(),
            detail: self.detail,
            remaining_ms: self.remaining.map(|remaining| ceil(remaining, MILLI)),
        };
        // Texts and numbers always serialise; an empty body would still carry the right status.
        let body = serde_json::to_vec(&members).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(retry_after) = self.retry_after {
            // Zero would make a client retry in a loop.
            let seconds = ceil(retry_after, SECOND).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The members of RFC 9457, and the remaining time of the holder's lease.
#[derive(Serialize)]
struct Members<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<u64>,
}

/// The last part of a problem type: the word that logs and metrics use for it, too.
pub(crate) fn word(problem_type: &'static str) -> &'static str {
    let word = problem_type.rsplit_once(':');
    word.map_or(problem_type, |(_, word)| word)
}

/// How many whole `unit`s cover `span`.
fn ceil(span: Duration, unit: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(unit.as_nanos())).unwrap_or(u64::MAX)
}

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
