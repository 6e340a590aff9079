//! Time in which the machine gave this process and its servers nothing to run on, which is no fault of the crate.
//!
//! A host that is shared may take the processor away for seconds. What a test measures in real time is therefore taken
//! with a [`Stopwatch`], which stands still meanwhile, and a scene that such a pause itself would spoil, for a lock
//! ends during it, is run [`undisturbed`].

use std::cell::Cell;
use std::io::{Write as _, stderr};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

/// How often the watch looks.
const BEAT: Duration = Duration::from_millis(5);
/// How much later than it should be it may be without being counted: so late it is where others want the processor,
/// too, while servers and timers go on.
const USUAL: Duration = Duration::from_millis(50);
/// So long a pause, in one piece, excuses a scene.
const LONG: Duration = Duration::from_millis(100);
/// How often a scene is begun.
const TIMES: u32 = 3;

/// Notices that it was not run: a thread that sleeps, and finds how long that took.
#[derive(Debug)]
pub struct Watch {
    /// When it looked the last time, and the pauses that it found before.
    seen: Mutex<(Instant, Vec<Pause>)>,
}

/// A time in which nothing was run.
#[derive(Clone, Copy, Debug)]
struct Pause {
    begin: Instant,
    end: Instant,
}

static WATCH: LazyLock<Watch> = LazyLock::new(|| {
    drop(thread::spawn(|| {
        loop {
            thread::sleep(BEAT);
            WATCH.beat(Instant::now());
        }
    }));
    Watch::new(Instant::now())
});

impl Watch {
    pub const fn new(now: Instant) -> Self {
        Self {
            seen: Mutex::new((now, Vec::new())),
        }
    }

    /// It was run.
    pub fn beat(&self, now: Instant) {
        let mut seen = self.seen.lock().unwrap();
        let pause = Pause::between(seen.0, now);
        seen.1.extend(pause);
        seen.0 = now;
    }

    /// The pauses since then, what of them came later, with one that goes on or has just ended.
    pub fn pauses(&self, since: Instant, now: Instant) -> Vec<Duration> {
        let seen = self.seen.lock().unwrap();
        let all = seen.1.iter().copied().chain(Pause::between(seen.0, now));
        let later = all.map(|pause| pause.end.saturating_duration_since(pause.begin.max(since)));
        later.filter(|length| !length.is_zero()).collect()
    }
}

impl Pause {
    /// What was unusual from one look to the next.
    fn between(before: Instant, now: Instant) -> Option<Self> {
        let begin = before + BEAT;
        let is_late = now.saturating_duration_since(begin) > USUAL;
        is_late.then_some(Self { begin, end: now })
    }
}

/// Measures how long something takes where the machine gives it time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    began: Instant,
}

impl Stopwatch {
    pub fn start() -> Self {
        LazyLock::force(&WATCH);
        let began = Instant::now();
        Self { began }
    }

    /// The time since the start, without pauses of the machine.
    pub fn elapsed(&self) -> Duration {
        let now = Instant::now();
        let pauses = WATCH.pauses(self.began, now);
        (now - self.began).saturating_sub(pauses.iter().sum())
    }

    /// The longest pause since the start.
    pub fn longest_pause(&self) -> Duration {
        let pauses = WATCH.pauses(self.began, Instant::now());
        pauses.into_iter().max().unwrap_or_default()
    }
}

/// Runs a scene, and runs it again if it fails while the machine stood still. A failure without that is final.
///
/// Never a scene that claims that something must not happen, as two holders at once: pauses are what brings that about.
///
/// # Panics
///
/// As the scene.
pub async fn undisturbed(scene: impl AsyncFn()) {
    let began = Cell::new(Stopwatch::start());
    let begin = async || {
        began.set(Stopwatch::start());
        scene().await;
    };
    let pause = || {
        let pause = began.get().longest_pause();
        // Past the runner, which shows what a test prints only if that fails.
        let line = format!("\na scene failed, and the machine stood still for {pause:?} in it\n");
        let _ = stderr().write_all(line.as_bytes());
        pause
    };
    undisturbed_by(pause, begin).await;
}

/// The same, by another watch: the longest pause in a scene that failed.
pub async fn undisturbed_by(pause: impl Fn() -> Duration, scene: impl AsyncFn()) {
    for time in 1..=TIMES {
        let Err(panic) = AssertUnwindSafe(scene()).catch_unwind().await else {
            return;
        };
        if pause() < LONG || time == TIMES {
            resume_unwind(panic);
        }
    }
}
