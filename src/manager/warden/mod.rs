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

mod list;
mod quarantine;
mod standing;
mod state;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use self::quarantine::{Found, quarantined};
use self::state::{Foreign, State};
use super::LockManager;
use super::connect::LOOK;
use super::core::{Core, random};
use super::error::NoQuorum;
use crate::clock::Clock as _;
use crate::node::{CheckIn, Entry, Node, NodeError, NodeErrorKind, Standing};

pub(super) use self::standing::Standings;
pub use self::state::NodeStanding;

/// Looks after the standing of one node until its manager is gone.
pub(super) async fn keep(core: Weak<Core>, standings: Arc<Standings>, index: usize) {
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
async fn look(core: &Core, index: usize) -> Option<Duration> {
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
async fn learn(core: &Core, index: usize, standing: Standing) -> Duration {
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

fn ask(
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
fn refused(core: &Core, index: usize, command: &'static str, error: &NodeError) {
    let lasting = matches!(
        error.kind(),
        NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Garbled
    );
    if lasting && core.standings.refuses(index, command, error.clone()) {
        crate::trace::command_failed(core.name_of(index), command, error);
    }
}

fn votes(core: &Core, index: usize) {
    core.standings.obeys(index, None);
    core.standings.done(index, false);
    let before = core.standings.set(index, State::Voting);
    if matches!(before, State::Quarantined(quarantine) if !quarantine.unused) {
        crate::trace::node_promoted(core.name_of(index));
    }
}

/// How often a node that votes is looked at, although nothing speaks against it: a restart should not be noticed only
/// when the next lock is wanted.
const IDLE: Duration = Duration::from_secs(1);
/// The command that asks for a vote.
const CHECK_IN: &str = "check-in";
/// How soon a node that did not answer is asked again.
const SOON: Duration = Duration::from_millis(50);

impl LockManager {
    /// Says that no lock is held on any node, and waits until those that answer vote.
    ///
    /// It ends the quarantines that are under way. See [`RestartGuard`](crate::RestartGuard) for when that is right:
    /// if a lock is held after all, a second holder can appear.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if fewer than a quorum of nodes vote after the connect time-out.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nodes that do not vote by then sit out their quarantine.
    pub async fn bootstrap(&self) -> Result<(), NoQuorum> {
        let _trust = self.core.standings.trust_all();
        self.settled().await
    }

    /// Takes the nodes over from processes that had other nodes or settings, and waits until a quorum of them votes.
    ///
    /// Stop all processes and wait for the longest ttl first, see [`RestartGuard`](crate::RestartGuard): those that
    /// still run lose their locks and are granted nothing any more. All nodes are quarantined for it, and fencing
    /// tokens go on from the clock of this process; the log says so, as an error. A node that does not answer within
    /// the connect time-out stays with the others until this is called again.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if fewer than a quorum of nodes answer within the connect time-out.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the nodes that were asked by then are taken over.
    pub async fn adopt_nodes(&self) -> Result<(), NoQuorum> {
        let core = &self.core;
        let _adoption = core.standings.adopt_all(core.clock.now());
        self.settled().await
    }

    async fn settled(&self) -> Result<(), NoQuorum> {
        let core = &self.core;
        let needed = core.terms.quorum.needed();
        let timer = sleep(core.connect_timeout);
        tokio::pin!(timer);
        // A quarantine may take longer; but not that of nodes which have been down for so long.
        let mut patient = false;
        loop {
            let news = core.standings.news();
            let before = std::mem::replace(&mut patient, core.promising() >= needed);
            if before && !patient && timer.is_elapsed() {
                timer.as_mut().reset(Instant::now() + core.connect_timeout);
            }
            // In time all that answer should vote, and then a quorum will do.
            let pending = core.standings.is_pending() && !timer.is_elapsed();
            if !pending && core.standings.voting() >= needed {
                return Ok(());
            }
            if timer.is_elapsed() && !patient {
                return Err(self.not_standing(needed));
            }
            tokio::select! {
                biased;
                () = news => {}
                () = &mut timer, if !timer.is_elapsed() => {}
                // No news tells of a node that goes down.
                () = sleep(LOOK) => {}
            }
        }
    }
}
