//! From a caller's request for a lock to its result: the queue of this process, then rounds over the nodes.
//!
//! ```text
//!   enter ──► enqueue ──► contender ──► round ──► nodes
//!     │ call                  │ wait, pacing, notices (between two rounds)
//!     └── outcome ◄───────────┘
//! ```

pub(in crate::manager) mod call;
pub(in crate::manager) mod contender;
pub(in crate::manager) mod enqueue;
pub(in crate::manager) mod enter;
pub(in crate::manager) mod notices;
pub(in crate::manager) mod outcome;
pub(in crate::manager) mod pacing;
pub(in crate::manager) mod round;
pub(in crate::manager) mod seat;
pub(in crate::manager) mod wait;
