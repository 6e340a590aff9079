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

/// Runs the requests to a resource one at a time, across all replicas of a service: see the [module](super).
///
/// `D` is `()`, or [`OnDisconnect`] once [`on_disconnect`](Self::on_disconnect) was set.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RedlockLayer<D = ()> {
    options: Arc<Options>,
    // In the type, because only services whose futures are `Send` and `'static` can run to their end.
    disconnect: PhantomData<D>,
}

impl RedlockLayer {
    /// A layer that acquires the lock on the key of each request, as `extractor` finds it, through `locks`: or a permit,
    /// if these are [permits](LockManager::permits).
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
    /// How long a request waits for a lock that another request holds, even if the manager's `max_wait` is shorter.
    /// Default: zero, which refuses the request immediately. Keep it well below the time-outs around the layer.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|options| options.common.max_wait = max_wait)
    }

    /// How long each request waits, by a function of its head; [`max_wait`](Self::max_wait) applies where it returns
    /// `None`. Zero refuses the request immediately. A returned wait is cut to the `max_wait` of the manager's handle or
    /// to the layer's own `max_wait`, whichever is longer.
    pub fn max_wait_with<F>(self, max_wait: F) -> Self
    where
        F: Fn(&Parts) -> Option<Duration> + Send + Sync + 'static,
    {
        let max_wait = Arc::new(max_wait);
        self.with(|options| options.max_wait_with = Some(max_wait))
    }

    /// The status of the response when another request holds the lock, for example 423 or 503. Default: 409, and 429
    /// for [permits](LockManager::permits).
    ///
    /// # Panics
    ///
    /// If `status` is not a client error or a server error (400 to 599): a client would take the refusal for a success.
    #[track_caller]
    pub fn busy_status(self, status: StatusCode) -> Self {
        let is_error = status.is_client_error() || status.is_server_error();
        assert!(
            is_error,
            "`busy_status` takes a status from 400 to 599, and {status} is none"
        );
        self.with(|options| options.common.busy_status = status)
    }

    /// Adds the headers `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers) to the responses to
    /// requests that are refused because others hold the lock, with the name of the policy: for three permits
    /// `RateLimit-Policy: "reports";q=3;qu="concurrent-requests"` and `RateLimit: "reports";r=0`. Default: no such
    /// headers. Quotes, backslashes and all that is not printable ASCII are left out of `name`; if nothing is left of it,
    /// there are no headers.
    pub fn rate_limit(self, name: &str) -> Self {
        self.with(|options| {
            let common = &mut options.common;
            common.rate_limit = RateLimit::new(name, common.locks.limit().unwrap_or(1));
        })
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

    /// Locks requests of these methods, too, as [readers](LockManager::shared), for example GET and HEAD. Readers run
    /// together, but never together with other locked requests. Not for a layer of permits. Default: no method.
    pub fn shared_for(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::Only(methods.into_iter().collect());
        self.with(|options| options.shared = methods)
    }

    /// Holds the lock until the last frame of the response's body was passed to the server, or the body failed or was
    /// dropped; then releases it in the background. Default: the lock is held until the inner service has returned the
    /// head of the response, and the response goes out once a quorum of the nodes has released the lock, or after a node
    /// time-out. A response without a body holds no lock after its head.
    pub fn hold_until_body(self) -> Self {
        self.with(|options| options.holds_until_body = true)
    }

    /// What happens to a request whose client disconnects while it runs. Default: [`OnDisconnect::Cancel`]. After this
    /// call the layer needs a service whose future, response and error are `Send + 'static`.
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> RedlockLayer<OnDisconnect> {
        let layer = self.with(|options| options.common.on_disconnect = on_disconnect);
        RedlockLayer {
            options: layer.options,
            disconnect: PhantomData,
        }
    }

    /// How many requests may run on at the same time without their clients. Default: 64.
    #[cfg(tower_redlock_tests)]
    pub fn max_detached(self, requests: usize) -> Self {
        self.with(|options| options.common.max_detached = requests)
    }

    /// What happens to a request when too few nodes reply. Default: [`OnNoQuorum::Reject`].
    pub fn on_no_quorum(self, on_no_quorum: OnNoQuorum) -> Self {
        self.with(|options| options.common.on_no_quorum = on_no_quorum)
    }

    /// Makes the responses to refused requests. Default: [`Rejection::to_response`], `application/problem+json`.
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
        let inner = RunToEndService::new(inner, &self.options.common);
        RedlockService::new(inner, Arc::clone(&self.options))
    }
}
