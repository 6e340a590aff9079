//! What a manager knows of one node's right to vote.

use std::time::Duration;

use crate::moment::Moment;
use crate::token::FencingToken;

/// What is known of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::manager) enum State {
    Unknown,
    Voting,
    Quarantined(Quarantine),
    Foreign(Foreign),
}

/// A quarantine as observed by this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::manager) struct Quarantine {
    pub(in crate::manager) id: String,
    /// When this process first saw it, by its own clock.
    pub(in crate::manager) since: Moment,
    pub(in crate::manager) end: End,
    pub(in crate::manager) remembered: bool,
    /// Observed before anything else of the node.
    pub(in crate::manager) first: bool,
    /// The node has nothing to forget.
    pub(in crate::manager) unused: bool,
    /// Whether it was logged.
    pub(in crate::manager) logged: bool,
    /// How to promote the node, once its time is over.
    pub(in crate::manager) plan: Option<Plan>,
}

/// How to promote a node, by what the others answered after its quarantine was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manager) struct Plan {
    /// When they were asked.
    pub(in crate::manager) asked: Moment,
    /// The longest lease that they know of.
    pub(in crate::manager) known: Duration,
    pub(in crate::manager) high_water: Option<FencingToken>,
    /// Whether none of them votes.
    pub(in crate::manager) alone: bool,
}

/// When a quarantine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manager) enum End {
    At(Moment),
    /// Not before every node has accepted the list.
    Incomplete,
    /// Not before more of the other nodes answer.
    Alone,
}

impl End {
    pub(in crate::manager) const fn moment(self) -> Option<Moment> {
        match self {
            Self::At(moment) => Some(moment),
            Self::Incomplete | Self::Alone => None,
        }
    }
}

/// The config of a node that is under another than ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::manager) struct Foreign {
    pub(in crate::manager) reason: String,
    /// `None`: not told.
    pub(in crate::manager) digest: Option<String>,
    /// Whether it has replaced ours.
    pub(in crate::manager) replaces_ours: bool,
}

impl Quarantine {
    pub(in crate::manager) fn explain(&self, now: Moment) -> String {
        let left = match self.end {
            End::At(end) => end.since(now),
            End::Incomplete => {
                return "it does not vote before every node of the list has accepted that once, and not all have; see to it that they can be reached".to_owned();
            }
            End::Alone => {
                return "it restarted or lost its data, and too few of the other nodes answer to tell how long it must not vote".to_owned();
            }
        };
        let few = if self.remembered {
            ""
        } else {
            "; fewer than a quorum of nodes remember theirs"
        };
        format!(
            "it restarted or lost its data, and does not vote for another {left:.1?}, until the locks that it may have forgotten have ended{few}"
        )
    }
}
