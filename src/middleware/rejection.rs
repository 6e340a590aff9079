//! [`Rejection`]: a request that the layer did not let through, and the answer to it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::lock_key::KeyError;
use crate::manager::{AcquireError, LossReason};
use crate::trace;

use super::body::ResponseBody;
use super::options::{BusyStatus, Options};

/// Why a request was refused or ended by a [`RedlockLayer`](super::RedlockLayer), and what it is answered by
/// default.
///
/// Nothing of it that goes into an answer holds the client's text, a lock key, the name of a node or a token.
/// The [`source`](Error::source) may name nodes and is for logs.
#[derive(Clone, Debug)]
pub struct Rejection {
    cause: Cause,
    busy_status: BusyStatus,
    retry_after: Duration,
}

#[derive(Clone, Debug)]
enum Cause {
    InvalidKey(KeyError),
    NotAcquired(AcquireError),
    Lost(LossReason),
}

/// The kinds of [`Rejection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// The request has no key, or none that can be used: 400.
    InvalidKey,
    /// The key was asked for where it can never be; a mistake in the program: 500.
    Misconfigured,
    /// Another request holds the lock, and this one does not wait: the layer's [`BusyStatus`].
    Contended,
    /// Others held the lock for as long as this request waits: the layer's [`BusyStatus`].
    WaitTimeout,
    /// As many requests wait already as may, for this lock or for all together: 503.
    QueueFull,
    /// Too few nodes answered in time: 503.
    NoQuorum,
    /// The lock was lost while the request ran. Whether it took effect is unknown: 503.
    LockLost,
    /// The lock manager is shutting down: 503.
    ShuttingDown,
}

impl RejectionKind {
    /// The kind as a word, the last part of [`Rejection::problem_type`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidKey => "invalid-key",
            Self::Misconfigured => "misconfigured",
            Self::Contended => "contended",
            Self::WaitTimeout => "wait-timeout",
            Self::QueueFull => "queue-full",
            Self::NoQuorum => "no-quorum",
            Self::LockLost => "lock-lost",
            Self::ShuttingDown => "shutting-down",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::InvalidKey => "Invalid lock key",
            Self::Misconfigured => "Lock layer misconfigured",
            Self::Contended => "Locked by another request",
            Self::WaitTimeout => "Timed out waiting for the lock",
            Self::QueueFull => "Too many requests wait",
            Self::NoQuorum => "Locks unavailable",
            Self::LockLost => "Lock lost",
            Self::ShuttingDown => "Shutting down",
        }
    }

    const fn detail(self) -> &'static str {
        match self {
            Self::InvalidKey => "The lock key of this request cannot be used.",
            Self::Misconfigured => "The lock layer of this server is in the wrong place.",
            Self::Contended => {
                "Another request holds the lock on this resource. This request was not processed."
            }
            Self::WaitTimeout => {
                "Other requests held the lock on this resource for as long as this request may wait. \
                 This request was not processed."
            }
            Self::QueueFull => {
                "As many requests as may wait for a lock on this server do so already. \
                 This request was not processed."
            }
            Self::NoQuorum => {
                "Too few lock nodes answered in time, so the resource could not be locked. \
                 This request was not processed."
            }
            Self::LockLost => {
                "The lock on this resource was lost while the request was processed. \
                 Whether the request took effect is unknown."
            }
            Self::ShuttingDown => {
                "This server is shutting down and takes no new locks. This request was not processed."
            }
        }
    }
}

impl fmt::Display for RejectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Rejection {
    pub(super) fn not_acquired(options: &Options, error: AcquireError) -> Self {
        Self::new(
            options,
            match error {
                AcquireError::InvalidKey(error) => Cause::InvalidKey(error),
                // By a layer further out, which has run this request up to here.
                AcquireError::Lost(reason) => Cause::Lost(reason),
                error => Cause::NotAcquired(error),
            },
        )
    }

    pub(super) fn lost(options: &Options, reason: LossReason) -> Self {
        Self::new(options, Cause::Lost(reason))
    }

    fn new(options: &Options, cause: Cause) -> Self {
        let rejection = Self {
            cause,
            busy_status: options.busy_status,
            retry_after: options.retry_after,
        };
        let reason: &dyn fmt::Display = match &rejection.cause {
            Cause::InvalidKey(error) => error,
            Cause::NotAcquired(error) => error,
            Cause::Lost(reason) => reason,
        };
        trace::rejected(rejection.kind().as_str(), reason);
        rejection
    }

    /// The answer that the layer was told to give.
    pub(super) fn answer<B>(&self, options: &Options) -> Response<ResponseBody<B>> {
        let response = options.responder.response_for_rejection(self);
        response.map(ResponseBody::answer)
    }

    /// What kind of rejection it is.
    #[must_use]
    pub const fn kind(&self) -> RejectionKind {
        match &self.cause {
            Cause::InvalidKey(error) if error.is_misplaced() => RejectionKind::Misconfigured,
            Cause::InvalidKey(_) => RejectionKind::InvalidKey,
            Cause::Lost(_) => RejectionKind::LockLost,
            Cause::NotAcquired(AcquireError::Contended(_)) => RejectionKind::Contended,
            Cause::NotAcquired(AcquireError::WaitTimeout(_)) => RejectionKind::WaitTimeout,
            Cause::NotAcquired(AcquireError::QueueFull(_)) => RejectionKind::QueueFull,
            Cause::NotAcquired(AcquireError::ShuttingDown(_)) => RejectionKind::ShuttingDown,
            // Whatever else keeps a lock from being taken, the client can do no more than come back later.
            Cause::NotAcquired(_) => RejectionKind::NoQuorum,
        }
    }

    /// The status of the default answer.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self.kind() {
            RejectionKind::InvalidKey => StatusCode::BAD_REQUEST,
            RejectionKind::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
            RejectionKind::Contended | RejectionKind::WaitTimeout => self.busy_status.as_status(),
            RejectionKind::QueueFull
            | RejectionKind::NoQuorum
            | RejectionKind::LockLost
            | RejectionKind::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// When it makes sense to send the request again: what the layer was told, or the rest of a quarantine where that
    /// is the cause and takes longer; `None` where a retry does not help (the key is wrong) or is not safe without a
    /// look first (the lock was lost).
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.kind() {
            RejectionKind::InvalidKey | RejectionKind::Misconfigured | RejectionKind::LockLost => {
                None
            }
            RejectionKind::NoQuorum => Some(self.after_quarantine()),
            RejectionKind::Contended
            | RejectionKind::WaitTimeout
            | RejectionKind::QueueFull
            | RejectionKind::ShuttingDown => Some(self.retry_after),
        }
    }

    const fn after_quarantine(&self) -> Duration {
        match &self.cause {
            Cause::NotAcquired(AcquireError::NoQuorum(error)) => match error.retry_after() {
                Some(rest) if rest.as_nanos() > self.retry_after.as_nanos() => rest,
                _ => self.retry_after,
            },
            _ => self.retry_after,
        }
    }

    /// What was left of the holder's lease, as far as the nodes told. A holder that renews goes on longer, one
    /// that is done ends earlier.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        match &self.cause {
            Cause::NotAcquired(AcquireError::Contended(error)) => error.remaining(),
            Cause::NotAcquired(AcquireError::WaitTimeout(error)) => error.remaining(),
            _ => None,
        }
    }

    /// Why the lock was lost, if it was.
    #[must_use]
    pub const fn loss_reason(&self) -> Option<LossReason> {
        match self.cause {
            Cause::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    /// The `type` of the default answer: `urn:tower-redlock:problem:` and the kind. It is a name to compare, not
    /// an address to fetch.
    #[must_use]
    pub const fn problem_type(&self) -> &'static str {
        match self.kind() {
            RejectionKind::InvalidKey => "urn:tower-redlock:problem:invalid-key",
            RejectionKind::Misconfigured => "urn:tower-redlock:problem:misconfigured",
            RejectionKind::Contended => "urn:tower-redlock:problem:contended",
            RejectionKind::WaitTimeout => "urn:tower-redlock:problem:wait-timeout",
            RejectionKind::QueueFull => "urn:tower-redlock:problem:queue-full",
            RejectionKind::NoQuorum => "urn:tower-redlock:problem:no-quorum",
            RejectionKind::LockLost => "urn:tower-redlock:problem:lock-lost",
            RejectionKind::ShuttingDown => "urn:tower-redlock:problem:shutting-down",
        }
    }

    /// The `detail` of the default answer: one or two sentences for the client.
    #[must_use]
    pub fn detail(&self) -> Cow<'static, str> {
        match &self.cause {
            // It names what is wrong with the request and never repeats what the client sent.
            Cause::InvalidKey(error) => Cow::Owned(error.to_string()),
            _ => Cow::Borrowed(self.kind().detail()),
        }
    }

    /// The default answer: `application/problem+json` (RFC 9457), `Cache-Control: no-store`, and `Retry-After`
    /// where there is one. A [`ResponseForRejection`] can begin with it.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let problem = Problem {
            r#type: self.problem_type(),
            title: self.kind().title(),
            status: self.status().as_u16(),
            detail: &self.detail(),
            remaining_ms: self.remaining().map(|remaining| ceil(remaining, MILLI)),
        };
        // Texts and numbers always serialise; an empty body would still carry the right status.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(retry_after) = self.retry_after() {
            // Zero would invite a client to come back at once, and keep coming.
            let seconds = ceil(retry_after, SECOND).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock layer rejected the request: {}", self.kind())?;
        match self.cause {
            Cause::Lost(reason) => write!(f, " ({reason})"),
            // The source speaks for itself.
            Cause::InvalidKey(_) | Cause::NotAcquired(_) => Ok(()),
        }
    }
}

impl Error for Rejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::InvalidKey(error) => Some(error),
            Cause::NotAcquired(error) => Some(error),
            Cause::Lost(_) => None,
        }
    }
}

/// Makes the answer to a [`Rejection`]. A closure `Fn(&Rejection) -> Response<Bytes>` does.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use tower_redlock::middleware::{Rejection, ResponseForRejection};
///
/// fn plain_text(rejection: &Rejection) -> Response<Bytes> {
///     let mut response = Response::new(Bytes::from(rejection.detail().into_owned()));
///     *response.status_mut() = rejection.status();
///     response
/// }
///
/// fn takes_a_responder(_: impl ResponseForRejection) {}
/// takes_a_responder(plain_text);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make answers to rejections",
    label = "must be a `ResponseForRejection`",
    note = "a closure or function `Fn(&Rejection) -> http::Response<bytes::Bytes>` is one; \
            annotate the closure's argument: `|rejection: &Rejection| ..`"
)]
pub trait ResponseForRejection: Send + Sync + 'static {
    /// The answer, whole.
    fn response_for_rejection(&self, rejection: &Rejection) -> Response<Bytes>;
}

impl<F> ResponseForRejection for F
where
    F: Fn(&Rejection) -> Response<Bytes> + Send + Sync + 'static,
{
    fn response_for_rejection(&self, rejection: &Rejection) -> Response<Bytes> {
        self(rejection)
    }
}

/// The answers a layer gives unless told otherwise: [`Rejection::to_response`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DefaultResponseForRejection;

impl ResponseForRejection for DefaultResponseForRejection {
    fn response_for_rejection(&self, rejection: &Rejection) -> Response<Bytes> {
        rejection.to_response()
    }
}

/// The members of RFC 9457, and what is left of the holder's lease.
#[derive(Serialize)]
struct Problem<'a> {
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
