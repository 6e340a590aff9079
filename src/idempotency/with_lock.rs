//! [`WithLock`]: an idempotency layer and the lock layer directly inside of it.

use std::fmt;

use tower_layer::Layer;

use super::layer::IdempotencyLayer;
use super::service::IdempotencyService;
use crate::middleware::RedlockService;

/// An [`IdempotencyLayer`] and a [`RedlockLayer`](crate::RedlockLayer) inside of it, with nothing in between. Made by
/// [`IdempotencyLayer::with_lock`].
#[must_use = "a layer does nothing until it is put around a service"]
pub struct WithLock<C, L> {
    keys: IdempotencyLayer<C>,
    lock: L,
}

impl<C, L> WithLock<C, L> {
    pub(super) const fn new(keys: IdempotencyLayer<C>, lock: L) -> Self {
        Self { keys, lock }
    }
}

impl<C, L: Clone> Clone for WithLock<C, L> {
    fn clone(&self) -> Self {
        Self::new(self.keys.clone(), self.lock.clone())
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

// That the service directly inside is a lock layer's, and nothing that acts before it asks for a lock, is not left to
// be said: it is the type.
impl<S, C, L, I, K> Layer<S> for WithLock<C, L>
where
    L: Layer<S, Service = RedlockService<I, K>>,
{
    type Service = IdempotencyService<RedlockService<I, K>, C>;

    fn layer(&self, inner: S) -> Self::Service {
        self.keys.layer(self.lock.layer(inner)).with_lock_inside()
    }
}
