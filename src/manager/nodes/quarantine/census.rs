//! How a node is seen through its quarantine.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::quarantine::state::{End, Plan, Quarantine, State};
use crate::manager::nodes::quarantine::warden::{IDLE, SOON, ask, refused, votes};
use crate::manager::shared::Core;
use crate::moment::Moment;
use crate::node::{Entry, Promotion, Standing};
use crate::protocol::quarantine::{Census, Rule, Wait};
use crate::token::FencingToken;

/// What a node in quarantine says of itself.
pub(in crate::manager) struct Found {
    pub(in crate::manager) id: String,
    pub(in crate::manager) max_lease: Duration,
    pub(in crate::manager) earlier: Duration,
    pub(in crate::manager) accepted: bool,
    pub(in crate::manager) unused: bool,
}

/// Sees a node through its quarantine. Returns when to look again.
pub(in crate::manager) async fn quarantined(core: &Core, index: usize, found: Found) -> Duration {
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
    // What was never used need not wait; unless it is with one that others may have used until it forgot.
    let welcome = quarantine.unused && (others.intact > 0 || core.standings.is_whole());
    let trusted = welcome || core.standings.is_trusted(index, &quarantine);
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
    let left = quarantine.end.moment().map(|end| end.since(now));
    // At the first look at a node the others may not have been looked at yet.
    if !quarantine.told && !trusted && (left.is_some() || !new) {
        quarantine.told = true;
        crate::trace::node_quarantined(core.name_of(index), left, quarantine.remembered);
    }
    core.standings.set(index, State::Quarantined(quarantine));
    left.unwrap_or(IDLE).min(IDLE)
}

/// When the wait of a quarantine began; `None` if it has not.
pub(in crate::manager) fn begun(
    core: &Core,
    found: &Found,
    others: &Others,
    quarantine: &Quarantine,
) -> Option<Moment> {
    // A node that votes, or has, under our charter proves that all have accepted it once.
    if found.accepted || others.intact > 0 {
        return Some(quarantine.since);
    }
    // Else it begins when they have: until then the last of them may have granted to processes with another list.
    let complete = core.standings.complete_since()?;
    Some(complete.max(quarantine.since))
}

/// Lets a node in whose wait is over. Returns when to look again.
pub(in crate::manager) async fn let_in(
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
pub(in crate::manager) fn sight(
    core: &Core,
    index: usize,
    found: &Found,
    now: Moment,
) -> (Quarantine, bool) {
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
        told: false,
    };
    core.standings
        .set(index, State::Quarantined(quarantine.clone()));
    (quarantine, new)
}

/// How long a node must not vote, by what the others say of the longest lease that is `known`.
pub(in crate::manager) fn length(
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
    // Of those who were there before it is only what they agreed on with us that is waited for: who shortens the
    // longest lease has waited for the long ones.
    let earlier = found.earlier.max(others.earlier).min(core.max_ttl);
    let wait = rule.wait(Census {
        intact: others.intact,
        answered: others.answered + 1,
        known: known.max(earlier),
    })?;
    // Others may count the server that this one replaced, for so long yet by their clocks, and be granted leases by it.
    let settle = core.nodes.get(index).map(|node| node.settle_time());
    let settle = settle.filter(|settle| !settle.is_zero());
    let settle = settle.map(|settle| settle.saturating_add(core.terms.drift.of(settle)));
    Some(Wait {
        time: wait.time.saturating_add(settle.unwrap_or_default()),
        ..wait
    })
}

/// What the other nodes say.
#[derive(Default)]
pub(in crate::manager) struct Others {
    pub(in crate::manager) intact: usize,
    pub(in crate::manager) answered: usize,
    pub(in crate::manager) known: Duration,
    // The longest lease under a charter before, on nodes that may not have waited for it yet.
    pub(in crate::manager) earlier: Duration,
    pub(in crate::manager) high_water: Option<FencingToken>,
}

pub(in crate::manager) async fn census(core: &Core, except: usize) -> Others {
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
pub(in crate::manager) async fn promote(
    core: &Core,
    index: usize,
    quarantine: Quarantine,
    plan: Plan,
) -> Duration {
    let Some(node) = core.nodes.get(index) else {
        return IDLE;
    };
    let forgot = !quarantine.unused || !core.standings.is_whole();
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

/// The command that ends a quarantine.
pub(in crate::manager) const PROMOTION: &str = "promotion";
