//! The lock protocol as pure functions and folds: no I/O, no clock, no randomness.
//!
//! ```text
//!   replies of nodes                       verdict                  replies to extends
//!        │                                    │                             │
//!        ▼                                    ▼                             ▼
//!     [round] ── quorum reached? ──► granted: [quorum] gives ──► [renewal] keeps the deadline,
//!        │                           the deadline and the        tells when to extend and what is owed
//!        │                           fencing token
//!        ├──► contended ┐
//!        ├──► split     ├──► [backoff] tells how long to pause
//!        └──► no quorum ┘
//! ```
//!
//! The algorithm is Redlock as described in the Redis documentation ("Distributed locks with Redis"), with two
//! differences: the deadline counts from the moment the request was sent, also of a renewal, and a verdict is taken as
//! soon as the missing replies can no longer change it.

pub(crate) mod backoff;
pub(crate) mod quorum;
#[cfg(feature = "idempotency")]
pub(crate) mod recall;
pub(crate) mod renewal;
pub(crate) mod round;
