//! [`HandOff`]: how often a lock may pass from one caller to the next inside a process.

use std::time::Duration;

use serde::Deserialize;

use crate::settings::error::{ConfigError, check_range, ensure};

/// How often, and for how long, a lock may pass from one caller to the next inside a process.
///
/// When a guard is released and another caller of the manager waits for that key with the same ttl, the lock passes to
/// it without asking the nodes, as long as enough of its validity is left. After `max_passes` passes in a row, or
/// `max_time` from the grant, it is released, so that other processes get their turn. Each holder has its own guard,
/// `max_hold` and loss; the handles of the holder before say *lost*.
///
/// Work under one guard never overlaps with work under another. Work that a handler spawned without the guard may.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tower_redlock::settings::HandOff;
/// use tower_redlock::LockManager;
///
/// let locks = LockManager::builder()
///     .memory(5)
///     .hand_off(HandOff::new(8, Duration::from_millis(50))) // Or `HandOff::OFF`.
///     .connect()
///     .await?;
/// # let _ = locks;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[serde(expecting = "\"off\" or a table with max_passes and max_time")]
pub struct HandOff {
    pub(crate) max_passes: u32,
    #[serde(with = "humantime_serde")]
    pub(crate) max_time: Duration,
    // As the text `off` in a file, whatever else is said.
    off: bool,
}

impl HandOff {
    /// No lock passes without being released on the nodes.
    pub const OFF: Self = Self::new(0, Duration::ZERO);

    /// At most `max_passes` passes in a row, 1023 at most, and none later than `max_time` after the grant. Default: 32
    /// passes, 250 ms.
    #[must_use]
    pub const fn new(max_passes: u32, max_time: Duration) -> Self {
        Self {
            max_passes,
            max_time,
            off: false,
        }
    }
}

impl Default for HandOff {
    fn default() -> Self {
        Self::new(32, Duration::from_millis(250))
    }
}

/// Ten bits of a fencing token count the holders of one grant.
const MAX_PASSES: u32 = 1_023;

impl HandOff {
    pub(super) fn checked(self, max_hold: Duration) -> Result<Self, ConfigError> {
        if self.off {
            return Ok(Self::OFF);
        }
        let passes = self.max_passes;
        ensure(passes <= MAX_PASSES, "hand_off.max_passes", || {
            format!("hand_off.max_passes is {passes}; it must be at most {MAX_PASSES}")
        })?;
        let range = Duration::ZERO..=max_hold;
        check_range("hand_off.max_time", self.max_time, range)?;
        Ok(self)
    }
}
