//! Answers that are kept: a request that is sent again gets the first answer, and does not run again.

#[cfg_attr(not(test), expect(dead_code, reason = "for the service to come"))]
mod body;
pub mod caller;
mod fingerprint;
mod hashing;
mod headers;
mod key;
mod policy;
#[cfg_attr(not(test), expect(dead_code, reason = "for the service to come"))]
mod problem;
mod problem_kind;
mod record;
mod scope;

pub use body::{RequestBody, ResponseBody};
pub use fingerprint::{Fingerprint, FingerprintHeaders, Fingerprinter};
pub use headers::{IDEMPOTENT_REPLAYED, RecordedHeaders};
pub use key::{IDEMPOTENCY_KEY, IdempotencyKey, IdempotencyKeyError};
pub use policy::{DefaultRecordPolicy, RecordPolicy};
pub use problem::{
    DefaultResponseForIdempotencyRejection, IdempotencyRejection, ResponseForIdempotencyRejection,
};
pub use problem_kind::IdempotencyRejectionKind;
pub use record::{Answer, Outcome, Stored, StoredError};
pub use scope::Scope;
