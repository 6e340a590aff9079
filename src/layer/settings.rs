//! [`RedlockLayer`] and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use tower_layer::Layer;

use super::key::KeyExtractor;
use super::service::{Admit, RedlockService};
use crate::http::rejection::{By, Rejection};
use crate::http::run_to_end::RunToEndService;
use crate::http::settings::{BusyStatus, Common, Methods, OnDisconnect, OnLost};
use crate::manager::LockManager;

/// Runs the requests to a resource one at a time, across all replicas of a service.
///
/// See the [module](super) for what it does and where to put it. A clone is cheap and shares everything.
///
/// `D` is `()`, or [`OnDisconnect`] once [`on_disconnect`](Self::on_disconnect) was set.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RedlockLayer<D = ()> {
    options: Arc<Options>,
    // In the type, because only services whose futures are `Send` and `'static` can run to their end.
    disconnect: D,
}

impl RedlockLayer {
    /// A layer that acquires the lock on the key of each request, as `extractor` finds it, through `locks`.
    pub fn new(locks: LockManager, extractor: impl KeyExtractor) -> Self {
        let options = Options {
            common: Common::new(By::Lock, locks),
            extractor: Arc::new(extractor),
            max_wait_with: None,
            hold_until: HoldUntil::default(),
            release: ReleaseMode::default(),
            on_no_quorum: OnNoQuorum::default(),
        };
        Self {
            options: Arc::new(options),
            disconnect: (),
        }
    }
}

impl<D> RedlockLayer<D> {
    /// How long a request waits for a lock that another request holds. Default: zero, which refuses the request at
    /// once.
    ///
    /// This is how long, also where it is more than the manager's own
    /// [`max_wait`](crate::Settings::max_wait). See [Waiting](super#waiting). For another ttl or `max_hold`
    /// than the manager's, give the layer a handle of its own ([`LockManager::with_ttl`]).
    ///
    /// # A note on back-pressure
    ///
    /// A waiting request has been accepted: it holds its place in a `concurrency_limit` around the layer *and* in one
    /// inside. Keep `max_wait` well below the time-outs around it.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|options| options.common.max_wait = max_wait)
    }

    /// How long each request waits, by a function of its head; [`max_wait`](Self::max_wait) applies where the function
    /// returns `None`. The value may be more or less than `max_wait`; zero refuses the request at once.
    ///
    /// [`prefer_wait`](super::prefer_wait) reads the client's own value. Other sources: the route, the tenant, or the
    /// rest of a deadline that a gateway sent along.
    ///
    /// # A note on trust
    ///
    /// A client that chooses the value can make its requests wait, and each waiting request takes a place in the queue
    /// and a connection. The time is bounded: by the `max_wait` of the manager, or of the
    /// [handle](crate::LockManager::with_max_wait), that the layer was given, or by [`max_wait`](Self::max_wait) where
    /// that is more. The bounds of the manager's queues bound the number. Where clients should have less, for example
    /// because jobs share the manager, bound the value here:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tower_redlock::layer::prefer_wait;
    /// use tower_redlock::{LockManager, RedlockLayer, key};
    ///
    /// # let locks = LockManager::builder().memory(5).connect().await?;
    /// let at_most = Duration::from_secs(2);
    /// let layer = RedlockLayer::new(locks, key::header("x-order-id"))
    ///     .max_wait_with(move |parts| Some(prefer_wait(parts)?.min(at_most)));
    /// # let _ = layer;
    /// # Ok(()) }
    /// ```
    ///
    /// The function is called once for each request that needs a lock, after the key was extracted. It should be quick.
    pub fn max_wait_with<F>(self, max_wait: F) -> Self
    where
        F: Fn(&Parts) -> Option<Duration> + Send + Sync + 'static,
    {
        let max_wait = Arc::new(max_wait);
        self.with(|options| options.max_wait_with = Some(max_wait))
    }

    /// The status of the response when another request holds the lock. Default: [`BusyStatus::Conflict`], 409.
    pub fn busy_status(self, status: BusyStatus) -> Self {
        self.with(|options| options.common.busy_status = status)
    }

    /// The value of `Retry-After` in responses to requests that may be retried, in whole seconds, rounded up, and at
    /// least one. Default: one second.
    pub fn retry_after(self, retry_after: Duration) -> Self {
        self.with(|options| options.common.retry_after = retry_after)
    }

    /// Locks requests of every method. By default requests of the safe methods GET, HEAD, OPTIONS and TRACE run without
    /// a lock.
    pub fn all_methods(self) -> Self {
        self.with(|options| options.common.methods = Methods::All)
    }

    /// Locks requests of these methods and no others. axum routes HEAD to the handler of GET: name both, or neither.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::Only(methods.into_iter().collect());
        self.with(|options| options.common.methods = methods)
    }

    /// The end of the lock: with the response's head or with its body. Default: [`HoldUntil::ResponseHead`].
    pub fn hold_until(self, hold_until: HoldUntil) -> Self {
        self.with(|options| options.hold_until = hold_until)
    }

    /// Whether the response waits for the release. Default: [`ReleaseMode::Awaited`].
    pub fn release(self, release: ReleaseMode) -> Self {
        self.with(|options| options.release = release)
    }

    /// What happens to a request whose lock is lost while it runs. Default: [`OnLost::Abort`].
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.with(|options| options.common.on_lost = on_lost)
    }

    /// What happens to a request whose client disconnects while it runs. Default: [`OnDisconnect::Cancel`].
    ///
    /// With [`OnDisconnect::RunToEnd`] a payment is not cut in half. A request that still waits for its lock is
    /// cancelled in any case.
    ///
    /// After this call the layer needs a service whose future, response and error are `Send + 'static`, whichever value
    /// it was given.
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> RedlockLayer<OnDisconnect> {
        RedlockLayer {
            options: self.options,
            disconnect: on_disconnect,
        }
    }

    /// What happens to a request when too few nodes reply. Default: [`OnNoQuorum::Reject`].
    pub fn on_no_quorum(self, on_no_quorum: OnNoQuorum) -> Self {
        self.with(|options| options.on_no_quorum = on_no_quorum)
    }

    /// Makes the responses to refused requests. Default: [`Rejection::to_response`], `application/problem+json`.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use tower_redlock::RedlockLayer;
    ///
    /// fn plain_text(layer: RedlockLayer) -> RedlockLayer {
    ///     layer.rejection_response(|rejection| {
    ///         let mut response = Response::new(Bytes::from(rejection.detail().into_owned()));
    ///         *response.status_mut() = rejection.status();
    ///         response
    ///     })
    /// }
    /// ```
    pub fn rejection_response<F>(self, make: F) -> Self
    where
        F: Fn(&Rejection) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.with(|options| options.common.rejection_response = Arc::new(make))
    }

    fn with(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(Arc::make_mut(&mut self.options));
        self
    }
}

impl<D> fmt::Debug for RedlockLayer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockLayer")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RedlockLayer {
    type Service = RedlockService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RedlockService::new(inner, Arc::clone(&self.options))
    }
}

impl<S> Layer<S> for RedlockLayer<OnDisconnect> {
    type Service = RedlockService<RunToEndService<S>>;

    fn layer(&self, inner: S) -> Self::Service {
        let inner = RunToEndService::new(inner, self.options.common.on_lost, self.disconnect);
        RedlockService::new(inner, Arc::clone(&self.options))
    }
}

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

/// All settings of a layer.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) common: Common,
    pub(super) extractor: Arc<dyn Admit>,
    max_wait_with: Option<Arc<MaxWaitWith>>,
    pub(super) hold_until: HoldUntil,
    pub(super) release: ReleaseMode,
    pub(super) on_no_quorum: OnNoQuorum,
}

/// How long one request waits; `None` for the layer's `max_wait`.
type MaxWaitWith = dyn Fn(&Parts) -> Option<Duration> + Send + Sync;

impl Options {
    /// How long this request waits. What is said of one request, perhaps by its client, is bounded.
    pub(super) fn max_wait_of(&self, request: &Parts) -> Duration {
        let own = self.max_wait_with.as_ref();
        let own = own.and_then(|own| own(request));
        own.map_or(self.common.max_wait, |own| own.min(self.longest_wait()))
    }

    /// How long any request may wait.
    pub(super) fn longest_wait(&self) -> Duration {
        match self.max_wait_with {
            Some(_) => self.common.max_wait.max(self.common.locks.max_wait()),
            None => self.common.max_wait,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("common", &self.common)
            .field("max_wait_with", &self.max_wait_with.is_some())
            .field("hold_until", &self.hold_until)
            .field("release", &self.release)
            .field("on_no_quorum", &self.on_no_quorum)
            .finish_non_exhaustive()
    }
}
