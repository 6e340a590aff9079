//! What a [`RedlockLayer`](super::RedlockLayer) can be told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, StatusCode};

use crate::conduct::{Methods, OnLost};
use crate::manager::LockManager;

use super::loan::Trusts;
use super::rejection::{DefaultResponseForRejection, ResponseForRejection};

/// Until when the lock of a request is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldUntil {
    /// Until the inner service has answered, which is when the response's head is there. Its body may still be
    /// on its way.
    #[default]
    ResponseHead,
    /// Until the last of the response's body is passed to the server, or the body failed or was dropped. The server
    /// may still be sending what it has. The release is [detached](ReleaseMode::Detached): a body cannot wait for
    /// it. An answer without a body, such as an upgrade's, holds no lock after its head.
    BodyEnd,
}

/// Whether a response waits for the release of its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseMode {
    /// The response goes out when a majority of the nodes has released the lock, so that a client that has its
    /// answer can lock again at once, on any replica, unless another came first. The wait is bounded by the manager's
    /// node time-out. If a request waits for the lock in this process, it may pass to that instead, which takes no
    /// time.
    #[default]
    Awaited,
    /// The response goes out at once, the lock is released in the background. A request that comes next waits for that
    /// release in this process, even if it is not to wait at all, and for a node time-out at most; on another replica
    /// it may be told that the lock is held.
    Detached,
}

/// What becomes of a request when too few nodes answer to lock anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnNoQuorum {
    /// It is answered with `503 no-quorum`.
    #[default]
    Reject,
    /// It runs without a lock, and its extensions say so: [`Unlocked`]. Nothing keeps it apart from others then. Not
    /// where some nodes serve processes with another list or other settings: then they answer, and it is rejected.
    RunUnlocked,
}

/// The status of the answer when another request holds the lock: a client or server error, `409 Conflict` by
/// default.
///
/// # Examples
///
/// ```
/// use http::StatusCode;
/// use tower_redlock::middleware::BusyStatus;
///
/// assert_eq!(BusyStatus::default(), BusyStatus::CONFLICT);
/// assert_eq!(BusyStatus::LOCKED.as_status(), StatusCode::LOCKED);
/// // Any other 4xx or 5xx will do; what would not be a refusal will not.
/// assert!(BusyStatus::try_from(StatusCode::TOO_EARLY).is_ok());
/// assert!(BusyStatus::try_from(StatusCode::OK).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BusyStatus(StatusCode);

impl BusyStatus {
    /// `409 Conflict`, the default.
    pub const CONFLICT: Self = Self(StatusCode::CONFLICT);
    /// `423 Locked`.
    pub const LOCKED: Self = Self(StatusCode::LOCKED);
    /// `429 Too Many Requests`.
    pub const TOO_MANY_REQUESTS: Self = Self(StatusCode::TOO_MANY_REQUESTS);
    /// `503 Service Unavailable`.
    pub const SERVICE_UNAVAILABLE: Self = Self(StatusCode::SERVICE_UNAVAILABLE);

    /// The status code.
    #[must_use]
    pub const fn as_status(self) -> StatusCode {
        self.0
    }
}

impl Default for BusyStatus {
    fn default() -> Self {
        Self::CONFLICT
    }
}

impl TryFrom<StatusCode> for BusyStatus {
    type Error = InvalidBusyStatus;

    fn try_from(status: StatusCode) -> Result<Self, InvalidBusyStatus> {
        if status.is_client_error() || status.is_server_error() {
            Ok(Self(status))
        } else {
            Err(InvalidBusyStatus(status))
        }
    }
}

/// The status is no client or server error, so it would not tell a client that its request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBusyStatus(StatusCode);

impl fmt::Display for InvalidBusyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the status {} is not a client or server error, so it cannot refuse a request",
            self.0.as_u16()
        )
    }
}

impl std::error::Error for InvalidBusyStatus {}

/// In the extensions of a request that went through a [`RedlockLayer`](super::RedlockLayer) and runs without a
/// lock. A request that has one carries its [`LockHandle`](crate::LockHandle) instead, and a request
/// with neither met no layer. Of several layers, the innermost decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlocked {
    reason: UnlockedReason,
}

impl Unlocked {
    pub(super) const fn new(reason: UnlockedReason) -> Self {
        Self { reason }
    }

    /// Why there is no lock.
    #[must_use]
    pub const fn reason(&self) -> UnlockedReason {
        self.reason
    }
}

/// Why a request runs without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnlockedReason {
    /// The layer does not lock requests of this method. By default it locks all but GET, HEAD, OPTIONS and TRACE.
    Method,
    /// The key extractor found that the request needs no lock: no route matched, or an optional part of the key
    /// is not there.
    NoKey,
    /// Too few nodes answered, and the layer is told to [run unlocked](OnNoQuorum::RunUnlocked) then.
    NoQuorum,
}

impl fmt::Display for UnlockedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "the layer does not lock requests of this method",
            Self::NoKey => "the layer found no lock key in the request",
            Self::NoQuorum => "too few lock nodes answered",
        })
    }
}

/// How long one request is to wait; `None` for the layer's `max_wait`.
pub(super) type MaxWaitWith = dyn Fn(&Parts) -> Option<Duration> + Send + Sync;

/// Everything a layer is told, apart from where keys come from.
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
    pub(super) borrow_from: Option<Arc<Trusts>>,
    pub(super) responder: Arc<dyn ResponseForRejection>,
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
            borrow_from: None,
            responder: Arc::new(DefaultResponseForRejection::default()),
        }
    }

    /// Whether requests of this method are locked.
    pub(super) fn cover(&self, method: &Method) -> bool {
        self.methods.cover(method)
    }

    /// How long this request waits, if the manager lets it.
    pub(super) fn max_wait_of(&self, request: &Parts) -> Duration {
        let own = self.max_wait_with.as_ref();
        own.and_then(|own| own(request)).unwrap_or(self.max_wait)
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
            .field("borrow_from", &self.borrow_from.is_some())
            .finish_non_exhaustive()
    }
}

pub(super) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
