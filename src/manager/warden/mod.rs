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

mod standing;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use self::standing::{Quarantine, State};
use super::LockManager;
use super::connect::LOOK;
use super::core::{Core, random};
use super::error::NoQuorum;
use super::fanout::Fanout;
use crate::clock::Clock as _;
use crate::node::{Charter, CheckIn, Entry, Node, NodeError, NodeErrorKind, Promotion, Standing};
use crate::token::FencingToken;

pub use self::standing::NodeStanding;
pub(super) use self::standing::Standings;

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
    let (node, charter) = (core.nodes.get(index)?, core.charter.as_ref()?);
    let adopted = core.standings.is_adopted(index);
    let entry = if adopted { Entry::Adopt } else { Entry::Normal };
    let answer = timeout(core.node_timeout, ask(core, node, charter, entry)).await;
    let standing = match answer {
        Ok(Ok(standing)) => standing,
        Ok(Err(error)) if error.kind() == NodeErrorKind::Closed => return None,
        // It is down, slow, or refuses: what was known of it holds until it says otherwise.
        Ok(Err(error)) => {
            refused(core, index, CHECK_IN, &error);
            return Some(SOON);
        }
        Err(_) => return Some(SOON),
    };
    core.standings.obeys(index, Some(CHECK_IN));
    if adopted {
        core.standings.done(index, true);
    }
    Some(match standing {
        Standing::Voting { .. } => {
            votes(core, index);
            IDLE
        }
        Standing::Foreign { charter: theirs } => {
            let reason = crate::node::foreign_charter(&theirs, &charter.text);
            let state = State::Foreign(reason.clone());
            if core.standings.set(index, state.clone()) != state {
                crate::trace::node_foreign(node.name(), &reason);
            }
            IDLE
        }
        Standing::Quarantined { id, max_lease } => {
            quarantined(core, index, id, max_lease.max(charter.max_lease)).await
        }
    })
}

fn ask(
    core: &Core,
    node: &Arc<dyn Node>,
    charter: &Arc<Charter>,
    entry: Entry,
) -> crate::node::NodeFuture<Result<Standing, NodeError>> {
    let fresh = format!("{:016x}{:016x}", random(), random());
    node.check_in(CheckIn::new(
        core.namespace.clone(),
        Arc::clone(charter),
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
    if matches!(before, State::Quarantined(_)) {
        crate::trace::node_promoted(core.name_of(index));
    }
}

/// Sees a node through its quarantine. Returns when to look again.
async fn quarantined(core: &Core, index: usize, id: String, max_lease: Duration) -> Duration {
    // What the others say is read at every look. It is the look that begins after the wait that counts: what is read
    // by one that began before may be overtaken by grants of those whom the node has forgotten.
    let now = core.clock.now();
    let others = census(core, index).await;
    let remembered = others.intact >= core.terms.quorum.needed();
    let max_lease = max_lease.max(others.max_lease);
    // Others may count the server that this one replaced, for so long yet, and be granted leases by it.
    let settling = core.nodes.get(index).map(|node| node.settle_time());
    let span = max_lease.saturating_add(settling.unwrap_or_default());
    let mut wait = span.saturating_add(core.terms.drift.of(span));
    if !remembered {
        wait = wait.saturating_add(core.max_clock_skew.saturating_mul(2));
    }
    let before = core.standings.get(index);
    let (since, first, new) = match &before {
        State::Quarantined(known) if known.id == id => (known.since, known.first, false),
        State::Unknown => (now, true, true),
        _ => (now, false, true),
    };
    let quarantine = Quarantine {
        id,
        since,
        until: since + wait,
        remembered,
        first,
    };
    let trusted = core.standings.is_trusted(index, &quarantine);
    let until = quarantine.until;
    if trusted || now >= until {
        return promote(core, index, quarantine, others.high_water).await;
    }
    core.standings.set(index, State::Quarantined(quarantine));
    if new {
        crate::trace::node_quarantined(core.name_of(index), until.since(now), remembered);
    }
    until.since(now).min(IDLE)
}

/// What the other nodes say.
struct Census {
    intact: usize,
    max_lease: Duration,
    high_water: Option<FencingToken>,
}

async fn census(core: &Core, except: usize) -> Census {
    let mut census = Census {
        intact: 0,
        max_lease: Duration::ZERO,
        high_water: None,
    };
    let Some(charter) = &core.charter else {
        return census;
    };
    let others = core.nodes.iter().enumerate();
    let others = others.filter(|(index, _)| *index != except);
    let mut asked =
        Fanout::new(others.map(|(index, node)| (index, ask(core, node, charter, Entry::Normal))));
    let all = async {
        while let Some((_, answer)) = asked.next().await {
            if let Ok(Standing::Voting {
                max_lease,
                high_water,
            }) = answer
            {
                census.intact += 1;
                census.max_lease = census.max_lease.max(max_lease);
                census.high_water = census.high_water.max(high_water);
            }
        }
    };
    // Those that do not answer in time do not count.
    let _ = timeout(core.node_timeout, all).await;
    census
}

/// Ends a quarantine. Returns when to look again.
async fn promote(
    core: &Core,
    index: usize,
    quarantine: Quarantine,
    high_water: Option<FencingToken>,
) -> Duration {
    let (Some(node), Some(charter)) = (core.nodes.get(index), &core.charter) else {
        return IDLE;
    };
    let floor = if quarantine.remembered {
        high_water
    } else {
        // Nobody knows how high the tokens have come.
        FencingToken::proposed_at(core.clock.unix_micros()).max(high_water)
    };
    let promotion = Promotion::new(
        core.namespace.clone(),
        Arc::clone(charter),
        quarantine.id.clone(),
        floor,
    );
    let trusted = core.standings.is_trusted(index, &quarantine);
    let remembered = quarantine.remembered;
    if !matches!(core.standings.get(index), State::Quarantined(_)) {
        core.standings.set(index, State::Quarantined(quarantine));
    }
    match timeout(core.node_timeout, node.promote(promotion)).await {
        Ok(Ok(true)) => {
            if !remembered && !trusted {
                crate::trace::fencing_at_risk(node.name());
            }
            votes(core, index);
            IDLE
        }
        // Somebody else has promoted it, or it has forgotten once more: the next look tells.
        Ok(Ok(false)) => Duration::ZERO,
        Ok(Err(error)) => {
            refused(core, index, PROMOTION, &error);
            SOON
        }
        Err(_) => SOON,
    }
}

/// How often a node that votes is looked at, although nothing speaks against it: a restart should not be noticed only
/// when the next lock is wanted.
const IDLE: Duration = Duration::from_secs(1);
/// The commands that a vote takes.
const CHECK_IN: &str = "check-in";
const PROMOTION: &str = "promotion";
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
    /// All of them are quarantined for that. See [`RestartGuard`](crate::RestartGuard) for what must be done before. A
    /// node that does not answer within the connect time-out stays with the others until this is called again.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if fewer than a quorum of nodes answer within the connect time-out.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the nodes that were asked by then are taken over.
    pub async fn adopt_nodes(&self) -> Result<(), NoQuorum> {
        let _adoption = self.core.standings.adopt_all();
        self.settled().await
    }

    async fn settled(&self) -> Result<(), NoQuorum> {
        let core = &self.core;
        if core.charter.is_none() {
            return Ok(());
        }
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
