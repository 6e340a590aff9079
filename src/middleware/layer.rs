//! [`RedlockLayer`]: what is put around a service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use tower_layer::Layer;

use crate::conduct::{Methods, OnLost};
use crate::manager::LockManager;

use super::key_extractor::KeyExtractor;
use super::options::{BusyStatus, HoldUntil, OnNoQuorum, Options, ReleaseMode};
use super::rejection::ResponseForRejection;
use super::run_to_end::{RunToEnd, RunToEndLayer};
use super::service::RedlockService;

/// Runs the requests to a resource one at a time, across all replicas of a service.
///
/// See the [module](super) for what it does and where to put it. A clone is cheap and shares everything.
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RedlockLayer<K> {
    options: Arc<Options>,
    // Apart from the options, so that it need not be `Clone`.
    extractor: Arc<K>,
}

impl<K> RedlockLayer<K> {
    /// A layer that locks what `extractor` makes of a request, through `locks`.
    pub fn new(locks: LockManager, extractor: K) -> Self
    where
        // Asked for here, where the mistake is, and not where the layer is put around a service.
        K: KeyExtractor,
    {
        Self {
            options: Arc::new(Options::new(locks)),
            extractor: Arc::new(extractor),
        }
    }

    /// How long a request waits for a lock that another holds. Default: zero, which answers at once.
    ///
    /// It never waits longer than the manager's own
    /// [`max_wait`](crate::LockManagerBuilder::max_wait), which is 5 s unless set: `max_wait(30 s)` here waits for 5 s
    /// as long as the manager is not told more. See [Waiting](super#waiting).
    ///
    /// # A note on back-pressure
    ///
    /// A request that waits has been accepted: it holds its place in a `concurrency_limit` around the layer *and*
    /// the one it was given inside. Keep `max_wait` well below the time-outs around it.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|options| options.max_wait = max_wait)
    }

    /// How long this very request waits, in place of [`max_wait`](Self::max_wait), which holds for those for which
    /// `max_wait` here is `None`. It may be more or less than that; zero answers at once.
    ///
    /// [`prefer_wait`](super::prefer_wait) asks the client. What else it could be: the route's, the tenant's, or
    /// what is left of a deadline that a gateway sent along.
    ///
    /// # What a client can do with it
    ///
    /// Where the client has a say, it can make its requests wait, and each that waits takes a place in the queue and
    /// a connection. As with [`max_wait`](Self::max_wait), the manager's own `max_wait` bounds how long, and the bounds
    /// of its queues how many. Where that is too much to give to clients, for example because jobs share
    /// the manager, bound it here:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tower_redlock::middleware::prefer_wait;
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
    /// `max_wait` is called once for each request that needs a lock, after the key was made. It should be quick.
    pub fn max_wait_with<F>(self, max_wait: F) -> Self
    where
        F: Fn(&Parts) -> Option<Duration> + Send + Sync + 'static,
    {
        let max_wait = Arc::new(max_wait);
        self.with(|options| options.max_wait_with = Some(max_wait))
    }

    /// The status of the answer when another request holds the lock. Default: `409 Conflict`.
    pub fn busy_status(self, status: BusyStatus) -> Self {
        self.with(|options| options.busy_status = status)
    }

    /// What `Retry-After` says in refusals that are worth a retry, in whole seconds, rounded up, and at least
    /// one. Default: one second.
    pub fn retry_after(self, retry_after: Duration) -> Self {
        self.with(|options| options.retry_after = retry_after)
    }

    /// Locks requests of every method. By default GET, HEAD, OPTIONS and TRACE, which are safe by their
    /// definition, run without a lock.
    pub fn all_methods(self) -> Self {
        self.with(|options| options.methods = Methods::All)
    }

    /// Locks requests of these methods and no others. axum has HEAD answered by the handler of GET: name both, or
    /// neither.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::Only(methods.into_iter().collect());
        self.with(|options| options.methods = methods)
    }

    /// Until when the lock is held. Default: [`HoldUntil::ResponseHead`].
    pub fn hold_until(self, hold_until: HoldUntil) -> Self {
        self.with(|options| options.hold_until = hold_until)
    }

    /// Whether the response waits for the release. Default: [`ReleaseMode::Awaited`].
    pub fn release(self, release: ReleaseMode) -> Self {
        self.with(|options| options.release = release)
    }

    /// What becomes of a request whose lock is lost while it runs. Default: [`OnLost::Abort`].
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.with(|options| options.on_lost = on_lost)
    }

    /// Has a request that runs finished, under its lock, though its client has gone: a payment is not cut in half. By
    /// default the inner future is dropped where it stands, and the lock released.
    ///
    /// A request that waits for its lock still gives up with its client. One that holds it goes on in a task of its
    /// own, in the tokio runtime that served it, where what was local to the request's task is not seen any more. This
    /// comes last: what it returns is the layer to be put around the service, whose future and response must be
    /// `Send + 'static`.
    pub fn on_disconnect(self, _: RunToEnd) -> RunToEndLayer<K> {
        RunToEndLayer::new(self)
    }

    pub(super) fn lost_policy(&self) -> OnLost {
        self.options.on_lost
    }

    /// What becomes of a request when too few nodes answer. Default: [`OnNoQuorum::Reject`].
    pub fn on_no_quorum(self, on_no_quorum: OnNoQuorum) -> Self {
        self.with(|options| options.on_no_quorum = on_no_quorum)
    }

    /// Runs a request under the lock of the service that sent it, if that [lent](crate::LockHandle::lend) it and
    /// shows so by the header [`LOAN_HEADER`](super::LOAN_HEADER). Off by default.
    ///
    /// `trusts` is asked for every request with the header, after its key was made and before the header is read; the
    /// parts that it sees are without it. It decides whose proofs are taken: by the peer's certificate, the address
    /// behind which only your own services are, a signature. A request of others is answered 403 `loan-refused`, for
    /// what a proof is made of also stands wherever resources keep the owner's hash, and headers are easily added.
    ///
    /// Then the nodes are asked whether the lender holds this request's key, which is made as of any other request; the
    /// lender must have locked the same text under the same namespace. If so the request runs without waiting for
    /// anybody, until the response is out or the lender's validity ends: then the inner future is dropped as after
    /// any [loss](Self::on_lost). The handler finds a [`LockHandle`](crate::LockHandle) that
    /// [is borrowed](crate::LockHandle::is_borrowed), with the lender's number and owner hash. If the lender does not
    /// hold it, the answer is 412 `loan-ended`, and 400 `invalid-loan` for a header that cannot be read or comes twice.
    /// Of several copies of a request with one loan the first runs, and the others are answered 409 `loan-taken`.
    ///
    /// A request without the header takes its own lock, and one that needs none by its method or key runs without,
    /// whatever it shows. Of several layers the outermost takes the header.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::net::IpAddr;
    /// use http::request::Parts;
    /// use tower_redlock::{LockManager, RedlockLayer, key};
    ///
    /// /// Put into the extensions by the server.
    /// #[derive(Clone, Copy)]
    /// struct Peer(IpAddr);
    ///
    /// # let locks = LockManager::builder().memory(5).connect().await?;
    /// let layer = RedlockLayer::new(locks, key::header("x-order-id").prefix("order"))
    ///     .borrow_from(|parts: &Parts| {
    ///         let peer = parts.extensions.get::<Peer>();
    ///         peer.is_some_and(|Peer(address)| address.is_loopback())
    ///     });
    /// # let _ = layer;
    /// # Ok(()) }
    /// ```
    pub fn borrow_from<F>(self, trusts: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        let trusts = Arc::new(trusts);
        self.with(|options| options.borrow_from = Some(trusts))
    }

    /// Makes the answers to refused requests. Default: `application/problem+json`,
    /// [`DefaultResponseForRejection`](super::DefaultResponseForRejection).
    pub fn rejection(self, responder: impl ResponseForRejection) -> Self {
        let responder = Arc::new(responder);
        self.with(|options| options.responder = responder)
    }

    fn with(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(Arc::make_mut(&mut self.options));
        self
    }
}

impl<K> Clone for RedlockLayer<K> {
    // By hand: the extractor is shared and need not be `Clone`.
    fn clone(&self) -> Self {
        Self {
            options: Arc::clone(&self.options),
            extractor: Arc::clone(&self.extractor),
        }
    }
}

impl<K> fmt::Debug for RedlockLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockLayer")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<S, K> Layer<S> for RedlockLayer<K> {
    type Service = RedlockService<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        RedlockService::new(
            inner,
            Arc::clone(&self.options),
            Arc::clone(&self.extractor),
        )
    }
}
