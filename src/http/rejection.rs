//! [`Rejection`]: why a layer refused or ended a request. [`RejectionKind`] has the table from which responses, logs
//! and metrics are written, and with which the guide's list is compared.

#![cfg_attr(
    not(feature = "idempotency"),
    expect(dead_code, reason = "the other layer refuses nothing")
)]

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

use super::state::{Refusal, UnlockedReason};
use crate::instruments;
use crate::key_error::KeyError;
use crate::manager::{AcquireError, LossReason, RunError};
use crate::trace;

/// The kinds of [`Rejection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// The request has no lock key, or none that can be used.
    InvalidKey,
    /// The request has no idempotency key, and needs one.
    MissingIdempotencyKey,
    /// The request has an idempotency key that cannot be used, or several.
    InvalidIdempotencyKey,
    /// The request's body ended with an error before it was read.
    BodyUnreadable,
    /// The caller of the request is unknown. That is not 401, which belongs to the layer that does authentication.
    CallerUnknown,
    /// Another request holds the lock, and this one does not wait.
    Contended,
    /// Others held the lock for as long as this request waits.
    WaitTimeout,
    /// The first request with this idempotency key still runs, and this one does not wait.
    RequestInProgress,
    /// The first request with this idempotency key is done, and its response could not be stored.
    NotReplayable,
    /// The request's body is longer than the idempotency layer reads.
    BodyTooLarge,
    /// The idempotency key was used before, for another request.
    IdempotencyKeyReused,
    /// A mistake in the program: there is no layer, or no such key at this place.
    Misconfigured,
    /// Too many requests wait already, for this lock or in all.
    QueueFull,
    /// The idempotency layer holds as many bytes of request bodies as it may.
    BuffersFull,
    /// Too many requests of the layer run on without their clients.
    TooManyDetached,
    /// Too few nodes replied in time.
    NoQuorum,
    /// Too few nodes have memory left for the request.
    NodesFull,
    /// The lock was lost while the request ran. Whether it took effect is unknown.
    LockLost,
    /// The request ran, and too few nodes stored its response. The response to a repeat is unknown.
    OutcomeUnknown,
    /// The record under the idempotency key was written by another version of this crate.
    RecordUnreadable,
    /// The lock manager is shutting down.
    ShuttingDown,
}

/// The texts of a kind. None of them comes from the client.
struct Row {
    /// A name to compare: `urn:tower-redlock:problem:` and the word.
    urn: &'static str,
    word: &'static str,
    status: StatusCode,
    /// Whether the same request is likely to succeed after a while, and cannot run twice.
    retry: bool,
    title: &'static str,
    detail: &'static str,
}

macro_rules! row {
    ($word:literal, $status:ident, $retry:literal, $title:literal, $detail:literal) => {
        Row {
            urn: concat!("urn:tower-redlock:problem:", $word),
            word: $word,
            status: StatusCode::$status,
            retry: $retry,
            title: $title,
            detail: $detail,
        }
    };
}

impl RejectionKind {
    pub(crate) const fn as_str(self) -> &'static str {
        self.row().word
    }

    #[rustfmt::skip]
    const fn row(self) -> Row {
        match self {
            Self::InvalidKey => row!("invalid-key", BAD_REQUEST, false, "Invalid lock key",
                "The lock key of this request cannot be used."),
            Self::MissingIdempotencyKey => row!("missing-idempotency-key", BAD_REQUEST, false, "Idempotency key missing",
                "This request needs the header `Idempotency-Key`. Send a new key, such as a UUID, with each operation, \
                 and the same key with each repeat of it. This request was not processed."),
            Self::InvalidIdempotencyKey => row!("invalid-idempotency-key", BAD_REQUEST, false, "Invalid idempotency key",
                "The idempotency key of this request cannot be used."),
            Self::BodyUnreadable => row!("body-unreadable", BAD_REQUEST, false, "Request body unreadable",
                "The body of this request ended before all of it was there. This request was not processed."),
            Self::CallerUnknown => row!("caller-unknown", FORBIDDEN, false, "Caller unknown",
                "It cannot be told who sends this request, and idempotency keys belong to their senders. \
                 This request was not processed."),
            Self::Contended => row!("contended", CONFLICT, true, "In use by other requests",
                "Another request is using this resource. This request was not processed."),
            Self::WaitTimeout => row!("wait-timeout", CONFLICT, true, "Timed out waiting for the lock",
                "Other requests held the lock for as long as this request may wait. This request was not processed."),
            Self::RequestInProgress => row!("request-in-progress", CONFLICT, true, "Request in progress",
                "A request with this idempotency key is being processed. Send this one again later to get its response."),
            Self::NotReplayable => row!("not-replayable", CONFLICT, false, "Response not stored",
                "The request with this idempotency key was processed, and its response could not be stored. \
                 It is not processed again."),
            Self::BodyTooLarge => row!("body-too-large", PAYLOAD_TOO_LARGE, false, "Request body too large",
                "The body of this request is longer than may be sent with an idempotency key. \
                 This request was not processed."),
            Self::IdempotencyKeyReused => row!("idempotency-key-reused", UNPROCESSABLE_ENTITY, false,
                "Idempotency key used for another request",
                "This idempotency key was used for a request that differs from this one. Choose a new key for a new \
                 operation, and repeat requests unchanged. This request was not processed."),
            Self::Misconfigured => row!("misconfigured", INTERNAL_SERVER_ERROR, false, "Layer misconfigured",
                "A layer of this server is missing, in the wrong place, or not set for such a request. \
                 This request was not processed."),
            Self::QueueFull => row!("queue-full", SERVICE_UNAVAILABLE, true, "Too many requests wait",
                "As many requests as may wait for a lock on this server do so already. This request was not processed."),
            Self::BuffersFull => row!("buffers-full", SERVICE_UNAVAILABLE, true, "Too many request bodies",
                "This server holds as many bytes of requests with idempotency keys as it may. \
                 This request was not processed."),
            Self::TooManyDetached => row!("too-many-detached", SERVICE_UNAVAILABLE, true, "Too many requests run on",
                "As many requests run on this server as may after their clients have gone. This request was not processed."),
            Self::NoQuorum => row!("no-quorum", SERVICE_UNAVAILABLE, true, "Locks unavailable",
                "Too few lock nodes vote and replied in time. This request was not processed."),
            Self::NodesFull => row!("nodes-full", SERVICE_UNAVAILABLE, true, "Lock nodes full",
                "The lock nodes have no memory left for this request. This request was not processed."),
            // The client is to look first: a second run cannot be excluded.
            Self::LockLost => row!("lock-lost", SERVICE_UNAVAILABLE, false, "Lock lost",
                "The lock was lost while this request was processed. Whether it took effect is unknown: look before you send \
                 it again, it may be processed again."),
            Self::OutcomeUnknown => row!("outcome-unknown", SERVICE_UNAVAILABLE, false, "Outcome unknown",
                "This request was processed, and it is not known whether its response was stored. Send it again with \
                 the same idempotency key to find out: you get that response, or the request is processed again."),
            Self::RecordUnreadable => row!("record-unreadable", SERVICE_UNAVAILABLE, true, "Stored response unreadable",
                "The response for this idempotency key was stored by another version of this service, and this server \
                 cannot read it. This request was not processed again."),
            Self::ShuttingDown => row!("shutting-down", SERVICE_UNAVAILABLE, true, "Shutting down",
                "This server is shutting down and takes no new locks. This request was not processed."),
        }
    }
}

/// The kind as a word, the last part of the `type` of the response.
impl fmt::Display for RejectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a layer refused or ended a request, and the default response to it.
///
/// A handler that locks by itself makes one of an [`AcquireError`], a [`KeyError`], a [`LossReason`] or a [`RunError`],
/// by `?` for instance, and so has the response of a layer: with the feature `axum` it is a response.
/// `docs::errors` lists the kinds with their statuses and remedies.
///
/// The response never holds the client's text, a lock key, the name of a node or a token. The [`source`](Error::source)
/// may name nodes and is for logs.
///
/// `outcome-unknown` and `lock-lost` have no `Retry-After`: a client that obeys it does not check the outcome first,
/// and a second run cannot be excluded. Where a fencing token or a unique key guards the effect, a repeat is safe.
#[derive(Clone, Debug)]
pub struct Rejection {
    by: By,
    // Of a request with an idempotency key, as far as is known.
    is_run: bool,
    // How many requests may hold the lock at the same time.
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
    /// The key of a lock cannot be made.
    Key(KeyError),
    NotAcquired(AcquireError),
    Lost(LossReason),
    /// The idempotency layer cannot go on with a request.
    Request(RejectionKind, Option<Source>),
}

/// An error that only the idempotency layer knows.
type Source = Arc<dyn Error + Send + Sync + UnwindSafe + RefUnwindSafe>;

impl Cause {
    /// The request is refused because of `error`.
    pub(crate) fn because(
        kind: RejectionKind,
        error: impl Error + Send + Sync + UnwindSafe + RefUnwindSafe + 'static,
    ) -> Self {
        Self::Request(kind, Some(Arc::new(error)))
    }
}

impl Rejection {
    /// Logs and counts the rejection, too.
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

    /// `is_run`: of a request with an idempotency key, as far as is known.
    pub(crate) const fn of_run(mut self, is_run: bool) -> Self {
        self.is_run = is_run;
        self
    }

    /// The lock is one of so many permits, if `limit` is set.
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
                // Its keys are hashes, so only the program's namespace can make one invalid.
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
            // For every other error the client can only come back later.
            Cause::NotAcquired(_) => RejectionKind::NoQuorum,
            Cause::Lost(_) => RejectionKind::LockLost,
            Cause::Request(kind, _) => *kind,
        }
    }

    /// Whether others hold the lock.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(
            self.kind(),
            RejectionKind::Contended | RejectionKind::WaitTimeout
        )
    }

    /// The status of the default response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        if self.is_busy() {
            return self.busy_status;
        }
        self.kind().row().status
    }

    /// Whether the handler may have run: of this request, or of an earlier one with its idempotency key, of which the
    /// record may be out of reach or lost. One that is not by an idempotency layer, or the lock layer directly inside,
    /// speaks of this request alone.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self.kind() {
            RejectionKind::MissingIdempotencyKey | RejectionKind::InvalidIdempotencyKey => false,
            RejectionKind::LockLost
            | RejectionKind::OutcomeUnknown
            | RejectionKind::RequestInProgress
            | RejectionKind::NotReplayable
            | RejectionKind::RecordUnreadable => true,
            _ => self.is_run,
        }
    }

    /// When the client may repeat the request unchanged: after one second, or after the rest of a quarantine if
    /// that takes longer; `None` where a repeat does not help, or is not safe.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let quarantine = match &self.cause {
            Cause::NotAcquired(AcquireError::NoQuorum(error)) => error.retry_after(),
            _ => None,
        };
        let wait = SECOND.max(quarantine.unwrap_or_default());
        self.kind().row().retry.then_some(wait)
    }

    /// The remaining time of the holder's lease, if the nodes reported it. The holder may renew the lease, or release
    /// it earlier.
    const fn remaining(&self) -> Option<Duration> {
        match &self.cause {
            Cause::NotAcquired(error) => error.remaining(),
            _ => None,
        }
    }

    /// The `detail` of the default response: a few sentences for the client.
    #[must_use]
    pub fn detail(&self) -> Cow<'static, str> {
        // These errors never repeat what the client sent.
        let detail = match (&self.cause, self.kind(), self.limit) {
            (Cause::Key(error), ..) if self.by == By::Lock => {
                Cow::Owned(format!("{error}. {UNPROCESSED}"))
            }
            (Cause::Request(RejectionKind::InvalidIdempotencyKey, Some(error)), ..) => {
                Cow::Owned(format!("{error}. {UNPROCESSED}"))
            }
            (_, RejectionKind::Contended, Some(limit)) => Cow::Owned(format!(
                "The limit of {limit} concurrent requests for this resource is reached. {UNPROCESSED}"
            )),
            (_, RejectionKind::LockLost, _) if self.is_run => Cow::Borrowed(LOST_RUN),
            (_, kind, _) => Cow::Borrowed(kind.row().detail),
        };
        match detail.ends_with(UNPROCESSED) && self.may_have_run() {
            true => Cow::Owned(format!("{detail} {EARLIER}")),
            false => detail,
        }
    }

    /// The default response: `application/problem+json` (RFC 9457), `Cache-Control: no-store`, and `Retry-After` in
    /// whole seconds, at least one, if [`retry_after`](Self::retry_after) is set. Its member `executed` is `no` or, if the
    /// handler [may have run](Self::may_have_run), `unknown`.
    ///
    /// Its text says that this request was not processed; a handler that returns it must make sure of that, and an
    /// `IdempotencyLayer` stores it unless it passes `Idempotent::not_processed`.
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
        // Texts and numbers always serialise; an empty body would still carry the right status.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(retry_after) = self.retry_after() {
            // Zero would make a client retry in a loop.
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

/// How many whole `unit`s cover `span`.
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
            // By a layer further out, which has run this request up to here.
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
        $(/// With the default settings of a lock layer.
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
            // A source has the details.
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
