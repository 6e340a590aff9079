//! Asking a node whether it votes, and taking in that it does, or refuses to.

use std::sync::Arc;
use std::time::Duration;

use crate::manager::nodes::node_set::NodeSet;
use crate::manager::nodes::random::random;
use crate::manager::nodes::voting::state::State;
use crate::node::{
    CheckInMode, CheckInReply, CheckInRequest, Node, NodeError, NodeErrorKind, NodeFuture,
};

/// Asks `node` whether it votes, and has it quarantine itself if it lost its data.
pub(in crate::manager) fn check_in(
    set: &NodeSet,
    node: &dyn Node,
    mode: CheckInMode,
) -> NodeFuture<Result<CheckInReply, NodeError>> {
    let fresh = format!("{:016x}{:016x}", random(), random());
    node.check_in(CheckInRequest::new(
        set.namespace.clone(),
        Arc::clone(&set.config),
        fresh,
        mode,
    ))
}

/// Notes why a node does not do what it must for a vote, if that takes somebody to mend it.
pub(in crate::manager) fn refused(
    set: &NodeSet,
    index: usize,
    command: &'static str,
    error: &NodeError,
) {
    let lasting = matches!(
        error.kind(),
        NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Garbled
    );
    if lasting && set.voting.refuses(index, command, error.clone()) {
        crate::trace::command_failed(set.name_of(index), command, error);
    }
}

pub(in crate::manager) fn votes(set: &NodeSet, index: usize) {
    set.voting.obeys(index, None);
    set.voting.done(index, false);
    let before = set.voting.set(index, State::Voting);
    if matches!(before, State::Quarantined(quarantine) if !quarantine.unused) {
        crate::trace::node_promoted(set.name_of(index));
    }
}

/// How often a node that votes is looked at, although nothing speaks against it: a restart should not be noticed only
/// when the next lock is wanted.
pub(in crate::manager) const IDLE: Duration = Duration::from_secs(1);
/// The command that asks for a vote.
pub(in crate::manager) const CHECK_IN: &str = "check-in";
/// How soon a node that did not answer is asked again.
pub(in crate::manager) const SOON: Duration = Duration::from_millis(50);
