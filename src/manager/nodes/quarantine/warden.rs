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

use crate::manager::nodes::quarantine::census::{Found, quarantined};
use crate::manager::nodes::quarantine::state::{Foreign, State};

use crate::clock::Clock as _;
use crate::manager::nodes::random::random;
use crate::manager::shared::Core;
use crate::node::{CheckIn, Entry, Node, NodeError, NodeErrorKind, Standing};

pub(in crate::manager) use crate::manager::nodes::quarantine::standing::Standings;

/// Looks after the standing of one node until its manager is gone.
pub(in crate::manager) async fn keep(core: Weak<Core>, standings: Arc<Standings>, index: usize) {
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            () = standings.suspected(index) => {}
            () = sleep(pause) => {}
        }
        let Some(core) = core.upgrade() else { return };
        match look(&core, index).await {
            Some(next) => pause = next,
            None => return,
        }
    }
}

/// One look at a node. Returns when to look again; `None` if never.
pub(in crate::manager) async fn look(core: &Core, index: usize) -> Option<Duration> {
    let node = core.nodes.get(index)?;
    let adopted = core.standings.is_adopted(index);
    let entry = if adopted { Entry::Adopt } else { Entry::Normal };
    let answer = timeout(core.node_timeout, ask(core, node, entry)).await;
    let answered = matches!(answer, Ok(Ok(_)));
    let next = match answer {
        Ok(Ok(standing)) => {
            core.standings.obeys(index, Some(CHECK_IN));
            if adopted {
                core.standings.done(index, true);
            }
            learn(core, index, standing).await
        }
        Ok(Err(error)) if error.kind() == NodeErrorKind::Closed => return None,
        // It is down, slow, or refuses: what was known of it holds until it says otherwise.
        Ok(Err(error)) => {
            refused(core, index, CHECK_IN, &error);
            SOON
        }
        Err(_) => SOON,
    };
    core.standings.looked(index, answered);
    Some(next)
}

/// Takes in what a node says of itself. Returns when to look again.
pub(in crate::manager) async fn learn(core: &Core, index: usize, standing: Standing) -> Duration {
    match standing {
        Standing::Voting { replaced, .. } => {
            let now = core.clock.now();
            core.standings.accepts(index, replaced, false, now);
            votes(core, index);
            IDLE
        }
        Standing::Foreign {
            charter,
            digest,
            replaced,
        } => {
            let reason = crate::node::foreign_charter(&charter, &core.charter.text);
            let state = State::Foreign(Foreign {
                reason: reason.clone(),
                replaces_ours: replaced.contains(&core.charter.digest),
                digest: Some(digest),
            });
            if core.standings.set(index, state.clone()) != state {
                crate::trace::node_foreign(core.name_of(index), &reason);
            }
            IDLE
        }
        Standing::Quarantined {
            id,
            max_lease,
            earlier,
            accepted,
            unused,
            replaced,
        } => {
            let now = core.clock.now();
            core.standings.accepts(index, replaced, !unused, now);
            let found = Found {
                id,
                max_lease,
                earlier,
                accepted,
                unused,
            };
            quarantined(core, index, found).await
        }
    }
}

pub(in crate::manager) fn ask(
    core: &Core,
    node: &Arc<dyn Node>,
    entry: Entry,
) -> crate::node::NodeFuture<Result<Standing, NodeError>> {
    let fresh = format!("{:016x}{:016x}", random(), random());
    node.check_in(CheckIn::new(
        core.namespace.clone(),
        Arc::clone(&core.charter),
        fresh,
        entry,
    ))
}

/// Notes why a node does not do what it must for a vote, if that takes somebody to mend it.
pub(in crate::manager) fn refused(
    core: &Core,
    index: usize,
    command: &'static str,
    error: &NodeError,
) {
    let lasting = matches!(
        error.kind(),
        NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Garbled
    );
    if lasting && core.standings.refuses(index, command, error.clone()) {
        crate::trace::command_failed(core.name_of(index), command, error);
    }
}

pub(in crate::manager) fn votes(core: &Core, index: usize) {
    core.standings.obeys(index, None);
    core.standings.done(index, false);
    let before = core.standings.set(index, State::Voting);
    if matches!(before, State::Quarantined(quarantine) if !quarantine.unused) {
        crate::trace::node_promoted(core.name_of(index));
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
