//! How long a contender waits between two rounds.

use std::time::Duration;

use crate::manager::nodes::random::random;
use crate::protocol::backoff::{Backoff, after_split};

/// The delays between rounds for a busy lock.
#[derive(Debug)]
pub(crate) struct PollDelays {
    without_notices: Backoff,
    with_notices: Backoff,
}

impl PollDelays {
    pub(crate) const fn new() -> Self {
        Self {
            without_notices: Backoff::new(FIRST_POLL, SLOWEST_POLL),
            with_notices: Backoff::new(FIRST_POLL_NOTIFIED, SLOWEST_POLL_NOTIFIED),
        }
    }

    /// The delay before the next round; `notified` if a quorum of nodes announces releases.
    pub(crate) fn next(&mut self, notified: bool) -> Duration {
        let backoff = if notified {
            &mut self.with_notices
        } else {
            &mut self.without_notices
        };
        backoff.next(random())
    }
}

/// A random delay that spreads the rounds of so many contenders; `None` if this one goes at once.
pub(crate) fn contention_delay(contenders: usize, round_trip: Duration) -> Option<Duration> {
    if contenders < 2 {
        return None;
    }
    let round_trip = reckoned(round_trip);
    let delay = after_split(random(), contenders.min(MOST_CONTENDERS), round_trip);
    // One or two go at once: two cannot split an odd number of nodes.
    (delay >= round_trip * 3 / 4).then_some(delay)
}

/// The round trip that contenders reckon with where they spread their rounds. Timers count in milliseconds; less would
/// not spread them. A round that took long was held up by a slow node, which is no reason to wait for long.
pub(crate) fn reckoned(round_trip: Duration) -> Duration {
    round_trip.clamp(Duration::from_millis(1), Duration::from_millis(25))
}

/// With how many contenders [`contention_delay`] reckons at most.
const MOST_CONTENDERS: usize = 100;
/// The ceiling of the first delay; it doubles from there.
const FIRST_POLL: Duration = Duration::from_millis(4);
/// The ceiling of the longest delay.
const SLOWEST_POLL: Duration = Duration::from_millis(100);
/// The same while a quorum of nodes announces releases: a poll is only a safeguard then.
const FIRST_POLL_NOTIFIED: Duration = Duration::from_millis(100);
const SLOWEST_POLL_NOTIFIED: Duration = Duration::from_secs(1);
