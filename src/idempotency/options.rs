//! The settings of an [`IdempotencyLayer`](super::IdempotencyLayer).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{request, response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::recorded::OnUnrecorded;
use crate::http::Common;

#[derive(Clone)]
pub(super) struct ExchangeOptions {
    pub(super) common: Common,
    pub(super) caller: Arc<FindCaller>,
    pub(super) required: bool,
    pub(super) retention: Duration,
    pub(super) max_request_body: usize,
    pub(super) buffers: Buffers,
    pub(super) max_response_body: usize,
    pub(super) record_if: Arc<RecordIf>,
    pub(super) on_unrecorded: OnUnrecorded,
}

type FindCaller = dyn Fn(&request::Parts) -> Option<String> + Send + Sync;
type RecordIf = dyn Fn(&response::Parts) -> bool + Send + Sync;

impl fmt::Debug for ExchangeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeOptions")
            .field("common", &self.common)
            .field("required", &self.required)
            .field("retention", &self.retention)
            .field("max_request_body", &self.max_request_body)
            .field("max_response_body", &self.max_response_body)
            .field("on_unrecorded", &self.on_unrecorded)
            .finish_non_exhaustive()
    }
}

/// Limits how many bytes of request bodies a layer holds.
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

    /// Adds room for `bytes` to `held`. Returns false if there is no room.
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
