//! The lock protocol as pure functions and folds: no I/O, no clock, no randomness.
//!
//! ```text
//!   replies of nodes                       verdict                  replies to extends
//!        │                                    │                             │
//!        ▼                                    ▼                             ▼
//!     [on_nodes] ── quorum? ──► granted: [quorum] gives the ──► [on_nodes] knows the deadline and what is to be
//!        │                      fencing token                   released, [renewal] when to extend
//!        ├──► contended ┐
//!        ├──► split     ├──► [backoff] tells how long to pause
//!        └──► no quorum ┘
//! ```
//!
//! The algorithm is Redlock as described in the Redis documentation ("Distributed locks with Redis"), with two
//! differences: the deadline counts from the moment the request was sent, also of a renewal, and a verdict is taken as
//! soon as the missing replies can no longer change it.

pub(crate) mod backoff;
pub(crate) mod on_nodes;
pub(crate) mod quorum;
#[cfg(feature = "idempotency")]
pub(crate) mod recall;
pub(crate) mod renewal;
