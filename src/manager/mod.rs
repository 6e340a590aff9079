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
mod error;
mod guard;
mod lease;
mod ledger;
mod lock_manager;
mod nodes;
mod queue;
#[cfg(feature = "idempotency")]
mod records;
mod release;
mod round;
mod scope;
mod shared;
mod shutdown;
mod signal;
mod snapshot;
mod start;

mod tasks;
mod watchdog;

pub use self::error::ConnectError;
pub use self::error::LossReason;
pub use self::error::{AcquireError, NoQuorum, NodeFailure};
pub use self::error::{ReleaseError, RunError};
pub use self::guard::{LockGuard, LockHandle, Lost};
pub use self::lock_manager::LockManager;
pub use self::nodes::voting::state::VotingStatus;
#[cfg(feature = "idempotency")]
pub use self::records::run::{CompleteError, IdempotentRun, RunGuard};
pub use self::scope::LockScope;
pub use self::shutdown::ShutdownReport;
pub use self::snapshot::{HeldLock, NodeStatus, QueueStatus, Snapshot};
