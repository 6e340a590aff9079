//! Clocks of processes and servers: they run at a rate of their own, and can be set.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What every clock shows at the start, if it is right: microseconds since 1970.
const EPOCH: u64 = 1_800_000_000_000_000;

/// A clock that follows the time of the world, right or wrong.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// Since when it runs at this rate, in nanoseconds of the world.
    since: u64,
    /// How long it had run by then, by itself.
    run: u64,
    ppm: i64,
    /// The date it shows when it has not run at all.
    date: i128,
}

impl Running {
    fn run_by(&self, world: u64) -> u64 {
        let span = i128::from(world.saturating_sub(self.since));
        let run = span * i128::from(1_000_000 + self.ppm) / 1_000_000;
        self.run + run as u64
    }

    fn set_rate(&mut self, world: u64, ppm: i64) {
        *self = Self {
            since: world,
            run: self.run_by(world),
            ppm,
            ..*self
        };
    }

    fn unix_micros(&self, world: u64) -> u64 {
        u64::try_from(self.date + i128::from(self.run_by(world) / 1_000)).unwrap_or(0)
    }
}

/// The clock of a process or a server.
#[derive(Debug)]
pub struct SimClock {
    start: Instant,
    /// What it shows at the start: clocks of two machines cannot be compared.
    origin: u64,
    running: Mutex<Running>,
}

impl SimClock {
    /// A clock that is right, in a world that began at `start`, on a machine that is up for `uptime`.
    pub fn new(start: Instant, uptime: Duration) -> Self {
        let running = Running {
            since: 0,
            run: 0,
            ppm: 0,
            date: i128::from(EPOCH),
        };
        Self {
            start,
            origin: uptime.as_nanos() as u64,
            running: Mutex::new(running),
        }
    }

    fn world(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn change<T>(&self, change: impl FnOnce(&mut Running, u64) -> T) -> T {
        let world = self.world();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut running, world)
    }

    /// For how long the machine has been up, in nanoseconds: what measures time.
    pub fn nanos(&self) -> u64 {
        self.change(|running, world| self.origin + running.run_by(world))
    }

    /// The date, in microseconds since 1970.
    pub fn unix_micros(&self) -> u64 {
        self.change(|running, world| running.unix_micros(world))
    }

    /// Runs so many parts per million too fast from now on, or too slow.
    pub fn set_rate(&self, ppm: i64) {
        self.change(|running, world| running.set_rate(world, ppm));
    }

    /// Sets the date forth or back. What measures time does not change.
    pub fn step(&self, by_ms: i64) {
        self.change(|running, _| running.date += i128::from(by_ms) * 1_000);
    }

    /// The machine was suspended: both the date and the time go on.
    pub fn jump(&self, by_ms: u64) {
        self.change(|running, _| running.run += by_ms * 1_000_000);
    }
}

#[test]
fn a_clock_keeps_its_rate_its_jumps_and_its_date_apart() {
    let second = 1_000_000_000;
    let mut running = Running {
        since: 0,
        run: 0,
        ppm: 0,
        date: i128::from(EPOCH),
    };
    assert_eq!(running.run_by(second), second);
    running.set_rate(second, 10_000);
    assert_eq!(running.run_by(2 * second), 2 * second + second / 100);
    running.set_rate(2 * second, -10_000);
    assert_eq!(running.run_by(3 * second), 3 * second);
    running.date -= 5_000_000;
    assert_eq!(running.unix_micros(3 * second), EPOCH - 2_000_000);
    assert_eq!(running.run_by(3 * second), 3 * second);
}
