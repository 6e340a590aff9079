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
/// How much later than it should be it may be without being counted.
const USUAL: Duration = Duration::from_millis(10);
/// So much of a pause excuses a scene.
const LONG: Duration = Duration::from_millis(100);
/// How often a scene is begun.
const TIMES: u32 = 5;

/// Notices that it was not run: a thread that sleeps, and finds how long that took.
#[derive(Debug)]
pub struct Watch {
    // When it looked the last time, and the sum of all pauses before.
    seen: Mutex<(Instant, Duration)>,
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
            seen: Mutex::new((now, Duration::ZERO)),
        }
    }

    /// It was run.
    pub fn beat(&self, now: Instant) {
        let mut seen = self.seen.lock().unwrap();
        *seen = (now, seen.1 + pause(seen.0, now));
    }

    /// The sum of all pauses, with one that goes on or has just ended.
    pub fn stalled(&self, now: Instant) -> Duration {
        let seen = self.seen.lock().unwrap();
        seen.1 + pause(seen.0, now)
    }
}

/// How much longer than a beat it took from one look to the next, if that is unusual.
fn pause(before: Instant, now: Instant) -> Duration {
    let late = now.saturating_duration_since(before).saturating_sub(BEAT);
    if late > USUAL { late } else { Duration::ZERO }
}

/// Measures how long something takes where the machine gives it time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    began: Instant,
    stalled: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        let began = Instant::now();
        let stalled = WATCH.stalled(began);
        Self { began, stalled }
    }

    /// The time since the start, without pauses of the machine.
    pub fn elapsed(&self) -> Duration {
        let now = Instant::now();
        (now - self.began).saturating_sub(self.stalled_since(now))
    }

    /// How much of the time since the start was none.
    pub fn stalled(&self) -> Duration {
        self.stalled_since(Instant::now())
    }

    fn stalled_since(&self, now: Instant) -> Duration {
        WATCH.stalled(now).saturating_sub(self.stalled)
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
    let stalled = || {
        let stalled = began.get().stalled();
        // Past the runner, which shows what a test prints only if that fails.
        let line = format!("\na scene failed, and the machine stood still for {stalled:?} of it\n");
        let _ = stderr().write_all(line.as_bytes());
        stalled
    };
    undisturbed_by(stalled, begin).await;
}

/// The same, by another watch: how much of the time of a scene that failed was none.
pub async fn undisturbed_by(stalled: impl Fn() -> Duration, scene: impl AsyncFn()) {
    for time in 1..=TIMES {
        let Err(panic) = AssertUnwindSafe(scene()).catch_unwind().await else {
            return;
        };
        if stalled() < LONG || time == TIMES {
            resume_unwind(panic);
        }
    }
}
