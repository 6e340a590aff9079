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

use self::standing::{End, Foreign, Plan, Quarantine, State};
use super::LockManager;
use super::connect::LOOK;
use super::core::{Core, random};
use super::error::NoQuorum;
use super::fanout::Fanout;
use crate::clock::Clock as _;
use crate::moment::Moment;
use crate::node::{CheckIn, Entry, Node, NodeError, NodeErrorKind, Promotion, Standing};
use crate::protocol::quarantine::{Census, Rule, Wait};
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
            core.standings.accepts(index, replaced, core.clock.now());
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
            core.standings.accepts(index, replaced, core.clock.now());
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

/// What a node in quarantine says of itself.
struct Found {
    id: String,
    max_lease: Duration,
    earlier: Duration,
    accepted: bool,
    unused: bool,
}

/// Sees a node through its quarantine. Returns when to look again.
async fn quarantined(core: &Core, index: usize, found: Found) -> Duration {
    // What the others say is read at every look. It is the look that begins after the wait that counts: what is read
    // by one that began before may be overtaken by grants of those whom the node has forgotten.
    let now = core.clock.now();
    let (mut quarantine, new) = sight(core, index, &found, now);
    core.standings.looked(index, true);
    // Long enough for the look that follows one that waited for others.
    let lasting = 2 * IDLE + core.node_timeout;
    let plan = quarantine.plan;
    if let Some(plan) = plan.filter(|plan| now.since(plan.asked) <= lasting) {
        return let_in(core, index, quarantine, plan, now).await;
    }
    let others = census(core, index).await;
    let known = others
        .known
        .max(found.max_lease)
        .max(core.charter.max_lease);
    let wait = length(core, index, &found, &others, known);
    quarantine.remembered = wait.is_some_and(|wait| wait.remembered);
    let from = begun(core, &found, &others, &quarantine);
    quarantine.end = match (from, wait) {
        (None, _) => End::Incomplete,
        (Some(_), None) => End::Alone,
        (Some(from), Some(wait)) => End::At(from + wait.time),
    };
    let trusted = quarantine.unused || core.standings.is_trusted(index, &quarantine);
    let over = quarantine.end.moment().is_some_and(|end| now >= end);
    quarantine.plan = (over || trusted && from.is_some()).then_some(Plan {
        asked: now,
        known,
        high_water: others.high_water,
        alone: others.intact == 0 && !trusted,
    });
    if let Some(plan) = quarantine.plan {
        return let_in(core, index, quarantine, plan, now).await;
    }
    let (end, remembered) = (quarantine.end.moment(), quarantine.remembered);
    core.standings.set(index, State::Quarantined(quarantine));
    let left = end.map(|end| end.since(now));
    if new && !trusted {
        crate::trace::node_quarantined(core.name_of(index), left, remembered);
    }
    left.unwrap_or(IDLE).min(IDLE)
}

/// When the wait of a quarantine began; `None` if it has not.
fn begun(core: &Core, found: &Found, others: &Others, quarantine: &Quarantine) -> Option<Moment> {
    // A node that votes, or has, under our charter proves that all have accepted it once.
    if found.accepted || others.intact > 0 {
        return Some(quarantine.since);
    }
    // Else it begins when they have: until then the last of them may have granted to processes with another list.
    let complete = core.standings.complete_since()?;
    Some(complete.max(quarantine.since))
}

/// Lets a node in whose wait is over. Returns when to look again.
async fn let_in(
    core: &Core,
    index: usize,
    quarantine: Quarantine,
    plan: Plan,
    now: Moment,
) -> Duration {
    core.standings
        .set(index, State::Quarantined(quarantine.clone()));
    if core.standings.is_blocked() {
        return IDLE;
    }
    // Where none votes yet they begin together. To one that is looked at when others vote already, but too few of them,
    // it would seem that a quorum has forgotten.
    if plan.alone {
        let together = core.standings.is_awaited(index, now + IDLE);
        if together && now.since(plan.asked) < IDLE {
            return SOON;
        }
        if now == plan.asked {
            core.standings.suspect_all();
        }
    }
    promote(core, index, quarantine, plan).await
}

/// The quarantine of a node that was found in one, and whether this process had not seen it before.
fn sight(core: &Core, index: usize, found: &Found, now: Moment) -> (Quarantine, bool) {
    let before = core.standings.get(index);
    let (since, first, new) = match before {
        State::Quarantined(known) if known.id == found.id => return (known, false),
        State::Unknown => (now, true, true),
        _ => (now, false, true),
    };
    let quarantine = Quarantine {
        id: found.id.clone(),
        since,
        end: End::Incomplete,
        remembered: false,
        first,
        unused: found.unused,
        plan: None,
    };
    core.standings
        .set(index, State::Quarantined(quarantine.clone()));
    (quarantine, new)
}

/// How long a node must not vote, by what the others say of the longest lease that is `known`.
fn length(
    core: &Core,
    index: usize,
    found: &Found,
    others: &Others,
    known: Duration,
) -> Option<Wait> {
    let rule = Rule {
        quorum: core.terms.quorum,
        max_ttl: core.max_ttl,
        drift: core.terms.drift,
        skew: core.max_clock_skew,
    };
    // Of those who were there before it is only what they agreed on with us that is waited for: who shortens the longest
    // lease has waited for the long ones.
    let earlier = found.earlier.max(others.earlier).min(core.max_ttl);
    let wait = rule.wait(Census {
        intact: others.intact,
        answered: others.answered + 1,
        known: known.max(earlier),
    })?;
    let settle = core.nodes.get(index).map(|node| node.settle_time());
    Some(Wait {
        time: wait.time.saturating_add(settle.unwrap_or_default()),
        ..wait
    })
}

/// What the other nodes say.
#[derive(Default)]
struct Others {
    intact: usize,
    answered: usize,
    known: Duration,
    // The longest lease under a charter before, on nodes that may not have waited for it yet.
    earlier: Duration,
    high_water: Option<FencingToken>,
}

async fn census(core: &Core, except: usize) -> Others {
    let mut census = Others::default();
    let others = core.nodes.iter().enumerate();
    let others = others.filter(|(index, _)| *index != except);
    let mut asked =
        Fanout::new(others.map(|(index, node)| (index, ask(core, node, Entry::Normal))));
    let all = async {
        while let Some((_, answer)) = asked.next().await {
            match answer {
                Ok(Standing::Voting {
                    max_lease,
                    high_water,
                    ..
                }) => {
                    census.intact += 1;
                    census.answered += 1;
                    census.known = census.known.max(max_lease);
                    census.high_water = census.high_water.max(high_water);
                }
                Ok(Standing::Quarantined {
                    max_lease, earlier, ..
                }) => {
                    census.answered += 1;
                    census.known = census.known.max(max_lease);
                    census.earlier = census.earlier.max(earlier);
                }
                Ok(Standing::Foreign { .. }) | Err(_) => {}
            }
        }
    };
    // Those that do not answer in time do not count.
    let _ = timeout(core.node_timeout, all).await;
    census
}

/// Ends a quarantine. Returns when to look again.
async fn promote(core: &Core, index: usize, quarantine: Quarantine, plan: Plan) -> Duration {
    let Some(node) = core.nodes.get(index) else {
        return IDLE;
    };
    let forgot = !quarantine.unused;
    let floor = if quarantine.remembered || !forgot {
        plan.high_water
    } else {
        // Nobody knows how high the tokens have come.
        FencingToken::proposed_at(core.clock.unix_micros()).max(plan.high_water)
    };
    let promotion = Promotion::new(
        core.namespace.clone(),
        Arc::clone(&core.charter),
        quarantine.id.clone(),
        floor,
    );
    let at_risk =
        forgot && !quarantine.remembered && !core.standings.is_trusted(index, &quarantine);
    let promotion = promotion.knowing(plan.known);
    match timeout(core.node_timeout, node.promote(promotion)).await {
        Ok(Ok(true)) => {
            if at_risk {
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
