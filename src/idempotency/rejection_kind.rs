//! [`IdempotencyRejectionKind`]: the kinds of rejections, and their texts for clients.

use std::fmt;

use http::StatusCode;

use crate::problem::word;

/// The kinds of [`IdempotencyRejection`](super::IdempotencyRejection).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdempotencyRejectionKind {
    /// The request has no idempotency key, and needs one: 400.
    MissingIdempotencyKey,
    /// The request has an idempotency key that cannot be used, or several: 400.
    InvalidIdempotencyKey,
    /// The request's body ended with an error before it was read: 400.
    BodyUnreadable,
    /// The caller of the request is unknown: 403. That is not 401, which belongs to the layer that does authentication
    /// and knows a way to log in.
    CallerUnknown,
    /// The first request with this key still runs, and this one does not wait: 409.
    RequestInProgress,
    /// The first request with this key ran for as long as this one may wait: 409.
    WaitTimeout,
    /// The first request with this key is done, and its response could not be stored. It does not run again: 409.
    NotReplayable,
    /// The request's body is longer than the layer reads: 413.
    BodyTooLarge,
    /// The key was used before, for another request: 422.
    IdempotencyKeyReused,
    /// The key cannot exist at this place; a mistake in the program: 500.
    Misconfigured,
    /// Too many requests wait already, for this key or in all: 503.
    QueueFull,
    /// Too few nodes replied in time: 503.
    NoQuorum,
    /// The lock on the key was lost while the request ran. Whether it took effect is unknown: 503.
    LockLost,
    /// The request ran, and too few nodes stored its response. The response to a repeat is unknown: 503.
    OutcomeUnknown,
    /// The record under the key was written by another version of this crate: 503.
    RecordUnreadable,
    /// The lock manager is shutting down: 503.
    ShuttingDown,
}

impl IdempotencyRejectionKind {
    /// The kind as a word, the last part of
    /// [`IdempotencyRejection::problem_type`](super::IdempotencyRejection::problem_type).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        word(self.urn())
    }

    pub(super) const fn urn(self) -> &'static str {
        match self {
            Self::MissingIdempotencyKey => "urn:tower-redlock:problem:missing-idempotency-key",
            Self::InvalidIdempotencyKey => "urn:tower-redlock:problem:invalid-idempotency-key",
            Self::BodyUnreadable => "urn:tower-redlock:problem:body-unreadable",
            Self::CallerUnknown => "urn:tower-redlock:problem:caller-unknown",
            Self::RequestInProgress => "urn:tower-redlock:problem:request-in-progress",
            Self::WaitTimeout => "urn:tower-redlock:problem:wait-timeout",
            Self::NotReplayable => "urn:tower-redlock:problem:not-replayable",
            Self::BodyTooLarge => "urn:tower-redlock:problem:body-too-large",
            Self::IdempotencyKeyReused => "urn:tower-redlock:problem:idempotency-key-reused",
            Self::Misconfigured => "urn:tower-redlock:problem:misconfigured",
            Self::QueueFull => "urn:tower-redlock:problem:queue-full",
            Self::NoQuorum => "urn:tower-redlock:problem:no-quorum",
            Self::LockLost => "urn:tower-redlock:problem:lock-lost",
            Self::OutcomeUnknown => "urn:tower-redlock:problem:outcome-unknown",
            Self::RecordUnreadable => "urn:tower-redlock:problem:record-unreadable",
            Self::ShuttingDown => "urn:tower-redlock:problem:shutting-down",
        }
    }

    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::MissingIdempotencyKey | Self::InvalidIdempotencyKey | Self::BodyUnreadable => {
                StatusCode::BAD_REQUEST
            }
            Self::CallerUnknown => StatusCode::FORBIDDEN,
            Self::RequestInProgress | Self::WaitTimeout | Self::NotReplayable => {
                StatusCode::CONFLICT
            }
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
            Self::QueueFull
            | Self::NoQuorum
            | Self::LockLost
            | Self::OutcomeUnknown
            | Self::RecordUnreadable
            | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Whether a repeat of the same request after a while is likely to succeed, and cannot run twice.
    pub(super) const fn is_worth_a_retry(self) -> bool {
        match self {
            Self::RequestInProgress
            | Self::WaitTimeout
            | Self::QueueFull
            | Self::NoQuorum
            | Self::RecordUnreadable
            | Self::ShuttingDown => true,
            Self::MissingIdempotencyKey
            | Self::InvalidIdempotencyKey
            | Self::BodyUnreadable
            | Self::CallerUnknown
            | Self::NotReplayable
            | Self::BodyTooLarge
            | Self::IdempotencyKeyReused
            | Self::Misconfigured
            // They may have had an effect, and a repeat might have it again.
            | Self::LockLost
            | Self::OutcomeUnknown => false,
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::MissingIdempotencyKey => "Idempotency key missing",
            Self::InvalidIdempotencyKey => "Invalid idempotency key",
            Self::BodyUnreadable => "Request body unreadable",
            Self::CallerUnknown => "Caller unknown",
            Self::RequestInProgress => "Request in progress",
            Self::WaitTimeout => "Timed out waiting for the first request",
            Self::NotReplayable => "Response not stored",
            Self::BodyTooLarge => "Request body too large",
            Self::IdempotencyKeyReused => "Idempotency key used for another request",
            Self::Misconfigured => "Idempotency layer misconfigured",
            Self::QueueFull => "Too many requests wait",
            Self::NoQuorum => "Locks unavailable",
            Self::LockLost => "Lock lost",
            Self::OutcomeUnknown => "Outcome unknown",
            Self::RecordUnreadable => "Stored response unreadable",
            Self::ShuttingDown => "Shutting down",
        }
    }

    pub(super) const fn detail(self) -> &'static str {
        match self {
            Self::MissingIdempotencyKey => {
                "This request needs the header `Idempotency-Key`. Send a new key, such as a UUID, with each operation, \
                 and the same key with each repeat of it. This request was not processed."
            }
            Self::InvalidIdempotencyKey => "The idempotency key of this request cannot be used.",
            Self::BodyUnreadable => {
                "The body of this request ended before all of it was there. This request was not processed."
            }
            Self::CallerUnknown => {
                "It cannot be told who sends this request, and idempotency keys belong to their senders. \
                 This request was not processed."
            }
            Self::RequestInProgress => {
                "A request with this idempotency key is being processed. Send this one again later to get its response."
            }
            Self::WaitTimeout => {
                "A request with this idempotency key was processed for as long as this one may wait. \
                 Send this one again later to get its response."
            }
            Self::NotReplayable => {
                "The request with this idempotency key was processed, and its response could not be stored. \
                 It is not processed again."
            }
            Self::BodyTooLarge => {
                "The body of this request is longer than may be sent with an idempotency key. \
                 This request was not processed."
            }
            Self::IdempotencyKeyReused => {
                "This idempotency key was used for a request that differs from this one. Choose a new key for a new \
                 operation, and repeat requests unchanged. This request was not processed."
            }
            Self::Misconfigured => "The idempotency layer of this server is in the wrong place.",
            Self::QueueFull => {
                "As many requests as may wait on this server do so already. This request was not processed."
            }
            Self::NoQuorum => {
                "Too few lock nodes vote and replied in time, so it could not be found out whether this request \
                 is a repeat. This request was not processed."
            }
            Self::LockLost => {
                "The lock on this idempotency key was lost while the request was processed. Whether it took effect is \
                 unknown. Look before you send it again: it may be processed again."
            }
            Self::OutcomeUnknown => {
                "This request was processed, and it is not known whether its response was stored. Send it again with the \
                 same idempotency key to find out: you get that response, or the request is processed again."
            }
            Self::RecordUnreadable => {
                "The response for this idempotency key was stored by another version of this service, and this server cannot \
                 read it. This request was not processed again."
            }
            Self::ShuttingDown => {
                "This server is shutting down and takes no new requests with idempotency keys. \
                 This request was not processed."
            }
        }
    }
}

impl fmt::Display for IdempotencyRejectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
