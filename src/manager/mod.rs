//! [`LockManager`]: locks over a set of nodes.
//!
//! ```text
//!   LockManager ── acquire ──► queue                       (one caller per key contends, the others wait)
//!        │           │ its turn            ▲
//!        │           ├─► notices           │ hand-off, or a turn
//!        │           └─► round ──► nodes   │               (polled by the caller)
//!        │                │ won            │
//!        │                ▼                │
//!        │             lease ◄── guard ────┘               (one held lock)
//!        │                ▲  ▲
//!        ├── renewal ─────┘ extend, top up, announce loss  (one task, one timer)
//!        └── tasks: late replies, releases                 (they outlive their caller)
//! ```

mod acquire;
mod drain;
mod error;
mod guard;
mod handles;
mod idempotent;
mod lease;
mod ledger;
mod lock_manager;
mod nodes;
mod notified;
mod queue;
mod readiness;
mod release;
mod renewal;
mod scope;
mod shared;
mod shutdown;
mod snapshot;
mod start;

mod target;
mod tasks;

pub use self::error::acquire::{
    AcquireError, Contended, NoEntropy, NoQuorum, NodeFailure, QueueFull, ShuttingDown, TooSlow,
    WaitTimeout,
};
pub use self::error::connect::{ConnectError, Misconfigured};
pub use self::error::loss::LossReason;
pub use self::error::release::{CompleteError, ReleaseError, ReleaseUnconfirmed, RunError};
pub use self::guard::{LockGuard, LockHandle};
pub use self::idempotent::{IdempotentRun, RunGuard};
pub use self::lease::lost::Lost;
pub use self::lock_manager::LockManager;
pub use self::nodes::voting::status::VotingStatus;
pub use self::scope::LockScope;
pub use self::shutdown::ShutdownReport;
pub use self::snapshot::{HeldLock, NodeStatus, QueueStatus, Snapshot};
