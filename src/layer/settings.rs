//! [`RedlockLayer`] and its settings.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tower_layer::Layer;

use super::admission::Options;
use super::key::KeyExtractor;
use super::service::RedlockService;
use crate::http::rejection::{By, Rejection};
use crate::http::run_to_end::RunToEndService;
use crate::http::{Common, Methods, OnDisconnect, OnNoQuorum, RateLimit};
use crate::manager::LockManager;

/// Runs the requests for a resource one at a time, across all replicas of a service.
///
/// `D` is `()`, or [`OnDisconnect`] after [`on_disconnect`](Self::on_disconnect).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_redlock::{LockManager, RedlockLayer, key};
///
/// fn one_at_a_time(locks: LockManager) -> RedlockLayer {
///     let order = key::header("x-order-id").prefix("order");
///     RedlockLayer::new(locks, order).max_wait(Duration::from_secs(2))
/// }
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RedlockLayer<D = ()> {
    options: Arc<Options>,
    // A part of the type, because a service can run to its end only if its future is `Send` and `'static`.
    disconnect: PhantomData<D>,
}

impl RedlockLayer {
    /// Makes a layer that acquires a lock from `locks` on the key that `extractor` finds in each request. If `locks`
    /// are [permits](LockManager::permits), it acquires a permit.
    pub fn new(locks: LockManager, extractor: impl KeyExtractor) -> Self {
        let options = Options {
            common: Common::new(By::Lock, locks),
            extractor: Arc::new(extractor),
            shared: Methods::Only(Arc::from([])),
            max_wait_with: None,
            holds_until_body: false,
        };
        Self {
            options: Arc::new(options),
            disconnect: PhantomData,
        }
    }
}

impl<D> RedlockLayer<D> {
    /// How long a request waits for a lock that another request holds. Default: zero, which refuses the request
    /// immediately. Choose a time well below the time-outs around the layer.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|options| options.common.max_wait = max_wait)
    }

    /// How long each request waits, by a function of the request's head. If the function returns `None`,
    /// [`max_wait`](Self::max_wait) applies. A wait that the function returns is limited to the manager's `max_wait` or
    /// to the layer's `max_wait`, whichever is longer.
    pub fn max_wait_with<F>(self, max_wait: F) -> Self
    where
        F: Fn(&Parts) -> Option<Duration> + Send + Sync + 'static,
    {
        let max_wait = Arc::new(max_wait);
        self.with(|options| options.max_wait_with = Some(max_wait))
    }

    /// The status of the response if other requests hold the lock. Default: 409, and 429 for
    /// [permits](LockManager::permits).
    ///
    /// # Panics
    ///
    /// If `status` is not from 400 to 599, because a client would take the refusal for a success.
    #[track_caller]
    pub fn busy_status(self, status: StatusCode) -> Self {
        let is_error = status.is_client_error() || status.is_server_error();
        assert!(
            is_error,
            "`busy_status` takes a status from 400 to 599, and {status} is none"
        );
        self.with(|options| options.common.busy_status = status)
    }

    /// Adds the headers `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers) to the response if
    /// other requests hold the lock. Default: no such headers.
    ///
    /// For `rate_limit("reports")` and three permits, they are
    /// `RateLimit-Policy: "reports";q=3;qu="concurrent-requests"` and `RateLimit: "reports";r=0`. Characters that a
    /// header cannot hold are left out of `name`.
    pub fn rate_limit(self, name: &str) -> Self {
        self.with(|options| {
            let common = &mut options.common;
            common.rate_limit = RateLimit::new(name, common.locks.limit().unwrap_or(1));
        })
    }

    /// Locks requests of every method. Default: all methods except GET, HEAD, OPTIONS and TRACE.
    pub fn all_methods(self) -> Self {
        self.with(|options| options.common.methods = Methods::All)
    }

    /// Locks only requests of these methods. axum routes HEAD to the handler of GET, so name both or neither.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::Only(methods.into_iter().collect());
        self.with(|options| options.common.methods = methods)
    }

    /// Also locks requests of these methods, as [readers](LockManager::shared). Readers run together, but never
    /// together with other locked requests. Do not combine this with permits. Default: no method.
    pub fn shared_for(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::Only(methods.into_iter().collect());
        self.with(|options| options.shared = methods)
    }

    /// Holds the lock until the body of the response has ended, failed, or was dropped, and then releases it in the
    /// background.
    ///
    /// Default: the lock is released when the inner service has returned the head of the response. The response goes
    /// out after a quorum of the nodes has confirmed the release, or after a node time-out.
    pub fn hold_until_body(self) -> Self {
        self.with(|options| options.holds_until_body = true)
    }

    /// What happens to a request whose client disconnects while the request runs. Default: [`OnDisconnect::Cancel`].
    ///
    /// After this call, the layer needs a service whose future, response and error are `Send + 'static`.
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> RedlockLayer<OnDisconnect> {
        let layer = self.with(|options| options.common.on_disconnect = on_disconnect);
        RedlockLayer {
            options: layer.options,
            disconnect: PhantomData,
        }
    }

    /// How many requests may run without their clients.
    #[cfg(tower_redlock_tests)]
    pub fn max_detached(self, requests: usize) -> Self {
        self.with(|options| options.common.max_detached = requests)
    }

    /// What happens to a request when too few nodes answer in time. Default: [`OnNoQuorum::Reject`].
    pub fn on_no_quorum(self, on_no_quorum: OnNoQuorum) -> Self {
        self.with(|options| options.common.on_no_quorum = on_no_quorum)
    }

    /// Makes the responses to refused requests. Default: [`Rejection::to_response`].
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
        let common = &self.options.common;
        let detachments = common.detachments().cloned();
        let inner = RunToEndService::new(inner, detachments);
        RedlockService::new(inner, Arc::clone(&self.options))
    }
}
