//! A distributed request lock for tower and axum, on one Redis or on several (Redlock), as a layer and an extractor.
//!
//! Requests that touch the same resource run one at a time, across all replicas of a service. A [`RedlockLayer`]
//! derives a [`LockKey`] from each request, acquires that lock before the inner service runs, and releases it when the
//! response is done or dropped. While another request holds the key, a request waits up to `max_wait`, or is answered
//! with 409 immediately.
//!
//! Use this crate where two requests for one order, account or document must not run at the same time, and a database
//! transaction cannot ensure that because the work calls other services or spans several stores.
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "axum")] mod example {
//! use axum::{Router, extract::Path, routing::post};
//! use tower_redlock::{Held, LockManager, RedlockLayer, key};
//!
//! async fn pay(lock: Held, Path(order_id): Path<u64>) -> String {
//!     format!("order {order_id} is paid under {}", lock.key())
//! }
//!
//! # async fn app() -> Result<Router, tower_redlock::error::ConnectError> {
//! // Or `.redis("redis://localhost")`.
//! let locks = LockManager::builder().memory(1).connect().await?;
//! let layer = RedlockLayer::new(locks, key::path("order_id").parse::<u64>().prefix("order"));
//! let app = Router::new().route("/orders/{order_id}/pay", post(pay).route_layer(layer));
//! # Ok(app) }
//! # }
//! ```
//!
//! # Items
//!
//! | item | use |
//! |---|---|
//! | [`LockManager`] | connects to the nodes, once per process, and acquires locks outside of the layer |
//! | [`Settings`] | its nodes and settings, from code, files and the environment |
//! | [`RedlockLayer`] | runs each request under the lock of its [`key`] |
//! | `IdempotencyLayer` | answers repeated requests with the first response |
//! | [`Held`], `Locked` | extract the layer's lock; lock a key from an argument of the handler |
//! | [`LockGuard`], [`LockHandle`] | owns a lock and releases it; observes a lock |
//! | [`LockScope`] | shares locks within one request |
//! | [`FencingToken`] | a number that grows with every holder, so that storage can refuse late writes |
//! | [`AcquireError`] | why a lock was not acquired; other errors are in [`error`] |
//!
//! If a future is dropped at any point, its locks are released in the background. If the process dies, the nodes drop
//! its locks after their ttl. `docs::promises` has the promises and their limits.
//!
//! # Feature flags
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `redis` | yes | Redis and Valkey servers as nodes |
//! | `axum` | yes | the extractors `Held` and `Locked`, and keys from path parameters, matched paths and extractors |
//! | `tls` | no | `rediss://` URLs, by rustls with the ring provider |
//! | `idempotency` | no | `IdempotencyLayer`; `LockManager::begin_idempotent` |
//! | `tracing` | yes | events and a span through `tracing` |
//! | `metrics` | no | counters, gauges and histograms through `metrics` |
//! | `inspect` | no | `InspectService`: a page of nodes, held locks and queues, for operators |
//! | `cli` | no | the program `redlock`, for operators |
//! | `test-util` | no | faults for memory nodes, and a clock that follows tokio's paused time |

#![cfg_attr(
    all(
        any(doc, doctest),
        feature = "axum",
        feature = "redis",
        feature = "idempotency",
        feature = "inspect",
        feature = "metrics",
        feature = "test-util"
    ),
    doc = "\n# Guide\n\n[`docs`] has a guide: choosing the ttl and the nodes, the order of layers, every error and what to do, migrating from other libraries, and more."
)]
#![cfg_attr(
    not(tower_redlock_tests),
    allow(
        unreachable_pub,
        dead_code,
        unnameable_types,
        reason = "tests use the node port, and name what a user need not name"
    )
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::unimplemented))]
#![doc(test(no_crate_inject, attr(deny(warnings), allow(dead_code))))]

#[cfg(tower_redlock_tests)]
pub mod clock;
#[cfg(not(tower_redlock_tests))]
mod clock;
// Only text for rustdoc. It links to items of these features.
#[cfg(all(
    any(doc, doctest),
    feature = "axum",
    feature = "redis",
    feature = "idempotency",
    feature = "inspect",
    feature = "metrics",
    feature = "test-util"
))]
pub mod docs;
#[cfg(feature = "axum")]
pub mod extract;
#[cfg(test)]
#[cfg(feature = "idempotency")]
#[path = "../tests/fuzz/replay.rs"]
mod fuzzed;
mod http;
#[cfg(feature = "idempotency")]
pub mod idempotency;
#[cfg(feature = "inspect")]
mod inspect;
mod instruments;
mod key_error;
pub mod layer;
mod lease;
mod lock_key;
mod manager;
#[cfg(feature = "metrics")]
pub mod metrics;
mod moment;
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "only servers need all names")
)]
mod namespace;
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "only servers need all of the port")
)]
pub mod node;
mod protocol;
mod seam;
mod settings;
mod token;
mod trace;

#[cfg(feature = "axum")]
pub use extract::Locked;
#[cfg(feature = "idempotency")]
pub use idempotency::IdempotencyLayer;
#[cfg(feature = "inspect")]
pub use inspect::InspectService;
pub use layer::{Held, RedlockLayer};
pub use lock_key::LockKey;
pub use manager::{AcquireError, LockGuard, LockHandle, LockManager, LockScope, Lost};
#[cfg(tower_redlock_tests)]
#[doc(hidden)]
pub use seam::simulation;
pub use settings::Settings;
pub use token::{FencingToken, OwnerHash};

/// The errors of managers and keys, except [`AcquireError`]. `docs::errors` says what to do about each error.
pub mod error {
    pub use crate::key_error::KeyError;
    #[cfg(feature = "idempotency")]
    pub use crate::manager::CompleteError;
    pub use crate::manager::{
        ConnectError, LossReason, NoQuorum, NodeFailure, ReleaseError, RunError,
    };
    pub use crate::settings::error::ConfigError;
    pub use crate::token::FencingTokenError;
}

/// The parts of a lock that our own tests inspect.
#[cfg(tower_redlock_tests)]
pub mod lock {
    pub use crate::lease::Lease;
}

/// The reports of a manager: [`LockManager::snapshot`], [`LockManager::holders`], [`LockManager::list`] and
/// [`LockManager::shutdown`].
pub mod snapshot {
    pub use crate::manager::{
        HeldLock, KeyHolder, KeyOnNode, KeyStatus, KeyVerdict, LockList, NodeStatus, QueueStatus,
        ShutdownReport, Snapshot, VotingStatus,
    };
    pub use crate::node::ServerStatus;
}

/// Sources of lock keys, such as [`key::header`] and [`key::query`]. Combine them with [`prefix`](key::Key::prefix),
/// [`and`](key::Key::and), [`optional`](key::Key::optional) and [`when`](key::Key::when).
///
/// [`LockKey::join`] makes the key of their parts. If a part is missing, the request is answered with
/// `400 invalid-key`, or runs without a lock if the source is optional.
///
/// ```
/// use tower_redlock::key;
///
/// // A POST to `/transfer?from=7` with the header `x-tenant: acme` locks `account:acme:7`.
/// let account = key::header("x-tenant").and(key::query("from")).prefix("account");
/// # let _ = account;
/// ```
pub mod key {
    #[cfg(tower_redlock_tests)]
    pub use crate::layer::key::{Also, IntoKeyPart, Value};
    pub use crate::layer::key::{Key, from_fn, header, method, query};
    #[cfg(feature = "axum")]
    pub use crate::layer::key::{from_extractor, matched_path, path, routed};
    pub use crate::lock_key::LockKeys;
}

#[cfg(all(doctest, feature = "axum", feature = "redis"))]
#[doc = include_str!("../README.md")]
mod readme {}
