//! [`RestartGuard`]: whether nodes that may have forgotten their locks are kept from granting them again.

use std::time::Duration;

use serde::Deserialize;

use crate::settings::error::{ConfigError, check_range};

/// Whether nodes that may have forgotten their locks are kept from granting them again. On by default.
///
/// Every node carries a *marker* with its identity and the settings that all processes must share. A node whose marker
/// is missing or is another's is in *quarantine*: it grants nothing until every lock that it may have forgotten has
/// ended, and it has learnt the fencing tokens of the other nodes. So two holders are kept apart however many nodes
/// forget. A process with other settings is refused, and a manager that finds any of its nodes with others grants and
/// extends nothing.
///
/// The guide has the rest: `docs::promises` (the cases that the guard does not see), `docs::runbook` (the length of a
/// quarantine, the first start, another list of nodes).
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
    /// node, which takes a server about half the time (`BENCHMARKS.md`). It gives up two things: a node compares the
    /// list of nodes only when a process connects, once a second, and when a lock is extended; and a command that was
    /// left in a broken connection may set the key after its release, until its ttl ends.
    pub const OFF: Self = Self {
        max_clock_skew: None,
        off: true,
    };

    /// Nodes that may have forgotten locks are quarantined. `skew` is by how much the clocks of any two processes
    /// differ at most; default: 1 s, at most an hour.
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
