//! One held lock over its life: which node holds what, until when, and when to extend.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::quorum::{Drift, Quorum, deadline};
use crate::moment::Moment;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) quorum: Quorum,
    pub(crate) ttl: Duration,
    pub(crate) drift: Drift,
    /// How long after a renewal that missed its quorum the next is tried.
    pub(crate) retry: Duration,
    pub(crate) max_hold: Duration,
}

impl Terms {
    /// How long before the deadline a loss is announced: enough for a timer to be late.
    fn early(&self) -> Duration {
        (self.ttl / 50).min(Duration::from_millis(5))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeLease {
    /// It has no token, or did not say that it has.
    Clear,
    /// It has our token, confirmed by a command sent at this moment.
    Held(Moment),
    /// It had another owner's token at its last reply.
    Foreign,
}

#[derive(Clone, Copy, Debug)]
struct NodeEntry {
    lease: NodeLease,
    // Commands under way that may set our token.
    pending: u16,
    // Such a command was given up and may run yet, so the node may have our token whatever it replies later.
    doubtful: bool,
}

/// The state of a lease on one node once a command sent at `sent` was answered or abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeEffect {
    /// The node has our token, for a full ttl from then on.
    Confirmed { sent: Moment },
    /// The same by a reply that came at `now` from a node in quarantine.
    Kept { sent: Moment, now: Moment },
    /// The node has another's token.
    Foreign { sent: Moment },
    /// The node has no token.
    Absent { sent: Moment },
    /// The node may have our token by a command that was given up. Earlier confirmations still count.
    Unknown,
    /// What was known before still holds.
    Unchanged,
}

#[derive(Clone, Debug)]
pub(crate) struct LeaseNodes {
    terms: Terms,
    nodes: SmallVec<[NodeEntry; 5]>,
    // When the last full round (the grant, then renewals) was sent.
    round: Moment,
    top_up: Option<Moment>,
    // The latest deadline that `max_hold` allows.
    cap: Moment,
    // It is on several keys: a node where another has one of them may have the others.
    several: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Wait,
    /// Extend it on every node; re-fill where it is absent.
    Renew,
    /// Set it on the nodes that lack it.
    TopUp,
    /// The deadline is a few milliseconds away: tell the holder.
    Ending,
}

impl NodeEntry {
    const CLEAR: Self = Self {
        lease: NodeLease::Clear,
        pending: 0,
        doubtful: false,
    };
}

impl LeaseNodes {
    pub(crate) const fn of_several(mut self, several: bool) -> Self {
        self.several = several;
        self
    }

    pub(crate) const fn terms(&self) -> Terms {
        self.terms
    }

    pub(crate) fn new(terms: Terms, sent: Moment) -> Self {
        let nodes = terms.quorum.nodes();
        Self {
            terms,
            nodes: smallvec![NodeEntry::CLEAR; nodes],
            round: sent,
            top_up: None,
            cap: sent + terms.max_hold,
            several: false,
        }
    }

    pub(crate) fn begin_anew(&mut self, now: Moment) {
        self.cap = self.cap.max(now + self.terms.max_hold);
    }

    pub(crate) fn hold_for(&mut self, since: Moment, max_hold: Duration) {
        self.terms.max_hold = max_hold;
        self.cap = since + max_hold;
    }

    pub(crate) const fn max_hold(&self) -> Duration {
        self.terms.max_hold
    }

    pub(crate) fn begin(&mut self, node: usize) {
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.pending = entry.pending.saturating_add(1);
        }
    }

    pub(crate) fn end(&mut self, node: usize) {
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.pending = entry.pending.saturating_sub(1);
        }
    }

    pub(crate) fn confirm(&mut self, node: usize, sent: Moment) {
        if let Some(NodeEntry { lease, .. }) = self.nodes.get_mut(node) {
            *lease = match *lease {
                NodeLease::Held(before) => NodeLease::Held(before.max(sent)),
                _ => NodeLease::Held(sent),
            };
        }
    }

    /// A reply that came at `now` says: `node` is in quarantine and holds our token by a command sent at `sent`.
    ///
    /// It counts while our last vote of that node is within its ttl: until then no other owner can have a live vote
    /// there, whatever the node has forgotten. Later it does not count until the node votes again: the node may have
    /// granted the lock to others before it forgot.
    pub(crate) fn keep(&mut self, node: usize, sent: Moment, now: Moment) {
        let Terms { ttl, drift, .. } = self.terms;
        let counts = match self.lease(node) {
            Some(NodeLease::Held(before)) => {
                deadline([before], 1, ttl, drift).is_some_and(|end| now < end)
            }
            _ => false,
        };
        if counts {
            self.confirm(node, sent);
        } else {
            self.unknown(node);
        }
    }

    pub(crate) fn apply(&mut self, node: usize, effect: NodeEffect) {
        match effect {
            NodeEffect::Confirmed { sent } => self.confirm(node, sent),
            NodeEffect::Kept { sent, now } => self.keep(node, sent, now),
            NodeEffect::Foreign { sent } => self.foreign(node, sent),
            NodeEffect::Absent { sent } => self.absent(node, sent),
            NodeEffect::Unknown => self.unknown(node),
            NodeEffect::Unchanged => {}
        }
    }

    pub(crate) fn foreign(&mut self, node: usize, sent: Moment) {
        self.set(node, sent, NodeLease::Foreign);
    }

    pub(crate) fn absent(&mut self, node: usize, sent: Moment) {
        self.set(node, sent, NodeLease::Clear);
    }

    pub(crate) fn unknown(&mut self, node: usize) {
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.doubtful = true;
            if entry.lease == NodeLease::Foreign {
                entry.lease = NodeLease::Clear;
            }
        }
    }

    fn set(&mut self, node: usize, sent: Moment, to: NodeLease) {
        if let Some(NodeEntry { lease, .. }) = self.nodes.get_mut(node) {
            // A reply that comes after that to a later command says nothing new.
            let overtaken = matches!(lease, NodeLease::Held(later) if *later > sent);
            if !overtaken {
                *lease = to;
            }
        }
    }

    pub(crate) fn holds(&self, node: usize) -> bool {
        matches!(self.lease(node), Some(NodeLease::Held(_)))
    }

    /// Until when the lock may be relied on; the origin of time if it never could be.
    pub(crate) fn deadline(&self) -> Moment {
        let confirmed = self.nodes.iter().filter_map(|node| match node.lease {
            NodeLease::Held(sent) => Some(sent),
            _ => None,
        });
        let Terms {
            quorum, ttl, drift, ..
        } = self.terms;
        let end = deadline(confirmed, quorum.needed(), ttl, drift);
        end.map_or(Moment::ORIGIN, |end| end.min(self.cap))
    }

    pub(crate) fn capped(&self) -> bool {
        self.deadline() == self.cap
    }

    pub(crate) fn taken(&self) -> bool {
        self.count(|lease| *lease == NodeLease::Foreign) > self.terms.quorum.spare()
    }

    pub(crate) fn owes(&self, node: usize) -> bool {
        let is_partly_foreign = self.several && self.lease(node) == Some(NodeLease::Foreign);
        self.is_doubtful(node) || self.holds(node) || is_partly_foreign
    }

    pub(crate) fn is_doubtful(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.doubtful)
    }

    fn lease(&self, node: usize) -> Option<NodeLease> {
        self.nodes.get(node).map(|node| node.lease)
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn is_clear(&self, node: usize) -> bool {
        let is_clear = self.lease(node) == Some(NodeLease::Clear);
        is_clear && !self.busy(node) && !self.is_doubtful(node)
    }

    pub(crate) fn busy(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.pending > 0)
    }

    pub(crate) fn missing(&self) -> usize {
        self.count(|lease| !matches!(lease, NodeLease::Held(_)))
    }

    fn count(&self, wanted: impl Fn(&NodeLease) -> bool) -> usize {
        let leases = self.nodes.iter().map(|node| node.lease);
        leases.filter(wanted).count()
    }

    pub(crate) fn plan_top_up(&mut self, at: Moment) {
        self.top_up = Some(self.top_up.map_or(at, |before| before.min(at)));
    }

    pub(crate) fn step(&mut self, now: Moment) -> Step {
        let deadline = self.deadline();
        if now >= self.announce_at(deadline) {
            return Step::Ending;
        }
        if self.renew_at(deadline).is_some_and(|at| now >= at) {
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

    pub(crate) fn due(&self) -> Moment {
        let deadline = self.deadline();
        let renewal = self.renew_at(deadline).map(|at| self.on_grid(at));
        let due = [renewal, self.top_up].into_iter().flatten();
        due.fold(self.announce_at(deadline), Moment::min)
    }

    fn announce_at(&self, deadline: Moment) -> Moment {
        deadline.saturating_sub(self.terms.early())
    }

    /// A third of the ttl after the last round if a quorum confirmed that one, else soon after it. Never once the cap
    /// is reached.
    fn renew_at(&self, deadline: Moment) -> Option<Moment> {
        if deadline == self.cap {
            return None;
        }
        let confirmed =
            self.count(|lease| matches!(lease, NodeLease::Held(sent) if *sent >= self.round));
        Some(if confirmed >= self.terms.quorum.needed() {
            self.round + self.terms.ttl / 3
        } else {
            self.round + self.terms.retry
        })
    }

    /// The next of the moments at which renewals are sent, so that locks share a batch: up to a sixty-fourth of the ttl
    /// late.
    fn on_grid(&self, at: Moment) -> Moment {
        let grid = u64::try_from(self.terms.ttl.as_nanos() / 64)
            .unwrap_or(u64::MAX)
            .max(1);
        Moment::from_nanos(at.as_nanos().div_ceil(grid).saturating_mul(grid))
    }
}

#[cfg(test)]
mod tests;
