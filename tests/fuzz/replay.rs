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
    let mut dice = Dice(seed);
    let mut like = 0;
    for _ in 0..runs {
        let input = dice.mutate(&inputs);
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

/// Numbers that look random and follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to one less than `count`; 0 if that is 0.
    fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count.max(1)).unwrap();
        usize::try_from(self.roll() % count).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.roll().to_le_bytes()[0]
    }

    /// One of the inputs with some bytes changed, left out, repeated, or those of another input.
    fn mutate(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut input = inputs[self.below(inputs.len())].clone();
        for _ in 0..=self.below(4) {
            let (at, byte) = (self.below(input.len() + 1), self.byte());
            let to = (at + self.below(16)).min(input.len());
            match self.below(6) {
                0 if at < input.len() => input[at] = byte,
                1 if at < input.len() => input[at] ^= 1 << (byte % 8),
                2 => drop(input.drain(at..to)),
                3 => {
                    let again = input[at..to].to_vec();
                    input.splice(at..at, again);
                }
                4 => {
                    let other = &inputs[self.below(inputs.len())];
                    let from = self.below(other.len());
                    input.splice(at..to, other[from..].iter().copied());
                }
                _ => input.insert(at, byte),
            }
        }
        input.truncate(1_024);
        input
    }
}
