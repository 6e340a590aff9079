//! Simulated servers, and the proof that they do what real ones do.
//!
//! | | |
//! |---|---|
//! | `server` | servers and Sentinels as state machines, which run the crate's own scripts |
//! | `differential` | the same calls to a simulated server and to real ones: the same replies, and the same keys |

#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and tells what it did"
)]

mod differential;
#[cfg_attr(
    not(simulation),
    allow(dead_code, reason = "worlds do more to servers than `differential`")
)]
mod server;

#[path = "../support/mod.rs"]
mod support;
