//! Clients that want locks all the time, with this crate or another library, in this process or in one of the programs
//! that `make peers` builds: how they are started, and what they did. `benches/peers/README.md` says what is spoken.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::ClockId;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower_redlock::error::ReleaseError;
use tower_redlock::{LockManager, Settings};

use crate::support::clocks::shown;
use crate::support::server;

/// Nanoseconds of the system's monotonic clock, which is the same in every process.
pub fn now() -> u64 {
    nanos(shown(ClockId::Monotonic))
}

pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// How long after the end a client is waited for that still waits for its lock.
const GRACE: Duration = Duration::from_secs(5);

/// What a client is to do.
#[derive(Clone, Debug)]
pub struct Order {
    pub library: String,
    pub urls: Vec<String>,
    pub key: String,
    /// Each task has a key of its own, by its number.
    pub each: bool,
    pub tasks: usize,
    pub ttl: Duration,
    /// Work, not a wait: the processor is busy for so long in each section.
    pub work: Duration,
    /// How many may hold the key at once. Only semaphores heed it.
    pub limit: u32,
}

/// One critical section, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub asked: u64,
    pub began: u64,
    pub ended: u64,
    pub released: u64,
}

/// What a client did.
#[derive(Debug, Default)]
pub struct Outcome {
    pub turns: Vec<Turn>,
    pub failures: Vec<String>,
}

impl Order {
    fn words(&self) -> [String; 8] {
        [
            self.library.clone(),
            self.urls.join(","),
            self.key.clone(),
            if self.each { "each" } else { "one" }.to_owned(),
            self.tasks.to_string(),
            self.ttl.as_millis().to_string(),
            self.work.as_micros().to_string(),
            self.limit.to_string(),
        ]
    }

    /// What the `words` of a command line ask for.
    pub fn of(words: &[String]) -> Self {
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        Self {
            library: words[0].clone(),
            urls: words[1].split(',').map(str::to_owned).collect(),
            key: words[2].clone(),
            each: words[3] == "each",
            tasks: words[4].parse().unwrap(),
            ttl: Duration::from_millis(number(5)),
            work: Duration::from_micros(number(6)),
            limit: words[7].parse().unwrap(),
        }
    }

    fn key_of(&self, task: usize) -> String {
        match self.each {
            true => format!("{}:{task}", self.key),
            false => self.key.clone(),
        }
    }
}

/// The programs, and the tool that each needs.
pub const PROGRAMS: [(&str, &str); 14] = [
    ("node-redlock", "node"),
    ("redis-semaphore", "node"),
    ("redsync", "go"),
    ("rueidislock", "go"),
    ("rueidislock-majority", "go"),
    ("pottery", "python3"),
    ("redlock-py", "python3"),
    ("redisson-rlock", "java"),
    ("redisson-multilock", "java"),
    ("redisson-redlock", "java"),
    ("redisson-semaphore", "java"),
    ("redisson-permits", "java"),
    ("redisson-read", "java"),
    ("redisson-write", "java"),
];

/// Ours, whose locks are permits.
pub const PERMITS: &str = "tower-redlock, permits";

/// Ours, on the slots of a cluster.
pub const CLUSTER: &str = "tower-redlock, cluster";

/// Ours, whose locks are shared.
pub const READERS: &str = "tower-redlock, readers";

/// The command of a program; or why there is none.
pub fn program(library: &str) -> Result<Command, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = root.join("target/peers");
    let (needs, mut command) = match library {
        "redsync" | "rueidislock" | "rueidislock-majority" => {
            let file = built.join("locks");
            (file.clone(), Command::new(file))
        }
        "node-redlock" | "redis-semaphore" => {
            let mut command = Command::new("node");
            command.arg(built.join("node/main.mjs"));
            (built.join("node/node_modules/redis-semaphore"), command)
        }
        "pottery" | "redlock-py" => {
            let mut command = Command::new(env::var_os("PYTHON").unwrap_or("python3".into()));
            command.arg(root.join("benches/peers/python/main.py"));
            command.env("PYTHONPATH", built.join("python"));
            command.env("PYTHONDONTWRITEBYTECODE", "1");
            (built.join("python/pottery"), command)
        }
        _ => {
            let mut command = Command::new("java");
            command.arg("-cp").arg(built.join("java/lib/*")).arg("Peer");
            (built.join("java/lib/peer.jar"), command)
        }
    };
    command.arg(library);
    if needs.exists() {
        return Ok(command);
    }
    let tool = PROGRAMS
        .iter()
        .find(|(name, _)| *name == library)
        .unwrap()
        .1;
    Err(match server::program(tool, "PATH", []).is_some() {
        true => format!("absent: {library} is not built; run `make peers`"),
        false => format!("absent: {library}, for {tool} is not installed"),
    })
}

/// A client in a process of its own, connected. It is killed with this value.
#[derive(Debug)]
pub struct Client {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: Child,
}

impl Client {
    /// Starts `command` and waits until it is connected.
    pub fn start(mut command: Command, order: &Order) -> Self {
        let words = order.words();
        let mut process = command
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut client = Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
        };
        assert_eq!(client.hear(), "ready");
        client
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(
            !line.is_empty(),
            "a program ended early; what it printed above says why"
        );
        line.trim_end().to_owned()
    }

    pub fn run_from(&mut self, start: u64, end: u64) {
        writeln!(self.input, "{start} {end}").unwrap();
    }

    /// Waits for the end.
    pub fn outcome(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            let line = self.hear();
            match line.split_once(' ') {
                Some(("turn", times)) => {
                    let times: Vec<u64> =
                        times.split(' ').map(|time| time.parse().unwrap()).collect();
                    outcome.turns.push(Turn {
                        asked: times[0],
                        began: times[1],
                        ended: times[2],
                        released: times[3],
                    });
                }
                Some((_, failure)) => outcome.failures.push(failure.to_owned()),
                None => return outcome,
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The locks of a library that is written in Rust.
#[derive(Clone)]
pub enum Locks {
    Ours(LockManager),
    Rslock(rslock::LockManager),
    /// Blocks its thread.
    Redlock(Arc<redlock::RedLock>),
}

impl Locks {
    /// Those of `order`; `settings` are for ours.
    pub async fn connect(order: &Order, settings: impl FnOnce(Settings) -> Settings) -> Self {
        let urls = order.urls.clone();
        match order.library.as_str() {
            "rslock" => Self::Rslock(rslock::LockManager::new(urls)),
            "redlock" => Self::Redlock(Arc::new(redlock::RedLock::new(urls))),
            _ => {
                let builder = match order.library.as_str() {
                    CLUSTER => LockManager::builder().cluster(urls),
                    _ => LockManager::builder().redis(urls).namespace(""),
                };
                let builder = builder.bootstrap(true).ttl(order.ttl).max_ttl(order.ttl);
                let builder = builder.max_wait(Duration::from_secs(60));
                let locks = settings(builder).connect().await.unwrap();
                Self::Ours(match order.library.as_str() {
                    PERMITS => locks.permits(order.limit).unwrap(),
                    READERS => locks.shared(),
                    _ => locks,
                })
            }
        }
    }

    /// Does what `order` says, from `start` to `end`.
    pub async fn run(self, order: Arc<Order>, start: u64, end: u64) -> Outcome {
        let left = Duration::from_nanos(start.saturating_sub(now()));
        tokio::time::sleep(left).await;
        let mut tasks = JoinSet::new();
        for task in 0..order.tasks {
            let (locks, order) = (self.clone(), Arc::clone(&order));
            tasks.spawn(async move {
                let (mut outcome, key) = (Outcome::default(), order.key_of(task));
                while now() < end {
                    let limit = Duration::from_nanos(end.saturating_sub(now())) + GRACE;
                    match timeout(limit, locks.section(&order, &key)).await {
                        Ok(Ok(turn)) => outcome.turns.push(turn),
                        Ok(Err(failure)) => outcome.failures.push(failure),
                        Err(_) => outcome.failures.push("still waiting".to_owned()),
                    }
                }
                outcome
            });
        }
        let mut all = Outcome::default();
        for outcome in tasks.join_all().await {
            all.turns.extend(outcome.turns);
            all.failures.extend(outcome.failures);
        }
        all
    }

    /// One section. What loops by itself until it has the lock is left to that.
    pub async fn section(&self, order: &Order, key: &str) -> Result<Turn, String> {
        let asked = now();
        let (began, ended);
        match self {
            Self::Ours(locks) => {
                let guard = locks
                    .acquire(key)
                    .await
                    .map_err(|error| error.to_string())?;
                (began, ended) = work(order.work);
                // That the release is not confirmed says nothing of the section.
                if let Err(lost @ ReleaseError::Lost(_)) = guard.release().await {
                    return Err(lost.to_string());
                }
            }
            Self::Rslock(locks) => {
                let guard = locks
                    .acquire(key, order.ttl)
                    .await
                    .map_err(|error| error.to_string())?;
                (began, ended) = work(order.work);
                guard.release().await;
            }
            Self::Redlock(locks) => {
                let (locks, key, length) = (Arc::clone(locks), key.to_owned(), order.work);
                let ttl = usize::try_from(order.ttl.as_millis()).unwrap();
                let section = tokio::task::spawn_blocking(move || {
                    let guard = locks
                        .acquire(key.as_bytes(), ttl)
                        .map_err(|error| error.to_string())?;
                    let times = work(length);
                    drop(guard);
                    Ok::<_, String>(times)
                });
                (began, ended) = section.await.unwrap()?;
            }
        }
        Ok(Turn {
            asked,
            began,
            ended,
            released: now(),
        })
    }
}

/// Works for so long, and says from when to when.
fn work(length: Duration) -> (u64, u64) {
    let began = now();
    let end = began + nanos(length);
    loop {
        let ended = now();
        if ended >= end {
            return (began, ended);
        }
        std::hint::spin_loop();
    }
}

/// How many were in a section at once, at most.
pub fn most_at_once(outcomes: &[Outcome]) -> usize {
    let turns = || outcomes.iter().flat_map(|outcome| &outcome.turns);
    let mut events: Vec<_> = turns().map(|turn| (turn.began, 1)).collect();
    events.extend(turns().map(|turn| (turn.ended, -1)));
    // Who ends as another begins is before it.
    events.sort_unstable();
    let mut now = 0;
    let counts = events.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    usize::try_from(counts.max().unwrap_or_default()).unwrap()
}
