//! [`WithLock`]: an idempotency layer and the lock layer directly inside it.

use std::fmt;

use tower_layer::Layer;

use super::layer::IdempotencyLayer;
use super::service::IdempotencyService;
use crate::middleware::RedlockService;

/// An [`IdempotencyLayer`] and a [`RedlockLayer`](crate::RedlockLayer) inside it, with nothing in between. Made by
/// [`IdempotencyLayer::with_lock`].
#[must_use = "a layer does nothing until it is put around a service"]
pub struct WithLock<C, L> {
    keys: IdempotencyLayer<C>,
    lock: L,
}

impl<C> IdempotencyLayer<C> {
    /// Puts a [`RedlockLayer`](crate::RedlockLayer) directly inside, with nothing in between: its refusal, because
    /// another request holds the lock, is [not stored](super#what-was-not-processed), and a repeat runs. An idempotency
    /// layer further out, also this one put there once more, does store that refusal.
    ///
    /// For how long a request waits for that lock does not count towards the `max_hold` of the handle that was given to
    /// [`new`](Self::new): the handler has all of it. The lock inside has the `max_hold` of its own handle.
    ///
    /// Call it last: it returns both layers as one. `lock` may be any layer whose service is a
    /// [`RedlockService`]; no other compiles.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "axum")] mod example {
    /// use axum::{Router, routing::post};
    /// use tower_redlock::idempotency::caller;
    /// use tower_redlock::{IdempotencyLayer, LockManager, RedlockLayer, key};
    ///
    /// # async fn pay() {}
    /// fn app(locks: &LockManager) -> Router {
    ///     let account = key::path("account").prefix("account");
    ///     let one_at_a_time = RedlockLayer::new(locks.clone(), account);
    ///     let once = IdempotencyLayer::new(locks.clone(), caller::header("x-account"));
    ///     let pay = post(pay).route_layer(once.with_lock(one_at_a_time));
    ///     Router::new().route("/accounts/{account}/payments", pay)
    /// }
    /// # }
    /// ```
    pub const fn with_lock<L>(self, lock: L) -> WithLock<C, L> {
        WithLock { keys: self, lock }
    }
}

impl<C, L: Clone> Clone for WithLock<C, L> {
    fn clone(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            lock: self.lock.clone(),
        }
    }
}

impl<C, L: fmt::Debug> fmt::Debug for WithLock<C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithLock")
            .field("keys", &self.keys)
            .field("lock", &self.lock)
            .finish()
    }
}

// The type guarantees that the service directly inside is a lock layer's, and nothing that acts before the lock is
// acquired.
impl<S, C, L, I, K> Layer<S> for WithLock<C, L>
where
    L: Layer<S, Service = RedlockService<I, K>>,
{
    type Service = IdempotencyService<RedlockService<I, K>, C>;

    fn layer(&self, inner: S) -> Self::Service {
        self.keys.layer(self.lock.layer(inner)).with_lock_inside()
    }
}
