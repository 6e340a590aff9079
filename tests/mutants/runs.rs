//! Every defect is switched on, and the tests of its row must fail.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::programs;
use crate::table::{Killer, Row};

/// The longest that a test may take.
const LIMIT: Duration = Duration::from_secs(180);

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

/// Runs one test of `program` with the defect called `mutant`; with none, if that is empty.
async fn run(program: &Path, test: &str, mutant: &str) -> Outcome {
    let output = Command::new(program)
        .args(["--exact", test, "--test-threads", "1"])
        .env("REDLOCK_MUTANT", mutant)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .kill_on_drop(true)
        .output();
    let Ok(output) = timeout(LIMIT, output).await else {
        return Outcome::Hung;
    };
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    match output.status.success() {
        _ if !said.contains("running 1 test\n") => Outcome::Missing,
        true => Outcome::Passed,
        false => Outcome::Failed,
    }
}

/// Runs all of these tests, each with a defect or with none, as many at a time as there are cores. Returns those that
/// ended otherwise than they should.
async fn run_all(runs: Vec<(String, Killer)>) -> Vec<String> {
    let suites: BTreeSet<&str> = runs.iter().map(|(_, killer)| &*killer.suite).collect();
    let programs = programs::build(suites);
    let cores = available_parallelism().map_or(1, usize::from);
    let room = Arc::new(Semaphore::new(cores));
    let mut tasks = JoinSet::new();
    for (mutant, Killer { suite, test }) in runs {
        let (program, room) = (programs[&suite].clone(), Arc::clone(&room));
        tasks.spawn(async move {
            let _room = room.acquire().await.unwrap();
            let began = Instant::now();
            let outcome = run(&program, &test, &mutant).await;
            let is_right = match mutant.as_str() {
                "" => outcome == Outcome::Passed,
                _ => matches!(outcome, Outcome::Failed | Outcome::Hung),
            };
            let took = began.elapsed();
            let line = format!("{mutant:>28} {outcome:<7?} {took:>7.1?} {suite} {test}");
            println!("{line}");
            (!is_right).then_some(line)
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// What `REDLOCK_MUTANTS` chooses: nothing, `all`, or the names of defects with commas in between.
struct Choice {
    rows: Vec<Row>,
    /// Whether the slower tests on servers run, too.
    is_whole: bool,
}

impl Choice {
    fn of_env() -> Self {
        let chosen = std::env::var("REDLOCK_MUTANTS").unwrap_or_default();
        let (mut rows, names) = (Row::all(), chosen.split(',').map(str::trim));
        let names: Vec<&str> = names.filter(|name| !["", "all"].contains(name)).collect();
        for name in &names {
            let known = rows.iter().any(|row| row.defect.name == *name);
            let all: Vec<&str> = rows.iter().map(|row| &*row.defect.name).collect();
            assert!(
                known,
                "`{name}` is neither `all` nor one of {}",
                all.join(", ")
            );
        }
        rows.retain(|row| names.is_empty() || names.contains(&&*row.defect.name));
        let is_whole = chosen == "all" || !names.is_empty();
        Self { rows, is_whole }
    }
}

#[tokio::test]
async fn every_defect_is_found_by_its_tests() {
    let Choice { rows, is_whole } = Choice::of_env();
    let killers = |row: &Row| -> Vec<Killer> {
        let tests = if is_whole { 2 } else { 1 };
        row.killers().take(tests).cloned().collect()
    };
    let name = |row: &Row| row.defect.name.clone();
    let with = rows
        .iter()
        .flat_map(|row| killers(row).into_iter().map(|it| (name(row), it)));
    let without: BTreeSet<Killer> = rows.iter().flat_map(killers).collect();
    let without = without.into_iter().map(|killer| (String::new(), killer));
    let wrong = run_all(without.chain(with).collect()).await;
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_name_that_is_no_defect_is_refused() {
    let row = Row::all().swap_remove(0);
    let wrong = run_all(vec![("NoSuchDefect".to_owned(), row.test)]).await;
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
