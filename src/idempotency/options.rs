//! What an idempotency layer was told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http_body::Body;

use super::body::ResponseBody;
use super::fingerprint::FingerprintHeaders;
use super::headers::RecordedHeaders;
use super::policy::{DefaultRecordPolicy, RecordPolicy};
use super::problem::{
    Cause, DefaultResponseForIdempotencyRejection, IdempotencyRejection,
    ResponseForIdempotencyRejection,
};
use crate::conduct::{Methods, OnLost};
use crate::manager::LockManager;

/// What becomes of an answer that too few nodes have kept, so that whether a repeat will get it is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnUnrecorded {
    /// The client is told that the outcome is unknown: `503 outcome-unknown`. Whatever it is told when it asks again is
    /// the only answer that anybody is ever told.
    #[default]
    Refuse,
    /// The client gets the answer, with the header [`IDEMPOTENT_UNRECORDED`](super::IDEMPOTENT_UNRECORDED). A repeat
    /// may run again and get another one.
    Answer,
}

/// What becomes of a request whose client goes away while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// It runs to its end, and its answer is kept: a client that gives up and asks again gets it. From then on it runs
    /// in a task of its own, in the tokio runtime that polled it, where what was local to the request's task is not
    /// seen any more.
    #[default]
    RunToEnd,
    /// The inner future is dropped where it stands, and the key is free: a repeat runs from the start.
    Cancel,
}

/// Everything a layer is told, apart from where callers come from.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) locks: LockManager,
    pub(super) methods: Methods,
    pub(super) required: bool,
    pub(super) any_host: bool,
    pub(super) max_wait: Duration,
    pub(super) retry_after: Duration,
    pub(super) retention: Duration,
    pub(super) max_request: usize,
    pub(super) max_answer: usize,
    pub(super) fingerprint: FingerprintHeaders,
    pub(super) headers: RecordedHeaders,
    pub(super) policy: Arc<dyn RecordPolicy>,
    pub(super) on_lost: OnLost,
    pub(super) on_unrecorded: OnUnrecorded,
    pub(super) on_disconnect: OnDisconnect,
    pub(super) responder: Arc<dyn ResponseForIdempotencyRejection>,
}

impl Options {
    pub(super) fn new(locks: LockManager) -> Self {
        Self {
            locks,
            methods: Methods::Unsafe,
            required: true,
            any_host: false,
            max_wait: Duration::ZERO,
            retry_after: Duration::from_secs(1),
            retention: Duration::from_secs(24 * 60 * 60),
            max_request: MIB,
            max_answer: MIB,
            fingerprint: FingerprintHeaders::default(),
            headers: RecordedHeaders::default(),
            policy: Arc::new(DefaultRecordPolicy),
            on_lost: OnLost::default(),
            on_unrecorded: OnUnrecorded::default(),
            on_disconnect: OnDisconnect::default(),
            responder: Arc::new(DefaultResponseForIdempotencyRejection),
        }
    }

    /// The answer to a request that is refused because of `cause`.
    pub(super) fn refuse<B: Body>(&self, cause: Cause) -> Response<ResponseBody<B>> {
        let rejection = IdempotencyRejection::new(cause, self.retry_after);
        let response = self.responder.response_for_rejection(&rejection);
        response.map(|body| ResponseBody::whole(body, None))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("methods", &self.methods)
            .field("required", &self.required)
            .field("any_host", &self.any_host)
            .field("max_wait", &self.max_wait)
            .field("retry_after", &self.retry_after)
            .field("retention", &self.retention)
            .field("max_request", &self.max_request)
            .field("max_answer", &self.max_answer)
            .field("on_lost", &self.on_lost)
            .field("on_unrecorded", &self.on_unrecorded)
            .field("on_disconnect", &self.on_disconnect)
            .finish_non_exhaustive()
    }
}

const MIB: usize = 1 << 20;
