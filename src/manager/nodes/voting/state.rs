//! What a manager knows of one node's right to vote, and [`VotingStatus`], as it is shown.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Unknown,
    Voting,
    Quarantined(Quarantine),
    /// It serves processes with another config.
    Foreign(Foreign),
}

/// A quarantine as observed by this process.
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
    /// The node served processes with another list and has forgotten them.
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
fn optional_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
