//! [`VotingStatus`]: whether a node votes.

use std::time::Duration;

use serde::{Serialize, Serializer};

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

/// A time that may be unknown as seconds, as `Serialize` has it.
#[expect(clippy::ref_option, reason = "what serde asks for")]
fn optional_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
