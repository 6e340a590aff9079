//! Stored responses: a repeated request gets the first response, and does not run again.
//!
//! An [`IdempotencyLayer`] sends one command to the nodes before the handler, which acquires the lock of the request's
//! `Idempotency-Key` or finds the response, and one after it, which stores the response and releases the lock.
//!
//! **The handler may run twice**: its process may die, or lose the lock, after the effect and before the response was
//! stored. A unique key in the database excludes the second effect.
//!
//! The guide has the rules and the examples (`docs::idempotency`): the place of the layer, the owner of a key, the
//! response to each repeat and after each failure, refusals that are not stored, and how many nodes may lose a record.

pub mod caller;
mod exchange;
mod fingerprint;
mod key;
mod recorded;
mod service;
mod stored_response;

pub use fingerprint::FingerprintHeaders;
pub use key::{IdempotencyKey, IdempotencyKeyError, Idempotent};
pub use recorded::{OnUnrecorded, RecordPolicy, RecordedHeaders};
pub use service::{IdempotencyLayer, IdempotencyService, ResponseFuture, WithLock};

#[cfg(test)]
mod tests;
