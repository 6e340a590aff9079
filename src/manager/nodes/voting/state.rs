//! What a manager knows of one node's right to vote.

use std::time::Duration;

use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};
use crate::token::FencingToken;

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Unknown,
    Voting,
    Quarantined(Quarantine),
    Foreign(Foreign),
}

/// A quarantine as observed by this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quarantine {
    pub(crate) id: String,
    /// When this process first saw it, by its own clock.
    pub(crate) since: Moment,
    pub(crate) end: End,
    pub(crate) remembered: bool,
    /// Observed before anything else of the node.
    pub(crate) first: bool,
    /// The node has nothing to forget.
    pub(crate) unused: bool,
    /// Nothing that this process knows of says that the node was ever used.
    pub(crate) fresh: bool,
    /// The earliest end that the log has told of, once it was logged.
    pub(crate) told: Option<End>,
    /// How to promote the node, once its time is over.
    pub(crate) plan: Option<Plan>,
}

/// How to promote a node, by what the other nodes replied after its quarantine was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// When they were asked.
    pub(crate) asked: Moment,
    /// The longest lease that they know of.
    pub(crate) known: Duration,
    pub(crate) high_water: Option<FencingToken>,
    /// Whether none of them votes.
    pub(crate) alone: bool,
    /// Whether the quarantine need not be over only because an operator says so.
    pub(crate) trusting: bool,
}

/// When a quarantine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    At(Moment),
    /// Not before every node has accepted the list.
    Incomplete,
    /// Not before more of the other nodes answer.
    Alone,
}

impl End {
    pub(crate) const fn moment(self) -> Option<Moment> {
        match self {
            Self::At(moment) => Some(moment),
            Self::Incomplete | Self::Alone => None,
        }
    }
}

impl End {
    /// Whether who was told of `told` expects a wait that is longer than this one by more than `least`.
    pub(crate) fn is_sooner(self, told: Self, least: Duration) -> bool {
        match (self.moment(), told.moment()) {
            (Some(end), Some(told)) => told.since(end) > least,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// The config of a node that is under another than ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub(crate) reason: String,
    /// `None`: not told.
    pub(crate) digest: Option<String>,
    /// Whether it has replaced ours.
    pub(crate) replaces_ours: bool,
}

impl Foreign {
    pub(crate) fn error(&self) -> NodeError {
        NodeError::new(NodeErrorKind::Foreign, self.reason.clone())
    }
}

impl Quarantine {
    pub(crate) fn explain(&self, now: Moment) -> String {
        let left = match self.end {
            End::At(end) => end.since(now),
            End::Incomplete => {
                return "it does not vote before every node has accepted this list once, and not all have; start those that cannot be reached".to_owned();
            }
            End::Alone => {
                return "it restarted or lost its data, and too few of the other nodes answer to tell how long it must not vote".to_owned();
            }
        };
        let (past, few) = match (self.fresh, self.remembered) {
            (true, _) => ("is new or was emptied", ""),
            (false, true) => ("restarted or lost its data", ""),
            (false, false) => (
                "restarted or lost its data",
                "; fewer than a quorum of nodes remember theirs",
            ),
        };
        format!(
            "it {past}, and does not vote for another {left:.1?}, until the locks that it may have forgotten have ended{few}"
        )
    }
}
