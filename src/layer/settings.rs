//! [`RedlockLayer`] and its settings; [`prefer_wait`]: the time that a client is willing to wait.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use tower_layer::Layer;

use super::admission::{HoldUntil, Options, ReleaseMode};
use super::key::KeyExtractor;
use super::service::RedlockService;
use crate::http::rejection::{BusyStatus, By, Rejection};
use crate::http::run_to_end::RunToEndService;
use crate::http::{Common, Methods, OnDisconnect, OnLost, OnNoQuorum, RateLimit};
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
            hold_until: HoldUntil::default(),
            release: ReleaseMode::default(),
        };
        Self {
            options: Arc::new(options),
            disconnect: PhantomData,
        }
    }
}

impl<D> RedlockLayer<D> {
    /// How long a request waits for a lock that another request holds, also where the manager's `max_wait` is less.
    /// Default: zero, which refuses the request at once. Keep it well below the time-outs around the layer.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|options| options.common.max_wait = max_wait)
    }

    /// How long each request waits, by a function of its head; [`max_wait`](Self::max_wait) applies where it returns
    /// `None`. Zero refuses the request at once. [`prefer_wait`](super::prefer_wait) reads the client's own value.
    ///
    /// It is bounded by the `max_wait` of the manager's handle, or by that of the layer where that is more. Bound it
    /// here where clients should have less:
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
    pub fn max_wait_with<F>(self, max_wait: F) -> Self
    where
        F: Fn(&Parts) -> Option<Duration> + Send + Sync + 'static,
    {
        let max_wait = Arc::new(max_wait);
        self.with(|options| options.max_wait_with = Some(max_wait))
    }

    /// The status of the response when another request holds the lock. Default: [`BusyStatus::Conflict`], 409; for
    /// [permits](LockManager::permits) [`BusyStatus::TooManyRequests`], 429.
    pub fn busy_status(self, status: BusyStatus) -> Self {
        self.with(|options| options.common.busy_status = status)
    }

    /// Adds the headers `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers to the responses to
    /// requests that are refused because others hold the lock. They tell how many may hold it at once, under the policy
    /// `name`, and that nothing is left. Default: no such headers. Quotes, backslashes and all that is not printable ASCII
    /// are left out of `name`; if nothing is left of it, there are no headers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_redlock::{LockManager, RedlockLayer, key};
    ///
    /// # let locks = LockManager::builder().memory(3).connect().await?;
    /// // `RateLimit-Policy: "reports";q=3;qu="concurrent-requests"` and `RateLimit: "reports";r=0`
    /// let layer = RedlockLayer::new(locks.permits(3)?, key::header("x-tenant")).rate_limit("reports");
    /// # let _ = layer;
    /// # Ok(()) }
    /// ```
    pub fn rate_limit(self, name: &str) -> Self {
        self.with(|options| {
            let common = &mut options.common;
            common.rate_limit = RateLimit::new(name, common.locks.limit().unwrap_or(1));
        })
    }

    /// The value of `Retry-After` in responses to requests that may be retried, in whole seconds, rounded up, and at
    /// least one. Default: one second. In a quarantine it is what is left of that.
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

    /// Locks requests of these methods, too, as [readers](LockManager::shared): they run together, and no other request
    /// that is locked runs beside them. For example GET and HEAD, which have no lock by default. Not for a layer of
    /// permits; nor with a handle for readers, with which all methods are. Default: no method.
    pub fn shared_for(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::Only(methods.into_iter().collect());
        self.with(|options| options.shared = methods)
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

    /// The fate of a request whose client disconnects while it runs. Default: [`OnDisconnect::Cancel`]. After this call
    /// the layer needs a service whose future, response and error are `Send + 'static`.
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> RedlockLayer<OnDisconnect> {
        let layer = self.with(|options| options.common.on_disconnect = on_disconnect);
        RedlockLayer {
            options: layer.options,
            disconnect: PhantomData,
        }
    }

    /// How many requests may run on at once without their clients, by [`OnDisconnect::RunToEnd`]. While so many do,
    /// another is refused with `503 too-many-detached`, because it may lose its client, too. Default: 64. Zero is
    /// [`OnDisconnect::Cancel`].
    pub fn max_detached(self, requests: usize) -> Self {
        self.with(|options| options.common.max_detached = requests)
    }

    /// What happens to a request when too few nodes reply. Default: [`OnNoQuorum::Reject`].
    pub fn on_no_quorum(self, on_no_quorum: OnNoQuorum) -> Self {
        self.with(|options| options.common.on_no_quorum = on_no_quorum)
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
        let common = &self.options.common;
        let detachments = common.detachments().cloned();
        let inner = RunToEndService::new(inner, common.on_lost, detachments);
        RedlockService::new(inner, Arc::clone(&self.options))
    }
}

/// The time that the client is willing to wait, by its header `Prefer: wait=2` (RFC 7240), in whole seconds. For
/// [`RedlockLayer::max_wait_with`](super::RedlockLayer::max_wait_with).
///
/// The first `wait` of several headers and lists counts. `None` if there is none or it is no number of seconds: a
/// preference is a wish, so a malformed one is ignored. `wait=0`: the client does not wait.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use http::Request;
/// use tower_redlock::layer::prefer_wait;
///
/// let request = Request::post("/orders/7/pay").header("prefer", "respond-async, wait=2").body(());
/// let (parts, ()) = request.unwrap().into_parts();
/// assert_eq!(prefer_wait(&parts), Some(Duration::from_secs(2)));
/// ```
#[must_use]
pub fn prefer_wait(parts: &Parts) -> Option<Duration> {
    // Lazily and without a copy, so that a hostile header is read once or twice at most; the server bounds its length.
    let lists = parts.headers.get_all("prefer").iter();
    let mut preferences = lists.flat_map(|list| list.as_bytes().split(outside_quotes(b',')));
    // The first decides even if it is malformed, or a proxy and this layer might read two different ones.
    let first = preferences.find_map(wait)?;
    seconds(first).map(Duration::from_secs)
}

/// The value of a preference if it is `wait`; empty if it has none.
fn wait(preference: &[u8]) -> Option<&[u8]> {
    let without_parameters = preference.split(outside_quotes(b';')).next()?;
    let mut pair = without_parameters.splitn(2, |byte| *byte == b'=');
    let name = pair.next()?.trim_ascii();
    let value = pair.next().unwrap_or_default().trim_ascii();
    name.eq_ignore_ascii_case(b"wait").then_some(value)
}

/// Digits and nothing else, in quotes or not: no sign, no fraction, no more than fits.
fn seconds(value: &[u8]) -> Option<u64> {
    let unquoted = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    let digits = str::from_utf8(unquoted.unwrap_or(value)).ok()?;
    // `parse` would take a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Finds the separators of a list, but not those inside a quoted string.
fn outside_quotes(separator: u8) -> impl FnMut(&u8) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    move |byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            byte => return !quoted && *byte == separator,
        }
        false
    }
}
