//! The queue of the manager, the very code that the library runs: once with the locks of the model checker `loom`,
//! which tries every order in which threads can get at them, and once with those of the standard library, against
//! a simple reference under random operations.
//!
//! Every model is explored in full unless it names a bound, and each lists the outcomes that must be seen in some
//! order: a race that is never run proves nothing.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, also in its helpers"
)]
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "the checker's threads are not those of the system"
)]

/// What the module of this name in `src/manager/queue/mod.rs` is in the library.
mod sync {
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

#[path = "../../src/manager/queue/fifo/mod.rs"]
#[allow(dead_code, reason = "the models need a part of it")]
mod queue;

mod bounds;
mod closing;
mod entering;
mod handing;
mod passing;
mod plain;
mod reference;
mod several;
mod world;
