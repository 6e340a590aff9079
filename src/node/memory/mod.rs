//! [`MemoryNode`]: a node inside the process, for development, tests and single-process services.

mod completion;
mod counters;
#[cfg(feature = "test-util")]
mod faults;
#[cfg(feature = "test-util")]
mod hooks;
mod key_map;
mod listeners;
mod markers;
mod node;
mod records;
mod store;

#[cfg(feature = "test-util")]
pub use self::hooks::MemorySnapshot;
pub use self::node::MemoryNode;
