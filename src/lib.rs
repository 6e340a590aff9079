//! A distributed request lock for tower and axum.

mod builder;
pub mod clock;
#[cfg(feature = "axum")]
pub mod extract;
pub mod lease;
mod lock_key;
mod manager;
pub mod middleware;
mod moment;
pub mod namespace;
pub mod node;
mod protocol;
pub mod token;
mod trace;

pub use builder::LockManagerBuilder;
#[cfg(feature = "axum")]
pub use extract::Held;
pub use lease::Lease;
pub use lock_key::{KeyError, LockKey};
pub use manager::{
    AcquireError, ConfigError, ConnectError, Contended, LockGuard, LockHandle, LockManager,
    LossReason, Lost, Misconfigured, NoEntropy, NoQuorum, NodeFailure, NodeStatus, ReleaseError,
    RunError, ShutdownReport, ShuttingDown, TooSlow, Unconfirmed, WaitTimeout,
};
pub use middleware::{BusyStatus, RedlockLayer};
pub use moment::Moment;

/// Where lock keys come from: [`key::header`], [`key::query`] and their like, to be put together with
/// [`prefix`](key::Key::prefix), [`and`](key::Key::and), [`optional`](key::Key::optional) and
/// [`when`](key::Key::when).
///
/// A key is a list of parts, joined by `:` after each was escaped, so that `("a:b", "c")` and `("a", "b:c")` never
/// meet, whatever clients send. Parts stand in the order in which their sources are written down.
///
/// ```
/// use tower_redlock::key;
///
/// // A POST to `/transfer?from=7` with the header `x-tenant: acme` locks `account:acme:7`.
/// let account = key::header("x-tenant").and(key::query("from")).prefix("account");
/// # let _ = account;
/// ```
///
/// A request without what its key is made of is answered with `400 invalid-key`, unless the source is optional:
/// then it runs without a lock.
pub mod key {
    #[cfg(feature = "axum")]
    pub use crate::extract::key::{PathParam, RoutePath, matched_path, path, routed};
    pub use crate::lock_key::{KeyError, KeyParts, LockKey};
    pub use crate::middleware::key::{
        And, Collected, FromFn, Header, IntoKeyPart, Key, KeySource, Method, Optional, Prefix,
        Query, When, from_fn, header, method, query,
    };
}
