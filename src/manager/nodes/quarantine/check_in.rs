//! Asking a node whether it votes, and storing that it does, or refuses.

use std::time::Duration;

use crate::manager::nodes::node_set::NodeSet;
use crate::manager::nodes::random::random;
use crate::manager::nodes::retry::is_retryable;
use crate::manager::nodes::voting::replies::Replies;
use crate::manager::nodes::voting::state::State;
use crate::node::{
    CheckInMode, CheckInReply, CheckInRequest, Node, NodeError, NodeErrorKind, NodeFuture,
};

/// Asks `node` whether it votes, and has it quarantine itself if it lost its data.
pub(crate) fn check_in(
    set: &NodeSet,
    node: &dyn Node,
    mode: CheckInMode,
) -> NodeFuture<Result<CheckInReply, NodeError>> {
    let fresh = format!("{:016x}{:016x}", random(), random());
    node.check_in(CheckInRequest::new(
        set.namespace.clone(),
        // Not that of one handle: the node remembers the longest lease that it is told of.
        set.longest.config(),
        fresh,
        mode,
    ))
}

/// Stores and logs why a node refuses a command that it needs for its vote, if an operator has to repair that. Returns
/// when to ask again.
pub(crate) fn refused(
    set: &NodeSet,
    index: usize,
    command: &'static str,
    error: &NodeError,
) -> Duration {
    let is_lasting = matches!(
        error.kind(),
        NodeErrorKind::Rejected
            | NodeErrorKind::WrongType
            | NodeErrorKind::Misconfigured
            | NodeErrorKind::Garbled
    );
    if is_lasting && set.voting.note_refusal(index, command, error.clone()) {
        crate::trace::command_failed(set.name_of(index), command, error, 1, None);
    }
    // What somebody has to repair need not be asked for again and again.
    if is_retryable(error) && !is_lasting {
        SOON
    } else {
        REPAIRED
    }
}

/// Stores and logs that a node does not refuse this command any more, or any, that it needs for its vote.
pub(crate) fn refuses_no_more(set: &NodeSet, index: usize, command: Option<&'static str>) {
    if let Some(command) = set.voting.clear_refusal(index, command) {
        crate::trace::vote_possible(set.name_of(index), command);
    }
}

/// Stores that a node votes.
pub(crate) fn votes(set: &NodeSet, index: usize) {
    refuses_no_more(set, index, None);
    set.voting.done(index, false);
    set.voting.replies(index, Replies::votes);
    let before = set.voting.set(index, State::Voting);
    match before {
        // Unless somebody was told to wait for it.
        State::Quarantined(quarantine) if quarantine.unused && quarantine.told.is_none() => {}
        State::Quarantined(quarantine) if quarantine.fresh => {
            crate::trace::new_node_votes(set.name_of(index));
        }
        State::Quarantined(_) => crate::trace::node_promoted(set.name_of(index)),
        _ => {}
    }
}

/// How often a node that votes is asked: a restart should be noticed before the next lock is requested.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// The command that asks for a vote.
pub(crate) const CHECK_IN: &str = "check-in";
/// How soon a node that did not answer is asked again.
pub(crate) const SOON: Duration = Duration::from_millis(50);
/// How soon a node that refused is asked again: several times while a plan to promote it is good.
const REPAIRED: Duration = Duration::from_millis(200);
