//! Whole clusters in one thread: processes with the crate's managers and layers, a network, and servers, on paused
//! time. One seed decides everything that happens, and a seed that breaks a promise can be run again.
//!
//! | | |
//! |---|---|
//! | `differential` | the same calls to a simulated server and to real ones: the same replies, and the same keys |
//! | `seam` | the crate in a world |
//! | `worlds` | small worlds with the crate in them |
//! | `plan` | what happens in one world, made from a seed |
//! | `workload` | what clients do in it |
//! | `checkers` | the promises, one file each |
//! | `shrink` | a failing plan with fewer faults |
//! | `runner` | runs plans, and shows what went wrong |
//! | `traces` | whether two builds send the same |
//!
//! Time, servers, Sentinels and the network are those of `tests/simulated`, which knows nothing of the crate.
//!
//! In a thread with a world, the crate takes its connections, its random numbers and its tasks from that world
//! (`src/seam.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and tells what it did"
)]

mod checkers;
mod differential;
mod plan;
mod runner;
mod seam;
mod shrink;
mod traces;
mod workload;
mod worlds;

#[path = "../support/mod.rs"]
mod support;
