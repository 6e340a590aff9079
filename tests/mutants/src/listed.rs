//! The mutants that cargo-mutants lists, put into a copy of the tree, where each can be switched on: one build has all of
//! them, and each meets only the tests that come to its place. cargo-mutants by itself builds the crate and runs the whole
//! suites once for each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::insert::{Inserted, Insertions};
use crate::{copy, programs};

/// A mutant, as cargo-mutants describes it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Mutant {
    pub(crate) file: String,
    pub(crate) genre: String,
    pub(crate) name: String,
    pub(crate) replacement: String,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Place,
}

/// A line and a column, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A test, and how long it takes without a mutant.
#[derive(Clone, Debug)]
struct Test {
    suite: String,
    name: String,
    took: Duration,
}

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Caught,
    /// The crate cannot be compiled with it.
    Refused,
    /// It cannot be switched on while the program runs: it stands in a constant, or binds a variable.
    Fixed,
    /// The tests that come to its place pass.
    Missed,
    /// No test comes to its place.
    Unreached,
}

/// The tests run thousands of times.
const OPTIMIZED: [&str; 2] = ["--config", "profile.dev.package.tower-redlock.opt-level=1"];

/// Tries all mutants of `files` with the tests of `suites`. `found` has what became of each: those that an earlier run
/// missed are tried again, the others are not.
pub(crate) fn run(files: &[&str], suites: &[&str], found: &Path) {
    let mutants = list(files);
    let earlier = fs::read_to_string(found).unwrap_or_default();
    let earlier = fates(&earlier);
    let is = |number: &usize, fates: &[&str]| {
        let fate = earlier.get(&*mutants[*number].name);
        fate.is_some_and(|fate| fates.contains(fate))
    };
    let all = 0..mutants.len();
    let all: BTreeSet<usize> = all
        .filter(|number| !is(number, &["Refused", "Fixed"]))
        .collect();
    // On a fresh clone there is no directory yet.
    fs::create_dir_all(found.parent().unwrap()).unwrap();
    let log = OpenOptions::new().create(true).append(true).open(found);
    let log = Mutex::new(log.unwrap());
    let told = |fate: Fate, number: usize| {
        writeln!(log.lock().unwrap(), "{fate:?}\t{}", mutants[number].name).unwrap();
    };
    let constant = earlier.iter().filter(|(_, fate)| **fate == "Constant");
    let constant = constant.map(|(name, _)| (*name).to_owned()).collect();
    let Built {
        copy,
        programs,
        out,
        constant,
    } = build(&mutants, &all, suites, constant);
    for (number, fate) in &out {
        told(*fate, *number);
    }
    for name in constant {
        writeln!(log.lock().unwrap(), "Constant\t{name}").unwrap();
    }
    let left = all
        .into_iter()
        .filter(|number| !out.contains_key(number) && !is(number, &["Caught"]));
    let mut left: Vec<usize> = left.collect();
    if let Some(count) = crate::variable("SAMPLE") {
        // In an order that has nothing to do with where they are. Another run tries again what this one missed, and then
        // those that come next.
        left.sort_by_cached_key(|number| {
            let mut hasher = DefaultHasher::new();
            mutants[*number].name.hash(&mut hasher);
            hasher.finish()
        });
        left.truncate(count.parse().unwrap());
    }
    println!(
        "{} mutants, {} of them to be tried",
        mutants.len(),
        left.len()
    );
    let reached = reached(&copy, &programs);
    let queue = Mutex::new(left.into_iter());
    in_parallel(|| {
        loop {
            let Some(number) = queue.lock().unwrap().next() else {
                return;
            };
            let began = Instant::now();
            let (fate, by) = match reached.get(&number) {
                None => (Fate::Unreached, String::new()),
                Some(tests) => try_one(&copy, &programs, number, tests),
            };
            told(fate, number);
            println!(
                "{fate:?} {:.1?} {} {by}",
                began.elapsed(),
                mutants[number].name
            );
        }
    });
    report(&mutants, &fs::read_to_string(found).unwrap());
}

/// The last fate of each mutant, by its name.
fn fates(found: &str) -> BTreeMap<&str, &str> {
    let lines = found.lines().filter_map(|line| line.split_once('\t'));
    lines.map(|(fate, name)| (name, fate)).collect()
}

/// Asks cargo-mutants for the mutants of `files`.
fn list(files: &[&str]) -> Vec<Mutant> {
    let mut list = Command::new("cargo");
    list.args(["mutants", "--list", "--json"])
        .current_dir(crate::root());
    for file in files {
        list.args(["-f", file]);
    }
    let output = list.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo-mutants: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The copy, and its suites.
struct Built {
    copy: PathBuf,
    programs: BTreeMap<String, PathBuf>,
    /// The mutants that are not in it.
    out: BTreeMap<usize, Fate>,
    /// The functions that constants call.
    constant: BTreeSet<String>,
}

/// Builds `suites` with all of `these` mutants with which the crate compiles, and tells of the others.
fn build(
    mutants: &[Mutant],
    these: &BTreeSet<usize>,
    suites: &[&str],
    mut constant: BTreeSet<String>,
) -> Built {
    let mut fates = BTreeMap::new();
    loop {
        let mut inserted = BTreeMap::new();
        let mut files: BTreeMap<&str, Insertions> = BTreeMap::new();
        for number in these.iter().filter(|number| !fates.contains_key(*number)) {
            let mutant = &mutants[*number];
            files.entry(&mutant.file).or_default().add(*number, mutant);
        }
        let copy = copy::make(
            "listed",
            |name, text| match files.get(name) {
                Some(insertions) => {
                    let text = without_const(text, &constant);
                    let made = insertions.put_into(&text);
                    let text = made.text.clone();
                    inserted.insert(name.to_owned(), made);
                    text
                }
                None => without_const(text, &constant),
            },
            &include_str!("chosen.rs").replace("/* count */ 0", &mutants.len().to_string()),
        );
        for made in inserted.values() {
            fates.extend(made.left_out.iter().map(|number| (*number, Fate::Fixed)));
        }
        let errors = match programs::build(&copy, suites.iter().copied(), &OPTIMIZED) {
            Ok(programs) => {
                let out = fates;
                return Built {
                    copy,
                    programs,
                    out,
                    constant,
                };
            }
            Err(errors) => errors,
        };
        let before = fates.len() + constant.len();
        for error in &errors {
            if let Some(name) = error.not_constant() {
                constant.insert(name.to_owned());
                continue;
            }
            let to_blame = error
                .places
                .iter()
                .filter_map(|(file, at)| blamed(inserted.get(file)?, *at));
            for (numbers, fate) in to_blame {
                fates.extend(numbers.into_iter().map(|number| (number, fate)));
            }
        }
        println!(
            "{} errors, {} mutants are left out",
            errors.len(),
            fates.len()
        );
        assert!(
            fates.len() + constant.len() > before,
            "no mutant is to blame for {errors:#?}"
        );
    }
}

/// Only while the program runs can be asked which mutant is chosen. So no function is `const` but those that constants call.
fn without_const(text: String, constant: &BTreeSet<String>) -> String {
    let mut pieces = text.split("const fn ");
    let mut made = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let name = piece
            .split(|it: char| !it.is_alphanumeric() && it != '_')
            .next();
        let is_constant = name.is_some_and(|name| constant.contains(name));
        // As long as before, so that all stands where it stood.
        made.push_str(if is_constant {
            "const fn "
        } else {
            "      fn "
        });
        made.push_str(piece);
    }
    made
}

/// The mutants because of which there is an error at this byte.
fn blamed(inserted: &Inserted, at: usize) -> Option<(Vec<usize>, Fate)> {
    let inside = |range: &std::ops::Range<usize>| range.contains(&at);
    if let Some((_, number)) = inserted.questions.iter().find(|(range, _)| inside(range)) {
        return Some((vec![*number], Fate::Fixed));
    }
    if let Some((_, number)) = inserted
        .replacements
        .iter()
        .find(|(range, _)| inside(range))
    {
        return Some((vec![*number], Fate::Refused));
    }
    let around = inserted.wraps.iter().filter(|(range, _)| inside(range));
    let innermost = around.min_by_key(|(range, _)| range.len())?;
    Some((innermost.1.clone(), Fate::Fixed))
}

/// Of each mutant the tests that come to its place, the fastest first.
fn reached(copy: &Path, programs: &BTreeMap<String, PathBuf>) -> BTreeMap<usize, Vec<Test>> {
    let mut queue = Vec::new();
    for (suite, program) in programs {
        let output = Command::new(program)
            .args(["--list", "--format", "terse"])
            .current_dir(copy)
            .output()
            .unwrap();
        let names = String::from_utf8(output.stdout).unwrap();
        let names = names.lines().filter_map(|line| line.strip_suffix(": test"));
        queue.extend(names.map(|name| (suite.clone(), name.to_owned())));
    }
    println!("{} tests", queue.len());
    let found: Mutex<BTreeMap<usize, Vec<Test>>> = Mutex::default();
    let queue = Mutex::new(queue.into_iter());
    in_parallel(|| {
        loop {
            let Some((suite, name)) = queue.lock().unwrap().next() else {
                return;
            };
            let log = crate::target().join(format!(
                "mutants/reached/{suite}/{}",
                name.replace(':', "_")
            ));
            fs::create_dir_all(log.parent().unwrap()).unwrap();
            fs::write(&log, "").unwrap();
            let began = Instant::now();
            let mut run = limited(copy, &programs[&suite], Duration::from_secs(120));
            run.args(["--exact", &name]).env("LISTED_REACHED", &log);
            if !run.output().unwrap().status.success() {
                println!("{suite} {name} fails without a mutant");
                continue;
            }
            let test = Test {
                suite: suite.clone(),
                name: name.clone(),
                took: began.elapsed(),
            };
            let numbers: BTreeSet<usize> = fs::read_to_string(&log)
                .unwrap()
                .lines()
                .filter_map(|line| line.parse().ok())
                .collect();
            let mut found = found.lock().unwrap();
            for number in numbers {
                found.entry(number).or_default().push(test.clone());
            }
        }
    });
    let mut found = found.into_inner().unwrap();
    for tests in found.values_mut() {
        tests.sort_by_key(|test| test.took);
    }
    found
}

/// Runs the tests with a mutant until one fails: a few, then more and more at a time.
fn try_one(
    copy: &Path,
    programs: &BTreeMap<String, PathBuf>,
    number: usize,
    tests: &[Test],
) -> (Fate, String) {
    let (mut tests, mut count) = (tests, 4);
    while !tests.is_empty() {
        let (now, later) = tests.split_at(count.min(tests.len()));
        (tests, count) = (later, count * 4);
        let suites: BTreeSet<&str> = now.iter().map(|test| &*test.suite).collect();
        for suite in suites {
            let of_suite = now.iter().filter(|test| test.suite == suite);
            let took: Duration = of_suite.clone().map(|test| test.took).sum();
            let mut run = limited(copy, &programs[suite], Duration::from_secs(4) + 2 * took);
            run.arg("--exact")
                .args(of_suite.map(|test| &test.name))
                .env("LISTED_MUTANT", number.to_string());
            if !run.output().unwrap().status.success() {
                return (Fate::Caught, suite.to_owned());
            }
        }
    }
    (Fate::Missed, String::new())
}

/// A program that is ended after `limit`, and may take eight gigabytes: a mutant may loop for ever.
fn limited(copy: &Path, program: &Path, limit: Duration) -> Command {
    let mut command = Command::new("bash");
    command
        .args([
            "-c",
            "ulimit -v 8000000; exec timeout --signal=KILL \"$@\"",
            "bash",
        ])
        .arg(limit.as_secs().to_string())
        .arg(program)
        .env("RUST_BACKTRACE", "0")
        .current_dir(copy);
    programs::with_servers(&mut command);
    command
}

/// Does `work` on as many threads as there are cores.
fn in_parallel(work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(&work);
        }
    });
}

/// Prints how many mutants of each file ended how, and which were not caught.
fn report(mutants: &[Mutant], found: &str) {
    let found = fates(found);
    let mut files: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for mutant in mutants {
        let fate = found.get(&*mutant.name).unwrap_or(&"Untried");
        *files
            .entry(&mutant.file)
            .or_default()
            .entry(fate)
            .or_default() += 1;
        if !["Caught", "Refused", "Untried"].contains(fate) {
            println!("{fate}: {}", mutant.name);
        }
    }
    for (file, fates) in &files {
        println!("{file}: {fates:?}");
    }
}
