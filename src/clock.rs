//! The [`Clock`] port, which measures the deadlines of leases, and its [`Moment`]s.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

pub use crate::moment::Moment;

/// A monotonic clock that goes on counting while the machine is suspended.
///
/// The standard library's `Instant` stops during suspend on Linux and macOS, so a machine that wakes up would believe
/// in a lease that ended long ago. Every check of a deadline reads this clock instead of relying on a timer.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current moment. Must never go backwards.
    fn now(&self) -> Moment;

    /// Microseconds since 1970, from a clock that people can set and that may go backwards. New fencing tokens start
    /// from it if no higher token is known, and it is one of the clocks that end stored records. Default: the operating
    /// system's clock, and zero before 1970.
    fn unix_micros(&self) -> u64 {
        system_unix_micros()
    }

    /// Whether the clock follows the time of the caller's runtime, which a test can pause. If so, the manager has no
    /// thread of its own, and its watchdog runs on that runtime. Default: no.
    fn follows_runtime(&self) -> bool {
        false
    }
}

fn system_unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Moment {
        (**self).now()
    }

    fn unix_micros(&self) -> u64 {
        (**self).unix_micros()
    }

    fn follows_runtime(&self) -> bool {
        (**self).follows_runtime()
    }
}

/// The operating system's clock that counts suspend: `CLOCK_BOOTTIME` on Linux and Android, the continuous clock on
/// Apple systems, and the performance counter on Windows.
///
/// # Panics
///
/// Reading the clock panics if the system does not have it.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl SystemClock {
    /// Returns the clock.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        system_now()
    }
}

#[cfg(unix)]
fn system_now() -> Moment {
    use nix::time::ClockId;

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    // On Apple systems, CLOCK_MONOTONIC is the continuous clock. Elsewhere it is the best there is.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

    let Ok(time) = CLOCK.now() else {
        // Do not guess, because any value could keep an ended lease valid.
        panic!("the system has no clock to measure leases with: {CLOCK:?}");
    };
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(not(unix))]
fn system_now() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;

    // On Windows `Instant` is the performance counter, which counts suspend.
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    Moment::ORIGIN + ORIGIN.get_or_init(Instant::now).elapsed()
}

/// A clock that follows tokio's time, so that a test that pauses time also controls the leases.
#[cfg(feature = "test-util")]
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

#[cfg(feature = "test-util")]
impl TokioClock {
    /// A clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }
}

#[cfg(feature = "test-util")]
impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "test-util")]
impl Clock for TokioClock {
    fn now(&self) -> Moment {
        // Start above zero, because a deadline soon after the start can reach back before it.
        Moment::from_nanos(1_000_000_000) + self.origin.elapsed()
    }

    fn follows_runtime(&self) -> bool {
        true
    }

    fn unix_micros(&self) -> u64 {
        use std::sync::OnceLock;
        use std::time::{Duration, Instant};

        static START: OnceLock<(Instant, u64)> = OnceLock::new();
        let (start, unix) = *START.get_or_init(|| (Instant::now(), system_unix_micros()));
        let now = tokio::time::Instant::now().into_std();
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        // Subtract as well, because time may have been paused before `START` was read.
        unix.saturating_add(micros(now.saturating_duration_since(start)))
            .saturating_sub(micros(start.saturating_duration_since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_forward() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(first > Moment::ORIGIN);
        while clock.now() == first {}
        assert!(clock.now() > first);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_clock_is_the_one_that_counts_suspend() {
        use rustix::time::{ClockId, clock_gettime};

        let boot = clock_gettime(ClockId::Boottime);
        let ours = SystemClock::new().now().as_nanos();
        let boot = u64::try_from(boot.tv_sec).unwrap() * 1_000_000_000
            + u64::try_from(boot.tv_nsec).unwrap();
        assert!(ours >= boot && ours - boot < 1_000_000_000);
    }
}
