//! [`IdempotencyLayer`]: a request that is sent again gets the first response. The guide has the rules and examples in
//! `docs::one_effect`.
//!
//! **The handler can still run twice**, for example if its process dies after the effect and before the response was
//! stored. If the handler stores the response in its own database transaction, there is no second effect.

pub mod caller;
mod exchange;
mod fingerprint;
mod key;
mod options;
mod recorded;
mod run;
mod service;
mod stored_response;

pub use crate::manager::{IdempotentRun, RunGuard};
pub use key::{IdempotencyKey, IdempotencyKeyError};
pub use recorded::OnUnrecorded;
pub use run::Idempotent;
pub use service::IdempotencyLayer;
#[cfg(tower_redlock_tests)]
pub use service::IdempotencyService;
#[cfg(tower_redlock_tests)]
pub use service::WithLock;

#[cfg(test)]
mod tests;
