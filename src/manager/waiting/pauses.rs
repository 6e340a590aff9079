//! How long contenders stand back from each other.

use std::time::Duration;

use crate::manager::nodes::random::random;
use crate::protocol::backoff::after_split;

/// How long one of so many contenders stands back; `None` if it goes at once.
pub(in crate::manager) fn aside(contenders: usize, round_trip: Duration) -> Option<Duration> {
    if contenders < 2 {
        return None;
    }
    // Timers count in milliseconds; less would not spread the contenders. A round that took long was held up by a
    // slow node, which is no reason to stand back for long. Nor is a notice that tells of a multitude.
    let round_trip = round_trip.clamp(SHORTEST_ROUND_TRIP, LONGEST_ROUND_TRIP);
    let pause = after_split(random(), contenders.min(MOST_CONTENDERS), round_trip);
    // One or two go at once: two cannot split an odd number of nodes.
    (pause >= round_trip * 3 / 4).then_some(pause)
}

/// How many contenders are reckoned with at most.
const MOST_CONTENDERS: usize = 100;
/// What a round trip is taken to be, at least and at most, where contenders spread their rounds.
pub(in crate::manager) const SHORTEST_ROUND_TRIP: Duration = Duration::from_millis(1);
pub(in crate::manager) const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(25);
