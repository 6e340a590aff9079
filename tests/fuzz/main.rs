//! What fuzzers found, replayed: `corpus` has, for each target, inputs that lead everywhere in the code under test, and
//! those that once broke something. `make fuzz` looks for more of them with the same functions.
//!
//! Then each target gets some inputs that are like those: `REDLOCK_FUZZ_RUNS` says how many. They follow from a seed,
//! which a failure prints together with the input: `REDLOCK_FUZZ_SEED=7 cargo test --all-features --test fuzz`.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a panic is how a test fails, in its helpers too; another program has the targets as well"
)]

mod replay;
mod targets;

/// Runs each target with its corpus.
macro_rules! targets {
    ($($name:ident: $target:literal;)*) => {$(
        #[test]
        fn $name() {
            replay::replay($target, |input| targets::run($target, input));
        }
    )*};
}

targets! {
    a_configuration_is_usable_or_refused_and_shows_no_secret: "config";
    a_manager_survives_nodes_that_say_anything: "node";
    a_url_is_read_in_one_way_and_keeps_its_password: "node_url";
    a_node_survives_a_server_that_says_anything: "server";
}
