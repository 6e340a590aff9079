use std::time::Duration;

use super::on_nodes::OnNodes;
use super::quorum::{Drift, Quorum};
use crate::moment::Moment;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) quorum: Quorum,
    pub(crate) ttl: Duration,
    pub(crate) drift: Drift,
    /// The pause between a renewal that missed its quorum and the next try.
    pub(crate) retry: Duration,
    pub(crate) max_hold: Duration,
}

impl Terms {
    /// How long a confirmed command counts, from its send time.
    pub(crate) fn validity(&self) -> Duration {
        self.ttl.saturating_sub(self.drift.of(self.ttl))
    }

    /// How long before the deadline a loss is announced, because a timer may be late.
    fn early(&self) -> Duration {
        (self.ttl / 50).min(Duration::from_millis(5))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    terms: Terms,
    // When the grant or the last renewal on all nodes was sent.
    round: Moment,
    top_up: Option<Moment>,
    // The latest deadline that `max_hold` allows.
    cap: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Wait,
    /// Extend the lock on every node, and set it again on nodes that lack it.
    Renew,
    /// Set the lock on nodes that lack it.
    TopUp,
    /// Notify the holder, because the deadline is a few milliseconds away.
    Ending,
}

impl Renewal {
    pub(crate) fn new(terms: Terms, sent: Moment) -> Self {
        Self {
            terms,
            round: sent,
            top_up: None,
            cap: sent + terms.max_hold,
        }
    }

    pub(crate) const fn terms(&self) -> &Terms {
        &self.terms
    }

    pub(crate) fn begin_anew(&mut self, now: Moment) {
        self.cap = self.cap.max(now + self.terms.max_hold);
    }

    pub(crate) fn hold_for(&mut self, since: Moment, max_hold: Duration) {
        self.terms.max_hold = max_hold;
        self.cap = since + max_hold;
    }

    /// The end of validity, which `max_hold` limits.
    pub(crate) fn deadline(&self, nodes: &OnNodes) -> Moment {
        nodes.deadline().min(self.cap)
    }

    pub(crate) fn is_capped(&self, nodes: &OnNodes) -> bool {
        self.deadline(nodes) == self.cap
    }

    pub(crate) fn plan_top_up(&mut self, at: Moment) {
        self.top_up = Some(self.top_up.map_or(at, |before| before.min(at)));
    }

    pub(crate) fn step(&mut self, nodes: &OnNodes, now: Moment) -> Step {
        let deadline = self.deadline(nodes);
        if now >= self.announce_at(deadline) {
            return Step::Ending;
        }
        if self.renew_at(nodes, deadline).is_some_and(|at| now >= at) {
            self.round = now;
            self.top_up = None;
            return Step::Renew;
        }
        if self.top_up.is_some_and(|at| now >= at) {
            self.top_up = None;
            return Step::TopUp;
        }
        Step::Wait
    }

    pub(crate) fn due(&self, nodes: &OnNodes) -> Moment {
        let deadline = self.deadline(nodes);
        let renewal = self.renew_at(nodes, deadline).map(|at| self.on_grid(at));
        let due = [renewal, self.top_up].into_iter().flatten();
        due.fold(self.announce_at(deadline), Moment::min)
    }

    fn announce_at(&self, deadline: Moment) -> Moment {
        deadline.saturating_sub(self.terms.early())
    }

    /// A third of the ttl after the last round if a quorum confirmed that round, otherwise soon after it. `None` if
    /// `max_hold` sets the deadline.
    fn renew_at(&self, nodes: &OnNodes, deadline: Moment) -> Option<Moment> {
        if deadline == self.cap {
            return None;
        }
        Some(if nodes.is_confirmed_since(self.round) {
            self.round + self.terms.ttl / 3
        } else {
            self.round + self.terms.retry
        })
    }

    /// The next moment at which renewals are sent, so that several locks share a batch. It is late by at most a
    /// sixty-fourth of the ttl.
    fn on_grid(&self, at: Moment) -> Moment {
        let grid = u64::try_from(self.terms.ttl.as_nanos() / 64)
            .unwrap_or(u64::MAX)
            .max(1);
        Moment::from_nanos(at.as_nanos().div_ceil(grid).saturating_mul(grid))
    }
}

#[cfg(test)]
mod tests;
