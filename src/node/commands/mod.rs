//! The commands of a node, one file each: the request and the reply, how a Redis server is asked by the script beside it
//! (`on_redis`), and what a memory node does. `tests/conformance` shows that both kinds of nodes are alike.
//!
//! `terms` has what several requests say. On Redis, `script` runs the scripts, of which `lua/` has the parts that several
//! share, and `value` reads the parts of replies.

#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "of this crate, and tests make some"
)]

pub(crate) mod acquire;
pub(crate) mod check_in;
#[cfg(feature = "idempotency")]
pub(crate) mod complete;
#[cfg(feature = "redis")]
pub(crate) mod evictions;
pub(crate) mod extend;
pub(crate) mod promote;
pub(crate) mod raise;
#[cfg(feature = "idempotency")]
pub(crate) mod recall;
pub(crate) mod release;
#[cfg(feature = "redis")]
pub(crate) mod script;
pub(crate) mod terms;
#[cfg(feature = "redis")]
pub(crate) mod value;

/// Every script, to be loaded when a connection is made.
#[cfg(feature = "redis")]
pub(crate) static SCRIPTS: &[&script::Script] = &[
    &acquire::on_redis::SCRIPT,
    &extend::on_redis::SCRIPT,
    &release::on_redis::SCRIPT,
    &raise::on_redis::SCRIPT,
    &check_in::on_redis::SCRIPT,
    &promote::on_redis::SCRIPT,
    #[cfg(feature = "idempotency")]
    &recall::on_redis::SCRIPT,
    #[cfg(feature = "idempotency")]
    &complete::on_redis::SCRIPT,
    &evictions::SCRIPT,
];
