//! A node that says it is quarantined: since when, and how long that lasts.

use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::nodes::node_set::NodeSet;
use crate::manager::nodes::quarantine::census::{Others, census};
use crate::manager::nodes::quarantine::check_in::IDLE;
use crate::manager::nodes::quarantine::end::try_promote;
use crate::manager::nodes::voting::state::{End, Plan, Quarantine, State};
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::protocol::quarantine::{Census, Rule, Wait};

/// What a node in quarantine answers.
pub(crate) struct Found {
    pub(crate) replaced: Vec<String>,
    pub(crate) id: String,
    pub(crate) max_lease: Duration,
    pub(crate) earlier: Duration,
    pub(crate) accepted: bool,
    pub(crate) unused: bool,
}

/// Follows a node through its quarantine. Returns when to ask again.
pub(crate) async fn observe(set: &NodeSet, index: usize, found: Found) -> Duration {
    // The other nodes are asked at every check-in. Only a census that begins after the wait counts: what an earlier one
    // read may be overtaken by grants to holders that the node has forgotten.
    let now = set.clock.now();
    let (mut quarantine, new) = track(set, index, &found, now);
    set.voting.checked_in(index, true);
    // Long enough for the check-in after one that waited for other nodes.
    let lasting = 2 * IDLE + set.node_timeout;
    let plan = quarantine.plan;
    // Trust that has ended since counts no more.
    let is_trusted =
        set.voting.is_trusted(index, &quarantine) || mutant::is(Mutant::PlanOutlivesTrust);
    let holds = |plan: &Plan| now.since(plan.asked) <= lasting && (is_trusted || !plan.trusting);
    if let Some(plan) = plan.filter(holds) {
        return try_promote(set, index, quarantine, (plan, false), now).await;
    }
    let others = census(set, index).await;
    if new {
        let is_blank = !found.accepted && found.earlier.is_zero() && found.replaced.is_empty();
        quarantine.fresh = quarantine.first && is_blank && others.intact == 0;
    }
    let known = others.known.max(found.max_lease).max(set.longest.ttl());
    let wait = duration(set, index, &found, &others, known);
    quarantine.remembered = wait.is_some_and(|wait| wait.remembered);
    let from = started_at(set, &found, &others, &quarantine);
    quarantine.end = match (from, wait) {
        (None, _) => End::Incomplete,
        (Some(_), None) => End::Alone,
        (Some(from), Some(wait)) => End::At(from + wait.time),
    };
    // A node that was never used need not wait, unless others may have used a node of the list until that forgot.
    let welcome = quarantine.unused && (others.intact > 0 || set.voting.is_intact());
    let trusted = welcome || set.voting.is_trusted(index, &quarantine);
    let over = quarantine.end.moment().is_some_and(|end| now >= end);
    let over = over || mutant::is(Mutant::NoQuarantine);
    quarantine.plan = (over || trusted && from.is_some()).then_some(Plan {
        asked: now,
        known,
        high_water: others.high_water,
        alone: others.intact == 0 && !trusted,
        trusting: !over && !welcome,
    });
    if let Some(plan) = quarantine.plan {
        return try_promote(set, index, quarantine, (plan, true), now).await;
    }
    let left = quarantine.end.moment().map(|end| end.since(now));
    // At the first check-in of a node the others may not have been asked yet.
    if !trusted && (left.is_some() || !new) {
        tell(set.name_of(index), &mut quarantine, left);
    }
    set.voting.set(index, State::Quarantined(quarantine));
    left.unwrap_or(IDLE).min(IDLE)
}

/// Logs a quarantine once, and again only where a reader of the log would wait for longer than there is need to. Of an
/// end that moves to and fro the earliest was told, so that it is not told of each time.
fn tell(node: &str, quarantine: &mut Quarantine, left: Option<Duration>) {
    let end = quarantine.end;
    match (quarantine.told, left) {
        (Some(told), Some(wait)) if end.is_sooner(told, IDLE) => {
            crate::trace::quarantine_shorter(node, wait);
        }
        (Some(_), _) => return,
        (None, Some(wait)) if quarantine.fresh => crate::trace::node_is_new(node, wait),
        (None, None) if end == End::Incomplete => crate::trace::list_incomplete(node),
        (None, _) => crate::trace::node_quarantined(node, left, quarantine.remembered),
    }
    quarantine.told = Some(end);
}

/// When the wait of a quarantine began; `None` if it has not.
fn started_at(
    set: &NodeSet,
    found: &Found,
    others: &Others,
    quarantine: &Quarantine,
) -> Option<Moment> {
    // A node that votes, or has, under our config proves that all have accepted it once.
    if found.accepted || others.intact > 0 || mutant::is(Mutant::ListNeedsNoAcceptance) {
        return Some(quarantine.since);
    }
    // Otherwise it begins when they have: until then the last of them may have granted to processes with another list.
    let complete = set.voting.complete_since()?;
    Some(complete.max(quarantine.since))
}

/// The quarantine that a node is in, and whether it is new to this process.
fn track(set: &NodeSet, index: usize, found: &Found, now: Moment) -> (Quarantine, bool) {
    let quarantine = Quarantine {
        id: found.id.clone(),
        since: now,
        end: End::Incomplete,
        remembered: false,
        first: false,
        unused: found.unused,
        fresh: false,
        plan: None,
        told: None,
    };
    let longest = rule(set).longest();
    let longest = longest
        .saturating_add(notice(set))
        .saturating_add(settle(set, index));
    let replaced = found.replaced.clone();
    set.voting.waits(index, replaced, quarantine, now + longest)
}

/// How long a node must not vote, by the longest lease that is `known`; `None` if too few other nodes answer.
fn duration(
    set: &NodeSet,
    index: usize,
    found: &Found,
    others: &Others,
    known: Duration,
) -> Option<Wait> {
    // Of leases under earlier configs, those up to our longest ttl are waited for: a process that shortens it has
    // waited for the longer ones.
    let earlier = found.earlier.max(others.earlier).min(set.max_ttl);
    let wait = rule(set).wait(Census {
        intact: others.intact,
        answered: others.answered + 1,
        known: known.max(earlier),
    })?;
    let notice = set.voting.is_reclaimed(index).then(|| notice(set));
    let more = settle(set, index).saturating_add(notice.unwrap_or_default());
    Some(Wait {
        time: wait.time.saturating_add(more),
        ..wait
    })
}

fn rule(set: &NodeSet) -> Rule {
    Rule {
        quorum: set.terms.quorum,
        max_ttl: set.max_ttl,
        drift: set.terms.drift,
        skew: set.max_clock_skew,
    }
}

/// For how long other processes may still count the server that this one replaced, by their clocks, and be granted
/// leases by it.
fn settle(set: &NodeSet, index: usize) -> Duration {
    let settle = set.nodes.get(index).map(|node| node.settle_time());
    let settle = settle.filter(|settle| !settle.is_zero());
    let settle = settle.filter(|_| !mutant::is(Mutant::FailoverNotSettled));
    let settle = settle.map(|settle| settle.saturating_add(set.terms.drift.of(settle)));
    settle.unwrap_or_default()
}

/// For how long those whom a node served before go on: they ask it every second, and go on until they have its answer.
fn notice(set: &NodeSet) -> Duration {
    2 * IDLE + set.node_timeout
}
