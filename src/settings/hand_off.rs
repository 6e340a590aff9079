//! [`HandOff`]: how often a lock may pass from one caller to the next inside a process.

use std::time::Duration;

use serde::Deserialize;

use crate::settings::error::{ConfigError, check_range, ensure};

/// How often, and for how long, a lock may pass from one caller to the next inside a process.
///
/// When a guard is released and another caller of the same manager waits for that key, the lock passes to it
/// without asking the nodes, as long as enough of its validity is left. After `max_passes` passes in a row, or
/// `max_time` from the moment the nodes granted it, the lock is really released, so that other processes get
/// their turn; if any of them was waiting, the key has a cooldown of a few round trips in this process.
///
/// It passes only to a caller that wants the same ttl ([`with_ttl`](crate::LockManager::with_ttl)). Each holder has its
/// own [`LockGuard`](crate::LockGuard), its own [`max_hold`](crate::Settings::max_hold)
/// and its own loss; the handles of the holder before say *lost* from the moment of the pass.
///
/// # What is excluded, and what is not
///
/// Work under one guard never overlaps with work under another. A handler that spawns work and does not give it the
/// guard leaves that work behind: the next holder starts while it still runs. That is so after every release; a
/// hand-off makes it likelier to be seen, because the next holder starts within microseconds.
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

    /// At most `max_passes` passes in a row, of which there may be 1023, and none later than `max_time` after the
    /// nodes have granted the lock. Default: 32 passes, 250 ms.
    #[must_use]
    pub const fn new(max_passes: u32, max_time: Duration) -> Self {
        Self {
            max_passes,
            max_time,
            off: false,
        }
    }

    /// How many passes in a row there may be.
    #[must_use]
    pub const fn max_passes(&self) -> u32 {
        self.max_passes
    }

    /// How long after its grant a lock may still be passed.
    #[must_use]
    pub const fn max_time(&self) -> Duration {
        self.max_time
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
