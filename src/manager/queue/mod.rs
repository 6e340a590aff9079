//! Which caller of this process is next. [`fifo`] is the queue, and knows nothing of locks and nodes. [`waiting`] has
//! the data that waiting callers read.

pub(crate) mod fifo;
pub(crate) mod waiting;

/// The locks of [`fifo`]: the standard library's here, a model checker's in `tests/queue`.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}
