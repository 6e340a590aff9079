//! Answers that are kept: a request that is sent again gets the first answer, and does not run again.

pub mod caller;
mod fingerprint;
mod hashing;
mod key;
mod scope;

pub use fingerprint::{Fingerprint, FingerprintHeaders, Fingerprinter};
pub use key::{IDEMPOTENCY_KEY, IdempotencyKey, IdempotencyKeyError};
pub use scope::Scope;
