//! The page for operators: what it answers, and what a browser makes of it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod answers;
mod browser;
mod chromium;
mod fleet;
mod way;
#[path = "../support/wrapper.rs"]
mod wrapper;
