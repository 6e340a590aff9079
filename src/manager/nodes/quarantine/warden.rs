//! The wardens: one task per node that asks whether it may vote, and sees it through its quarantine.
//!
//! ```text
//!   unknown ──► voting ◄────────────────────────────┐
//!      │           │ it forgot (an answer says so)   │ promoted: every lease it may have
//!      └───────────┴──────────► quarantined ─────────┘ forgotten has ended; then the tokens
//!                                                      of a quorum that remembers are learnt
//! ```
//!
//! The rule is that of a delayed restart ("unavailable for at least a bit more than the max TTL", as the documentation
//! of Redis has it), timed by the clients' own clocks from the first sight of the quarantine's random name, and
//! followed by a read of the others' high-water marks: before the wait is over such a read would prove nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::clock::Clock as _;
use crate::manager::nodes::quarantine::census::{Found, quarantined};
use crate::manager::nodes::quarantine::state::{Foreign, State};
use crate::manager::nodes::random::random;
use crate::manager::shared::Shared;
use crate::node::{CheckInMode, CheckInReply, CheckInRequest, Node, NodeError, NodeErrorKind};

pub(in crate::manager) use crate::manager::nodes::quarantine::standing::VotingStatuses;

/// Looks after the standing of one node until its manager is gone.
pub(in crate::manager) async fn keep(
    shared: Weak<Shared>,
    voting: Arc<VotingStatuses>,
    index: usize,
) {
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            () = voting.suspected(index) => {}
            () = sleep(pause) => {}
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match look(&shared, index).await {
            Some(next) => pause = next,
            None => return,
        }
    }
}

/// One look at a node. Returns when to look again; `None` if never.
pub(in crate::manager) async fn look(shared: &Shared, index: usize) -> Option<Duration> {
    let node = shared.nodes.get(index)?;
    let adopted = shared.voting.is_adopted(index);
    let entry = if adopted {
        CheckInMode::Adopt
    } else {
        CheckInMode::Normal
    };
    let answer = timeout(shared.node_timeout, ask(shared, node, entry)).await;
    let answered = matches!(answer, Ok(Ok(_)));
    let next = match answer {
        Ok(Ok(standing)) => {
            shared.voting.obeys(index, Some(CHECK_IN));
            if adopted {
                shared.voting.done(index, true);
            }
            learn(shared, index, standing).await
        }
        Ok(Err(error)) if error.kind() == NodeErrorKind::Closed => return None,
        // It is down, slow, or refuses: what was known of it holds until it says otherwise.
        Ok(Err(error)) => {
            refused(shared, index, CHECK_IN, &error);
            SOON
        }
        Err(_) => SOON,
    };
    shared.voting.looked(index, answered);
    Some(next)
}

/// Takes in what a node says of itself. Returns when to look again.
pub(in crate::manager) async fn learn(
    shared: &Shared,
    index: usize,
    reply: CheckInReply,
) -> Duration {
    match reply {
        CheckInReply::Voting { replaced, .. } => {
            let now = shared.clock.now();
            shared.voting.accepts(index, replaced, false, now);
            votes(shared, index);
            IDLE
        }
        CheckInReply::Foreign {
            config,
            digest,
            replaced,
        } => {
            let reason = crate::node::foreign_config(&config, &shared.config.text);
            let state = State::Foreign(Foreign {
                reason: reason.clone(),
                replaces_ours: replaced.contains(&shared.config.digest),
                digest: Some(digest),
            });
            if shared.voting.set(index, state.clone()) != state {
                crate::trace::node_foreign(shared.name_of(index), &reason);
            }
            IDLE
        }
        CheckInReply::Quarantined {
            id,
            max_lease,
            earlier,
            accepted,
            unused,
            replaced,
        } => {
            let now = shared.clock.now();
            shared.voting.accepts(index, replaced, !unused, now);
            let found = Found {
                id,
                max_lease,
                earlier,
                accepted,
                unused,
            };
            quarantined(shared, index, found).await
        }
    }
}

pub(in crate::manager) fn ask(
    shared: &Shared,
    node: &Arc<dyn Node>,
    entry: CheckInMode,
) -> crate::node::NodeFuture<Result<CheckInReply, NodeError>> {
    let fresh = format!("{:016x}{:016x}", random(), random());
    node.check_in(CheckInRequest::new(
        shared.namespace.clone(),
        Arc::clone(&shared.config),
        fresh,
        entry,
    ))
}

/// Notes why a node does not do what it must for a vote, if that takes somebody to mend it.
pub(in crate::manager) fn refused(
    shared: &Shared,
    index: usize,
    command: &'static str,
    error: &NodeError,
) {
    let lasting = matches!(
        error.kind(),
        NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Garbled
    );
    if lasting && shared.voting.refuses(index, command, error.clone()) {
        crate::trace::command_failed(shared.name_of(index), command, error);
    }
}

pub(in crate::manager) fn votes(shared: &Shared, index: usize) {
    shared.voting.obeys(index, None);
    shared.voting.done(index, false);
    let before = shared.voting.set(index, State::Voting);
    if matches!(before, State::Quarantined(quarantine) if !quarantine.unused) {
        crate::trace::node_promoted(shared.name_of(index));
    }
}

/// How often a node that votes is looked at, although nothing speaks against it: a restart should not be noticed only
/// when the next lock is wanted.
pub(in crate::manager) const IDLE: Duration = Duration::from_secs(1);
/// The command that asks for a vote.
pub(in crate::manager) const CHECK_IN: &str = "check-in";
/// How soon a node that did not answer is asked again.
pub(in crate::manager) const SOON: Duration = Duration::from_millis(50);

/// How often who waits for nodes to vote looks whether they are still there.
pub(in crate::manager) const LOOK: Duration = Duration::from_secs(1);
