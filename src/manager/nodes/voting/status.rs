//! [`VotingStatus`]: whether a node's votes count now.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

/// Whether a node's votes count towards the quorum now. When it is serialised, it is `{"is": "voting"}` with the fields
/// of the variant, and times are seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum VotingStatus {
    /// The node has not been asked yet.
    Unknown,
    /// Its votes count.
    Voting,
    /// It takes no commands, did not answer twice in a row, or has refused a command within the last five seconds.
    Failing {
        /// Why its replies do not count.
        reason: String,
    },
    /// It may have forgotten locks and does not vote before they have ended.
    Quarantined {
        /// How much longer; `None` until every node has accepted the list.
        #[serde(serialize_with = "optional_seconds")]
        remaining: Option<Duration>,
        /// Whether enough other nodes remember the fencing tokens. If not, later tokens continue from the clock.
        remembered: bool,
    },
    /// It serves processes with other nodes or settings, and until that ends, nothing is granted or extended.
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

#[derive(Debug, Default)]
pub(crate) struct Replies {
    // How many check-ins have begun.
    pub(crate) begun: u64,
    // The number of the last check-in that found that the node votes.
    voted: u64,
    // How many check-ins in a row had no answer.
    unanswered: u32,
    // Why the last check-in had no answer.
    failure: Option<NodeError>,
    // When the node last refused a command for a lock, and why. `None` once such a command has run.
    refused: Option<(Moment, NodeError)>,
}

impl Replies {
    pub(crate) fn begin(&mut self) {
        self.begun += 1;
    }

    pub(crate) fn answered(&mut self) {
        self.unanswered = 0;
        if self.failure.take().is_some() {
            // The node is back. A refusal from before its failure says nothing about it now.
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

    pub(crate) const fn voted_after(&self, begun: u64) -> bool {
        self.voted > begun
    }

    pub(crate) fn refused(&mut self, error: &NodeError, now: Moment) {
        if matches!(
            error.kind(),
            NodeErrorKind::Rejected
                | NodeErrorKind::Full
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
        // A single time-out does not count, because this process itself may have been slow.
        let once = |error: &&NodeError| error.kind() == NodeErrorKind::TimedOut;
        let failure = failure.filter(|error| self.unanswered > 1 || !once(error));
        let refused = self.refused.as_ref();
        let refused = refused.filter(|(at, _)| now.since(*at) < REMEMBERED);
        failure.or(refused.map(|(_, error)| error))
    }
}

/// How long a refusal counts. It ends without a success, because callers may no longer ask the node.
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
        let begun = replies.begun;
        replies.votes();
        assert!(!replies.voted_after(begun));
        replies.begin();
        assert!(!replies.voted_after(begun));
        replies.votes();
        assert!(replies.voted_after(begun));
    }
}
