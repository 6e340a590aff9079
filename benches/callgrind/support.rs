//! Servers, as the tests start them.
#![allow(dead_code, unreachable_pub, reason = "the tests use the rest")]

#[path = "../../tests/support/clocks.rs"]
pub mod clocks;
#[path = "../../tests/support/preload.rs"]
pub mod preload;
#[path = "../../tests/support/resp.rs"]
pub mod resp;
#[path = "../../tests/support/server.rs"]
pub mod server;

use std::time::Duration;

/// The bound of every wait.
const PATIENCE: Duration = Duration::from_secs(30);
