//! [`Pace`] decides what a contender does after each round. It has no I/O, clock or random numbers of its own.
//!
//! ```text
//!   granted ────────► Take
//!   no quorum ──────► NoQuorum     even if the caller would wait
//!   contended ──┬───► GiveUp       the caller does not wait, or its time is over
//!               └───► Listen       wait for a release, and ask again
//!   split ──────┬───► GiveUp       the caller's time is over, or it does not wait and has tried often enough
//!               ├───► StandBack    pause for a random time, and ask again
//!               └───► Listen       after many splits in a row
//! ```

use std::time::Duration;

use crate::protocol::backoff::{Backoff, after_split, until_due};
use crate::protocol::on_nodes::Verdict;

#[derive(Clone, Debug)]
pub(crate) struct Pace {
    is_patient: bool,
    // How many rounds were split since the last round that was contended.
    splits: u32,
    // How many contenders took part in the last split. After a release, the same number is expected to contend again.
    contenders: usize,
    // A round of this call was granted, but its fencing token could not be settled.
    is_unsettled: bool,
    // The last wait ended because the subscriptions had begun to work, not because of a release.
    has_opened: bool,
    without_notices: Backoff,
    with_notices: Backoff,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) waited: Duration,
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
    /// The subscriptions work now, so an earlier release may have been missed.
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

    pub(crate) fn next(&mut self, verdict: Verdict, times: impl FnOnce() -> Times) -> Step {
        match verdict {
            Verdict::Granted => Step::Take,
            Verdict::NoQuorum => Step::NoQuorum,
            Verdict::Split { contenders, .. } => {
                self.splits += 1;
                self.contenders = contenders;
                if self.is_over(times()) {
                    Step::GiveUp
                } else if self.splits >= MAX_SPLITS {
                    Step::Listen
                } else {
                    Step::StandBack
                }
            }
            Verdict::Contended { .. } if times().left.is_zero() => Step::GiveUp,
            Verdict::Contended { .. } => {
                self.splits = 0;
                Step::Listen
            }
        }
    }

    fn is_over(&self, times: Times) -> bool {
        if self.is_patient {
            return times.left.is_zero();
        }
        // The time is limited as well, because with a slow node a round can look split when it is not, and each such
        // round lasts for a whole node time-out.
        self.splits >= MAX_SPLITS || times.waited >= times.node_timeout * SPLIT_TIMEOUTS
    }

    /// Whether the call ends because the fencing token of a granted round could not be settled. If the reason is a lack
    /// of confirmations (`is_lack`), the call ends only the second time, because a node may have died since its grant.
    pub(crate) fn must_end(&mut self, is_lack: bool, left: Duration) -> bool {
        let is_again = std::mem::replace(&mut self.is_unsettled, true);
        let is_over = self.is_patient && left.is_zero();
        is_again || !is_lack || is_over
    }

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
        // Contenders that drew a short delay ask immediately. On average these are about two contenders, and two cannot
        // split an odd number of nodes.
        (delay >= round_trip * 3 / 4).then_some(delay)
    }

    /// How long to pause after a release, so that contenders that have waited for longer can ask first. `holder` is how
    /// long the holder had waited for the lock, or zero if that is unknown.
    pub(crate) fn after_release(
        &self,
        waited: Duration,
        holder: Duration,
        round_trip: Duration,
        random: impl FnOnce() -> u64,
    ) -> Option<Duration> {
        if holder.is_zero() {
            return self.after_split(round_trip, random);
        }
        let delay = until_due(waited, holder, reckoned(round_trip));
        (!delay.is_zero()).then_some(delay)
    }

    /// How long to listen for a release before the nodes are asked again. `remaining` is the rest of the holder's
    /// lease. `is_notified` says whether a quorum of nodes announces releases to this contender.
    pub(crate) fn listen_for(
        &mut self,
        remaining: Option<Duration>,
        is_notified: bool,
        random: u64,
    ) -> Duration {
        // When the holder's lease ends, no notice comes, so ask again then at the latest. Add a millisecond, because a
        // server keeps a key until the last millisecond of its life is over. If the lease seems to have ended already,
        // poll as often as without notices.
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

    /// Whether the next wait also ends when the subscriptions begin to work. Callers of several keys change their
    /// subscriptions while they wait, and would otherwise wake each other for ever.
    pub(crate) const fn ends_when_open(&self, several: bool) -> bool {
        !(self.has_opened && several)
    }

    pub(crate) fn woken(&mut self, by: Option<Woken>) {
        self.has_opened = by == Some(Woken::Opened);
    }
}

/// The round trip from which pauses are computed: at least 1 ms, because timers are no finer, and at most 25 ms.
pub(crate) fn reckoned(round_trip: Duration) -> Duration {
    round_trip.clamp(MILLISECOND, Duration::from_millis(25))
}

const MILLISECOND: Duration = Duration::from_millis(1);
const FIRST_POLL: Duration = Duration::from_millis(4);
const SLOWEST_POLL: Duration = Duration::from_millis(100);
const FIRST_POLL_NOTIFIED: Duration = Duration::from_millis(100);
const SLOWEST_POLL_NOTIFIED: Duration = Duration::from_secs(1);
/// After how many split rounds a contender listens for a release, or gives up if its caller does not wait.
const MAX_SPLITS: u32 = 8;
/// For how many node time-outs a caller that does not wait tries again after split rounds.
const SPLIT_TIMEOUTS: u32 = 2;

#[cfg(test)]
mod tests;
