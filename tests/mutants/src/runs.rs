//! Every defect is switched on, and the tests of its row must fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use crate::programs;
use crate::table::{Killer, Table};

/// The longest that a test may take, in seconds.
const LIMIT: &str = "180";

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// It took too long.
    Hung,
    /// The suite has no such test.
    Missing,
}

/// A test, with a defect, or without one if that is empty.
type Run = (String, Killer);

/// Runs the tests of the chosen defects without any, which must pass, and with each, which must fail. `choice` is
/// nothing, `all`, or names with commas in between; if it is not nothing, the slower tests on servers run, too.
pub(crate) fn run(table: &Table, choice: &str) {
    let count = if choice.is_empty() { 1 } else { 2 };
    let mut with: Vec<Run> = Vec::new();
    for defect in table.chosen(choice) {
        with.extend(
            defect
                .killers()
                .take(count)
                .map(|it| (defect.name.clone(), it)),
        );
    }
    let killers: BTreeSet<Killer> = with.iter().map(|(_, killer)| killer.clone()).collect();
    let without = killers.iter().map(|killer| (String::new(), killer.clone()));
    let unknown = ("NoSuchDefect".to_owned(), with[0].1.clone());
    let suites: BTreeSet<&str> = killers.iter().map(|killer| &*killer.suite).collect();
    let copy = table.copy();
    let programs = programs::build(&copy, suites, &[]);
    let programs =
        programs.unwrap_or_else(|errors| panic!("the suites cannot be built: {errors:#?}"));
    let queue: Vec<Run> = without.chain(with).chain([unknown]).collect();
    let wrong = run_all(&copy, &programs, queue);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Runs as many at a time as there are cores. Returns those that ended otherwise than they should.
fn run_all(copy: &Path, programs: &BTreeMap<String, PathBuf>, runs: Vec<Run>) -> Vec<String> {
    let queue = Mutex::new(runs.into_iter());
    let wrong = Mutex::new(Vec::new());
    let work = || {
        loop {
            let Some((mutant, Killer { suite, test })) = queue.lock().unwrap().next() else {
                return;
            };
            let began = Instant::now();
            let outcome = run_one(copy, &programs[&suite], &test, &mutant);
            let is_right = match mutant.as_str() {
                "" => outcome == Outcome::Passed,
                _ => matches!(outcome, Outcome::Failed | Outcome::Hung),
            };
            let took = began.elapsed();
            let line = format!("{mutant:>28} {outcome:<7?} {took:>7.1?} {suite} {test}");
            println!("{line}");
            if !is_right {
                wrong.lock().unwrap().push(line);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    wrong.into_inner().unwrap()
}

/// Runs one test of `program` with the defect called `mutant`.
fn run_one(copy: &Path, program: &Path, test: &str, mutant: &str) -> Outcome {
    let mut command = Command::new("timeout");
    command
        .args(["--signal=KILL", LIMIT])
        .arg(program)
        .args(["--exact", test, "--test-threads", "1"])
        .env("REDLOCK_MUTANT", mutant)
        .current_dir(copy);
    programs::with_servers(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        _ if !said.contains("running 1 test\n") => Outcome::Missing,
        Some(0) => Outcome::Passed,
        None | Some(137) => Outcome::Hung,
        Some(_) => Outcome::Failed,
    }
}
