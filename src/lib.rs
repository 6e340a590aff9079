//! A distributed request lock for tower and axum.

mod builder;
pub mod clock;
pub mod key;
pub mod lease;
mod manager;
mod moment;
pub mod namespace;
pub mod node;
mod protocol;
pub mod token;
mod trace;

pub use builder::LockManagerBuilder;
pub use key::{KeyError, LockKey};
pub use lease::Lease;
pub use manager::{
    AcquireError, ConfigError, ConnectError, Contended, LockGuard, LockHandle, LockManager,
    LossReason, Lost, Misconfigured, NoEntropy, NoQuorum, NodeFailure, NodeStatus, ReleaseError,
    RunError, ShutdownReport, ShuttingDown, TooSlow, Unconfirmed, WaitTimeout,
};
pub use moment::Moment;
