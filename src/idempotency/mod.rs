//! Answers that are kept: a request that is sent again gets the first answer, and does not run again.
//!
//! # What a retry gets after a crash
//!
//! A process that is killed while a request runs leaves a lock behind, which ends by itself within one ttl. What the
//! next request with the key gets then, from any process:
//!
//! | the process ended | a retry | a second effect is excluded by |
//! |---|---|---|
//! | with the lock, before the handler | runs, within a ttl | there was none |
//! | in the handler, before its effect | runs again, within a ttl | there was none |
//! | in the handler, after its effect | **runs again**, within a ttl | a unique key in the database |
//! | after the handler, before a node had the record | **runs again**, within a ttl | a unique key in the database |
//! | with the record on fewer nodes than a quorum | gets the first answer, which is brought to a quorum before; or, if none of those nodes is among the first that answer, **runs again**, within a ttl | a unique key in the database |
//! | with the record on a quorum, before its client had the answer | gets the first answer, at once | it does not run |
//! | not at all, but stood still for longer than a ttl, in the handler before its effect | **runs again**, within a ttl; the first run is told that its lock is lost, or that the outcome is unknown | a unique key, or the fencing number, in the transaction of the effect |
//! | not at all, but stood still for longer than a ttl, between its effect and the record | **runs again**, within a ttl; the nodes refuse the record of the first run, whose client is told that the outcome is unknown | a unique key in the database |
//!
//! Whichever it is: once one client was given an answer, every other is given the same. A retry that runs again may
//! well come to another answer than the one that was lost, which then nobody has seen.
//!
//! So what a handler does should be safe to do twice. Where it writes to a database:
//!
//! * *A unique key*: the row of the effect has a column for the idempotency key (and the caller), with a unique index.
//!   The handler inserts it with `ON CONFLICT DO NOTHING`, in the same transaction as everything else that it does
//!   there, then reads the row that is there, and answers from that. This excludes every second effect.
//! * *The [fencing number](Idempotent::fence)*: the database keeps the highest number of each key and refuses lower
//!   ones in the same transaction. This excludes a run that stood still and was overtaken. It does **not** exclude a
//!   retry after a crash, whose number is the greater one.
//!
//! Effects elsewhere, such as a call of a payment provider, need a key of their own that the other side knows by; the
//! idempotency key, with the caller, is one.

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
