//! Whole clusters in one thread: processes with the crate's managers and layers, a network, and servers, on paused
//! time. One seed decides everything that happens, and a seed that breaks a promise can be run again.
//!
//! | | |
//! |---|---|
//! | `server` | servers and Sentinels as state machines, which run the crate's own scripts |
//! | `differential` | the same calls to a simulated server and to real ones: the same replies, and the same keys |
//! | `world` | time, processes, the network between them and the servers, and everything that can be done to them |
//! | `plan` | what happens in one world, made from a seed |
//! | `workload` | what clients do in it |
//! | `checkers` | the promises, one file each |
//! | `shrink` | a failing plan with fewer faults |
//! | `runner` | runs plans, and shows what went wrong |
//!
//! All but the first two need `--cfg tower_redlock_simulation`, by which the crate takes its connections, its random
//! numbers and its tasks from the world: `make sim` builds with it. The comparison with real servers is for builds
//! without.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and tells what it did"
)]

#[cfg(tower_redlock_simulation)]
mod checkers;
#[cfg(not(tower_redlock_simulation))]
mod differential;
#[cfg(tower_redlock_simulation)]
mod plan;
#[cfg(tower_redlock_simulation)]
mod runner;
#[allow(
    dead_code,
    unused_imports,
    reason = "worlds do more to servers than `differential`, and less"
)]
mod server;
#[cfg(tower_redlock_simulation)]
mod shrink;
#[cfg(tower_redlock_simulation)]
mod workload;
#[cfg(tower_redlock_simulation)]
mod world;

#[cfg(not(tower_redlock_simulation))]
#[path = "../support/mod.rs"]
mod support;
