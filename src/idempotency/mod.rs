//! Stored responses: a repeated request gets the first response, and does not run again.
//!
//! **The handler may run twice**: its process may die, or lose the lock, after the effect and before the response was
//! stored. The database excludes the second effect: `docs::one_effect`.
//!
//! The guide has the rules and the examples: `docs::one_effect`.

pub mod caller;
mod exchange;
mod fingerprint;
mod key;
mod options;
mod recorded;
mod run;
mod service;
mod stored_response;

pub use fingerprint::FingerprintHeaders;
pub use key::{IdempotencyKey, IdempotencyKeyError};
pub use recorded::{OnUnrecorded, RecordPolicy, RecordedHeaders};
pub use run::Idempotent;
pub use service::{IdempotencyLayer, IdempotencyService, ResponseFuture, WithLock};

#[cfg(test)]
mod tests;
