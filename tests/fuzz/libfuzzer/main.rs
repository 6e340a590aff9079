//! One target as a program of libFuzzer: that of the program's name.
#![no_main]

#[path = "../targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    targets::run(env!("CARGO_BIN_NAME"), input);
});
