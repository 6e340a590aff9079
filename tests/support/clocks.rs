//! The clocks of a program, as a test sets them while it runs.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::preload;

/// What a program's clocks show besides the truth. It ends with the directory of its file.
#[derive(Clone, Debug)]
pub struct Clocks {
    file: PathBuf,
    library: PathBuf,
}

/// The settings, in the order of the file.
#[derive(Clone, Copy, Debug)]
enum Setting {
    Ahead,
    StoodStill,
    Rate,
    Since,
    Stopped,
}

impl Clocks {
    /// Builds the library by which a program has its clocks, in `dir`.
    pub fn library(dir: &Path) -> PathBuf {
        preload::library(dir, "clock", include_str!("clock.c"), &[])
    }

    /// Clocks that are right, for a program that is started with this [`library`](Self::library). `file` says later
    /// what they show.
    pub fn new(file: PathBuf, library: PathBuf) -> Self {
        fs::write(&file, [0; 40]).unwrap();
        Self { file, library }
    }

    /// The variables with which a program is started to have these clocks.
    pub fn variables(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("CLOCKS", &self.file)]
    }

    /// Sets the wall clock so many seconds ahead.
    pub fn step(&self, seconds: i64) {
        self.set(Setting::Ahead, seconds * 1_000_000_000);
    }

    /// Has all clocks run too fast by so many millionths, or too slowly, from now on. Once.
    pub fn set_rate(&self, millionths: i64) {
        let now = nanos(shown(ClockId::Monotonic));
        self.set(Setting::Since, now);
        self.set(Setting::Rate, millionths);
    }

    /// Has the clock that does not count suspend have stood still for so long in all.
    pub fn stood_still(&self, in_all: Duration) {
        self.set(Setting::StoodStill, nanos(in_all));
    }

    /// Has the wall clock show this, in microseconds since 1970, and stand still.
    pub fn stop_at(&self, micros: u64) {
        self.set(Setting::Stopped, i64::try_from(micros).unwrap());
    }

    fn set(&self, setting: Setting, value: i64) {
        let file = fs::File::options().write(true).open(&self.file).unwrap();
        let place = setting as u64 * 8;
        file.write_all_at(&value.to_ne_bytes(), place).unwrap();
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap()
}

/// What a clock of this process shows.
pub fn shown(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}

/// What the clock shows that all processes have in common and that no test sets, in nanoseconds.
pub fn raw_now() -> u64 {
    u64::try_from(shown(ClockId::MonotonicRaw).as_nanos()).unwrap()
}
