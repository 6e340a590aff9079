//! What happens to processes, to their ways to the nodes, and to clocks.

use super::part::{Measure, Settings, TTL};
use crate::dice::chance;

/// What happens. In each of them processes are cut off from nodes, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Processes are stopped, most of the time for longer than their leases last, and some are killed and started anew.
    Pauses,
    /// Processes are stopped as on a host that is suspended: a clock that does not count that stands still meanwhile.
    Suspends,
    /// The clocks of processes run too slowly, those of servers too fast: by more than is allowed for unless it is set.
    Rates,
    /// The wall clocks of servers are set forward, one after the other; those of processes in either direction.
    Steps,
    /// Servers restart empty, one at a time, while processes are stopped.
    Forgets,
}

/// By how many millionths clocks are wrong, where they are.
const WRONG: i64 = 200_000;

impl Scene {
    /// With what all processes are set up, so that they are kept apart, or so that they are not.
    pub(crate) fn settings(self, guarded: bool) -> Settings {
        let guards = |scene| guarded && self == scene;
        Settings {
            ttl: TTL,
            // Of two clocks of which one runs a fifth too fast and the other a fifth too slowly, the one shows two
            // thirds of what the other shows.
            drift: if guards(Self::Rates) { 0.4 } else { 0.01 },
            masked: usize::from(guards(Self::Steps)),
            restart_guard: guarded || self != Self::Forgets,
            measure: if self == Self::Suspends && !guarded {
                Measure::StandingClock
            } else {
                Measure::SystemClock
            },
        }
    }

    /// How many nodes there are. With three, many locks are on two of them only, and one that is lost shows.
    pub(crate) const fn nodes(self) -> usize {
        match self {
            Self::Pauses | Self::Suspends => 5,
            Self::Rates | Self::Steps | Self::Forgets => 3,
        }
    }

    /// Whether the clocks of servers are set.
    pub(crate) const fn sets_servers(self) -> bool {
        matches!(self, Self::Rates | Self::Steps)
    }

    /// By how many millionths the clocks of a process run too fast. One of them is right.
    pub(crate) fn rate_of_process(self, process: usize) -> i64 {
        if self == Self::Rates && process > 0 {
            -WRONG
        } else {
            0
        }
    }

    /// The same of a server.
    pub(crate) fn rate_of_server(self, server: usize) -> i64 {
        if self == Self::Rates && server > 0 {
            WRONG
        } else {
            0
        }
    }

    /// From how many nodes a process is cut off for a while.
    pub(crate) fn cuts(self) -> usize {
        let (whole, of, most) = match self {
            // What a process holds then ends by the clocks alone.
            Self::Rates => (1, 3, 1),
            Self::Pauses | Self::Suspends => (1, 12, 2),
            Self::Steps | Self::Forgets => (0, 1, 1),
        };
        if chance(whole, of) {
            self.nodes()
        } else {
            fastrand::usize(..most + 1)
        }
    }
}
