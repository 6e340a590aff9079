//! [`RedlockLayer`]: requests that touch the same resource run one at a time.
//!
//! The layer extracts a lock key from each request, acquires the lock on a majority of the nodes, runs the inner
//! service, and releases the lock. It works around any tower service that speaks `http`; axum is not needed.
//! The inner service's error type is unchanged: the layer refuses a request by a response. The inner service must
//! be `Clone`, as for every layer that works before it calls.
//!
//! # Where to put it
//!
//! As near to the handler as the key allows. In axum that is around a method: `post(pay).route_layer(layer)`. Then
//! requests for which this handler does not run touch no node: neither the wrong path (404) nor the wrong method (405).
//! `key::path` (feature `axum`) has a table of the placements.
//!
//! `Router::route_layer` runs for every method of a matched path, also for methods that axum then refuses with 405; a
//! layer cannot tell, because axum shows it the same service for both. Set
//! [`.methods([Method::POST])`](RedlockLayer::methods) there, or a request with a wrong method holds the lock while it
//! is refused. `Router::layer` runs for unmatched paths too; a key from the route (`key::path`, `key::matched_path`)
//! lets them run unlocked, and other keys do so with `.when(key::routed)`.
//!
//! A time-out layer may stand on either side. Inside, it ends the handler, and the lock is released before the response
//! goes out. Outside, it covers the acquisition and `max_wait` too, but it drops this layer's future: the lock is
//! released in the background, and a client that retries at once, on another replica, may still get 409.
//!
//! # Long holds
//!
//! The lock is acquired when the request's head is there, before the handler reads the body, and with
//! [`HoldUntil::BodyEnd`] it is held until the response has been passed on. A client that sends or reads slowly holds
//! the lock up to the manager's `max_hold`. Put a time-out inside, or read the body outside.
//!
//! # Nested layers
//!
//! The locks of a request are shared: a second layer with the same key, or a handler that acquires it with the
//! request's [`LockScope`](crate::LockScope) by [`acquire_in`](crate::LockManager::acquire_in), has the same lease,
//! which is released when the last of them is done. A handler that calls [`acquire`](crate::LockManager::acquire) is
//! another contender, and waits for its own request. The scope is an extractor with the feature `axum`; other services
//! get it by [`lock_scope`].
//!
//! A request that holds a lock waits only for keys that sort after it; for others it tries once, and is refused if they
//! are held. So routes whose layers acquire the same locks in opposite orders never wait for each other. Copies of a
//! request that keep its extensions share its locks, too: a hedging layer belongs outside this one.
//!
//! # Waiting
//!
//! A request whose lock is held is refused at once, unless [`max_wait`](RedlockLayer::max_wait) lets it wait, or
//! [`max_wait_with`](RedlockLayer::max_wait_with) does for this request: [`prefer_wait`] reads a client's
//! `Prefer: wait=2`. What is said of one request is bounded by the manager's
//! [`max_wait`](crate::Settings::max_wait), 5 s unless set, or by the layer's where that is more.
//!
//! Within a process, requests for one key get it in the order of their arrival, and a request that does not wait never
//! gets it before them. Between processes no order is promised; see [`LockManager`](crate::LockManager#fairness). A
//! request whose client disconnects leaves the queue at once.
//!
//! Of one manager, [64](crate::Settings::max_waiters_per_key) requests may wait for one key and
//! [10,000](crate::Settings::max_waiters) in all, besides those that hold their locks. The next one is
//! refused with `queue-full`. That is 503 and not the [busy status](RedlockLayer::busy_status), because the cause is
//! load and not the resource; and no lock is missing because nodes fail, so [`RunUnlocked`](OnNoQuorum::RunUnlocked)
//! does not apply.
//!
//! When a request is done and others of its process wait, the lock passes to the first of them without a command to the
//! nodes: see [`HandOff`](crate::settings::HandOff) for the bounds, and for what that excludes. The next handler starts
//! when the previous one is dropped, so work that a handler leaves behind in a task of its own overlaps with it, as
//! after every release.
//!
//! # Requests without a lock
//!
//! GET, HEAD, OPTIONS and TRACE, unless [set otherwise](RedlockLayer::all_methods), and requests for which the
//! extractor returns no key. They send no command to any node.
//!
//! # What the handler gets
//!
//! [`Held`] is the [`LockHandle`](crate::LockHandle) of the innermost layer: an extractor with the feature `axum`, and
//! [`Held::of`] the request's extensions elsewhere. It also has the time that the request
//! [waited](crate::LockHandle::waited). Where the request runs without a lock, [`HeldRejection`] has the reason. Once
//! the response is out, the handle is lost.
//!
//! # Services that call services
//!
//! A lock is not passed on. A service that calls another one sends the [fencing token](crate::LockHandle::fence) along,
//! and the resource that both write to refuses a token that is too low.
//!
//! # How it fails
//!
//! | event | default response | `type` after `urn:tower-redlock:problem:` |
//! |---|---|---|
//! | no key, or none that can be used | 400 | `invalid-key` |
//! | another request holds the lock | 409, [or as set](RedlockLayer::busy_status), `Retry-After`, `remaining_ms` | `contended` |
//! | still held after [`max_wait`](RedlockLayer::max_wait) | the same | `wait-timeout` |
//! | [too many requests wait](#waiting) | 503, `Retry-After` | `queue-full` |
//! | too few nodes reply | 503, `Retry-After`; [or it runs unlocked](RedlockLayer::on_no_quorum) | `no-quorum` |
//! | the lock is lost while the handler runs | 503, the handler is dropped; [or it continues](RedlockLayer::on_lost) | `lock-lost` |
//! | the manager shuts down | 503, `Retry-After` | `shutting-down` |
//! | a path parameter is needed that the route does not have, or outside any router | 500, and an error in the log | `misconfigured` |
//!
//! Bodies are `application/problem+json`; [`RedlockLayer::rejection_response`] replaces them.

mod admission;
mod future;
mod held;
pub(crate) mod key;
mod prefer;
mod service;
mod settings;

pub use crate::http::body::{BodyLockLost, BoxError, LayerBody};
pub use crate::http::rejection::{BusyStatus, Rejection, RejectionKind};
pub use crate::http::run_to_end::RunToEndService;
pub use crate::http::settings::{OnDisconnect, OnLost};
pub use crate::http::state::{UnlockedReason, lock_scope};
pub use admission::{HoldUntil, OnNoQuorum, ReleaseMode};
pub use future::ResponseFuture;
pub use held::{Held, HeldRejection};
pub use key::{IntoKey, KeyExtractor};
pub use prefer::prefer_wait;
pub use service::RedlockService;
pub use settings::RedlockLayer;
