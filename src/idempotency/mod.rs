//! Answers that are kept: a request that is sent again gets the first answer, and does not run again.

mod body;
pub mod caller;
mod exchange;
mod fingerprint;
mod hashing;
mod headers;
mod idempotent;
mod key;
mod layer;
mod options;
mod policy;
mod problem;
mod problem_kind;
mod record;
mod route;
mod scope;
mod service;

pub use crate::conduct::OnLost;
pub use body::{RequestBody, ResponseBody};
pub use fingerprint::{Fingerprint, FingerprintHeaders, Fingerprinter};
pub use headers::{IDEMPOTENT_REPLAYED, IDEMPOTENT_UNRECORDED, RecordedHeaders};
pub use idempotent::Idempotent;
pub use key::{IDEMPOTENCY_KEY, IdempotencyKey, IdempotencyKeyError};
pub use layer::IdempotencyLayer;
pub use options::{OnDisconnect, OnUnrecorded};
pub use policy::{DefaultRecordPolicy, RecordPolicy};
pub use problem::{
    DefaultResponseForIdempotencyRejection, IdempotencyRejection, ResponseForIdempotencyRejection,
};
pub use problem_kind::IdempotencyRejectionKind;
pub use record::{Answer, Outcome, Stored, StoredError};
pub use scope::Scope;
pub use service::{IdempotencyService, ResponseFuture};
