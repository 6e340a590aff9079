//! The parts that the lock layer and the idempotency layer share, such as the settings that both have.
//!
//! | file | what it has |
//! |---|---|
//! | `rejection` | why a request is refused, and the response; `rejection::kind` has the table of all kinds |
//! | `body` | the body of every request and response that a layer makes or wraps |
//! | `state` | what the layers keep in the extensions of a request |
//! | `run_to_end` | work that continues after its client has disconnected |

pub(crate) mod body;
pub(crate) mod rejection;
pub(crate) mod run_to_end;
pub(crate) mod state;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};

use self::body::LayerBody;
use self::rejection::{By, Cause, Rejection, RejectionKind};
use crate::manager::{AcquireError, LockManager};

/// What happens to a request when too few nodes answer in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnNoQuorum {
    /// The response is `503 no-quorum`.
    #[default]
    Reject,
    /// The request runs without a lock and, in an `IdempotencyLayer`, without a record. It is still refused if the
    /// nodes serve processes with another list of nodes, because such a process may hold the key.
    ///
    /// A request that has begun with a lock is still dropped if the lock is lost.
    ///
    /// In the handler, [`Held::of`](crate::layer::Held::of) then returns
    /// [`UnlockedReason::NoQuorum`](crate::layer::UnlockedReason::NoQuorum), and `Idempotent::handle` returns `None`.
    RunUnlocked,
}

impl OnNoQuorum {
    /// Whether a request runs without its lock after this error.
    pub(crate) fn lets_run(self, error: &AcquireError) -> bool {
        let nodes_fail = match error {
            AcquireError::NoQuorum(error) => !error.names_another_list(),
            AcquireError::TooSlow { .. } => true,
            _ => false,
        };
        nodes_fail && self == Self::RunUnlocked
    }
}

/// What happens to a request whose client disconnects while the handler runs. A request that still waits for its lock
/// is always cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// The request runs to its end under its lock. The default of an `IdempotencyLayer`.
    ///
    /// After its client has disconnected, the request continues in a new task, where the task-locals of its old task
    /// are not visible. While 64 requests of a layer run without their clients, the layer refuses new requests with
    /// `503 too-many-detached`.
    RunToEnd,
    /// The inner future is dropped, and the lock is released. The default of a `RedlockLayer`.
    Cancel,
}

#[derive(Clone, Debug)]
pub(crate) enum Methods {
    /// All except the safe ones (RFC 9110, section 9.2.1).
    Unsafe,
    All,
    Only(Arc<[Method]>),
}

impl Methods {
    pub(crate) fn cover(&self, method: &Method) -> bool {
        match self {
            Self::Unsafe => !method.is_safe(),
            Self::All => true,
            Self::Only(methods) => methods.contains(method),
        }
    }
}

/// Counts the requests of a layer that run on after their clients have disconnected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detachments(Arc<Original>);

// The task of each such request has a clone of the inner `Arc`. Everybody else has clones of the outer one.
#[derive(Debug, Default)]
struct Original(Arc<()>);

impl Detachments {
    fn now(&self) -> usize {
        Arc::strong_count(&self.0.0) - 1
    }

    fn one(&self) -> Arc<()> {
        Arc::clone(&self.0.0)
    }
}

/// The headers of [`RedlockLayer::rate_limit`](crate::RedlockLayer::rate_limit).
#[derive(Clone, Debug)]
pub(crate) struct RateLimit {
    policy: HeaderValue,
    exhausted: HeaderValue,
}

impl RateLimit {
    /// `None` if no character of `name` is allowed.
    pub(crate) fn new(name: &str, limit: u32) -> Option<Self> {
        let allowed = |it: &char| matches!(it, ' '..='~') && !matches!(it, '"' | '\\');
        let name: String = name.chars().filter(allowed).collect();
        let value = |text: String| {
            HeaderValue::try_from(text)
                .ok()
                .filter(|_| !name.is_empty())
        };
        Some(Self {
            policy: value(format!("\"{name}\";q={limit};qu=\"concurrent-requests\""))?,
            // There is no reset time, because nobody knows when a holder will release the lock.
            exhausted: value(format!("\"{name}\";r=0"))?,
        })
    }

    fn write(&self, headers: &mut HeaderMap) {
        let (policy, exhausted) = (self.policy.clone(), self.exhausted.clone());
        headers.insert(HeaderName::from_static("ratelimit-policy"), policy);
        headers.insert(HeaderName::from_static("ratelimit"), exhausted);
    }
}

const MAX_DETACHED: usize = 64;

#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) locks: LockManager,
    by: By,
    pub(crate) methods: Methods,
    pub(crate) max_wait: Duration,
    pub(crate) on_no_quorum: OnNoQuorum,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) max_detached: usize,
    detached: Detachments,
    pub(crate) busy_status: StatusCode,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) rejection_response: Arc<RejectionResponse>,
}

type RejectionResponse = dyn Fn(&Rejection) -> Response<Bytes> + Send + Sync;

impl Common {
    pub(crate) fn new(by: By, locks: LockManager) -> Self {
        Self {
            by,
            methods: Methods::Unsafe,
            max_wait: Duration::ZERO,
            on_no_quorum: OnNoQuorum::default(),
            on_disconnect: match by {
                By::Lock => OnDisconnect::Cancel,
                By::Idempotency => OnDisconnect::RunToEnd,
            },
            max_detached: MAX_DETACHED,
            detached: Detachments::default(),
            busy_status: match (by, locks.limit()) {
                (By::Lock, Some(_)) => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::CONFLICT,
            },
            rate_limit: None,
            rejection_response: Arc::new(Rejection::to_response),
            locks,
        }
    }

    /// `None` if the layer cancels requests whose clients disconnect.
    pub(crate) fn detachments(&self) -> Option<&Detachments> {
        let run_to_end = self.on_disconnect == OnDisconnect::RunToEnd && self.max_detached > 0;
        run_to_end.then_some(&self.detached)
    }

    /// Refuses a request while too many others run without their clients.
    pub(crate) fn may_begin(&self) -> Result<(), Cause> {
        match self.detachments() {
            Some(detached) if detached.now() >= self.max_detached => {
                Err(RejectionKind::TooManyDetached.into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn refuse<B>(&self, cause: impl Into<Cause>) -> Response<LayerBody<B>> {
        let response = self.refusal(cause, false);
        response.map(|body| LayerBody::whole(body, None))
    }

    /// `is_run`: whether an idempotency layer has let this request through.
    pub(crate) fn refusal(&self, cause: impl Into<Cause>, is_run: bool) -> Response<Bytes> {
        let rejection = Rejection::new(self.by, cause, self.busy_status);
        let rejection = rejection.of_run(is_run || matches!(self.by, By::Idempotency));
        let rejection = rejection.of_permits(self.locks.limit());
        let mut response = rejection.mark((self.rejection_response)(&rejection));
        if let Some(limit) = self.rate_limit.as_ref().filter(|_| rejection.is_busy()) {
            limit.write(response.headers_mut());
        }
        response
    }
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common")
            .field("methods", &self.methods)
            .field("max_wait", &self.max_wait)
            .field("on_no_quorum", &self.on_no_quorum)
            .field("on_disconnect", &self.on_disconnect)
            .field("busy_status", &self.busy_status)
            .finish_non_exhaustive()
    }
}
