//! For axum: the extractors [`Held`] and [`Locked`], and keys from the route.
//!
//! The keys are in [`key`](crate::key): [`path`](crate::key::path), [`matched_path`](crate::key::matched_path) and the
//! condition [`routed`](crate::key::routed).

mod held;
#[cfg(feature = "idempotency")]
mod idempotent;
mod locked;

pub use crate::layer::Held;
pub use locked::{AsLockKeys, Locked, LockedRejection};
