//! What the votes of all nodes together allow, and what is shown of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use crate::manager::nodes::voting::state::State;
use crate::manager::nodes::voting::status::VotingStatus;
use crate::manager::nodes::voting::statuses::{Slot, VotingStatuses};
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

impl VotingStatuses {
    /// How many nodes have said whether they vote.
    pub(in crate::manager) fn heard(&self) -> usize {
        let heard = |slot: &&Slot| slot.heard.load(Ordering::Acquire);
        self.slots.iter().filter(heard).count()
    }

    /// Whether no node has yet to be looked at, nor is about to be let in.
    pub(in crate::manager) fn is_introduced(&self) -> bool {
        let mut slots = self.slots.iter().enumerate();
        slots.all(|(node, slot)| {
            slot.looked.load(Ordering::Acquire) && !self.is_welcome(node, &self.get(node))
        })
    }

    /// Waits for news until `is_enough`, at most for `limit`.
    pub(in crate::manager) async fn news_until(
        &self,
        limit: Duration,
        is_enough: impl Fn() -> bool,
    ) {
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

    /// Waits until every node was looked at once, so that it is known whom they serve; at most for `limit`. Once in the
    /// life of a manager.
    pub(in crate::manager) async fn introduced(&self, limit: Duration) {
        if self.introduced.load(Ordering::Acquire) {
            return;
        }
        self.news_until(limit, || self.is_introduced()).await;
        self.introduced.store(true, Ordering::Release);
    }

    /// What is known of `node`, for people.
    pub(in crate::manager) fn show(&self, node: usize, now: Moment) -> VotingStatus {
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
    pub(in crate::manager) fn explain(&self, node: usize, now: Moment) -> Option<NodeError> {
        // As long as that is not mended, no waiting helps.
        let trouble = self.trouble(node)?.clone();
        if let Some((_, error)) = trouble {
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
    pub(in crate::manager) fn voting(&self) -> usize {
        self.count(|state| *state == State::Voting)
    }

    /// How many nodes have said whether they vote, and are not about to be let in.
    pub(in crate::manager) fn settled(&self) -> usize {
        let slots = self.slots.iter().enumerate();
        let settled = |(node, slot): &(usize, &Slot)| {
            slot.heard.load(Ordering::Acquire) && !self.is_welcome(*node, &self.get(*node))
        };
        slots.filter(settled).count()
    }

    /// How many of the nodes that are `up` vote or will.
    pub(in crate::manager) fn promising(&self, up: impl Fn(usize) -> bool) -> usize {
        let will = |node: &usize| match self.get(*node) {
            State::Voting => true,
            State::Quarantined(quarantine) => quarantine.end.moment().is_some(),
            State::Unknown | State::Foreign(_) => false,
        };
        let nodes = 0..self.slots.len();
        nodes.filter(will).filter(|node| up(*node)).count()
    }

    pub(in crate::manager) fn count(&self, wanted: impl Fn(&State) -> bool) -> usize {
        let nodes = 0..self.slots.len();
        nodes.filter(|node| wanted(&self.get(*node))).count()
    }

    /// After how long `needed` nodes vote, if it is quarantines that keep them from it. Only nodes that are `up` count.
    pub(in crate::manager) fn quorum_in(
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

    /// Whether it is known already what an error of this kind says of `node`.
    pub(in crate::manager) fn knows(&self, node: usize, kind: NodeErrorKind) -> bool {
        match kind {
            NodeErrorKind::Quarantined => matches!(self.get(node), State::Quarantined(_)),
            _ => true,
        }
    }

    /// Whether quarantines of other nodes than `node` end by `end`, and it is not yet known what those are let in with.
    pub(in crate::manager) fn is_awaited(&self, node: usize, end: Moment) -> bool {
        let mut others = (0..self.slots.len()).filter(|other| *other != node);
        others.any(|other| match self.get(other) {
            State::Quarantined(other) => {
                other.plan.is_none() && other.end.moment().is_some_and(|at| at <= end)
            }
            _ => false,
        })
    }

    /// The nodes that keep us from granting anything, and what each says.
    pub(in crate::manager) fn blocking(&self) -> Vec<(usize, NodeError)> {
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
