//! From a caller's request for a lock to its result: the queue of this process, then rounds over the nodes.
//!
//! ```text
//!   call ──► turn ──► contender ──► round ──► nodes
//!    ▲                 │  │ wait (between two rounds)
//!    └── Acquired ◄────┘
//! ```

pub(crate) mod call;
pub(crate) mod contender;
pub(crate) mod turn;
pub(crate) mod wait;
