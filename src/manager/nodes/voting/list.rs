//! [`List`]: what is known of all nodes of a list, and what follows from it.

use std::time::Duration;

use crate::manager::nodes::voting::state::{Quarantine, State};
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

#[derive(Debug)]
pub(super) struct List {
    pub(super) nodes: Vec<Known>,
    // How many make a quorum.
    pub(super) needed: usize,
    // Since when all nodes are known to have accepted it.
    pub(super) complete: Option<Moment>,
    // How long processes with another list take to see that a node has left them.
    pub(super) notice: Duration,
    // Nodes that are seen for the first time are trusted to have nothing to forget.
    pub(super) trusts_new: bool,
    // How many calls of `bootstrap` are under way, and how many of `adopt_nodes`.
    pub(super) trusting: usize,
    pub(super) adopting: usize,
    // How long quarantines last under the list that is being replaced, as an operator says.
    pub(super) former: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) state: State,
    // It was asked whether it votes.
    pub(super) asked: bool,
    pub(super) answered: bool,
    // The next check-in takes it over from processes with another config.
    pub(super) adopt: bool,
    // The next check-in ends its quarantine: no lock can be held.
    pub(super) trusted: bool,
    // The command that it refuses and needs for its vote, and why.
    pub(super) refusal: Option<(&'static str, NodeError)>,
}

impl Known {
    /// Whether it was under our config when it last answered.
    pub(super) const fn accepts(&self) -> bool {
        matches!(self.state, State::Voting | State::Quarantined(_))
    }

    pub(super) const fn quarantine(&self) -> Option<&Quarantine> {
        match &self.state {
            State::Quarantined(quarantine) => Some(quarantine),
            _ => None,
        }
    }
}

impl List {
    pub(super) fn new(nodes: usize, needed: usize, notice: Duration, guarded: bool) -> Self {
        let known = || match guarded {
            true => Known::default(),
            false => Known {
                state: State::Voting,
                ..Known::default()
            },
        };
        Self {
            nodes: (0..nodes).map(|_| known()).collect(),
            needed,
            complete: None,
            notice,
            trusts_new: false,
            trusting: 0,
            adopting: 0,
            former: Duration::ZERO,
        }
    }
}

impl List {
    pub(super) fn votes(&self) -> usize {
        let votes = |known: &&Known| known.state == State::Voting;
        self.nodes.iter().filter(votes).count()
    }

    pub(super) fn quarantine(&self, node: usize) -> Option<&Quarantine> {
        self.nodes.get(node)?.quarantine()
    }

    /// Whether a quorum votes, and so knows the highest fencing tokens.
    pub(super) fn remembers(&self) -> bool {
        self.votes() >= self.needed
    }

    /// Whether every node votes or has nothing to forget.
    pub(super) fn is_intact(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.all(|known| {
            known.state == State::Voting || known.quarantine().is_some_and(|it| it.unused)
        })
    }

    /// When the wait of a quarantine began; `None` if it has not. A node that votes under our config, or has voted,
    /// proves that all nodes have accepted the list. Otherwise the wait begins once all have, and processes with
    /// another list have had the time to see it.
    pub(super) fn began(&self, quarantine: &Quarantine) -> Option<Moment> {
        let is_proven = quarantine.accepted || self.votes() > 0;
        if is_proven {
            return Some(quarantine.since);
        }
        Some(quarantine.since.max(self.complete? + self.notice))
    }

    /// When the quarantine of `node` is over; `None` if its wait has not begun.
    pub(super) fn end(&self, node: usize) -> Option<Moment> {
        let quarantine = self.quarantine(node)?;
        // A lock under a replaced list may rest on other nodes than the one that tells of that list.
        let quarantines = self.nodes.iter().filter_map(Known::quarantine);
        let former = quarantines.map(|other| other.former).max();
        let length = quarantine.length.max(former.unwrap_or_default());
        Some(self.began(quarantine)? + length)
    }

    /// Whether the quarantine of `node` need not be waited for.
    pub(super) fn is_spared(&self, node: usize) -> bool {
        self.quarantine(node).is_some_and(|quarantine| {
            // If no node votes and another one forgot its data, this one may have been used, too, until it forgot.
            let is_unused = quarantine.unused && (self.votes() > 0 || self.is_intact());
            is_unused || self.is_trusted(node)
        })
    }

    /// Whether `bootstrap`, as a setting or a call, says that `node` has nothing to forget.
    pub(super) fn is_trusted(&self, node: usize) -> bool {
        let first = self.quarantine(node).is_some_and(|it| it.first);
        first && self.trusts_new || self.nodes.get(node).is_some_and(|known| known.trusted)
    }

    /// Whether `node` may be promoted at once: it is spared, and every node has accepted the list.
    pub(super) fn is_exempt(&self, node: usize) -> bool {
        let began = self.quarantine(node).and_then(|it| self.began(it));
        began.is_some() && self.is_spared(node)
    }

    pub(super) fn is_over(&self, node: usize, now: Moment) -> bool {
        let is_over = self.end(node).is_some_and(|end| now >= end);
        is_over || self.is_exempt(node)
    }

    pub(super) fn serves_others(&self) -> bool {
        let foreign = |known: &Known| matches!(known.state, State::Foreign(_));
        self.nodes.iter().any(foreign)
    }

    /// The nodes that block all grants, and why.
    pub(super) fn blocking(&self, now: Moment) -> Vec<(usize, NodeError)> {
        let nodes = self.nodes.iter().enumerate();
        let blocking = nodes.filter_map(|(node, known)| match &known.state {
            State::Foreign(foreign) => Some((node, foreign.error())),
            State::Quarantined(quarantine) if quarantine.reclaimed && !self.is_over(node, now) => {
                Some((node, reclaimed()))
            }
            _ => None,
        });
        blocking.collect()
    }
}

/// The calls that override what nodes say.
impl List {
    pub(super) const fn calls(&mut self, adopts: bool) -> &mut usize {
        if adopts {
            &mut self.adopting
        } else {
            &mut self.trusting
        }
    }

    pub(super) fn override_all(&mut self, adopts: bool, on: bool) {
        for known in &mut self.nodes {
            if adopts {
                known.adopt = on;
            } else {
                known.trusted = on;
            }
        }
    }
}

fn reclaimed() -> NodeError {
    NodeError::new(
        NodeErrorKind::Foreign,
        "it served processes with another list and has forgotten them; nothing is granted until they must have noticed and its quarantine is over",
    )
}
