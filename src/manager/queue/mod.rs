//! Which caller of this process is next.
//!
//! [`fifo`] is the queue: the turns of keys, and the seats of callers that wait for them. It knows nothing of locks and
//! nodes. [`waiting`] is what is known beside it: who has a key, who waits, and which keys others are to have first.

pub(crate) mod fifo;
pub(crate) mod waiting;

/// The locks of [`fifo`]: the standard library's here, a model checker's in `tests/queue`.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}
