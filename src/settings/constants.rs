//! Values that only the tests and benches of this crate change.

use std::time::Duration;

use crate::protocol::quorum::Drift;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    pub(crate) hand_off: HandOff,
    /// How long nodes keep a counter after it was last written, if that is longer than the ttl.
    pub(crate) keep: Duration,
    /// The largest difference between the clocks of two processes. No quarantine is shorter, because the process that
    /// ends a quarantine continues lost fencing tokens from its own clock.
    pub(crate) max_clock_skew: Duration,
    pub(crate) drift: Drift,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            hand_off: HandOff::new(32, Duration::from_millis(250)),
            keep: USUAL,
            max_clock_skew: Duration::from_secs(1),
            drift: Drift::default(),
        }
    }
}

/// The limits of [`hand_off`](crate::Settings::hand_off), which give other processes their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandOff {
    pub(crate) max_passes: u32,
    pub(crate) max_time: Duration,
}

impl HandOff {
    pub(crate) const OFF: Self = Self::new(0, Duration::ZERO);

    /// At most 1023 passes, because ten bits of a fencing token count the holders of one grant.
    pub(crate) const fn new(max_passes: u32, max_time: Duration) -> Self {
        Self {
            max_passes,
            max_time,
        }
    }
}

const USUAL: Duration = Duration::from_secs(5 * 60);

#[cfg(feature = "idempotency")]
pub(crate) fn usual(ttl: Duration) -> Duration {
    USUAL.max(ttl)
}
