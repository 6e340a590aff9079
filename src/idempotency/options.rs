//! What an [`IdempotencyLayer`](super::IdempotencyLayer) was told: for all of its requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::caller::AnyCallerSource;
use super::fingerprint::FingerprintHeaders;
use super::recorded::{OnUnrecorded, RecordPolicy, RecordedHeaders};
use super::stored_response::Replay;
use crate::http::Common;

#[derive(Clone)]
pub(super) struct ExchangeOptions {
    pub(super) common: Common,
    pub(super) callers: Arc<dyn AnyCallerSource>,
    pub(super) required: bool,
    pub(super) any_host: bool,
    pub(super) retention: Duration,
    pub(super) max_request_body: usize,
    pub(super) buffers: Buffers,
    pub(super) max_response_body: usize,
    pub(super) fingerprint: FingerprintHeaders,
    pub(super) headers: RecordedHeaders,
    /// The header of replayed responses.
    pub(super) replayed: HeaderName,
    pub(super) policy: Arc<dyn RecordPolicy>,
    pub(super) on_unrecorded: OnUnrecorded,
}

impl fmt::Debug for ExchangeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeOptions")
            .field("common", &self.common)
            .field("required", &self.required)
            .field("any_host", &self.any_host)
            .field("retention", &self.retention)
            .field("max_request_body", &self.max_request_body)
            .field("buffers", &self.buffers)
            .field("max_response_body", &self.max_response_body)
            .field("on_unrecorded", &self.on_unrecorded)
            .finish_non_exhaustive()
    }
}

impl ExchangeOptions {
    /// What is stored of a response.
    pub(super) fn replay_of(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: Bytes,
        trailers: Option<&HeaderMap>,
    ) -> Replay {
        let kept = |headers| {
            let mut kept = self.headers.keep(headers);
            kept.remove(&self.replayed);
            kept
        };
        Replay {
            status,
            headers: kept(headers),
            body,
            trailers: trailers.map(kept),
        }
    }
}

/// How many bytes of request bodies a layer may hold at once.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    pub(super) most: usize,
    free: Arc<Semaphore>,
}

impl Buffers {
    pub(super) fn new(most: usize) -> Self {
        let free = Semaphore::new(most.min(Semaphore::MAX_PERMITS));
        let free = Arc::new(free);
        Self { most, free }
    }

    pub(super) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Adds room for `bytes` to what is `held`.
    pub(super) fn grow(&self, held: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match (Arc::clone(&self.free).try_acquire_many_owned(bytes), held) {
            (Ok(room), Some(held)) => held.merge(room),
            (Ok(room), held) => *held = Some(room),
            (Err(_), _) => return false,
        }
        true
    }
}
