//! [`MemoryNode`]: a node inside the process, for development, tests and single-process services.

mod counters;
#[cfg(feature = "test-util")]
mod faults;
#[cfg(feature = "test-util")]
mod hooks;
pub(super) mod key_map;
mod listeners;
pub(super) mod markers;
mod node;
#[cfg(feature = "idempotency")]
mod records;
pub(super) mod store;

#[cfg(feature = "test-util")]
pub use self::hooks::MemorySnapshot;
pub use self::node::MemoryNode;
