//! [`Roll`]: which nodes vote, as a value without mutex, clock or tasks. [`voting`](super) explains the rules.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use crate::manager::error::NodeFailure;
use crate::manager::nodes::voting::status::VotingStatus;
use crate::moment::Moment;
use crate::node::{CheckInMode, NodeError, NodeErrorKind};

/// How often a node is asked whether it votes.
pub(super) const IDLE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum VoteState {
    #[default]
    Unknown,
    Voting,
    Quarantined(Quarantine),
    Foreign {
        reason: String,
        digest: Option<String>,
    },
}

impl VoteState {
    const fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign { .. })
    }

    const fn quarantine(&self) -> Option<&Quarantine> {
        match self {
            Self::Quarantined(quarantine) => Some(quarantine),
            _ => None,
        }
    }

    fn is_taken_over(&self) -> bool {
        let quarantine = self.quarantine();
        quarantine.is_some_and(|it| it.origin == Origin::TakenOver)
    }

    /// Whether processes with another list may not have noticed yet that the node left their list.
    fn is_of_others(&self) -> bool {
        self.is_foreign() || self.is_taken_over()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quarantine {
    pub(super) id: String,
    pub(super) since: Moment,
    pub(super) length: Duration,
    pub(super) origin: Origin,
    /// How long quarantines lasted under the list that ours replaced, as the node says. Zero if there was none.
    pub(super) former: Duration,
    /// The node says that it has voted under our list. This proves that every node has accepted the list.
    pub(super) accepted: bool,
    /// The node says that it has never granted anything.
    pub(super) unused: bool,
    pub(super) logged: Logged,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Origin {
    /// The answers of the other nodes will decide whether the node is new or has forgotten its data.
    #[default]
    Unclear,
    New,
    /// The node restarted, was flushed, or failed over.
    Forgot,
    /// The node served processes with another list.
    TakenOver,
}

impl Origin {
    fn after(before: &VoteState, former: Duration) -> Self {
        if before.is_of_others() || !former.is_zero() {
            Self::TakenOver
        } else if *before == VoteState::Unknown {
            Self::Unclear
        } else {
            Self::Forgot
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Logged {
    #[default]
    Nothing,
    Incomplete,
    Wait,
}

impl Quarantine {
    fn explain(&self, left: Option<Duration>, remembered: bool) -> String {
        let Some(left) = left else {
            return "it does not vote before every node has accepted this list once, and not all have; start those that cannot be reached".to_owned();
        };
        let (past, few) = match self.origin {
            Origin::TakenOver => {
                return format!(
                    "it served processes with another list, and nothing is granted for another {left:.1?}, until they must have noticed and their locks have ended"
                );
            }
            Origin::New => ("is new or was emptied", ""),
            _ if remembered => ("restarted or lost its data", ""),
            _ => (
                "restarted or lost its data",
                "; fewer than a quorum of nodes remember theirs",
            ),
        };
        format!(
            "it {past}, and does not vote for another {left:.1?}, until the locks that it may have forgotten have ended{few}"
        )
    }
}

#[derive(Debug, Default)]
pub(super) struct Roll {
    // The nodes of all groups, one group after the other.
    nodes: Vec<Known>,
    // How many nodes a group has, and how many of these are a quorum.
    size: usize,
    needed: usize,
    // How long processes with another list can take to notice that a node has left their list.
    notice: Duration,
    node_timeout: Duration,
    // Since when all nodes are known to have accepted the list.
    complete: Option<Moment>,
    // Nodes that have nothing to forget, because the setting `bootstrap` says so. A node leaves this set when it enters
    // a quarantine after another state, because it may have granted locks by then.
    trusted_as_new: BTreeSet<usize>,
    // An operator says that no lock is held, so the next check-in of each node ends its quarantine.
    pub(super) trust: Override,
    // An operator adopts the nodes: the next check-in takes each node over from processes with another config.
    pub(super) adoption: Override,
}

#[derive(Debug, Default)]
struct Known {
    name: String,
    state: VoteState,
    // Whether a check-in of the node has ended, with an answer or without one.
    asked: bool,
    // The latest moment from which the validity of a lock may count. `None` before the first check-in has ended.
    relied: Option<Moment>,
    // When the check-in was sent whose answer is applied.
    told: Option<Moment>,
    answered: bool,
    // A command without which the node cannot vote and that it refuses, and why.
    refusal: Option<(&'static str, NodeError)>,
}

/// Calls of an operator that override what nodes say.
#[derive(Debug, Default)]
pub(super) struct Override {
    // How many calls are under way.
    pub(super) calls: usize,
    // The nodes that the calls have not reached yet.
    pub(super) pending: BTreeSet<usize>,
    // How long quarantines last under the list that is being replaced, as the operator says.
    former: Duration,
}

pub(super) type Call = fn(&mut Roll) -> &mut Override;

impl Override {
    pub(super) fn end(&mut self) {
        self.calls -= 1;
        // If another call is under way, it still waits for the nodes that are pending.
        if self.calls == 0 {
            *self = Self::default();
        }
    }
}

/// What is known of the fencing tokens of a node that is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tokens {
    Remembered,
    Lost { warns: bool },
}

impl Roll {
    /// Unless the nodes are `guarded`, all of them vote from the beginning.
    pub(super) fn new(
        names: Vec<String>,
        (size, needed): (usize, usize),
        node_timeout: Duration,
        guarded: bool,
    ) -> Self {
        let state = match guarded {
            true => VoteState::Unknown,
            false => VoteState::Voting,
        };
        let known = |name| Known {
            name,
            state: state.clone(),
            ..Known::default()
        };
        Self {
            nodes: names.into_iter().map(known).collect(),
            size,
            needed,
            // Each process asks its nodes once a second. So a process that can reach a node has its answer by then.
            notice: 2 * IDLE + node_timeout,
            node_timeout,
            ..Self::default()
        }
    }
}

impl Roll {
    pub(super) fn voted(&mut self, node: usize) -> Option<Quarantine> {
        self.trust.pending.remove(&node);
        match self.answered(node, VoteState::Voting) {
            Some(VoteState::Quarantined(quarantine)) => Some(quarantine),
            _ => None,
        }
    }

    pub(super) fn quarantined(&mut self, node: usize, mut found: Quarantine) {
        if let Some(known) = self.quarantine_mut(node) {
            // The node may have lost its data since it told us about the list that ours replaced.
            found.former = found.former.max(known.former);
            // The node accepted our list as a new one, and an operator has said since that it replaces another list.
            let is_longer = found.former > known.former;
            if known.id == found.id && !is_longer {
                known.accepted = found.accepted;
                return;
            }
        }
        let known = self.nodes.get(node);
        let before = known.map_or(&VoteState::Unknown, |known| &known.state);
        found.origin = Origin::after(before, found.former);
        if found.origin == Origin::TakenOver {
            found.since += self.notice;
        }
        if *before != VoteState::Unknown {
            self.trusted_as_new.remove(&node);
        }
        self.answered(node, VoteState::Quarantined(found));
    }

    pub(super) fn foreign(&mut self, node: usize, reason: String, digest: Option<String>) -> bool {
        let state = VoteState::Foreign { reason, digest };
        self.answered(node, state.clone()) != Some(state)
    }

    pub(super) fn refused_as_foreign(&mut self, node: usize, error: &NodeError) {
        if let Some(known) = self.nodes.get_mut(node) {
            known.state = VoteState::Foreign {
                reason: error.to_string(),
                digest: error.config().map(str::to_owned),
            };
        }
    }

    fn answered(&mut self, node: usize, state: VoteState) -> Option<VoteState> {
        let known = self.nodes.get_mut(node)?;
        known.asked = true;
        known.answered = true;
        Some(std::mem::replace(&mut known.state, state))
    }

    /// Called once the answer to a check-in is applied. The node may serve another list since that was `sent`. Processes
    /// with that list grant nothing before this one must have noticed, and the locks have ended that this one was
    /// granted until then.
    pub(super) fn asked(&mut self, node: usize, sent: Moment) {
        if let Some(known) = self.nodes.get_mut(node) {
            known.relied = known.relied.max(Some(sent + 2 * IDLE));
            known.told = Some(sent);
        }
    }

    /// Whether a check-in that was sent later has been answered before.
    pub(super) fn is_outdated(&self, node: usize, sent: Moment) -> bool {
        let known = self.nodes.get(node);
        known.is_some_and(|known| known.told > Some(sent))
    }

    /// A check-in had no answer. Returns whether it was the first check-in of the node.
    pub(super) fn unanswered(&mut self, node: usize, sent: Moment) -> bool {
        // The next check-in of a node that hangs ends by then. A process that was stopped while it waited for the answer
        // must ask again, so this counts from the question, too.
        let until = sent + self.notice + self.node_timeout;
        self.nodes.get_mut(node).is_some_and(|known| {
            known.relied = known.relied.max(Some(until));
            !std::mem::replace(&mut known.asked, true)
        })
    }

    /// Called after each event. Returns whether all nodes have accepted the list now, but had not before.
    pub(super) fn completes(&mut self, now: Moment) -> bool {
        let accepts =
            |state: &VoteState| *state == VoteState::Voting || state.quarantine().is_some();
        let is_whole = self.states().all(accepts);
        let before = self.complete;
        self.complete = is_whole.then(|| before.unwrap_or(now));
        is_whole && before.is_none()
    }

    pub(super) fn refuses(&mut self, node: usize, refusal: (&'static str, NodeError)) -> bool {
        let known = self.nodes.get_mut(node);
        known.is_some_and(|known| known.refusal.replace(refusal.clone()) != Some(refusal))
    }

    /// The node runs this command, or all commands. Returns the command that it had refused before.
    pub(super) fn runs(&mut self, node: usize, command: Option<&str>) -> Option<&'static str> {
        let refusal = &mut self.nodes.get_mut(node)?.refusal;
        let runs = |refused: &str| command.is_none_or(|command| command == refused);
        let (command, _) = refusal.take_if(|(refused, _)| runs(refused))?;
        Some(command)
    }

    pub(super) fn trust_new(&mut self, trusted: bool) {
        self.trusted_as_new = (0..self.nodes.len()).filter(|_| trusted).collect();
    }

    pub(super) fn begin(&mut self, call: Call, former: Duration) {
        let all = 0..self.nodes.len();
        let begun = call(self);
        begun.calls += 1;
        begun.pending = all.collect();
        begun.former = begun.former.max(former);
    }
}

/// Questions about what the nodes have said.
impl Roll {
    pub(super) fn mode(&self, node: usize) -> CheckInMode {
        let former = self.adoption.former;
        match self.adoption.pending.contains(&node) {
            true => CheckInMode::Adopt { former },
            false => CheckInMode::Normal,
        }
    }

    pub(super) fn is_any_quarantined(&self) -> bool {
        self.states().any(|state| state.quarantine().is_some())
    }

    pub(super) fn all_asked(&self) -> bool {
        self.nodes.iter().all(|known| known.asked)
    }

    /// The latest moment from which the validity of a lock may count, unless the nodes are asked again.
    pub(super) fn relied_until(&self) -> Moment {
        let relied = self.nodes.iter().map(|known| known.relied).min();
        relied.flatten().unwrap_or(Moment::ORIGIN)
    }

    pub(super) fn has_answered(&self, node: usize) -> bool {
        let known = self.nodes.get(node);
        known.is_some_and(|known| known.answered)
    }

    pub(super) fn is_foreign(&self, node: usize, of: Option<&str>) -> bool {
        let state = self.nodes.get(node).map(|known| &known.state);
        matches!(state, Some(VoteState::Foreign { digest, .. }) if digest.as_deref() == of)
    }

    pub(super) fn serves_others(&self) -> bool {
        self.states().any(VoteState::is_foreign)
    }

    pub(super) fn quarantine(&self, node: usize) -> Option<&Quarantine> {
        self.nodes.get(node)?.state.quarantine()
    }

    fn states(&self) -> impl Iterator<Item = &VoteState> {
        self.nodes.iter().map(|known| &known.state)
    }

    fn does_any_vote(&self) -> bool {
        self.states().any(|state| *state == VoteState::Voting)
    }

    fn is_intact(&self) -> bool {
        self.states().all(|state| match state {
            VoteState::Quarantined(quarantine) => quarantine.unused,
            state => *state == VoteState::Voting,
        })
    }

    /// Whether a quorum of the node's group votes, and so knows the highest fencing tokens.
    fn remembers(&self, node: usize) -> bool {
        let first = node / self.size * self.size;
        let group = self.states().skip(first).take(self.size);
        group.filter(|state| **state == VoteState::Voting).count() >= self.needed
    }
}

/// Questions about the end of a quarantine.
impl Roll {
    /// When the wait of a quarantine began, or `None` if it has not begun. It begins once all nodes have accepted the
    /// list and processes with another list have had time to notice that. A node that votes, or that has voted under
    /// our list, proves that this has happened.
    fn began(&self, quarantine: &Quarantine) -> Option<Moment> {
        let is_proven = quarantine.accepted || self.does_any_vote();
        if is_proven {
            return Some(quarantine.since);
        }
        Some(quarantine.since.max(self.complete? + self.notice))
    }

    /// `None` if the wait of the quarantine has not begun.
    fn end_of(&self, node: usize) -> Option<Moment> {
        let quarantine = self.quarantine(node)?;
        // Use the longest former quarantine that any node knows, because a lock under the replaced list may be on other
        // nodes than the nodes that remember that list.
        let quarantines = self.states().filter_map(VoteState::quarantine);
        let former = quarantines.map(|other| other.former).max();
        let length = quarantine.length.max(former.unwrap_or_default());
        Some(self.began(quarantine)? + length)
    }

    pub(super) fn left(&self, node: usize, now: Moment) -> Option<Duration> {
        self.end_of(node).map(|end| end.since(now))
    }

    fn is_spared(&self, node: usize) -> bool {
        self.quarantine(node).is_some_and(|quarantine| {
            // If no node votes and another node has lost its data, this node may look unused for the same reason.
            let is_unused = quarantine.unused && (self.does_any_vote() || self.is_intact());
            is_unused || self.is_trusted(node)
        })
    }

    /// Whether an operator has said that `node` has nothing to forget.
    fn is_trusted(&self, node: usize) -> bool {
        self.trusted_as_new.contains(&node) || self.trust.pending.contains(&node)
    }

    /// Whether `node` may be promoted immediately.
    pub(super) fn is_exempt(&self, node: usize) -> bool {
        let began = self.quarantine(node).and_then(|it| self.began(it));
        began.is_some() && self.is_spared(node)
    }

    fn is_over(&self, node: usize, now: Moment) -> bool {
        let is_over = self.end_of(node).is_some_and(|end| now >= end);
        is_over || self.is_exempt(node)
    }

    pub(super) fn may_promote(&self, node: usize, now: Moment) -> bool {
        self.is_over(node, now) && !self.serves_others()
    }

    /// How long until each node of `group` that `is_up` votes, the shortest time first. Leaves out nodes for which this
    /// is not known.
    pub(super) fn until_votes(
        &self,
        group: Range<usize>,
        now: Moment,
        is_up: impl Fn(usize) -> bool,
    ) -> Vec<Duration> {
        let wait = |node: usize| match self.nodes.get(node)?.state {
            VoteState::Voting => Some(Duration::ZERO),
            VoteState::Quarantined(_) if self.is_exempt(node) => Some(Duration::ZERO),
            _ => self.left(node, now),
        };
        // While a node of any group is being taken over, no node grants anything.
        let states = (0..).zip(self.states());
        let taken_over = states.filter(|(_, state)| state.is_taken_over());
        let least = taken_over.filter_map(|(node, _)| wait(node)).max();
        let least = least.unwrap_or_default();
        let waits = group.filter(|node| is_up(*node)).filter_map(wait);
        let mut waits: Vec<Duration> = waits.map(|wait| wait.max(least)).collect();
        waits.sort_unstable();
        waits
    }
}

impl Roll {
    /// The next log line about a quarantine. Each line is logged once.
    pub(super) fn next_line(&mut self, node: usize, now: Moment) -> Option<Logged> {
        let line = match self.end_of(node) {
            Some(_) => Logged::Wait,
            None => Logged::Incomplete,
        };
        let is_spared = self.is_spared(node);
        let quarantine = self.quarantine_mut(node).filter(|_| !is_spared)?;
        // Wait before logging this, because the other nodes may just not have answered yet.
        if line == Logged::Incomplete && now.since(quarantine.since) < IDLE {
            return None;
        }
        let before = std::mem::replace(&mut quarantine.logged, line);
        (before < line).then_some(line)
    }

    /// Whether nothing says that `node` was ever used. The first call decides this.
    pub(super) fn is_new(&mut self, node: usize, intact: usize) -> bool {
        self.quarantine_mut(node).is_some_and(|it| {
            if it.origin == Origin::Unclear {
                let is_blank = !it.accepted && it.former.is_zero() && intact == 0;
                it.origin = match is_blank {
                    true => Origin::New,
                    false => Origin::Forgot,
                };
            }
            it.origin == Origin::New
        })
    }

    fn quarantine_mut(&mut self, node: usize) -> Option<&mut Quarantine> {
        match &mut self.nodes.get_mut(node)?.state {
            VoteState::Quarantined(quarantine) => Some(quarantine),
            _ => None,
        }
    }

    /// What is known of the fencing tokens of `node`, which is to be promoted, or `None` if it may not be promoted now.
    pub(super) fn promotion(&mut self, node: usize, intact: usize, now: Moment) -> Option<Tokens> {
        // Ask this first, because it decides whether the node is new if no earlier log line has.
        let is_new = self.is_new(node, intact);
        // The operator's call that trusts the node may have ended while the other nodes were asked.
        if !self.may_promote(node, now) {
            return None;
        }
        let warns = !is_new && !self.is_trusted(node);
        Some(match !self.is_intact() && intact < self.needed {
            true => Tokens::Lost { warns },
            false => Tokens::Remembered,
        })
    }

    /// The nodes that keep all groups from granting locks.
    pub(super) fn blocking(&self, now: Moment) -> Vec<NodeFailure> {
        let failure = |(node, known): (usize, &Known)| {
            if !known.state.is_of_others() || self.is_over(node, now) {
                return None;
            }
            let error = NodeError::new(NodeErrorKind::Foreign, self.why_no_vote(node, now)?);
            Some(NodeFailure::new(&known.name, error))
        };
        (0..).zip(&self.nodes).filter_map(failure).collect()
    }
}

impl Roll {
    pub(super) fn status(&self, node: usize, now: Moment) -> VotingStatus {
        match self.nodes.get(node).map(|known| &known.state) {
            Some(VoteState::Quarantined(_)) => VotingStatus::Quarantined {
                remaining: self.left(node, now),
                remembered: self.remembers(node),
            },
            Some(VoteState::Foreign { reason, .. }) => VotingStatus::Foreign {
                reason: reason.clone(),
            },
            Some(VoteState::Voting) => VotingStatus::Voting,
            Some(VoteState::Unknown) | None => VotingStatus::Unknown,
        }
    }

    pub(super) fn explain(&self, node: usize, now: Moment) -> Option<NodeError> {
        let known = self.nodes.get(node)?;
        // A refusal comes first, because no waiting helps until it is repaired.
        if let Some((_, error)) = &known.refusal {
            return Some(error.clone());
        }
        let kind = match known.state.is_foreign() {
            true => NodeErrorKind::Foreign,
            false => NodeErrorKind::Quarantined,
        };
        Some(NodeError::new(kind, self.why_no_vote(node, now)?))
    }

    fn why_no_vote(&self, node: usize, now: Moment) -> Option<String> {
        match &self.nodes.get(node)?.state {
            VoteState::Quarantined(quarantine) => {
                Some(quarantine.explain(self.left(node, now), self.remembers(node)))
            }
            VoteState::Foreign { reason, .. } => Some(reason.clone()),
            VoteState::Unknown | VoteState::Voting => None,
        }
    }
}

#[cfg(test)]
mod tests;
