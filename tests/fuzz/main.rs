//! What fuzzers found, replayed: `corpus` has, for each target, inputs that lead everywhere in the code under test, and
//! those that once broke something. `make fuzz` looks for more of them with the same functions.
//!
//! Then each target gets some inputs that are like those: `REDLOCK_FUZZ_RUNS` says how many. They follow from a seed,
//! which a failure prints together with the input: `REDLOCK_FUZZ_SEED=7 cargo test --all-features --test fuzz`.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a panic is how a test fails, in its helpers too; another program has the targets as well"
)]

mod mutation;
mod targets;

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Once;
use std::{env, fs, panic};

use mutation::Dice;

thread_local! {
    /// Panics of this thread. Tasks of a runtime panic without anybody's noticing.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
}

/// Runs all inputs of a target, of which some must be accepted and some refused, and then others that are like them.
fn replay(target: &str) {
    count_panics();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let entries = fs::read_dir(corpus.join(target)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut verdicts = [0, 0];
    let mut inputs = Vec::new();
    for path in &paths {
        let input = fs::read(path).unwrap();
        assert!(input.len() <= 4_096, "{}: make it smaller", path.display());
        let verdict = run(target, &input, &path.display().to_string());
        verdicts[usize::from(verdict)] += 1;
        inputs.push(input);
    }
    let [refused, accepted] = verdicts;
    assert!(accepted > 0 && refused > 0, "the corpus proves little");

    let number = |name: &str| env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = number("REDLOCK_FUZZ_SEED").unwrap_or_else(|| getrandom::u64().unwrap());
    let runs = number("REDLOCK_FUZZ_RUNS").unwrap_or(500);
    let mut dice = Dice(seed);
    let mut like = 0;
    for _ in 0..runs {
        let input = dice.mutate(&inputs);
        like += u64::from(run(target, &input, &format!("REDLOCK_FUZZ_SEED={seed}")));
    }
    println!(
        "{target}: {accepted} accepted, {refused} refused; of {runs} like them {like} accepted"
    );
}

/// Runs one input, which must break nothing.
fn run(target: &str, input: &[u8], name: &str) -> bool {
    let run = AssertUnwindSafe(|| targets::run(target, input));
    let verdict = panic::catch_unwind(run);
    assert!(
        verdict.is_ok() && PANICS.get() == 0,
        "{name} breaks `{target}`: {}",
        input.escape_ascii()
    );
    verdict.unwrap()
}

#[test]
fn a_configuration_is_the_same_in_every_form_and_shows_no_secret() {
    replay("config");
}

#[test]
fn an_idempotency_key_is_what_was_sent() {
    replay("idempotency_key");
}

#[test]
fn no_two_things_have_one_name_on_a_node() {
    replay("lock_key");
}

#[test]
fn a_manager_survives_nodes_that_say_anything() {
    replay("node");
}

#[test]
fn a_url_is_read_in_one_way_and_keeps_its_password() {
    replay("node_url");
}

#[test]
fn the_time_that_a_client_prefers_is_read_as_by_a_second_reader() {
    replay("prefer");
}

#[test]
fn a_node_survives_a_server_that_says_anything() {
    replay("server");
}
