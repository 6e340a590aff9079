//! The settings of a [`RedlockLayer`](super::RedlockLayer).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use crate::manager::LockManager;
use crate::policy::{Methods, OnLost};

use super::body::ResponseBody;
use super::rejection::{BusyStatus, Cause, DEFAULT_RETRY_AFTER, Rejection};

/// Until when the lock of a request is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldUntil {
    /// Until the inner service has returned the response's head. Its body may still be on its way.
    #[default]
    ResponseHead,
    /// Until the last frame of the response's body is passed to the server, or the body failed or was dropped. The
    /// server may still be sending buffered data. The release is [detached](ReleaseMode::Detached): a body cannot wait
    /// for it. A response without a body, such as that of an upgrade, holds no lock after its head.
    BodyEnd,
}

/// Whether a response waits for the release of its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseMode {
    /// The response goes out when a majority of the nodes has released the lock, so that a client that has its
    /// response can lock again at once, on any replica, unless another request came first. The wait is bounded by the
    /// manager's node time-out. If a request waits for the lock in this process, the lock may pass to it instead, which
    /// takes no time.
    #[default]
    Awaited,
    /// The response goes out at once, the lock is released in the background. The next request in this process waits
    /// for that release, for a node time-out at most, even if its `max_wait` is zero; on another replica it may find
    /// the lock still held.
    Detached,
}

/// What happens to a request when too few nodes reply to lock anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnNoQuorum {
    /// The response is `503 no-quorum`.
    #[default]
    Reject,
    /// The request runs without a lock, and [`Held::of`](super::Held::of) gives
    /// [`UnlockedReason::NoQuorum`](super::UnlockedReason::NoQuorum). Nothing excludes other requests then. A request
    /// is still rejected where some nodes serve processes with another list of nodes or other settings: these nodes
    /// reply, and the key may be held.
    RunUnlocked,
}

/// How long one request waits; `None` for the layer's `max_wait`.
type MaxWaitWith = dyn Fn(&Parts) -> Option<Duration> + Send + Sync;
type RejectionResponse = dyn Fn(&Rejection) -> Response<Bytes> + Send + Sync;

/// All settings of a layer, except the key extractor.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) locks: LockManager,
    pub(super) max_wait: Duration,
    pub(super) max_wait_with: Option<Arc<MaxWaitWith>>,
    pub(super) busy_status: BusyStatus,
    pub(super) retry_after: Duration,
    pub(super) methods: Methods,
    pub(super) hold_until: HoldUntil,
    pub(super) release: ReleaseMode,
    pub(super) on_lost: OnLost,
    pub(super) on_no_quorum: OnNoQuorum,
    pub(super) rejection_response: Arc<RejectionResponse>,
}

impl Options {
    pub(super) fn new(locks: LockManager) -> Self {
        Self {
            locks,
            max_wait: Duration::ZERO,
            max_wait_with: None,
            busy_status: BusyStatus::default(),
            retry_after: DEFAULT_RETRY_AFTER,
            methods: Methods::Unsafe,
            hold_until: HoldUntil::default(),
            release: ReleaseMode::default(),
            on_lost: OnLost::default(),
            on_no_quorum: OnNoQuorum::default(),
            rejection_response: Arc::new(Rejection::to_response),
        }
    }

    /// How long this request waits. What is said of one request, perhaps by its client, is bounded.
    pub(super) fn max_wait_of(&self, request: &Parts) -> Duration {
        let own = self.max_wait_with.as_ref();
        let own = own.and_then(|own| own(request));
        own.map_or(self.max_wait, |own| own.min(self.longest_wait()))
    }

    /// How long any request may wait.
    pub(super) fn longest_wait(&self) -> Duration {
        match self.max_wait_with {
            Some(_) => self.max_wait.max(self.locks.max_wait()),
            None => self.max_wait,
        }
    }

    /// The response to a request that is refused or ended because of `cause`.
    pub(super) fn refuse<B>(&self, cause: Cause) -> Response<ResponseBody<B>> {
        let rejection = Rejection::new(cause, self.busy_status, self.retry_after);
        let response = (self.rejection_response)(&rejection);
        rejection.mark(response).map(ResponseBody::whole)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("max_wait", &self.max_wait)
            .field("max_wait_with", &self.max_wait_with.is_some())
            .field("busy_status", &self.busy_status)
            .field("retry_after", &self.retry_after)
            .field("methods", &self.methods)
            .field("hold_until", &self.hold_until)
            .field("release", &self.release)
            .field("on_lost", &self.on_lost)
            .field("on_no_quorum", &self.on_no_quorum)
            .finish_non_exhaustive()
    }
}
