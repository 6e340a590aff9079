//! [`Problem`]: an answer in place of the inner service's, as RFC 9457 has it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

/// In the extensions of a response: somebody refused this for a passing reason, of this kind. What was done before,
/// and around it, it cannot say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(
    #[cfg_attr(
        not(feature = "idempotency"),
        expect(dead_code, reason = "no other layer keeps what it is told")
    )]
    pub(crate) &'static str,
);

/// Why a request was not answered by the inner service, for its client. All texts are the program's own.
pub(crate) struct Problem<'a> {
    /// A name to compare: `urn:tower-redlock:problem:` and a word.
    pub(crate) r#type: &'static str,
    pub(crate) title: &'static str,
    pub(crate) status: StatusCode,
    pub(crate) detail: &'a str,
    /// What was left of the lease that is in the way.
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
            // Zero would invite a client to come back at once, and keep coming.
            let seconds = ceil(retry_after, SECOND).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The members of RFC 9457, and what is left of the holder's lease.
#[derive(Serialize)]
struct Members<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<u64>,
}

/// How many whole `unit`s cover `span`.
fn ceil(span: Duration, unit: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(unit.as_nanos())).unwrap_or(u64::MAX)
}

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
