//! `RedisNode` against real servers that are killed, frozen, restarted and misconfigured, and against fakes that
//! answer nonsense. What all nodes have in common is in the suite `conformance`.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
mod support;

mod confirmation;
mod credentials;
mod failure;
mod looks;
mod nonsense;
mod notices;
mod optional;
mod refused;
mod replicas;
mod rights;
mod room;
mod sentinel;
#[cfg(feature = "tls")]
mod tls;

use tower_redlock::node::{NodeError, NodeErrorKind};

/// The kind of the error in `result`.
fn kind_of<T: std::fmt::Debug>(result: Result<T, NodeError>) -> NodeErrorKind {
    result.unwrap_err().kind()
}
