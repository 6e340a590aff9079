//! Which caller of this process is next. [`fifo`] is the queue; it knows nothing of locks and nodes. [`waiting`] has
//! the holder of a key, the waiting callers, and the keys that others are to have first.

pub(crate) mod fifo;
pub(crate) mod waiting;

/// The locks of [`fifo`]: the standard library's here, a model checker's in `tests/queue`.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}
