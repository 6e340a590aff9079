//! [`Pace`]: what a contender does next. Pure: it is given what was seen, the time and random numbers, and answers with
//! the next step, which the [`contender`](super::contender) takes.
//!
//! ```text
//!   round ─► Take       granted: settle the fencing token, and hold the lock
//!         ─► NoQuorum   too few nodes can vote
//!         ─► GiveUp     another owner has it, and the caller does not wait any longer
//!         ─► StandBack  contenders share the nodes: pause, and ask again
//!         ─► Listen     another owner has it: wait for its release
//! ```

use std::time::Duration;

use crate::protocol::backoff::{Backoff, after_split, until_due};
use crate::protocol::on_nodes::Verdict;

#[derive(Clone, Debug)]
pub(crate) struct Pace {
    is_patient: bool,
    // Split votes since the last other verdict.
    splits: u32,
    // How many contended in the last split: as many will after a release.
    contenders: usize,
    // A fencing token was not settled.
    is_unsettled: bool,
    // The last wait ended because the subscriptions work at last, not because of a release.
    has_opened: bool,
    without_notices: Backoff,
    with_notices: Backoff,
}

/// The time of a call when a verdict is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) waited: Duration,
    /// How long the caller goes on waiting: nothing for one that does not wait.
    pub(crate) left: Duration,
    pub(crate) node_timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Take,
    NoQuorum,
    GiveUp,
    StandBack,
    Listen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Released,
    /// The subscriptions work at last.
    Opened,
}

impl Pace {
    pub(crate) const fn new(is_patient: bool) -> Self {
        Self {
            is_patient,
            splits: 0,
            contenders: 1,
            is_unsettled: false,
            has_opened: false,
            without_notices: Backoff::new(FIRST_POLL, SLOWEST_POLL),
            with_notices: Backoff::new(FIRST_POLL_NOTIFIED, SLOWEST_POLL_NOTIFIED),
        }
    }

    pub(crate) fn next(&mut self, verdict: Verdict, times: Times) -> Step {
        match verdict {
            Verdict::Granted => Step::Take,
            Verdict::NoQuorum => Step::NoQuorum,
            Verdict::Split { contenders, .. } => {
                self.splits += 1;
                self.contenders = contenders;
                if self.has_split_too_often(times) {
                    Step::GiveUp
                } else if self.splits >= MAX_SPLITS {
                    // Contenders that share the nodes are stuck or long gone.
                    Step::Listen
                } else {
                    Step::StandBack
                }
            }
            Verdict::Contended { .. } if times.left.is_zero() => Step::GiveUp,
            Verdict::Contended { .. } => {
                self.splits = 0;
                Step::Listen
            }
        }
    }

    fn has_split_too_often(&self, times: Times) -> bool {
        if self.is_patient {
            return times.left.is_zero();
        }
        // Bounded by time, too: with a slow node a split may only seem one, and every round takes its time-out.
        self.splits >= MAX_SPLITS || times.waited >= times.node_timeout * SPLIT_TIMEOUTS
    }

    /// Whether a fencing token that was not settled ends the call; `is_lack`: for lack of a quorum. Only the second does:
    /// a node that died between its grant and its confirmation is no lack of a quorum.
    pub(crate) fn must_end(&mut self, is_lack: bool, left: Duration) -> bool {
        let is_again = std::mem::replace(&mut self.is_unsettled, true);
        let is_over = self.is_patient && left.is_zero();
        is_again || !is_lack || is_over
    }

    /// How long to let the other contenders go first after a split: a random time that grows with their number.
    pub(crate) fn after_split(
        &self,
        round_trip: Duration,
        random: impl FnOnce() -> u64,
    ) -> Option<Duration> {
        if self.contenders < 2 {
            return None;
        }
        let round_trip = reckoned(round_trip);
        let delay = after_split(random(), self.contenders, round_trip);
        // One or two go immediately: two cannot split an odd number of nodes.
        (delay >= round_trip * 3 / 4).then_some(delay)
    }

    /// How long to let contenders go first after a release that have waited longer, if the notice says how long the
    /// holder had waited `before`. This contender is of that `age`.
    pub(crate) fn after_release(
        &self,
        (age, before): (Duration, Duration),
        round_trip: Duration,
        random: impl FnOnce() -> u64,
    ) -> Option<Duration> {
        if before.is_zero() {
            return self.after_split(round_trip, random);
        }
        let delay = until_due(age, before, reckoned(round_trip));
        (!delay.is_zero()).then_some(delay)
    }

    /// How long to listen for a release before the nodes are asked again, where a holder's lease ends after
    /// `remaining`. `is_notified`: a quorum of nodes announces releases.
    pub(crate) fn listen_for(
        &mut self,
        remaining: Option<Duration>,
        is_notified: bool,
        random: u64,
    ) -> Duration {
        // Nobody else can have it before the holder's lease ends, unless the holder releases it. Servers keep a key
        // until the millisecond of its end is over. The end of a lease that seems to have ended is not announced.
        let lease = remaining.filter(|left| !left.is_zero());
        let is_announced = remaining.is_none_or(|left| !left.is_zero());
        let backoff = if is_announced && is_notified {
            &mut self.with_notices
        } else {
            &mut self.without_notices
        };
        let poll = backoff.next(random);
        lease.map_or(poll, |left| poll.min(left.saturating_add(MILLISECOND)))
    }

    /// Whether the next wait ends when the subscriptions work. Callers of several keys wake each other: two that hurried
    /// for nothing would do so for ever.
    pub(crate) const fn ends_when_open(&self, several: bool) -> bool {
        !(self.has_opened && several)
    }

    pub(crate) fn woken(&mut self, by: Option<Woken>) {
        self.has_opened = by == Some(Woken::Opened);
    }
}

/// The round trip that contenders reckon with where they spread their rounds: at least a timer's millisecond, at most
/// the round trip of a slow node.
pub(crate) fn reckoned(round_trip: Duration) -> Duration {
    round_trip.clamp(MILLISECOND, Duration::from_millis(25))
}

const MILLISECOND: Duration = Duration::from_millis(1);
const FIRST_POLL: Duration = Duration::from_millis(4);
/// The ceiling of the longest delay.
const SLOWEST_POLL: Duration = Duration::from_millis(100);
const FIRST_POLL_NOTIFIED: Duration = Duration::from_millis(100);
const SLOWEST_POLL_NOTIFIED: Duration = Duration::from_secs(1);
/// How many split votes in a row count as contention.
const MAX_SPLITS: u32 = 8;
/// For how many node time-outs split votes are tried again immediately, for a caller that does not wait.
const SPLIT_TIMEOUTS: u32 = 2;

#[cfg(test)]
mod tests;
