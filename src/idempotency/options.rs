//! The settings of an idempotency layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::Body;

use super::body::ResponseBody;
use super::fingerprint::FingerprintHeaders;
use super::headers::RecordedHeaders;
use super::record_policy::{DefaultRecordPolicy, RecordPolicy};
use super::rejection::{Cause, IdempotencyRejection};
use crate::manager::LockManager;
use crate::policy::{Methods, OnDisconnect, OnLost};

/// What happens to a response that too few nodes have stored, so that a repeat may or may not get it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnUnrecorded {
    /// The client gets `503 outcome-unknown`. The response to its repeat is then the only one that any client gets.
    #[default]
    Refuse,
    /// The client gets the response, with the header [`IDEMPOTENT_UNRECORDED`](super::IDEMPOTENT_UNRECORDED). A repeat
    /// may run again and get another one.
    Respond,
}

type RejectionResponse = dyn Fn(&IdempotencyRejection) -> Response<Bytes> + Send + Sync;

/// All settings of a layer, except the source of callers.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) locks: LockManager,
    pub(super) methods: Methods,
    pub(super) required: bool,
    pub(super) any_host: bool,
    pub(super) max_wait: Duration,
    pub(super) retry_after: Duration,
    pub(super) retention: Duration,
    pub(super) max_request_body: usize,
    pub(super) max_response_body: usize,
    pub(super) fingerprint: FingerprintHeaders,
    pub(super) headers: RecordedHeaders,
    pub(super) policy: Arc<dyn RecordPolicy>,
    pub(super) on_lost: OnLost,
    pub(super) on_unrecorded: OnUnrecorded,
    pub(super) on_disconnect: OnDisconnect,
    pub(super) rejection_response: Arc<RejectionResponse>,
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
            max_request_body: MIB,
            max_response_body: MIB,
            fingerprint: FingerprintHeaders::default(),
            headers: RecordedHeaders::default(),
            policy: Arc::new(DefaultRecordPolicy),
            on_lost: OnLost::default(),
            on_unrecorded: OnUnrecorded::default(),
            on_disconnect: OnDisconnect::RunToEnd,
            rejection_response: Arc::new(IdempotencyRejection::to_response),
        }
    }

    /// The response to a request that is refused or ended because of `cause`.
    pub(super) fn refuse<B: Body>(&self, cause: Cause) -> Response<ResponseBody<B>> {
        let rejection = IdempotencyRejection::new(cause, self.retry_after);
        let response = (self.rejection_response)(&rejection);
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
            .field("max_request_body", &self.max_request_body)
            .field("max_response_body", &self.max_response_body)
            .field("on_lost", &self.on_lost)
            .field("on_unrecorded", &self.on_unrecorded)
            .field("on_disconnect", &self.on_disconnect)
            .finish_non_exhaustive()
    }
}

const MIB: usize = 1 << 20;
