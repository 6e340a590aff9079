//! One target as a program of libFuzzer: that of the program's name.
#![no_main]

#[path = "../targets/mod.rs"]
mod targets;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Has a write to a connection that the other side has closed be an error, as in every program whose `main` is Rust's.
/// Here it is libFuzzer's, and the signal would end the program.
fn outlive_closed_connections() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    // Once there is a handler, it stays.
    let handler = runtime.block_on(async { signal(SignalKind::pipe()) });
    drop(handler.unwrap());
}

libfuzzer_sys::fuzz_target!(init: outlive_closed_connections(), |input: &[u8]| {
    targets::run(env!("CARGO_BIN_NAME"), input);
});
