//! [`Idempotent`]: what a handler is told of the idempotency key under which it runs.

use std::fmt;

use super::key::IdempotencyKey;
use crate::manager::{LockHandle, RunGuard};
use crate::token::FencingToken;

/// What a handler is told of the idempotency key under which it runs. The layer puts it into the request's extensions;
/// with the feature `axum` it is an extractor.
#[derive(Clone)]
pub struct Idempotent {
    key: IdempotencyKey,
    fence: FencingToken,
    handle: LockHandle,
}

impl Idempotent {
    pub(super) fn new(key: IdempotencyKey, guard: &RunGuard) -> Self {
        Self {
            key,
            fence: guard.fence(),
            handle: guard.handle(),
        }
    }

    /// The key that the client chose.
    #[must_use]
    pub const fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The number of this run, greater than that of every run of the same key before. A database that keeps the highest
    /// number of each key, and refuses lower ones in the same transaction as the effect, excludes a run that was
    /// overtaken.
    #[must_use]
    pub const fn fence(&self) -> FencingToken {
        self.fence
    }

    /// The lock under which the request runs: whether it is lost, and how long it lasts. It cannot be
    /// [lent](LockHandle::lend).
    #[must_use]
    pub const fn handle(&self) -> &LockHandle {
        &self.handle
    }
}

impl fmt::Debug for Idempotent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotent")
            .field("key", &self.key)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}
