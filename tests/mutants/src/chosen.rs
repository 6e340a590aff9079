//! Which mutant is switched on, and which of their places are come to. Only the copy of the crate with the mutants that
//! cargo-mutants lists has this file. The variables do not begin like those of the crate, which some tests take away.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const COUNT: usize = /* count */ 0;

/// Whether the mutant of this number is switched on.
pub(crate) fn is(number: usize) -> bool {
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    static CHOSEN: OnceLock<(usize, Option<String>)> = OnceLock::new();
    let (chosen, log) = CHOSEN.get_or_init(|| {
        let chosen = std::env::var("LISTED_MUTANT").ok();
        let chosen = chosen.and_then(|number| number.parse().ok());
        (chosen.unwrap_or(COUNT), std::env::var("LISTED_REACHED").ok())
    });
    if let Some(log) = log
        && !REACHED[number].swap(true, Ordering::Relaxed)
    {
        let mut log = OpenOptions::new().append(true).open(log).unwrap();
        log.write_all(format!("{number}\n").as_bytes()).unwrap();
    }
    *chosen == number
}
