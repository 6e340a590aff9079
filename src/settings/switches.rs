//! The settings that can be switched off: [`Fencing`], [`HandOff`], [`RestartGuard`].

use std::time::Duration;

use serde::Deserialize;

use crate::settings::error::{ConfigError, at_least, at_most, check_range, ensure};

/// Whether holders get fencing tokens, and how long the nodes keep the counters.
///
/// Every grant brings a [`FencingToken`](crate::FencingToken), with which the resource behind the lock tells a late
/// holder from the present one. It may cost a second round trip: `docs::one_effect` has the figures.
///
/// Counters that are kept for a short time are as safe as for a long one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "\"off\" or a table with keep"
)]
pub struct Fencing {
    #[serde(with = "humantime_serde")]
    keep: Option<Duration>,
    off: bool,
}

const USUAL: Duration = Duration::from_secs(5 * 60);

impl Fencing {
    /// No fencing tokens. [`RestartGuard::OFF`](crate::settings::RestartGuard::OFF) says what both save together.
    pub const OFF: Self = Self {
        keep: None,
        off: true,
    };

    /// Holders get fencing tokens, and a counter is kept for `keep` after it was last written: at least the ttl;
    /// default: 5 min, or the ttl if that is longer.
    #[must_use]
    pub const fn keep(keep: Duration) -> Self {
        Self {
            keep: Some(keep),
            off: false,
        }
    }

    /// How long counters are kept under locks of this ttl; `None` if there are none.
    pub(super) fn checked(self, ttl: Duration) -> Result<Option<Duration>, ConfigError> {
        if self.off {
            return Ok(None);
        }
        let keep = self.keep.unwrap_or_else(|| usual(ttl));
        at_least("fencing.keep", keep, "the ttl, ", ttl)?;
        at_most("fencing.keep", keep, "", MAX_KEEP)?;
        Ok(Some(keep))
    }
}

/// A hundred years; the servers count milliseconds in 63 bits.
const MAX_KEEP: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

pub(crate) fn usual(ttl: Duration) -> Duration {
    USUAL.max(ttl)
}

/// How often, and for how long, a lock may pass from one caller to the next inside a process.
///
/// When a guard is released and another caller of the manager waits for that key with the same ttl, the lock passes to
/// it without asking the nodes, as long as enough of its validity is left. After `max_passes` passes in a row, or
/// `max_time` from the grant, it is released, so that other processes get their turn. A permit passes four times at most. Each holder has its own guard,
/// `max_hold` and loss; the handles of the holder before say *lost*.
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
    /// passes, 250 ms or `max_hold` if that is shorter.
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
        at_most("hand_off.max_time", self.max_time, "max_hold, ", max_hold)?;
        Ok(self)
    }
}

/// Whether nodes that may have forgotten their locks are kept from granting them again. On by default.
///
/// A node that may have forgotten locks is in *quarantine*: it grants nothing until they have ended. So two holders are
/// kept apart however many nodes forget. `docs::promises` has the rule and the cases that the guard does not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[serde(expecting = "\"off\" or a table with max_clock_skew")]
pub struct RestartGuard {
    #[serde(with = "humantime_serde")]
    max_clock_skew: Option<Duration>,
    off: bool,
}

impl RestartGuard {
    /// Nodes grant also locks that they may have forgotten, as with other Redlock libraries. Switch it off in all
    /// processes or in none.
    ///
    /// With [`Fencing::OFF`](crate::settings::Fencing::OFF) as well, a lock on one key is a plain `SET NX PX` on each
    /// node, which takes a server about half the time (`BENCHMARKS.md`). A server need not tell its `run_id` then. It gives up two things: a node compares the
    /// list of nodes only when a process connects, once a second, and when a lock is extended; and a command that was
    /// left in a broken connection may set the key after its release, until its ttl ends.
    pub const OFF: Self = Self {
        max_clock_skew: None,
        off: true,
    };

    /// Nodes that may have forgotten locks are quarantined. `skew` is by how much the clocks of any two processes
    /// differ at most; default: 1 s, at most an hour. No quarantine is shorter: fencing tokens that nodes forgot go on from
    /// the clock of whoever ends it, which may be behind the one before.
    #[must_use]
    pub const fn max_clock_skew(skew: Duration) -> Self {
        Self {
            max_clock_skew: Some(skew),
            off: false,
        }
    }

    /// By how much clocks differ at most; `None` if there is no guard.
    pub(super) fn checked(self) -> Result<Option<Duration>, ConfigError> {
        if self.off {
            return Ok(None);
        }
        let skew = self.max_clock_skew.unwrap_or(USUAL_SKEW);
        check_range(
            "restart_guard.max_clock_skew",
            skew,
            Duration::ZERO..=MAX_SKEW,
        )?;
        Ok(Some(skew))
    }
}

const USUAL_SKEW: Duration = Duration::from_secs(1);
const MAX_SKEW: Duration = Duration::from_secs(60 * 60);
