//! [`Rejection`]: why the layer refused or ended a request, and the response to it, with the [`BusyStatus`].

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use crate::instruments;
use crate::key_error::KeyError;
use crate::manager::{AcquireError, LossReason, RunError};
use crate::problem::{Problem, Refusal};
use crate::trace;

use super::rejection_kind::RejectionKind;

/// Why a request was refused or ended by a [`RedlockLayer`](super::RedlockLayer), and the default response to it.
///
/// A handler that locks by itself makes one of an [`AcquireError`], a [`KeyError`], a [`LossReason`] or a [`RunError`],
/// by `?` for instance, and so has the response of a layer: with the feature `axum` it is a response.
///
/// The response never holds the client's text, a lock key, the name of a node or a token. The
/// [`source`](Error::source) may name nodes and is for logs.
#[derive(Clone, Debug)]
pub struct Rejection {
    cause: Cause,
    busy_status: BusyStatus,
    retry_after: Duration,
}

#[derive(Clone, Debug)]
pub(super) enum Cause {
    InvalidKey(KeyError),
    NotAcquired(AcquireError),
    Lost(LossReason),
}

impl From<AcquireError> for Cause {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::InvalidKey(error) => Self::InvalidKey(error),
            // Lost by a layer further out, which has run this request up to here.
            AcquireError::Lost(reason) => Self::Lost(reason),
            error => Self::NotAcquired(error),
        }
    }
}

impl Rejection {
    pub(super) fn new(cause: Cause, busy_status: BusyStatus, retry_after: Duration) -> Self {
        let rejection = Self {
            cause,
            busy_status,
            retry_after,
        };
        let reason: &dyn fmt::Display = match &rejection.cause {
            Cause::InvalidKey(error) => error,
            Cause::NotAcquired(error) => error,
            Cause::Lost(reason) => reason,
        };
        trace::rejected(rejection.kind().as_str(), reason);
        instruments::rejected(rejection.kind().as_str());
        rejection
    }

    /// `response`, marked for the log of an idempotency layer as the temporary refusal of a lock, where it is one.
    pub(super) fn mark<B>(&self, mut response: Response<B>) -> Response<B> {
        if self.retry_after().is_some() {
            let refusal = Refusal(self.kind().as_str());
            response.extensions_mut().insert(refusal);
        }
        response
    }

    /// The kind of the rejection.
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
            // For every other error the client can only come back later.
            Cause::NotAcquired(_) => RejectionKind::NoQuorum,
        }
    }

    /// The status of the default response.
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

    /// When the client may retry: the layer's [`retry_after`](super::RedlockLayer::retry_after), or the rest of a
    /// quarantine if that is the cause and takes longer; `None` where a retry does not help (the key is wrong)
    /// or is not safe before the client has checked the outcome (the lock was lost).
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

    /// The remaining time of the holder's lease, if the nodes reported it. The holder may renew the lease, or release
    /// it earlier.
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

    /// The `type` of the default response: `urn:tower-redlock:problem:` and the kind. It is a name to compare, not
    /// an address to fetch.
    #[must_use]
    pub const fn problem_type(&self) -> &'static str {
        self.kind().urn()
    }

    /// The `detail` of the default response: one or two sentences for the client.
    #[must_use]
    pub fn detail(&self) -> Cow<'static, str> {
        match &self.cause {
            // The error never repeats what the client sent.
            Cause::InvalidKey(error) => Cow::Owned(error.to_string()),
            _ => Cow::Borrowed(self.kind().detail()),
        }
    }

    /// The default response: `application/problem+json` (RFC 9457), `Cache-Control: no-store`, and `Retry-After`
    /// if [`retry_after`](Self::retry_after) is set.
    ///
    /// Its text says that the request was not processed; a handler that returns it must make sure of that. For an
    /// `IdempotencyLayer` the text alone proves nothing: it stores the response like any other, unless the handler
    /// passes it through `Idempotent::not_processed`.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let problem = Problem {
            r#type: self.problem_type(),
            title: self.kind().title(),
            status: self.status(),
            detail: &self.detail(),
            remaining: self.remaining(),
            retry_after: self.retry_after(),
        };
        self.mark(problem.to_response())
    }
}

/// With the default settings of a layer.
impl From<AcquireError> for Rejection {
    fn from(error: AcquireError) -> Self {
        Self::new(error.into(), BusyStatus::default(), DEFAULT_RETRY_AFTER)
    }
}

/// With the default settings of a layer.
impl From<KeyError> for Rejection {
    fn from(error: KeyError) -> Self {
        AcquireError::InvalidKey(error).into()
    }
}

/// 503 `lock-lost`, as where a layer ends a handler: of `Held::into_guard`, for example.
impl From<LossReason> for Rejection {
    fn from(reason: LossReason) -> Self {
        Self::new(
            Cause::Lost(reason),
            BusyStatus::default(),
            DEFAULT_RETRY_AFTER,
        )
    }
}

/// With the default settings of a layer.
impl From<RunError> for Rejection {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Acquire(error) => error.into(),
            RunError::Lost(reason) => reason.into(),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock layer rejected the request: {}", self.kind())?;
        match self.cause {
            Cause::Lost(reason) => write!(f, " ({reason})"),
            // The source has the details.
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

pub(super) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The status of the response when another request holds the lock: a client or server error, `409 Conflict` by
/// default.
///
/// # Examples
///
/// ```
/// use http::StatusCode;
/// use tower_redlock::middleware::BusyStatus;
///
/// assert_eq!(BusyStatus::default(), BusyStatus::CONFLICT);
/// assert_eq!(BusyStatus::LOCKED.as_status(), StatusCode::LOCKED);
/// // Any other 4xx or 5xx is accepted, and nothing else.
/// assert!(BusyStatus::try_from(StatusCode::TOO_EARLY).is_ok());
/// assert!(BusyStatus::try_from(StatusCode::OK).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BusyStatus(StatusCode);

impl BusyStatus {
    /// `409 Conflict`, the default.
    pub const CONFLICT: Self = Self(StatusCode::CONFLICT);
    /// `423 Locked`.
    pub const LOCKED: Self = Self(StatusCode::LOCKED);
    /// `429 Too Many Requests`.
    pub const TOO_MANY_REQUESTS: Self = Self(StatusCode::TOO_MANY_REQUESTS);
    /// `503 Service Unavailable`.
    pub const SERVICE_UNAVAILABLE: Self = Self(StatusCode::SERVICE_UNAVAILABLE);

    /// The status code.
    #[must_use]
    pub const fn as_status(self) -> StatusCode {
        self.0
    }
}

impl Default for BusyStatus {
    fn default() -> Self {
        Self::CONFLICT
    }
}

impl TryFrom<StatusCode> for BusyStatus {
    type Error = InvalidBusyStatus;

    fn try_from(status: StatusCode) -> Result<Self, InvalidBusyStatus> {
        if status.is_client_error() || status.is_server_error() {
            Ok(Self(status))
        } else {
            Err(InvalidBusyStatus(status))
        }
    }
}

/// The status is not a client or server error, so it cannot refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBusyStatus(StatusCode);

impl fmt::Display for InvalidBusyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the status {} is not a client or server error, so it cannot refuse a request",
            self.0.as_u16()
        )
    }
}

impl Error for InvalidBusyStatus {}
