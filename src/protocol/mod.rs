//! The lock protocol as pure functions: no I/O, no clock, no randomness.
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
