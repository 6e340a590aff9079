//! Runs a target with the inputs of its corpus, and with some that nobody has chosen: those of the corpus, changed here
//! and there, without a fuzzer's eye for what is new, but on every machine.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a panic is how a test fails, in its helpers too"
)]

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Once;
use std::{env, fs, panic};

use fastrand::Rng;

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
pub(crate) fn replay(target: &str, read: impl Fn(&[u8]) -> bool) {
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
        let verdict = run(target, &read, &input, &path.display().to_string());
        verdicts[usize::from(verdict)] += 1;
        inputs.push(input);
    }
    let [refused, accepted] = verdicts;
    assert!(accepted > 0 && refused > 0, "the corpus proves little");

    let number = |name: &str| env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = number("REDLOCK_FUZZ_SEED").unwrap_or_else(|| getrandom::u64().unwrap());
    let runs = number("REDLOCK_FUZZ_RUNS").unwrap_or(500);
    let mut dice = Rng::with_seed(seed);
    let mut like = 0;
    for _ in 0..runs {
        let input = mutate(&mut dice, &inputs);
        let name = format!("REDLOCK_FUZZ_SEED={seed}");
        like += u64::from(run(target, &read, &input, &name));
    }
    println!(
        "{target}: {accepted} accepted, {refused} refused; of {runs} like them {like} accepted"
    );
}

/// Runs one input, which must break nothing.
fn run(target: &str, read: impl Fn(&[u8]) -> bool, input: &[u8], name: &str) -> bool {
    let run = AssertUnwindSafe(|| read(input));
    let verdict = panic::catch_unwind(run);
    assert!(
        verdict.is_ok() && PANICS.get() == 0,
        "{name} breaks `{target}`: {}",
        input.escape_ascii()
    );
    verdict.unwrap()
}

/// One of the inputs with some bytes changed, left out, repeated, or those of another input.
fn mutate(dice: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut input = inputs[dice.usize(..inputs.len())].clone();
    for _ in 0..=dice.usize(..4) {
        let (at, byte) = (dice.usize(..=input.len()), dice.u8(..));
        let to = (at + dice.usize(..16)).min(input.len());
        match dice.usize(..6) {
            0 if at < input.len() => input[at] = byte,
            1 if at < input.len() => input[at] ^= 1 << (byte % 8),
            2 => drop(input.drain(at..to)),
            3 => {
                let again = input[at..to].to_vec();
                input.splice(at..at, again);
            }
            4 => {
                let other = &inputs[dice.usize(..inputs.len())];
                let from = dice.usize(..=other.len());
                input.splice(at..to, other[from..].iter().copied());
            }
            _ => input.insert(at, byte),
        }
    }
    input.truncate(1_024);
    input
}
