//! [`List`]: what a manager knows of the nodes of a list and their right to vote. [`Replies`]: whether what a node
//! replies counts now. [`VotingStatus`]: both, as they are shown.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::manager::error::NodeFailure;
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum VoteState {
    #[default]
    Unknown,
    Voting,
    Quarantined(Quarantine),
    /// It serves processes with another config.
    Foreign(Foreign),
}

impl VoteState {
    /// Whether processes with another list may not have noticed yet that it is not theirs any more.
    pub(super) const fn is_of_others(&self) -> bool {
        match self {
            Self::Foreign(_) => true,
            Self::Quarantined(quarantine) => quarantine.reclaimed,
            Self::Unknown | Self::Voting => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quarantine {
    pub(super) id: String,
    pub(super) since: Moment,
    pub(super) length: Duration,
    /// The length of quarantines under the list that ours replaced on the node; zero if none.
    pub(super) former: Duration,
    pub(super) accepted: bool,
    /// Observed before anything else of the node.
    pub(super) first: bool,
    /// The node has nothing to forget.
    pub(super) unused: bool,
    /// The node served processes with another list: it was taken over, or has forgotten them.
    pub(super) reclaimed: bool,
    pub(super) fresh: Option<bool>,
    pub(super) told: Told,
}

/// What the log has said of a quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    /// That it does not end before every node has accepted the list.
    Incomplete,
    /// How long it takes.
    Wait,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) reason: String,
    pub(super) digest: Option<String>,
}

impl Foreign {
    pub(super) fn error(&self) -> NodeError {
        NodeError::new(NodeErrorKind::Foreign, self.reason.clone())
    }
}

impl Quarantine {
    pub(super) fn is_fresh(&mut self, votes: usize) -> bool {
        let is_blank = self.first && !self.accepted && self.former.is_zero();
        *self.fresh.get_or_insert(is_blank && votes == 0)
    }

    pub(super) fn explain(&self, left: Option<Duration>, remembered: bool) -> String {
        let Some(left) = left else {
            return "it does not vote before every node has accepted this list once, and not all have; start those that cannot be reached".to_owned();
        };
        if self.reclaimed {
            return format!(
                "it served processes with another list, and nothing is granted for another {left:.1?}, until they must have noticed and their locks have ended"
            );
        }
        let (past, few) = match (self.fresh, remembered) {
            (Some(true), _) => ("is new or was emptied", ""),
            (_, true) => ("restarted or lost its data", ""),
            (_, false) => (
                "restarted or lost its data",
                "; fewer than a quorum of nodes remember theirs",
            ),
        };
        format!(
            "it {past}, and does not vote for another {left:.1?}, until the locks that it may have forgotten have ended{few}"
        )
    }
}

/// Whether a node's votes count towards the quorum now. Serialised, it is `{"is": "voting"}`, and so on with the fields
/// of the variant; times are seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum VotingStatus {
    /// Not known yet: the node is being connected, or asked for the first time.
    Unknown,
    /// Its votes count: it takes commands, and when it was last asked, about a second ago at most, it answered that it
    /// votes.
    Voting,
    /// Its votes do not count now: it takes no commands, did not answer twice in a row, or refuses commands. A refusal
    /// counts for five seconds, unless another command runs meanwhile.
    Failing {
        /// Why its replies do not count.
        reason: String,
    },
    /// It may have forgotten locks and does not vote before they have ended.
    Quarantined {
        /// For how much longer. `None`: not before every node has accepted the list.
        #[serde(serialize_with = "optional_seconds")]
        remaining: Option<Duration>,
        /// Whether enough other nodes remember the fencing tokens. If not, the clock decides how they go on.
        remembered: bool,
    },
    /// It serves processes with other nodes or settings. As long as it does, nothing is granted or extended.
    Foreign {
        /// How its nodes or settings differ.
        reason: String,
    },
}

#[expect(clippy::ref_option, reason = "what serde asks for")]
pub(crate) fn optional_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

#[derive(Debug)]
pub(super) struct List {
    // Of all groups, one after the other.
    pub(super) nodes: Vec<Known>,
    // How many are a group, and how many of a group make a quorum.
    size: usize,
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
    name: String,
    pub(super) state: VoteState,
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
        matches!(self.state, VoteState::Voting | VoteState::Quarantined(_))
    }

    pub(super) const fn quarantine(&self) -> Option<&Quarantine> {
        match &self.state {
            VoteState::Quarantined(quarantine) => Some(quarantine),
            _ => None,
        }
    }
}

impl List {
    pub(super) fn new(
        names: Vec<String>,
        (size, needed): (usize, usize),
        notice: Duration,
        guarded: bool,
    ) -> Self {
        let known = |name| Known {
            name,
            state: match guarded {
                true => VoteState::Unknown,
                false => VoteState::Voting,
            },
            ..Known::default()
        };
        Self {
            nodes: names.into_iter().map(known).collect(),
            size,
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
        let votes = |known: &&Known| known.state == VoteState::Voting;
        self.nodes.iter().filter(votes).count()
    }

    pub(super) fn quarantine(&self, node: usize) -> Option<&Quarantine> {
        self.nodes.get(node)?.quarantine()
    }

    /// Whether a quorum of the group of `node` votes, and so knows the highest fencing tokens.
    pub(super) fn remembers(&self, node: usize) -> bool {
        let group = self.nodes.chunks(self.size).nth(node / self.size);
        let votes = |known: &&Known| known.state == VoteState::Voting;
        group.into_iter().flatten().filter(votes).count() >= self.needed
    }

    /// Whether every node votes or has nothing to forget.
    pub(super) fn is_intact(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.all(|known| {
            known.state == VoteState::Voting || known.quarantine().is_some_and(|it| it.unused)
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

    /// How long the quarantine of `node` goes on; `None` if its wait has not begun.
    pub(super) fn left(&self, node: usize, now: Moment) -> Option<Duration> {
        self.end(node).map(|end| end.since(now))
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
        let foreign = |known: &Known| matches!(known.state, VoteState::Foreign(_));
        self.nodes.iter().any(foreign)
    }

    pub(super) fn blocking(&self, now: Moment) -> Vec<NodeFailure> {
        let nodes = self.nodes.iter().enumerate();
        let blocking = nodes.filter_map(|(node, known)| {
            let error = match &known.state {
                VoteState::Foreign(foreign) => foreign.error(),
                VoteState::Quarantined(it) if it.reclaimed && !self.is_over(node, now) => {
                    let text = it.explain(self.left(node, now), self.remembers(node));
                    NodeError::new(NodeErrorKind::Foreign, text)
                }
                _ => return None,
            };
            Some(NodeFailure::new(&known.name, error))
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

/// The last check-ins of a node, and its last commands for locks.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    // How many check-ins have begun.
    begun: u64,
    // The last of them that found that it votes.
    voted: u64,
    // How many in a row had no answer.
    unanswered: u32,
    // Why the last had none.
    failure: Option<NodeError>,
    // When it last refused a command for a lock, and why. None has run since.
    refused: Option<(Moment, NodeError)>,
}

impl Replies {
    pub(crate) fn begin(&mut self) {
        self.begun += 1;
    }

    pub(crate) const fn begun(&self) -> u64 {
        self.begun
    }

    pub(crate) fn answered(&mut self) {
        self.unanswered = 0;
        if self.failure.take().is_some() {
            // A refusal from before says nothing of the node that is back.
            self.refused = None;
        }
    }

    pub(crate) fn failed(&mut self, error: NodeError) {
        self.unanswered = self.unanswered.saturating_add(1);
        self.failure = Some(error);
    }

    pub(crate) fn votes(&mut self) {
        self.voted = self.begun;
    }

    /// Whether a check-in that began after the first `begun` found that the node votes.
    pub(crate) const fn voted_after(&self, begun: u64) -> bool {
        self.voted > begun
    }

    pub(crate) fn refused(&mut self, error: &NodeError, now: Moment) {
        if matches!(
            error.kind(),
            NodeErrorKind::Rejected
                | NodeErrorKind::Misconfigured
                | NodeErrorKind::Garbled
                | NodeErrorKind::NotReplicated
        ) {
            self.refused = Some((now, error.clone()));
        }
    }

    pub(crate) fn ran(&mut self) {
        self.refused = None;
    }

    pub(crate) fn problem(&self, now: Moment) -> Option<&NodeError> {
        let failure = self.failure.as_ref();
        // One late answer may be this process's own delay.
        let once = |error: &&NodeError| error.kind() == NodeErrorKind::TimedOut;
        let failure = failure.filter(|error| self.unanswered > 1 || !once(error));
        let refused = self.refused.as_ref();
        let refused = refused.filter(|(at, _)| now.since(*at) < REMEMBERED);
        failure.or(refused.map(|(_, error)| error))
    }
}

/// For how long a refusal counts unless a command runs meanwhile: without it, a node that nobody asks any more could
/// not come back.
const REMEMBERED: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(secs)
    }

    fn error(kind: NodeErrorKind) -> NodeError {
        NodeError::new(kind, "no")
    }

    #[test]
    fn one_late_answer_is_forgiven_and_nothing_else() {
        let mut replies = Replies::default();
        replies.failed(error(NodeErrorKind::TimedOut));
        assert_eq!(replies.problem(at(0)), None);
        replies.failed(error(NodeErrorKind::TimedOut));
        assert!(replies.problem(at(0)).is_some());
        replies.answered();
        assert_eq!(replies.problem(at(0)), None);
        replies.failed(error(NodeErrorKind::TimedOut));
        assert_eq!(replies.problem(at(0)), None);
        replies.failed(error(NodeErrorKind::Unavailable));
        replies.answered();
        replies.failed(error(NodeErrorKind::Rejected));
        assert!(replies.problem(at(0)).is_some());
    }

    #[test]
    fn a_refused_lock_counts_until_a_command_runs_or_for_a_while() {
        let mut replies = Replies::default();
        for kind in [NodeErrorKind::TimedOut, NodeErrorKind::Quarantined] {
            replies.refused(&error(kind), at(1));
            assert_eq!(replies.problem(at(1)), None, "that says nothing of locks");
        }
        replies.refused(&error(NodeErrorKind::Rejected), at(1));
        replies.answered();
        assert!(replies.problem(at(5)).is_some());
        assert_eq!(replies.problem(at(6)), None);
        replies.refused(&error(NodeErrorKind::NotReplicated), at(6));
        assert!(replies.problem(at(6)).is_some());
        replies.ran();
        assert_eq!(replies.problem(at(6)), None);
        replies.refused(&error(NodeErrorKind::Rejected), at(6));
        replies.failed(error(NodeErrorKind::Rejected));
        replies.answered();
        assert_eq!(replies.problem(at(6)), None, "that was repaired");
    }

    #[test]
    fn only_a_check_in_that_began_later_proves_a_vote() {
        let mut replies = Replies::default();
        replies.begin();
        let begun = replies.begun();
        replies.votes();
        assert!(!replies.voted_after(begun));
        replies.begin();
        assert!(!replies.voted_after(begun));
        replies.votes();
        assert!(replies.voted_after(begun));
    }
}
