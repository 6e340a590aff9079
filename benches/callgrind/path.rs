//! The path of one uncontended lock: the files and functions of the crate that run from `acquire` to the end of the
//! release which the dropped guard starts, on one Redis. A reader has to know this much to follow a lock, so `make path`
//! fails if it grows beyond the limits below.
//!
//! Callgrind counts in a build without optimization, so that nothing is inlined. All threads count, because the
//! manager's own thread releases the lock.
//!
//! * A file is a file under `src` with a function that is called.
//! * A function has a body and a name: all instances of a generic function are one, each implementation of a
//!   trait has its own (a derived one, too), and closures and async blocks belong to the function around them.
//! * A call is one of a function, of a closure in it, or a poll of its async body.
//! * A mutex lock is a call of `lock` of a [`std::sync::Mutex`] from a file under `src`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use std::{fs, process, thread};

use tokio::runtime::{Builder, Runtime};
use tower_redlock::LockManager;

use crate::grind;
use crate::support::resp::Raw;
use crate::support::server::{Kind, Server};

/// The figures of the tree as it is. Lower them with each change that makes the path shorter: the goal is 30 files, 200
/// functions and 11 mutex locks. Calls have no limit, because a trivial accessor counts as much as a request.
const LIMITS: [(&str, u64); 3] = [("files", 47), ("functions", 349), ("mutex locks", 11)];

const KEY: &str = "k";
/// Enough for several without a look at the server, of which a manager takes a few each second.
const CYCLES: usize = 60;
/// In the first the connections get used for the first time.
const WARM_UP: usize = 5;
/// A build without optimization is slow, and under valgrind slower still.
const PATIENCE: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(30);
/// A thread that has work and does not get to it for so long is shown as running.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs cycles, in the process that callgrind counts in.
pub(crate) fn cycles(url: &str, socket: &str) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let settings = LockManager::builder().bootstrap(true).ttl(TTL).max_ttl(TTL);
    let connecting = settings.node_timeout(PATIENCE).redis([url]).connect();
    let locks = runtime.block_on(connecting).unwrap();
    let mut server = Raw::connect(Path::new(socket)).unwrap();
    for _ in 0..CYCLES {
        cycle(&runtime, &locks, &mut server);
    }
}

/// After each return of this function callgrind writes a file.
#[inline(never)]
fn cycle(runtime: &Runtime, locks: &LockManager, server: &mut Raw) {
    let guard = runtime.block_on(locks.acquire(KEY)).unwrap();
    drop(guard);
    while server.command(&["EXISTS", KEY]).unwrap() != "0" {
        thread::sleep(PAUSE);
    }
    while !others_are_idle() {}
}

/// Whether all other threads wait and none of them runs during a pause.
fn others_are_idle() -> bool {
    let before = run_times();
    thread::sleep(PAUSE);
    before.is_some() && before == run_times()
}

/// The time for which each other thread has run, if none of them runs.
fn run_times() -> Option<Vec<String>> {
    let main = process::id().to_string();
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let others = threads.map(|entry| entry.unwrap().path());
    let others = others.filter(|path| !path.ends_with(&main));
    let read = |path: &Path| {
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        let sleeps = stat.rsplit_once(") ")?.1.starts_with('S');
        let time = fs::read_to_string(path.join("schedstat")).ok()?;
        sleeps.then_some(time)
    };
    others.map(|path| read(&path)).collect()
}

/// Calls by file and function, and mutex locks by file.
#[derive(Default, PartialEq, Eq, PartialOrd, Ord)]
struct Passed {
    calls: BTreeMap<(String, String), u64>,
    locks: BTreeMap<String, u64>,
}

/// Prints what a cycle passes, with all functions if that is asked for, and returns which limits it exceeds.
pub(crate) fn complaints(list: bool) -> Vec<String> {
    if !cfg!(debug_assertions) {
        return vec!["an optimized build inlines functions: use `make path`".to_owned()];
    }
    let passed = measure();
    if list {
        println!("{}", passed.list());
    }
    let figures = passed.figures();
    for ((what, _), figure) in LIMITS.into_iter().zip(figures) {
        println!("{what:12} {figure:>4}");
    }
    for (file, locks) in &passed.locks {
        println!("    {file:40} {locks}");
    }
    println!("{:12} {:>4}", "calls", passed.calls());
    let exceeded = figures.into_iter().zip(LIMITS);
    let exceeded = exceeded.filter(|(figure, (_, limit))| figure > limit);
    let complaint = |(figure, (what, limit))| {
        format!("{figure} {what}, at most {limit} are allowed: see `make path LIST=1`")
    };
    exceeded.map(complaint).collect()
}

/// The cycle with the fewest calls, because a look at the server only adds some. It must have come twice: then it has
/// the whole of its release, and of no other.
fn measure() -> Passed {
    let server = Server::start(Kind::Redis, &[]);
    let (url, socket) = (server.url(), server.socket());
    let words = [grind::CYCLES, &url, socket.to_str().unwrap()];
    let dumps = grind::run("path", &["--dump-after=cost::path::cycle"], &words);
    let mut seen = BTreeMap::new();
    for number in WARM_UP + 1..=CYCLES {
        let text = fs::read_to_string(grind::dump(&dumps, number)).unwrap();
        *seen.entry(Passed::read(&text)).or_insert(0) += 1;
    }
    let twice = seen.into_iter().filter(|(_, times)| *times > 1);
    let least = twice.map(|(passed, _)| passed).min_by_key(Passed::calls);
    let least = least.expect("no two cycles alike: try again on a machine with less to do");
    assert!(least.calls() > 0, "the build has no names of lines");
    least
}

impl Passed {
    fn read(dump: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src");
        let root = format!("{}/", root.canonicalize().unwrap().display());
        let ours = |file: &str| file.strip_prefix(&root).map(str::to_owned);
        let mut files = BTreeMap::new();
        let mut calls: BTreeMap<_, u64> = BTreeMap::new();
        let mut passed = Self::default();
        let (mut file, mut callee) = (None, "");
        for line in dump.lines() {
            let Some((word, rest)) = line.split_once('=') else {
                continue;
            };
            match word {
                "fl" => file = ours(rest),
                "fn" => drop(files.insert(rest, file.clone())),
                "cfn" => callee = rest,
                "calls" => {
                    let count: u64 = rest.split(' ').next().unwrap().parse().unwrap();
                    *calls.entry(callee).or_default() += count;
                    if let Some(file) = &file
                        && callee.ends_with("::mutex::Mutex<T>::lock")
                    {
                        *passed.locks.entry(file.clone()).or_default() += count;
                    }
                }
                _ => {}
            }
        }
        for (name, count) in calls {
            if let Some(Some(file)) = files.get(name) {
                let name = name.split("::{{").next().unwrap().to_owned();
                *passed.calls.entry((file.clone(), name)).or_default() += count;
            }
        }
        passed
    }

    fn calls(&self) -> u64 {
        self.calls.values().sum()
    }

    /// In the order of the limits.
    fn figures(&self) -> [u64; 3] {
        let files: BTreeSet<_> = self.calls.keys().map(|(file, _)| file).collect();
        let (files, functions) = (files.len() as u64, self.calls.len() as u64);
        [files, functions, self.locks.values().sum()]
    }

    fn list(&self) -> String {
        let (mut text, mut last) = (String::new(), "");
        for ((file, name), count) in &self.calls {
            if file != last {
                writeln!(text, "{file}").unwrap();
                last = file;
            }
            writeln!(text, "{count:>6} {}", name.replace("tower_redlock::", "")).unwrap();
        }
        text
    }
}
