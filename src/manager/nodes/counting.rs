//! Which nodes count now.

use std::fmt;
#[cfg(feature = "metrics")]
use std::sync::{Arc, Weak};

#[cfg(feature = "metrics")]
use tokio::time::sleep;

use crate::clock::Clock as _;
#[cfg(feature = "metrics")]
use crate::instruments::WithoutQuorum;
#[cfg(feature = "metrics")]
use crate::manager::nodes::LOOK;
use crate::manager::nodes::NodeSet;
#[cfg(feature = "metrics")]
use crate::manager::nodes::voting::shared_roll::SharedRoll;
use crate::manager::nodes::voting::status::{Replies, VotingStatus};
use crate::moment::Moment;
use crate::node::NodeState;

impl NodeSet {
    pub(crate) fn voting_status(&self, node: usize, now: Moment) -> VotingStatus {
        let status = self.voting.status(node, now);
        if !matches!(status, VotingStatus::Unknown | VotingStatus::Voting) {
            return status;
        }
        match self.problem(node, now) {
            Some(reason) => VotingStatus::Failing { reason },
            None if self.is_up(node) => status,
            // Without the restart guard, the roll says that a node votes even if the node was never reached.
            None => VotingStatus::Unknown,
        }
    }

    fn problem(&self, node: usize, now: Moment) -> Option<String> {
        match self.nodes.get(node).map(|node| node.state()) {
            Some(NodeState::Down(error) | NodeState::Refused(error)) => Some(error.to_string()),
            Some(NodeState::Closed) | None => Some("it was closed".to_owned()),
            Some(NodeState::Up | NodeState::Connecting) => {
                let problem = |replies: &mut Replies| replies.problem(now).map(ToString::to_string);
                self.voting.replies(node, problem).flatten()
            }
        }
    }

    pub(crate) fn counts(&self, node: usize) -> bool {
        self.voting_status(node, self.clock.now()) == VotingStatus::Voting
    }

    pub(crate) fn count(&self) -> Count {
        Count {
            voting: (0..self.nodes.len()).filter(|n| self.counts(*n)).count(),
            nodes: self.nodes.len(),
            needed: self.terms.quorum.needed(),
            blocked: self.voting.is_blocked(),
            ended: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    voting: usize,
    nodes: usize,
    needed: usize,
    // A node serves processes with another list.
    blocked: bool,
    // The manager takes no more locks.
    ended: bool,
}

impl Count {
    pub(crate) const fn is_quorum(self) -> bool {
        self.voting >= self.needed && !self.blocked && !self.ended
    }

    pub(crate) const fn of_manager(self, ended: bool) -> Self {
        Self { ended, ..self }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (voting, nodes, needed) = (self.voting, self.nodes, self.needed);
        write!(f, "quorum: {voting} of {nodes} vote, {needed} needed")?;
        f.write_str(match (self.ended, self.blocked) {
            (true, _) => "; the manager is shut down, so no lock is granted",
            (false, true) => "; a node serves processes with another list, so no lock is granted",
            (false, false) if voting < needed => "; no lock is granted",
            (false, false) => "",
        })
    }
}

/// Sets the gauges repeatedly, because not all kinds of nodes report a change.
#[cfg(feature = "metrics")]
pub(crate) async fn gauge(set: Weak<NodeSet>, voting: Arc<SharedRoll>) {
    let mut shown: Vec<String> = Vec::new();
    let mut lack: Option<WithoutQuorum> = None;
    loop {
        let news = voting.news();
        let Some(set) = set.upgrade() else {
            // The nodes are gone. Set their gauges to zero, because the gauges would otherwise show healthy nodes for
            // as long as the process runs.
            for name in shown {
                crate::instruments::node(&name, false, false);
            }
            return;
        };
        let names = set.nodes.iter().map(|node| node.name().to_owned());
        shown = names.collect();
        for (index, node) in set.nodes.iter().enumerate() {
            crate::instruments::node(node.name(), set.is_up(index), set.counts(index));
        }
        lack = (!set.count().is_quorum()).then(|| lack.take().unwrap_or_else(WithoutQuorum::new));
        drop(set);
        tokio::select! {
            biased;
            () = news => {}
            () = sleep(LOOK) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_says_what_is_there_and_what_is_needed() {
        let count = |voting, blocked| Count {
            voting,
            nodes: 5,
            needed: 3,
            blocked,
            ended: false,
        };
        for (count, text, is_quorum) in [
            (count(3, false), "", true),
            (count(2, false), "; no lock is granted", false),
            (
                count(4, true),
                "; a node serves processes with another list, so no lock is granted",
                false,
            ),
            (
                count(4, false).of_manager(true),
                "; the manager is shut down, so no lock is granted",
                false,
            ),
        ] {
            let voting = count.voting;
            let text = format!("quorum: {voting} of 5 vote, 3 needed{text}");
            assert_eq!((count.to_string(), count.is_quorum()), (text, is_quorum));
        }
    }
}
