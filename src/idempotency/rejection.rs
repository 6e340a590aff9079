//! [`IdempotencyRejection`]: why the layer refused or ended a request, and the response to it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::caller::CallerError;
use super::key::IdempotencyKeyError;
use super::rejection_kind::IdempotencyRejectionKind as Kind;
use super::stored_response::StoredResponseError;
use crate::instruments;
use crate::key_error::KeyError;
use crate::manager::{AcquireError, LossReason};
use crate::problem::Problem;
use crate::trace;

/// Why a request was refused or ended by the idempotency layer, and the default response to it.
///
/// The response never holds the client's text, a lock key, the name of a node or a token. The
/// [`source`](Error::source) may name nodes and is for logs.
///
/// # What a client should do
///
/// | kind | status | `Retry-After` | the client |
/// |---|---|---|---|
/// | `missing-idempotency-key`, `invalid-idempotency-key` | 400 | no | sends a key |
/// | `body-unreadable` | 400 | no | sends the whole body |
/// | `caller-unknown` | 403 | no | identifies itself |
/// | `request-in-progress`, `wait-timeout` | 409 | yes | repeats the request unchanged and gets the first response |
/// | `not-replayable` | 409 | no | looks up the result of the first request, which is done |
/// | `body-too-large` | 413 | no | sends less |
/// | `idempotency-key-reused` | 422 | no | chooses a new key |
/// | `misconfigured` | 500 | no | cannot help it |
/// | `queue-full`, `no-quorum`, `shutting-down`, `record-unreadable` | 503 | yes | repeats the request unchanged; it was not processed |
/// | `outcome-unknown` | 503 | no | repeats the request with its key if a second run does no harm, or checks the outcome first |
/// | `lock-lost` | 503 | no | checks the outcome before it repeats the request |
///
/// `outcome-unknown` and `lock-lost` have no `Retry-After`, because clients that obey it do not check the outcome
/// first, and a second run cannot be excluded. Where the handler's effect is guarded, by the fencing token or by a
/// unique key in the database, a repeat is safe after either.
#[derive(Clone, Debug)]
pub struct IdempotencyRejection {
    cause: Cause,
    retry_after: Duration,
}

/// The cause of a rejection.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    MissingKey,
    InvalidKey(IdempotencyKeyError),
    CallerUnknown(CallerError),
    BodyTooLarge,
    BodyUnreadable,
    /// The lock key could not be made.
    Unnameable(KeyError),
    NotAcquired(AcquireError),
    KeyReused,
    NotReplayable,
    RecordUnreadable(StoredResponseError),
    Lost(LossReason),
    OutcomeUnknown,
}

impl IdempotencyRejection {
    pub(super) fn new(cause: Cause, retry_after: Duration) -> Self {
        let rejection = Self { cause, retry_after };
        let kind = rejection.kind();
        match (rejection.source(), rejection.loss_reason()) {
            (Some(error), _) => trace::idempotency_rejected(kind.as_str(), &error),
            (None, Some(reason)) => trace::idempotency_rejected(kind.as_str(), &reason),
            (None, None) => trace::idempotency_rejected(kind.as_str(), &kind.title()),
        }
        instruments::idempotency(kind.as_str());
        rejection
    }

    /// The kind of the rejection.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match &self.cause {
            Cause::MissingKey => Kind::MissingIdempotencyKey,
            Cause::InvalidKey(_) => Kind::InvalidIdempotencyKey,
            Cause::CallerUnknown(_) => Kind::CallerUnknown,
            Cause::BodyTooLarge => Kind::BodyTooLarge,
            Cause::BodyUnreadable => Kind::BodyUnreadable,
            // The key is a hash, so only the program's namespace can make it invalid.
            Cause::Unnameable(_) | Cause::NotAcquired(AcquireError::InvalidKey(_)) => {
                Kind::Misconfigured
            }
            Cause::KeyReused => Kind::IdempotencyKeyReused,
            Cause::NotReplayable => Kind::NotReplayable,
            Cause::RecordUnreadable(_) => Kind::RecordUnreadable,
            Cause::Lost(_) | Cause::NotAcquired(AcquireError::Lost(_)) => Kind::LockLost,
            Cause::OutcomeUnknown => Kind::OutcomeUnknown,
            Cause::NotAcquired(AcquireError::Contended(_)) => Kind::RequestInProgress,
            Cause::NotAcquired(AcquireError::WaitTimeout(_)) => Kind::WaitTimeout,
            Cause::NotAcquired(AcquireError::QueueFull(_)) => Kind::QueueFull,
            Cause::NotAcquired(AcquireError::ShuttingDown(_)) => Kind::ShuttingDown,
            // For every other error the client can only come back later.
            Cause::NotAcquired(_) => Kind::NoQuorum,
        }
    }

    /// The status of the default response.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.kind().status()
    }

    /// When the client may repeat the request, unchanged: the layer's
    /// [`retry_after`](crate::IdempotencyLayer::retry_after), or the rest of a quarantine if that is the cause and
    /// takes longer; `None` where a repeat does not help, or is not safe before the client has checked the outcome.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let quarantine = match &self.cause {
            Cause::NotAcquired(AcquireError::NoQuorum(error)) => error.retry_after(),
            _ => None,
        };
        self.kind()
            .is_worth_a_retry()
            .then_some(self.retry_after.max(quarantine.unwrap_or_default()))
    }

    /// The remaining time of the lease under which the first request runs, if the nodes reported it. The lease is
    /// renewed while that request runs, and released when it is done.
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
            Cause::Lost(reason) | Cause::NotAcquired(AcquireError::Lost(reason)) => Some(reason),
            _ => None,
        }
    }

    /// The `type` of the default response: `urn:tower-redlock:problem:` and the kind. It is a name to compare, not
    /// an address to fetch.
    #[must_use]
    pub const fn problem_type(&self) -> &'static str {
        self.kind().urn()
    }

    /// The `detail` of the default response: a few sentences for the client.
    #[must_use]
    pub fn detail(&self) -> Cow<'static, str> {
        match &self.cause {
            // The error never repeats the key.
            Cause::InvalidKey(error) => {
                Cow::Owned(format!("{error}. This request was not processed."))
            }
            _ => Cow::Borrowed(self.kind().detail()),
        }
    }

    /// The default response: `application/problem+json` (RFC 9457), `Cache-Control: no-store`, and `Retry-After`
    /// in whole seconds, at least one, if [`retry_after`](Self::retry_after) is set.
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
        problem.to_response()
    }
}

impl fmt::Display for IdempotencyRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        write!(f, "the idempotency layer rejected the request: {kind}")?;
        match self.cause {
            Cause::Lost(reason) => write!(f, " ({reason})"),
            // A source has the details.
            _ => Ok(()),
        }
    }
}

impl Error for IdempotencyRejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::InvalidKey(error) => Some(error),
            Cause::CallerUnknown(error) => Some(error),
            Cause::Unnameable(error) => Some(error),
            Cause::NotAcquired(error) => Some(error),
            Cause::RecordUnreadable(error) => Some(error),
            Cause::Lost(_)
            | Cause::MissingKey
            | Cause::BodyTooLarge
            | Cause::BodyUnreadable
            | Cause::KeyReused
            | Cause::NotReplayable
            | Cause::OutcomeUnknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idempotency::IdempotencyKey;
    use crate::idempotency::caller::Caller;
    use crate::idempotency::stored_response::StoredResponse;
    use crate::manager::{LockManager, ShuttingDown};
    use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};

    fn of(cause: Cause) -> IdempotencyRejection {
        IdempotencyRejection::new(cause, Duration::from_millis(1_500))
    }

    fn invalid_key() -> IdempotencyKeyError {
        IdempotencyKey::from_value(b"SECRET;v=1").unwrap_err()
    }

    fn unreadable() -> StoredResponseError {
        StoredResponse::decode(Bytes::from_static(&[9])).unwrap_err()
    }

    /// An error of each kind that only a manager makes.
    async fn contended() -> AcquireError {
        let locks = LockManager::builder().memory(3).connect().await.unwrap();
        let _held = locks.acquire("key").await.unwrap();
        locks.try_acquire("key").await.unwrap_err()
    }

    #[tokio::test]
    async fn each_kind_has_its_status_and_says_when_to_come_again() {
        let anonymous = Caller::new("").unwrap_err();
        let reserved = KeyError::reserved;
        let acquire = Cause::NotAcquired;
        for (cause, kind, status, retry_after) in [
            (Cause::MissingKey, "missing-idempotency-key", 400, None),
            (
                Cause::InvalidKey(invalid_key()),
                "invalid-idempotency-key",
                400,
                None,
            ),
            (Cause::BodyUnreadable, "body-unreadable", 400, None),
            (Cause::CallerUnknown(anonymous), "caller-unknown", 403, None),
            (
                acquire(contended().await),
                "request-in-progress",
                409,
                Some("2"),
            ),
            (Cause::NotReplayable, "not-replayable", 409, None),
            (Cause::BodyTooLarge, "body-too-large", 413, None),
            (Cause::KeyReused, "idempotency-key-reused", 422, None),
            (Cause::Unnameable(reserved()), "misconfigured", 500, None),
            (
                acquire(AcquireError::InvalidKey(reserved())),
                "misconfigured",
                500,
                None,
            ),
            (Cause::Lost(LossReason::Released), "lock-lost", 503, None),
            (
                acquire(AcquireError::Lost(LossReason::Released)),
                "lock-lost",
                503,
                None,
            ),
            (Cause::OutcomeUnknown, "outcome-unknown", 503, None),
            (
                Cause::RecordUnreadable(unreadable()),
                "record-unreadable",
                503,
                Some("2"),
            ),
            (
                acquire(AcquireError::ShuttingDown(ShuttingDown)),
                "shutting-down",
                503,
                Some("2"),
            ),
        ] {
            let rejection = of(cause);
            assert_eq!(rejection.kind().to_string(), kind);
            let response = rejection.to_response();
            assert_eq!(response.status(), status, "{kind}");
            let header = |name| {
                response
                    .headers()
                    .get(name)
                    .map(|value| value.to_str().unwrap())
            };
            assert_eq!(header(RETRY_AFTER), retry_after, "{kind}");
            assert_eq!(header(CONTENT_TYPE), Some("application/problem+json"));
            assert_eq!(header(CACHE_CONTROL), Some("no-store"));
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(body["type"], format!("urn:tower-redlock:problem:{kind}"));
            assert_eq!(body["status"], status);
            assert_eq!(body["detail"], &*rejection.detail());
            assert!(rejection.detail().len() > 40 && body["title"].is_string());
        }
    }

    #[tokio::test]
    async fn what_is_left_of_the_first_request_is_told() {
        let rejection = of(Cause::NotAcquired(contended().await));
        let body: serde_json::Value =
            serde_json::from_slice(rejection.to_response().body()).unwrap();
        assert!(rejection.remaining().is_some() && body["remaining_ms"].is_u64());
        assert!(of(Cause::KeyReused).remaining().is_none());
    }

    #[test]
    fn a_short_wait_is_told_as_a_second() {
        let shutting_down = Cause::NotAcquired(AcquireError::ShuttingDown(ShuttingDown));
        let rejection = IdempotencyRejection::new(shutting_down, Duration::ZERO);
        assert_eq!(rejection.to_response().headers()[RETRY_AFTER], "1");
    }

    #[test]
    fn the_client_is_not_repeated_and_no_text_comes_twice() {
        let rejection = of(Cause::InvalidKey(invalid_key()));
        assert!(!format!("{rejection} {rejection:?} {}", rejection.detail()).contains("SECRET"));
        assert!(rejection.detail().contains("parameters"));
        for cause in [
            Cause::InvalidKey(invalid_key()),
            Cause::RecordUnreadable(unreadable()),
        ] {
            let rejection = of(cause);
            let source = rejection.source().unwrap();
            assert!(!rejection.to_string().contains(&source.to_string()));
            assert!(source.source().is_none());
        }
        let lost = of(Cause::Lost(LossReason::Released));
        assert!(lost.to_string().contains(&LossReason::Released.to_string()));
    }
}
