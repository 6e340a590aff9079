//! The votes of all nodes together: for quorums, snapshots and metrics.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use crate::manager::nodes::voting::state::State;
use crate::manager::nodes::voting::status::VotingStatus;
use crate::manager::nodes::voting::statuses::{Slot, VotingStatuses};
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

impl VotingStatuses {
    /// How many nodes have answered whether they vote.
    pub(crate) fn answered(&self) -> usize {
        let answered = |slot: &&Slot| slot.answered.load(Ordering::Acquire);
        self.slots.iter().filter(answered).count()
    }

    /// Whether every node was asked whether it votes, and no quarantine is about to end.
    fn is_all_asked(&self) -> bool {
        let mut slots = self.slots.iter().enumerate();
        slots.all(|(node, slot)| {
            slot.asked.load(Ordering::Acquire) && !self.is_exempt(node, &self.get(node))
        })
    }

    /// Waits until `is_enough`, which is evaluated at each change, at most for `limit`.
    pub(crate) async fn news_until(&self, limit: Duration, is_enough: impl Fn() -> bool) {
        let enough = async {
            loop {
                let news = self.news();
                if is_enough() {
                    return;
                }
                news.await;
            }
        };
        let _ = timeout(limit, enough).await;
    }

    /// Waits until every node was asked once, so that it is known which processes they serve; at most for `limit`. Only
    /// the first callers of a manager wait.
    pub(crate) async fn all_asked(&self, limit: Duration) {
        if self.all_asked.load(Ordering::Acquire) {
            return;
        }
        self.news_until(limit, || self.is_all_asked()).await;
        self.all_asked.store(true, Ordering::Release);
    }

    /// What is known of `node`, for snapshots and metrics.
    pub(crate) fn show(&self, node: usize, now: Moment) -> VotingStatus {
        match self.get(node) {
            State::Unknown => VotingStatus::Unknown,
            State::Voting => VotingStatus::Voting,
            State::Quarantined(quarantine) => VotingStatus::Quarantined {
                remaining: quarantine.end.moment().map(|end| end.since(now)),
                remembered: quarantine.remembered,
            },
            State::Foreign(foreign) => VotingStatus::Foreign {
                reason: foreign.reason,
            },
        }
    }

    /// Why `node` does not grant.
    pub(crate) fn explain(&self, node: usize, now: Moment) -> Option<NodeError> {
        // Until that is repaired, no waiting helps.
        let refusal = self.refusal(node)?.clone();
        if let Some((_, error)) = refusal {
            return Some(error);
        }
        match self.get(node) {
            State::Quarantined(quarantine) => {
                let text = quarantine.explain(now);
                Some(NodeError::new(NodeErrorKind::Quarantined, text))
            }
            State::Foreign(foreign) => Some(NodeError::new(NodeErrorKind::Foreign, foreign.reason)),
            State::Unknown | State::Voting => None,
        }
    }

    /// How many nodes vote.
    pub(crate) fn voting(&self) -> usize {
        let nodes = 0..self.slots.len();
        nodes
            .filter(|node| self.get(*node) == State::Voting)
            .count()
    }

    /// How many nodes have answered whether they vote, and are not about to be promoted.
    pub(crate) fn settled(&self) -> usize {
        let slots = self.slots.iter().enumerate();
        let settled = |(node, slot): &(usize, &Slot)| {
            slot.answered.load(Ordering::Acquire) && !self.is_exempt(*node, &self.get(*node))
        };
        slots.filter(settled).count()
    }

    /// How many of the nodes that are `up` vote or will.
    pub(crate) fn promising(&self, up: impl Fn(usize) -> bool) -> usize {
        let will = |node: &usize| match self.get(*node) {
            State::Voting => true,
            State::Quarantined(quarantine) => quarantine.end.moment().is_some(),
            State::Unknown | State::Foreign(_) => false,
        };
        let nodes = 0..self.slots.len();
        nodes.filter(will).filter(|node| up(*node)).count()
    }

    /// After how long `needed` nodes vote, if it is quarantines that keep them from it. Only nodes that are `up` count.
    pub(crate) fn quorum_in(
        &self,
        needed: usize,
        now: Moment,
        up: impl Fn(usize) -> bool,
    ) -> Option<Duration> {
        let nodes = (0..self.slots.len()).filter(|node| up(*node));
        let mut waiters: Vec<Duration> = nodes
            .filter_map(|node| match self.get(node) {
                State::Voting => Some(Duration::ZERO),
                State::Quarantined(quarantine) => quarantine.end.moment().map(|end| end.since(now)),
                State::Unknown | State::Foreign(_) => None,
            })
            .collect();
        waiters.sort_unstable();
        let wait = waiters.get(needed.checked_sub(1)?)?;
        (!wait.is_zero()).then_some(*wait)
    }

    /// Whether an error of this kind says nothing new about the vote of `node`.
    pub(crate) fn knows(&self, node: usize, kind: NodeErrorKind) -> bool {
        match kind {
            NodeErrorKind::Quarantined => matches!(self.get(node), State::Quarantined(_)),
            _ => true,
        }
    }

    /// Whether quarantines of other nodes than `node` end by `end`, and it is not yet known how to promote those.
    pub(crate) fn others_end_by(&self, node: usize, end: Moment) -> bool {
        let mut others = (0..self.slots.len()).filter(|other| *other != node);
        others.any(|other| match self.get(other) {
            State::Quarantined(other) => {
                other.plan.is_none() && other.end.moment().is_some_and(|at| at <= end)
            }
            _ => false,
        })
    }

    /// The nodes that block all grants, and why.
    pub(crate) fn blocking(&self) -> Vec<(usize, NodeError)> {
        let nodes = self.foreigners().filter(|(_, harmless)| !harmless);
        let nodes: Vec<usize> = nodes.map(|(node, _)| node).collect();
        let error = |node: usize| match self.get(node) {
            State::Foreign(foreign) => {
                let error = NodeError::new(NodeErrorKind::Foreign, foreign.reason);
                Some((node, error))
            }
            _ => None,
        };
        nodes.into_iter().filter_map(error).collect()
    }
}
