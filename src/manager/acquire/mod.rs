//! From a caller's request for a lock to its result: the queue of this process, then rounds over the nodes.
//!
//! ```text
//!   enter ──► enqueue ──► contender ──► round ──► nodes
//!     │ call                  │ wait, pacing, notices (between two rounds)
//!     └── outcome ◄───────────┘
//! ```

pub(crate) mod call;
pub(crate) mod contender;
pub(crate) mod enqueue;
pub(crate) mod enter;
pub(crate) mod notices;
pub(crate) mod outcome;
pub(crate) mod pacing;
pub(crate) mod round;
pub(crate) mod seat;
pub(crate) mod wait;
