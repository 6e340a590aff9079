//! [`Rejection`]: why a layer refused or ended a request.

#![cfg_attr(
    not(feature = "idempotency"),
    expect(dead_code, reason = "only the idempotency layer needs it")
)]

mod kind;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use self::kind::Ran;
pub use self::kind::RejectionKind;
use super::state::{Refusal, UnlockedReason};
use crate::instruments;
use crate::key_error::KeyError;
use crate::manager::{AcquireError, LossReason, RunError};
use crate::trace;

/// Why a layer refused or ended a request, and the default response to it.
///
/// A handler that acquires locks itself can convert an [`AcquireError`], a [`KeyError`], a [`LossReason`] or a
/// [`RunError`] into a `Rejection`, for example with `?`. With the feature `axum` it implements `IntoResponse`, so the
/// handler responds as a layer does. `docs::errors` lists all kinds and what to do about them.
///
/// The response never contains text from the client, a lock key, the name of a node or a token. Use the
/// [`source`](Error::source) only in logs, because it can name nodes.
#[derive(Clone, Debug)]
pub struct Rejection {
    by: By,
    // Whether the request has an idempotency key, as far as this layer knows.
    is_run: bool,
    // How many permits the lock has, if it is not exclusive.
    limit: Option<u32>,
    cause: Cause,
    busy_status: StatusCode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Lock,
    Idempotency,
}

#[derive(Clone, Debug)]
pub(crate) enum Cause {
    Key(KeyError),
    NotAcquired(AcquireError),
    Lost(LossReason),
    Request(RejectionKind, Option<Source>),
}

type Source = Arc<dyn Error + Send + Sync + UnwindSafe + RefUnwindSafe>;

impl Cause {
    pub(crate) fn because(
        kind: RejectionKind,
        error: impl Error + Send + Sync + UnwindSafe + RefUnwindSafe + 'static,
    ) -> Self {
        Self::Request(kind, Some(Arc::new(error)))
    }
}

impl Rejection {
    /// Makes a rejection, logs it and counts it.
    pub(crate) fn new(by: By, cause: impl Into<Cause>, busy_status: StatusCode) -> Self {
        let rejection = Self {
            by,
            is_run: matches!(by, By::Idempotency),
            limit: None,
            cause: cause.into(),
            busy_status,
        };
        let kind = rejection.kind();
        let reason: &dyn fmt::Display = match &rejection.cause {
            Cause::Key(error) => error,
            Cause::NotAcquired(error) => error,
            Cause::Lost(reason) => reason,
            Cause::Request(_, Some(error)) => error,
            Cause::Request(kind, None) => &kind.row().title,
        };
        match by {
            By::Lock => {
                trace::rejected(kind.as_str(), reason);
                instruments::rejected(kind.as_str());
            }
            By::Idempotency => {
                trace::idempotency_rejected(kind.as_str(), reason);
                instruments::idempotency(kind.as_str());
            }
        }
        rejection
    }

    pub(crate) const fn of_run(mut self, is_run: bool) -> Self {
        self.is_run = is_run;
        self
    }

    pub(crate) const fn of_permits(mut self, limit: Option<u32>) -> Self {
        self.limit = limit;
        self
    }

    /// The kind of the rejection.
    #[must_use]
    pub fn kind(&self) -> RejectionKind {
        match &self.cause {
            Cause::Key(error) if error.is_misplaced() => RejectionKind::Misconfigured,
            Cause::Key(_) => match self.by {
                By::Lock => RejectionKind::InvalidKey,
                // Idempotency keys are hashed, so a lock key can be invalid only because of the program's namespace.
                By::Idempotency => RejectionKind::Misconfigured,
            },
            Cause::NotAcquired(AcquireError::Contended { .. }) => match self.by {
                By::Lock => RejectionKind::Contended,
                By::Idempotency => RejectionKind::RequestInProgress,
            },
            Cause::NotAcquired(AcquireError::WaitTimeout { .. }) => RejectionKind::WaitTimeout,
            Cause::NotAcquired(AcquireError::QueueFull { .. }) => RejectionKind::QueueFull,
            Cause::NotAcquired(AcquireError::ShuttingDown) => RejectionKind::ShuttingDown,
            Cause::NotAcquired(AcquireError::NoQuorum(error)) if error.is_full() => {
                RejectionKind::NodesFull
            }
            // After any other error the client can only try again later.
            Cause::NotAcquired(_) => RejectionKind::NoQuorum,
            Cause::Lost(_) => RejectionKind::LockLost,
            Cause::Request(kind, _) => *kind,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(
            self.kind(),
            RejectionKind::Contended | RejectionKind::WaitTimeout
        )
    }

    /// The status of the [default response](Self::to_response).
    #[must_use]
    pub fn status(&self) -> StatusCode {
        if self.is_busy() {
            return self.busy_status;
        }
        self.kind().row().status
    }

    /// Whether the handler may have run for this request, or for an earlier request with the same idempotency key.
    ///
    /// Only an idempotency layer, and the lock layer in its `with_lock`, know about earlier requests.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self.kind().row().ran {
            Ran::No => false,
            Ran::Earlier => self.is_run,
            Ran::Maybe => true,
        }
    }

    /// How long the client waits before it repeats the request unchanged: one second, or the rest of a quarantine if
    /// that is longer. `None` if a repeat does not help, or could run the request twice.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let quarantine = match &self.cause {
            Cause::NotAcquired(AcquireError::NoQuorum(error)) => error.retry_after(),
            _ => None,
        };
        let wait = SECOND.max(quarantine.unwrap_or_default());
        self.kind().row().retry.then_some(wait)
    }

    const fn remaining(&self) -> Option<Duration> {
        match &self.cause {
            Cause::NotAcquired(error) => error.remaining(),
            _ => None,
        }
    }

    /// The `detail` of the [default response](Self::to_response).
    #[must_use]
    pub fn detail(&self) -> Cow<'static, str> {
        let row = self.kind().row();
        // The texts of these errors never repeat what the client sent.
        let detail = match (&self.cause, self.kind(), self.limit) {
            (Cause::Key(error), ..) if self.by == By::Lock => Cow::Owned(format!("{error}.")),
            (Cause::Request(RejectionKind::InvalidIdempotencyKey, Some(error)), ..) => {
                Cow::Owned(format!("{error}."))
            }
            (_, RejectionKind::Contended, Some(limit)) => Cow::Owned(format!(
                "The limit of {limit} concurrent requests for this resource is reached."
            )),
            (_, RejectionKind::LockLost, _) if self.is_run => Cow::Borrowed(LOST_RUN),
            _ => Cow::Borrowed(row.detail),
        };
        match row.ran {
            Ran::Maybe => detail,
            Ran::Earlier if self.is_run => Cow::Owned(format!("{detail} {UNPROCESSED} {EARLIER}")),
            Ran::No | Ran::Earlier => Cow::Owned(format!("{detail} {UNPROCESSED}")),
        }
    }

    /// The default response: `application/problem+json` (RFC 9457) with `Cache-Control: no-store`, and with
    /// `Retry-After` in whole seconds if [`retry_after`](Self::retry_after) is set. Its member `executed` is `unknown`
    /// if the handler [may have run](Self::may_have_run), and otherwise `no`.
    ///
    /// For most kinds the text says that this request was not processed, so a handler must not return it after it has
    /// done something.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let row = self.kind().row();
        let problem = Problem {
            r#type: row.urn,
            title: row.title,
            status: self.status().as_u16(),
            detail: &self.detail(),
            executed: match self.may_have_run() {
                true => "unknown",
                false => "no",
            },
            remaining_ms: self.remaining().map(|remaining| ceil(remaining, MILLI)),
        };
        // Serialising texts and numbers cannot fail.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(retry_after) = self.retry_after() {
            // With zero a client would retry in a loop.
            let seconds = ceil(retry_after, SECOND).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        self.mark(response)
    }

    pub(super) fn mark<B>(&self, mut response: Response<B>) -> Response<B> {
        if self.kind().row().retry {
            let refusal = Refusal(self.kind().as_str());
            response.extensions_mut().insert(refusal);
        }
        response
    }
}

const UNPROCESSED: &str = "This request was not processed.";
const EARLIER: &str = "An earlier request with the same idempotency key may have been processed.";
const LOST_RUN: &str = "The lock was lost while this request was processed. Whether it took effect is unknown. Send it \
    again with the same idempotency key to find out: you get its response, or the request is processed again.";

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    executed: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<u64>,
}

/// `span` in units, rounded up.
fn ceil(span: Duration, unit: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(unit.as_nanos())).unwrap_or(u64::MAX)
}

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

impl From<KeyError> for Cause {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl From<AcquireError> for Cause {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::InvalidKey(error) => Self::Key(error),
            // An outer layer of the same request held this lock, so part of the request has already run.
            AcquireError::Lost(reason) => Self::Lost(reason),
            error => Self::NotAcquired(error),
        }
    }
}

impl From<LossReason> for Cause {
    fn from(reason: LossReason) -> Self {
        Self::Lost(reason)
    }
}

impl From<RunError> for Cause {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Acquire(error) => error.into(),
            RunError::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl From<UnlockedReason> for Cause {
    fn from(reason: UnlockedReason) -> Self {
        let kind = match reason {
            UnlockedReason::NoQuorum => RejectionKind::NoQuorum,
            _ => RejectionKind::Misconfigured,
        };
        Self::because(kind, reason)
    }
}

impl From<RejectionKind> for Cause {
    fn from(kind: RejectionKind) -> Self {
        Self::Request(kind, None)
    }
}

macro_rules! of_lock {
    ($($error:ty),*) => {
        $(/// Makes the rejection that a lock layer with default settings makes.
        impl From<$error> for Rejection {
            fn from(error: $error) -> Self {
                Self::new(By::Lock, error, StatusCode::CONFLICT)
            }
        })*
    };
}

of_lock!(AcquireError, KeyError, LossReason, RunError, UnlockedReason);

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = match self.by {
            By::Lock => "lock",
            By::Idempotency => "idempotency",
        };
        write!(f, "the {layer} layer rejected the request: {}", self.kind())?;
        match self.cause {
            Cause::Lost(reason) => write!(f, " ({reason})"),
            // Other causes are the `source`.
            _ => Ok(()),
        }
    }
}

impl Error for Rejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Key(error) => Some(error),
            Cause::NotAcquired(error) => Some(error),
            Cause::Lost(_) => None,
            Cause::Request(_, error) => error
                .as_ref()
                .map(|error| &**error as &(dyn Error + 'static)),
        }
    }
}

#[cfg(test)]
mod tests;
