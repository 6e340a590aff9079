//! One of the processes that take locks: this test binary again, in the other role. It is told what to do by lines on
//! its standard input, and answers on its standard output.

use std::env;
use std::fmt::Write as _;
use std::io::BufRead as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_redlock::clock::{Clock, Moment, SystemClock};
use tower_redlock::{LockGuard, LockManager};

use crate::checker::Acquisition;
use crate::{SKEW, TTL, builder, connected};

/// Tells a contender where the servers are, and which of the contenders it is.
const SERVERS: &str = "TOWER_REDLOCK_TEST_SERVERS";
const INDEX: &str = "TOWER_REDLOCK_TEST_INDEX";
/// What begins an answer: the test harness writes to the standard output, too.
const RECORD: &str = "@record ";
const DONE: &str = "@done ";
/// How many keys all contenders share, and how many each has for itself.
const SHARED_KEYS: usize = 64;
const OWN_KEYS: usize = 4;
const TASKS: usize = 12;

/// What the contenders do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Each takes keys that nobody else wants, one after the other.
    Own,
    /// All want the same keys.
    Shared,
}

impl Work {
    const ALL: [Self; 2] = [Self::Own, Self::Shared];

    const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
        }
    }
}

/// How many numbers the nodes agreed on at once, and how many were written back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) agreed: u64,
    pub(crate) written_back: u64,
    /// How many attempts failed, for whatever reason.
    pub(crate) failed: usize,
}

impl Counts {
    pub(crate) fn share(&self) -> f64 {
        let (agreed, written_back) = (to_f64(self.agreed), to_f64(self.written_back));
        agreed / (agreed + written_back)
    }

    fn of(locks: &LockManager) -> Self {
        let snapshot = locks.snapshot();
        Self {
            agreed: snapshot.fences_agreed,
            written_back: snapshot.fences_written_back,
            failed: 0,
        }
    }
}

fn to_f64(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// A contender as its parent sees it.
pub(crate) struct Contender {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Contender {
    pub(crate) fn start(test: &str, servers: &[String], index: usize) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(SERVERS, servers.join(" "))
            .env(INDEX, index.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            _process: process,
            input,
            output,
        }
    }

    pub(crate) async fn begin(&mut self, work: Work, count: usize) {
        let line = format!("{} {count}\n", work.name());
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// Waits for the end of the work; adds to `records` and `counts` what came of it.
    pub(crate) async fn finish(&mut self, records: &mut Vec<Acquisition>, counts: &mut Counts) {
        while let Some(line) = self.output.next_line().await.unwrap() {
            // The harness does not always end its lines.
            if let Some((_, record)) = line.split_once(RECORD) {
                records.push(record.parse().unwrap());
            } else if let Some((_, done)) = line.split_once(DONE) {
                let done: Vec<u64> = done.split(' ').map(|n| n.parse().unwrap()).collect();
                counts.agreed += done[0];
                counts.written_back += done[1];
                counts.failed += usize::try_from(done[2]).unwrap();
                return;
            }
        }
        panic!("a contender has ended");
    }
}

/// A clock that people have set so many microseconds too far. Without that, the clock alone would order the holders,
/// and counters that do not count would go unnoticed.
#[derive(Debug)]
pub(crate) struct AheadClock(pub(crate) u64);

impl Clock for AheadClock {
    fn now(&self) -> Moment {
        SystemClock::new().now()
    }

    fn unix_micros(&self) -> u64 {
        SystemClock::new().unix_micros() + self.0
    }
}

/// Does the work of a contender if this process is one. Tells whether it is.
pub(crate) async fn contend() -> bool {
    let (Ok(servers), Ok(index)) = (env::var(SERVERS), env::var(INDEX)) else {
        return false;
    };
    let ahead = SKEW * index.parse().unwrap();
    let clock = AheadClock(u64::try_from(ahead.as_micros()).unwrap());
    let locks = connected(builder(servers.split(' ')).clock(clock)).await;
    loop {
        // Blocks nobody: between two works there is nothing to do.
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).unwrap();
        let Some((work, count)) = line.trim_end().split_once(' ') else {
            return true;
        };
        let is_meant = |meant: &Work| meant.name() == work;
        let work = Work::ALL.into_iter().find(is_meant).unwrap();
        println!(
            "\n{}",
            act(&locks, work, &index, count.parse().unwrap()).await
        );
    }
}

/// Takes locks `count` times. Returns the answer to the parent.
async fn act(locks: &LockManager, work: Work, index: &str, count: usize) -> String {
    let before = Counts::of(locks);
    let left = Arc::new(AtomicUsize::new(count));
    let failed = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let keys: Vec<String> = match work {
            Work::Own if task >= OWN_KEYS => continue,
            // One task a key: the contender does not contend with itself.
            Work::Own => vec![format!("own:{index}:{task}")],
            Work::Shared => (0..SHARED_KEYS).map(|n| format!("shared:{n}")).collect(),
        };
        let seed = index.parse::<usize>().unwrap() * TASKS + task;
        let (locks, left, failed) = (locks.clone(), Arc::clone(&left), Arc::clone(&failed));
        tasks.spawn(async move { take_turns(&locks, &keys, seed, &left, &failed).await });
    }
    let mut answer = String::new();
    for record in tasks.join_all().await.into_iter().flatten() {
        writeln!(answer, "{RECORD}{record}").unwrap();
    }
    let after = Counts::of(locks);
    let agreed = after.agreed - before.agreed;
    let written_back = after.written_back - before.written_back;
    let failed = failed.load(Ordering::SeqCst);
    writeln!(answer, "{DONE}{agreed} {written_back} {failed}").unwrap();
    answer
}

/// Takes the locks of `keys` in some order until nothing is `left` to be done.
async fn take_turns(
    locks: &LockManager,
    keys: &[String],
    seed: usize,
    left: &AtomicUsize,
    failed: &AtomicUsize,
) -> Vec<Acquisition> {
    let mut records = Vec::new();
    let mut turn = seed;
    let take_one = |left: usize| left.checked_sub(1);
    while left
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one)
        .is_ok()
    {
        turn += 1;
        let key = &keys[(turn * 37 + seed * 11) % keys.len()];
        let guard = loop {
            match locks.acquire(key.as_str()).await {
                Ok(guard) => break guard,
                Err(_) => {
                    failed.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_millis(5)).await;
                }
            }
        };
        let start = now();
        if keys.len() > 1 && turn.is_multiple_of(199) {
            // Long enough to be renewed, and to be filled into nodes that have forgotten it.
            sleep(TTL * 3 / 2).await;
        }
        records.push(ended(&guard, key, start));
        // Confirmed or not: with servers killed half-way it may go on in the background.
        let _ = guard.release().await;
    }
    records
}

fn ended(guard: &LockGuard, key: &str, start: u64) -> Acquisition {
    let end = now();
    Acquisition {
        key: key.to_owned(),
        fence: guard.fence().unwrap().get(),
        start,
        end,
        // After the end: what is held now was held then.
        held: !guard.is_lost(),
    }
}

/// Nanoseconds by a clock that all processes share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}
