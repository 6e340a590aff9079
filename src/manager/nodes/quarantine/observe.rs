//! A node that says it is quarantined: since when, and how long that lasts.

use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::nodes::node_set::NodeSet;
use crate::manager::nodes::quarantine::census::{Others, census};
use crate::manager::nodes::quarantine::check_in::IDLE;
use crate::manager::nodes::quarantine::promote::let_in;
use crate::manager::nodes::voting::state::{End, Plan, Quarantine, State};
use crate::moment::Moment;
use crate::protocol::quarantine::{Census, Rule, Wait};

/// What a node in quarantine says of itself.
pub(in crate::manager) struct Found {
    pub(in crate::manager) id: String,
    pub(in crate::manager) max_lease: Duration,
    pub(in crate::manager) earlier: Duration,
    pub(in crate::manager) accepted: bool,
    pub(in crate::manager) unused: bool,
}

/// Sees a node through its quarantine. Returns when to look again.
pub(in crate::manager) async fn quarantined(set: &NodeSet, index: usize, found: Found) -> Duration {
    // What the others say is read at every look. It is the look that begins after the wait that counts: what is read
    // by one that began before may be overtaken by grants of those whom the node has forgotten.
    let now = set.clock.now();
    let (mut quarantine, new) = sight(set, index, &found, now);
    set.voting.looked(index, true);
    // Long enough for the look that follows one that waited for others.
    let lasting = 2 * IDLE + set.node_timeout;
    let plan = quarantine.plan;
    if let Some(plan) = plan.filter(|plan| now.since(plan.asked) <= lasting) {
        return let_in(set, index, quarantine, plan, now).await;
    }
    let others = census(set, index).await;
    let known = others.known.max(found.max_lease).max(set.config.max_lease);
    let wait = length(set, index, &found, &others, known);
    quarantine.remembered = wait.is_some_and(|wait| wait.remembered);
    let from = begun(set, &found, &others, &quarantine);
    quarantine.end = match (from, wait) {
        (None, _) => End::Incomplete,
        (Some(_), None) => End::Alone,
        (Some(from), Some(wait)) => End::At(from + wait.time),
    };
    // What was never used need not wait; unless it is with one that others may have used until it forgot.
    let welcome = quarantine.unused && (others.intact > 0 || set.voting.is_whole());
    let trusted = welcome || set.voting.is_trusted(index, &quarantine);
    let over = quarantine.end.moment().is_some_and(|end| now >= end);
    quarantine.plan = (over || trusted && from.is_some()).then_some(Plan {
        asked: now,
        known,
        high_water: others.high_water,
        alone: others.intact == 0 && !trusted,
    });
    if let Some(plan) = quarantine.plan {
        return let_in(set, index, quarantine, plan, now).await;
    }
    let left = quarantine.end.moment().map(|end| end.since(now));
    // At the first look at a node the others may not have been looked at yet.
    if !quarantine.told && !trusted && (left.is_some() || !new) {
        quarantine.told = true;
        crate::trace::node_quarantined(set.name_of(index), left, quarantine.remembered);
    }
    set.voting.set(index, State::Quarantined(quarantine));
    left.unwrap_or(IDLE).min(IDLE)
}

/// When the wait of a quarantine began; `None` if it has not.
pub(in crate::manager) fn begun(
    set: &NodeSet,
    found: &Found,
    others: &Others,
    quarantine: &Quarantine,
) -> Option<Moment> {
    // A node that votes, or has, under our config proves that all have accepted it once.
    if found.accepted || others.intact > 0 {
        return Some(quarantine.since);
    }
    // Else it begins when they have: until then the last of them may have granted to processes with another list.
    let complete = set.voting.complete_since()?;
    Some(complete.max(quarantine.since))
}

/// The quarantine of a node that was found in one, and whether this process had not seen it before.
pub(in crate::manager) fn sight(
    set: &NodeSet,
    index: usize,
    found: &Found,
    now: Moment,
) -> (Quarantine, bool) {
    let before = set.voting.get(index);
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
    set.voting
        .set(index, State::Quarantined(quarantine.clone()));
    (quarantine, new)
}

/// How long a node must not vote, by what the others say of the longest lease that is `known`.
pub(in crate::manager) fn length(
    set: &NodeSet,
    index: usize,
    found: &Found,
    others: &Others,
    known: Duration,
) -> Option<Wait> {
    let rule = Rule {
        quorum: set.terms.quorum,
        max_ttl: set.max_ttl,
        drift: set.terms.drift,
        skew: set.max_clock_skew,
    };
    // Of those who were there before it is only what they agreed on with us that is waited for: who shortens the
    // longest lease has waited for the long ones.
    let earlier = found.earlier.max(others.earlier).min(set.max_ttl);
    let wait = rule.wait(Census {
        intact: others.intact,
        answered: others.answered + 1,
        known: known.max(earlier),
    })?;
    // Others may count the server that this one replaced, for so long yet by their clocks, and be granted leases by it.
    let settle = set.nodes.get(index).map(|node| node.settle_time());
    let settle = settle.filter(|settle| !settle.is_zero());
    let settle = settle.map(|settle| settle.saturating_add(set.terms.drift.of(settle)));
    Some(Wait {
        time: wait.time.saturating_add(settle.unwrap_or_default()),
        ..wait
    })
}
