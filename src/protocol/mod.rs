//! The lock protocol as pure functions and folds: no I/O, no clock, no randomness.
//!
//! [`on_nodes`] folds the replies of nodes into a verdict and a deadline, [`quorum`] gives the fencing token,
//! [`renewal`] says when to extend a lease, and [`backoff`] how long to pause after a round that got no lock.
//!
//! The algorithm is Redlock as in the Redis documentation ("Distributed locks with Redis"), with two differences: the
//! deadline counts from the moment the request was sent, and a verdict is taken as soon as missing replies cannot
//! change it.

pub(crate) mod backoff;
pub(crate) mod on_nodes;
pub(crate) mod quorum;
#[cfg(feature = "idempotency")]
pub(crate) mod recall;
pub(crate) mod renewal;
