//! Redis and Valkey servers, their Sentinels, and a network between them and processes, in one thread on paused time.
//! `README.md` says what is simulated, and how that is compared with real servers.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a mistake in what is simulated ends the test"
)]

pub mod dice;
pub mod server;
pub mod world;
