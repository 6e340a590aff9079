//! [`Rejection`]: a request that the layer did not let through, and the answer to it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use crate::key_error::KeyError;
use crate::manager::{AcquireError, LossReason};
use crate::metrics;
use crate::problem::{Problem, Refusal};
use crate::trace;

use super::body::ResponseBody;
use super::loan::LoanError;
use super::options::{BusyStatus, DEFAULT_RETRY_AFTER, Options};
use super::rejection_kind::RejectionKind;

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
    Loan(LoanError),
    Lost(LossReason),
}

impl Rejection {
    pub(super) fn not_acquired(options: &Options, error: AcquireError) -> Self {
        Self::new(options, cause_of(error))
    }

    pub(super) fn of_loan(options: &Options, error: LoanError) -> Self {
        Self::new(options, Cause::Loan(error))
    }

    pub(super) fn lost(options: &Options, reason: LossReason) -> Self {
        Self::new(options, Cause::Lost(reason))
    }

    fn new(options: &Options, cause: Cause) -> Self {
        Self::of(options.busy_status, options.retry_after, cause)
    }

    fn of(busy_status: BusyStatus, retry_after: Duration, cause: Cause) -> Self {
        let rejection = Self {
            cause,
            busy_status,
            retry_after,
        };
        let reason: &dyn fmt::Display = match &rejection.cause {
            Cause::InvalidKey(error) => error,
            Cause::NotAcquired(error) => error,
            Cause::Loan(error) => error,
            Cause::Lost(reason) => reason,
        };
        trace::rejected(rejection.kind().as_str(), reason);
        metrics::rejected(rejection.kind().as_str());
        rejection
    }

    /// The answer that the layer was told to give.
    pub(super) fn answer<B>(&self, options: &Options) -> Response<ResponseBody<B>> {
        let response = options.responder.response_for_rejection(self);
        self.note(response).map(ResponseBody::answer)
    }

    /// `response`, with a note for the log that a lock was refused for a passing reason, where that is so.
    fn note<B>(&self, mut response: Response<B>) -> Response<B> {
        if self.retry_after().is_some() {
            let refusal = Refusal(self.kind().as_str());
            response.extensions_mut().insert(refusal);
        }
        response
    }

    /// What kind of rejection it is.
    #[must_use]
    pub const fn kind(&self) -> RejectionKind {
        match &self.cause {
            Cause::InvalidKey(error) if error.is_misplaced() => RejectionKind::Misconfigured,
            Cause::InvalidKey(_) => RejectionKind::InvalidKey,
            Cause::Lost(_) => RejectionKind::LockLost,
            Cause::Loan(LoanError::Untrusted) => RejectionKind::LoanRefused,
            Cause::Loan(LoanError::Malformed) => RejectionKind::InvalidLoan,
            Cause::Loan(LoanError::Ended(_)) => RejectionKind::LoanEnded,
            Cause::Loan(LoanError::Taken(_)) => RejectionKind::LoanTaken,
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
            RejectionKind::InvalidKey | RejectionKind::InvalidLoan => StatusCode::BAD_REQUEST,
            RejectionKind::LoanRefused => StatusCode::FORBIDDEN,
            RejectionKind::LoanEnded => StatusCode::PRECONDITION_FAILED,
            RejectionKind::LoanTaken => StatusCode::CONFLICT,
            RejectionKind::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
            RejectionKind::Contended | RejectionKind::WaitTimeout => self.busy_status.as_status(),
            RejectionKind::QueueFull
            | RejectionKind::NoQuorum
            | RejectionKind::LockLost
            | RejectionKind::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// When it makes sense to send the request again: what the layer was told, or the rest of a quarantine where that
    /// is the cause and takes longer; `None` where a retry does not help (the key is wrong, a loan was not taken) or
    /// is not safe without a look first (the lock was lost).
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.kind() {
            RejectionKind::InvalidKey
            | RejectionKind::InvalidLoan
            | RejectionKind::LoanRefused
            | RejectionKind::LoanEnded
            | RejectionKind::LoanTaken
            | RejectionKind::Misconfigured
            | RejectionKind::LockLost => None,
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
        self.kind().urn()
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
    ///
    /// It says that the request was not processed, which a handler that answers with it should be sure of. To an
    /// `IdempotencyLayer` that alone proves nothing: it keeps the answer like any other, unless the handler says so by
    /// `Idempotent::not_processed`.
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
        self.note(problem.to_response())
    }
}

/// As a layer with default options has it.
impl From<AcquireError> for Rejection {
    fn from(error: AcquireError) -> Self {
        Self::of(BusyStatus::default(), DEFAULT_RETRY_AFTER, cause_of(error))
    }
}

/// As a layer with default options has it.
impl From<KeyError> for Rejection {
    fn from(error: KeyError) -> Self {
        AcquireError::InvalidKey(error).into()
    }
}

fn cause_of(error: AcquireError) -> Cause {
    match error {
        AcquireError::InvalidKey(error) => Cause::InvalidKey(error),
        // By a layer further out, which has run this request up to here.
        AcquireError::Lost(reason) => Cause::Lost(reason),
        error => Cause::NotAcquired(error),
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock layer rejected the request: {}", self.kind())?;
        match self.cause {
            Cause::Lost(reason) => write!(f, " ({reason})"),
            // The source speaks for itself.
            Cause::InvalidKey(_) | Cause::NotAcquired(_) | Cause::Loan(_) => Ok(()),
        }
    }
}

impl Error for Rejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::InvalidKey(error) => Some(error),
            Cause::NotAcquired(error) => Some(error),
            Cause::Loan(error) => Some(error),
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
