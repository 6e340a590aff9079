//! The locks of [`queue`](super::queue): the standard library's here, a model checker's in `tests/queue`.

pub(super) use std::sync::{Mutex, MutexGuard};
