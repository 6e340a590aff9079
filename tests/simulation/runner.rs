//! Runs plans: many seeds, one that failed, and the same one twice.

use std::any::Any;
use std::env;
use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::{Builder, RngSeed};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::checkers::Violation;
use crate::plan::{Plan, counted};
use crate::seam;
use crate::shrink;
use crate::workload;
use tower_redlock_simulated::world::{Sent, Topology, World};

/// What came of a plan.
pub(crate) struct Outcome {
    pub(crate) violations: Vec<Violation>,
    /// What happened, in readable lines.
    pub(crate) trace: Vec<String>,
    /// What processes sent, if the trace is wordy.
    pub(crate) sent: Vec<Sent>,
    /// Tells two runs apart, however little they differ.
    pub(crate) hash: u64,
}

/// How much longer than its plan a world may last, in its own time.
const PATIENCE: Duration = Duration::from_secs(600);

/// Does some work in a world of its own, for this long at most. Returns what came of the work, and what `look` sees in
/// the world after that.
pub(crate) fn in_world<F: Future, T>(
    (seed, topology, is_wordy): (u64, &Topology, bool),
    limit: Duration,
    work: impl FnOnce(World) -> F,
    look: impl FnOnce(&World) -> T,
) -> (thread::Result<Result<F::Output, Elapsed>>, T) {
    let mut builder = Builder::new_current_thread();
    let builder = builder.enable_time().start_paused(true);
    let builder = builder.rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()));
    let runtime = builder
        .build()
        .expect("a runtime without I/O needs nothing");
    let inside = runtime.enter();
    let world = World::new(seed, topology, is_wordy);
    let installed = seam::begin(&world);
    drop(inside);
    let work = async { timeout(limit, work(world.clone())).await };
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work)));
    let inside = runtime.enter();
    let seen = look(&world);
    drop(inside);
    world.forget_program();
    drop(runtime);
    drop(installed);
    (ended, seen)
}

/// Says which defect is switched on, if one is.
fn tell_defect() {
    if let Some(mutant) = mutant() {
        println!("with the defect {mutant}");
    }
}

/// The defect that is switched on, if one is.
fn mutant() -> Option<String> {
    let mutant = env::var("REDLOCK_MUTANT").ok();
    mutant.filter(|mutant| !mutant.is_empty())
}

/// Runs a plan in a world of its own. If it is wordy, the trace shows all commands.
pub(crate) fn run_plan(plan: &Plan, is_wordy: bool) -> Outcome {
    let limit = Duration::from_millis(plan.length) + PATIENCE;
    let work = |world| workload::run(world, plan.clone());
    let look = |world: &World| {
        let outcome = Outcome {
            violations: Vec::new(),
            trace: world.trace(),
            sent: world.sent(),
            hash: world.trace_hash(),
        };
        (outcome, world.millis(), world.panics())
    };
    let about = (plan.seed, &plan.topology, is_wordy);
    let (ended, (mut outcome, at_ms, panics)) = in_world(about, limit, work, look);
    let violation = |promise, text| Violation {
        promise,
        at_ms,
        text,
    };
    outcome.violations = match ended {
        Ok(Ok(violations)) => violations,
        Ok(Err(_)) => vec![violation(
            "everything ends",
            format!("not within {limit:?}"),
        )],
        Err(panic) => vec![violation("nothing panics", text_of(&*panic))],
    };
    let panics = panics.into_iter();
    let panics = panics.map(|panic| violation("nothing panics", panic));
    outcome.violations.extend(panics);
    outcome
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a text".to_owned())
}

/// What `make sim` was told, or the default.
pub(crate) fn told<T: FromStr>(name: &str, default: T) -> T {
    match env::var(name) {
        Ok(text) => {
            let number = text.parse().ok();
            number.unwrap_or_else(|| panic!("{name}={text} is no such number"))
        }
        Err(_) => default,
    }
}

/// A seed for people to type: of the clock, and of nine digits at most.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as u64 % 1_000_000_000
}

/// `make sim`, with the defect that is switched on, if one is.
fn command(what: &str) -> String {
    match mutant() {
        Some(mutant) => format!("REDLOCK_MUTANT={mutant} make sim {what}"),
        None => format!("make sim {what}"),
    }
}

/// Violations, one on each line.
fn listed(violations: &[Violation]) -> String {
    let lines = violations.iter();
    lines.map(|violation| format!("  {violation}\n")).collect()
}

/// A plan in numbers.
fn size(plan: &Plan) -> String {
    let processes = counted(plan.processes.len(), "process");
    let calls = counted(plan.calls.len(), "call");
    let faults = counted(plan.faults().count(), "fault");
    format!("{processes}, {calls}, {faults}")
}

/// Tells of a plan that failed, with fewer faults if that fails, too.
fn report(plan: &Plan, violations: &[Violation]) -> String {
    let seed = plan.seed;
    let mut text = format!(
        "\nseed {seed} breaks a promise:\n{}replay: {}\n",
        listed(violations),
        command(&format!("SEEDS=1 SEED={seed}"))
    );
    if told("REDLOCK_SIM_SHRINK", 1) == 0 {
        return text;
    }
    let promise = violations.first().map_or("", |first| first.promise);
    let mut run = |plan: &Plan| run_plan(plan, false).violations;
    let small = shrink::shrink(plan.clone(), promise, &mut run);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{seed}.plan"));
    let long = file.with_extension("trace");
    let outcome = run_plan(&small, false);
    let wordy = run_plan(&small, true).trace.join("\n");
    let small = small.to_string();
    for (file, written) in [(&file, &small), (&long, &wordy)] {
        if let Err(error) = fs::write(file, written) {
            text.push_str(&format!("cannot write {}: {error}\n", file.display()));
        }
    }
    let (lines, trace) = (small.lines().count(), outcome.trace.join("\n"));
    let listed = listed(&outcome.violations);
    let replay = command(&format!("PLAN={}", file.display()));
    let long = long.display();
    format!(
        "{text}shrunk to {lines} lines:\n{small}what happened:\n{trace}\n{listed}\
         replay the shrunk plan: {replay}\nwith all commands: {long}\n"
    )
}

/// Runs seeds until so many have failed; returns how many were run, and how many of them failed.
fn run_seeds(first: u64, count: u64, most_failures: u64) -> (u64, u64) {
    let (ran, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_wordy = told("REDLOCK_SIM_WORDY", 0) != 0;
    with_seeds(first, count, |seed| {
        let plan = Plan::generate(seed);
        let outcome = run_plan(&plan, is_wordy);
        ran.fetch_add(1, Ordering::Relaxed);
        if is_wordy {
            println!("{plan}{}", outcome.trace.join("\n"));
        }
        if count == 1 {
            println!("trace {:016x}", outcome.hash);
        }
        if !outcome.violations.is_empty() {
            failed.fetch_add(1, Ordering::Relaxed);
            println!("{}", report(&plan, &outcome.violations));
        }
        failed.load(Ordering::Relaxed) < most_failures
    });
    (ran.into_inner(), failed.into_inner())
}

/// Does `work` with each of so many seeds, on all cores, until it says that it is enough.
pub(crate) fn with_seeds(first: u64, count: u64, work: impl Fn(u64) -> bool + Sync) {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicU64::new(0);
    let work = || {
        let mut index = next.fetch_add(1, Ordering::Relaxed);
        while index < count && work(first.wrapping_add(index)) {
            index = next.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for _ in 0..told("REDLOCK_SIM_THREADS", cores) {
            let thread = thread::Builder::new().stack_size(16 << 20);
            thread.spawn_scoped(scope, work).expect("a thread");
        }
    });
}

#[test]
fn no_seed_breaks_a_promise() {
    tell_defect();
    if let Ok(path) = env::var("REDLOCK_SIM_PLAN") {
        return replay(Path::new(&path));
    }
    let first = told("REDLOCK_SIM_SEED", fresh_seed());
    let count = told("REDLOCK_SIM_SEEDS", 20);
    let seeds = counted(count as usize, "seed");
    println!("\nsimulation: {seeds} from {first}");
    let begin = Instant::now();
    let (ran, failed) = run_seeds(first, count, told("REDLOCK_SIM_FAILURES", 3));
    let span = begin.elapsed().as_secs_f64();
    let rate = ran as f64 / span;
    let of = match ran < count {
        true => format!(" of {count}"),
        false => String::new(),
    };
    println!(
        "simulation: {ran}{of} seeds from {first}, {failed} failed, {span:.1} s, {rate:.1} seeds per second"
    );
    let broke = counted(failed as usize, "seed");
    assert!(failed == 0, "{broke} broke promises");
}

/// The plan in a file, and its text.
fn plan_in(path: &Path) -> (Plan, String) {
    let read = |path| -> Result<_, Box<dyn Error>> {
        let text = fs::read_to_string(path)?;
        Ok((text.parse()?, text))
    };
    read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a plan from a file, with all commands in the trace.
fn replay(path: &Path) {
    let (plan, _) = plan_in(path);
    let Outcome {
        violations,
        trace,
        hash,
        ..
    } = run_plan(&plan, true);
    println!("{}\ntrace {hash:016x}", trace.join("\n"));
    let broken = match violations.len() {
        0 => "no promise broken".to_owned(),
        count => {
            let listed = listed(&violations);
            println!("\nthe plan breaks a promise:\n{listed}");
            counted(count, "violation")
        }
    };
    println!("plan: {}; {broken}", size(&plan));
    assert!(violations.is_empty(), "the plan breaks promises");
}

/// The plans of `kept`, each with its name.
fn kept() -> Vec<(String, Plan)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation/kept");
    let files = fs::read_dir(folder).expect("the folder of kept plans");
    let files = files.map(|entry| entry.expect("a file").path());
    let mut plans: Vec<(String, Plan)> = files
        .map(|path| {
            let (plan, text) = plan_in(&path);
            let name = path.display().to_string();
            assert!(text.starts_with("# "), "{name} does not say what it found");
            (name, plan)
        })
        .collect();
    plans.sort_by(|(one, _), (other, _)| one.cmp(other));
    plans
}

#[test]
fn plans_that_once_broke_a_promise_do_so_no_more() {
    tell_defect();
    let broken = kept().into_iter().filter_map(|(name, plan)| {
        let found = run_plan(&plan, false).violations;
        (!found.is_empty()).then(|| format!("{name}:\n{}", listed(&found)))
    });
    let broken: String = broken.collect();
    assert!(broken.is_empty(), "plans broke promises:\n{broken}");
}

/// How the first of two processes tells the second one the hash of a trace.
const TELL: &str = "REDLOCK_SIM_TELL";

/// Nothing, unless this process was started to tell the hash of a trace.
#[test]
fn tells_the_hash_of_a_trace() {
    if let Ok(seed) = env::var(TELL) {
        let seed = seed.parse().expect("a seed");
        let hash = run_plan(&Plan::generate(seed), false).hash;
        println!("\nhash {hash:016x}");
    }
}

#[test]
fn a_seed_has_the_same_trace_in_every_process() {
    let first: u64 = told("REDLOCK_SIM_SEED", fresh_seed());
    for seed in first..first + 3 {
        let told = || {
            let output = Command::new(env::current_exe().unwrap())
                .args([
                    "--exact",
                    "runner::tells_the_hash_of_a_trace",
                    "--nocapture",
                ])
                .env(TELL, seed.to_string())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.lines().find(|line| line.starts_with("hash "));
            line.unwrap_or_else(|| panic!("no hash: {text}")).to_owned()
        };
        let here = format!("hash {:016x}", run_plan(&Plan::generate(seed), false).hash);
        // Twice, for hash maps of two processes may have the same order by chance.
        assert_eq!([told(), told()], [here.clone(), here], "seed {seed}");
    }
}

#[test]
fn two_seeds_have_two_traces() {
    let hash = |seed| run_plan(&Plan::generate(seed), false).hash;
    assert_ne!(hash(1), hash(2));
}
