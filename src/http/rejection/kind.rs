//! The table of [`RejectionKind`].

use std::fmt;

use http::StatusCode;

/// What the response to a rejection of one kind says.
pub(super) struct Row {
    pub(super) urn: &'static str,
    pub(super) word: &'static str,
    pub(super) status: StatusCode,
    /// Whether the same request is likely to succeed after a while, and cannot run twice.
    pub(super) retry: bool,
    pub(super) ran: Ran,
    pub(super) title: &'static str,
    /// [`Rejection::detail`](super::Rejection::detail) adds the sentence that this request was not processed.
    pub(super) detail: &'static str,
}

/// Whether the handler may have run.
#[derive(Clone, Copy)]
pub(super) enum Ran {
    /// Neither for this request nor for an earlier request with the same idempotency key.
    No,
    /// Not for this request, but perhaps for an earlier request with the same idempotency key.
    Earlier,
    Maybe,
}

/// Declares an enum with a [`Row`] for each of its variants.
macro_rules! kinds {
    ($(#[$of_enum:meta])* pub enum $name:ident { $(
        $(#[$of_kind:meta])*
        $kind:ident($word:literal, $status:ident, retry: $retry:literal, ran: $ran:ident,
            $title:literal, $detail:literal),
    )* }) => {
        $(#[$of_enum])*
        pub enum $name { $($(#[$of_kind])* $kind,)* }

        impl $name {
            pub(super) const fn row(self) -> Row {
                match self {
                    $(Self::$kind => Row {
                        urn: concat!("urn:tower-redlock:problem:", $word),
                        word: $word,
                        status: StatusCode::$status,
                        retry: $retry,
                        ran: Ran::$ran,
                        title: $title,
                        detail: $detail,
                    },)*
                }
            }
        }
    };
}

kinds! {
    /// The kinds of [`Rejection`](super::Rejection).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum RejectionKind {
        /// The lock key of the request is missing, or cannot be used.
        InvalidKey("invalid-key", BAD_REQUEST, retry: false, ran: Earlier, "Invalid lock key",
            "The lock key of this request cannot be used."),
        /// The request needs an idempotency key and has none.
        MissingIdempotencyKey("missing-idempotency-key", BAD_REQUEST, retry: false, ran: No, "Idempotency key missing",
            "This request needs the header `Idempotency-Key`. Send a new key, such as a UUID, with each operation, \
             and the same key with each repeat of it."),
        /// The idempotency key of the request cannot be used, or the request has several keys.
        InvalidIdempotencyKey("invalid-idempotency-key", BAD_REQUEST, retry: false, ran: No, "Invalid idempotency key",
            "The idempotency key of this request cannot be used."),
        /// The request's body ended with an error.
        BodyUnreadable("body-unreadable", BAD_REQUEST, retry: false, ran: Earlier, "Request body unreadable",
            "The body of this request ended before it was complete."),
        /// The caller of the request is unknown.
        CallerUnknown("caller-unknown", FORBIDDEN, retry: false, ran: Earlier, "Caller unknown",
            "This server does not know who sends this request, and an idempotency key belongs to its sender."),
        /// Another request holds the lock, and this request does not wait.
        Contended("contended", CONFLICT, retry: true, ran: Earlier, "In use by other requests",
            "Another request is using this resource."),
        /// Other requests held the lock for as long as this request waited.
        WaitTimeout("wait-timeout", CONFLICT, retry: true, ran: Earlier, "Timed out waiting for the lock",
            "Other requests held the lock for as long as this request may wait."),
        /// The first request with this idempotency key still runs.
        RequestInProgress("request-in-progress", CONFLICT, retry: true, ran: Maybe, "Request in progress",
            "A request with this idempotency key is being processed. Send this one again later to get its response."),
        /// The request with this idempotency key has run, but its response could not be stored.
        NotReplayable("not-replayable", CONFLICT, retry: false, ran: Maybe, "Response not stored",
            "The request with this idempotency key was processed, but its response could not be stored. It is not \
             processed again."),
        /// The request's body is longer than the idempotency layer reads.
        BodyTooLarge("body-too-large", PAYLOAD_TOO_LARGE, retry: false, ran: Earlier, "Request body too large",
            "The body of this request is too long for a request with an idempotency key."),
        /// The idempotency key was already used for a different request.
        IdempotencyKeyReused("idempotency-key-reused", UNPROCESSABLE_ENTITY, retry: false, ran: Earlier,
            "Idempotency key used for another request",
            "This idempotency key was used for a request that differs from this one. Choose a new key for a new \
             operation, and repeat requests unchanged."),
        /// The program has a mistake, for example a layer is missing.
        Misconfigured("misconfigured", INTERNAL_SERVER_ERROR, retry: false, ran: Earlier, "Layer misconfigured",
            "A layer of this server is missing, is in the wrong place, or does not cover this request."),
        /// Too many requests already wait, for this lock or in total.
        QueueFull("queue-full", SERVICE_UNAVAILABLE, retry: true, ran: Earlier, "Too many requests wait",
            "Too many requests already wait for a lock on this server."),
        /// The idempotency layer already holds too many bytes of request bodies.
        BuffersFull("buffers-full", SERVICE_UNAVAILABLE, retry: true, ran: Earlier, "Too many request bodies",
            "This server already holds too many bytes of requests with idempotency keys."),
        /// Too many requests of the layer still run for clients that have disconnected.
        TooManyDetached("too-many-detached", SERVICE_UNAVAILABLE, retry: true, ran: Earlier, "Too many requests run on",
            "Too many requests still run on this server although their clients have disconnected."),
        /// Too few nodes replied in time.
        NoQuorum("no-quorum", SERVICE_UNAVAILABLE, retry: true, ran: Earlier, "Locks unavailable",
            "Too few lock nodes voted in time."),
        /// Too few nodes have memory left for the request.
        NodesFull("nodes-full", SERVICE_UNAVAILABLE, retry: true, ran: Earlier, "Lock nodes full",
            "The lock nodes have no memory left for this request."),
        /// The lock was lost while the request ran. Whether it took effect is unknown.
        // No retry, because the client must look for the effect first: a second run cannot be excluded.
        LockLost("lock-lost", SERVICE_UNAVAILABLE, retry: false, ran: Maybe, "Lock lost",
            "The lock was lost while this request was processed. Whether it took effect is unknown, so look before you \
             send it again, because it may be processed again."),
        /// The request ran, but too few nodes stored its response. A repeat gets the response or runs again.
        OutcomeUnknown("outcome-unknown", SERVICE_UNAVAILABLE, retry: false, ran: Maybe, "Outcome unknown",
            "This request was processed, and it is not known whether its response was stored. Send it again with the \
             same idempotency key to find out: you get that response, or the request is processed again."),
        /// Another version of this crate wrote the record of the idempotency key.
        RecordUnreadable("record-unreadable", SERVICE_UNAVAILABLE, retry: true, ran: Maybe,
            "Stored response unreadable",
            "The response for this idempotency key was stored by another version of this service, and this server \
             cannot read it. This request was not processed again."),
        /// The lock manager is shutting down.
        ShuttingDown("shutting-down", SERVICE_UNAVAILABLE, retry: true, ran: Earlier, "Shutting down",
            "This server is shutting down and takes no new locks."),
    }
}

impl RejectionKind {
    pub(crate) const fn as_str(self) -> &'static str {
        self.row().word
    }
}

/// Writes the last part of the response's `type`, for example `invalid-key`.
impl fmt::Display for RejectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
