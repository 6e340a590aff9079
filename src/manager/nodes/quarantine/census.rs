//! How a node is seen through its quarantine.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::quarantine::state::{End, Plan, Quarantine, State};
use crate::manager::nodes::quarantine::warden::{IDLE, SOON, ask, refused, votes};
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::node::{CheckInMode, CheckInReply, PromoteRequest};
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
pub(in crate::manager) async fn quarantined(
    shared: &Shared,
    index: usize,
    found: Found,
) -> Duration {
    // What the others say is read at every look. It is the look that begins after the wait that counts: what is read
    // by one that began before may be overtaken by grants of those whom the node has forgotten.
    let now = shared.clock.now();
    let (mut quarantine, new) = sight(shared, index, &found, now);
    shared.voting.looked(index, true);
    // Long enough for the look that follows one that waited for others.
    let lasting = 2 * IDLE + shared.node_timeout;
    let plan = quarantine.plan;
    if let Some(plan) = plan.filter(|plan| now.since(plan.asked) <= lasting) {
        return let_in(shared, index, quarantine, plan, now).await;
    }
    let others = census(shared, index).await;
    let known = others
        .known
        .max(found.max_lease)
        .max(shared.config.max_lease);
    let wait = length(shared, index, &found, &others, known);
    quarantine.remembered = wait.is_some_and(|wait| wait.remembered);
    let from = begun(shared, &found, &others, &quarantine);
    quarantine.end = match (from, wait) {
        (None, _) => End::Incomplete,
        (Some(_), None) => End::Alone,
        (Some(from), Some(wait)) => End::At(from + wait.time),
    };
    // What was never used need not wait; unless it is with one that others may have used until it forgot.
    let welcome = quarantine.unused && (others.intact > 0 || shared.voting.is_whole());
    let trusted = welcome || shared.voting.is_trusted(index, &quarantine);
    let over = quarantine.end.moment().is_some_and(|end| now >= end);
    quarantine.plan = (over || trusted && from.is_some()).then_some(Plan {
        asked: now,
        known,
        high_water: others.high_water,
        alone: others.intact == 0 && !trusted,
    });
    if let Some(plan) = quarantine.plan {
        return let_in(shared, index, quarantine, plan, now).await;
    }
    let left = quarantine.end.moment().map(|end| end.since(now));
    // At the first look at a node the others may not have been looked at yet.
    if !quarantine.told && !trusted && (left.is_some() || !new) {
        quarantine.told = true;
        crate::trace::node_quarantined(shared.name_of(index), left, quarantine.remembered);
    }
    shared.voting.set(index, State::Quarantined(quarantine));
    left.unwrap_or(IDLE).min(IDLE)
}

/// When the wait of a quarantine began; `None` if it has not.
pub(in crate::manager) fn begun(
    shared: &Shared,
    found: &Found,
    others: &Others,
    quarantine: &Quarantine,
) -> Option<Moment> {
    // A node that votes, or has, under our config proves that all have accepted it once.
    if found.accepted || others.intact > 0 {
        return Some(quarantine.since);
    }
    // Else it begins when they have: until then the last of them may have granted to processes with another list.
    let complete = shared.voting.complete_since()?;
    Some(complete.max(quarantine.since))
}

/// Lets a node in whose wait is over. Returns when to look again.
pub(in crate::manager) async fn let_in(
    shared: &Shared,
    index: usize,
    quarantine: Quarantine,
    plan: Plan,
    now: Moment,
) -> Duration {
    shared
        .voting
        .set(index, State::Quarantined(quarantine.clone()));
    if shared.voting.is_blocked() {
        return IDLE;
    }
    // Where none votes yet they begin together. To one that is looked at when others vote already, but too few of them,
    // it would seem that a quorum has forgotten.
    if plan.alone {
        let together = shared.voting.is_awaited(index, now + IDLE);
        if together && now.since(plan.asked) < IDLE {
            return SOON;
        }
        if now == plan.asked {
            shared.voting.suspect_all();
        }
    }
    promote(shared, index, quarantine, plan).await
}

/// The quarantine of a node that was found in one, and whether this process had not seen it before.
pub(in crate::manager) fn sight(
    shared: &Shared,
    index: usize,
    found: &Found,
    now: Moment,
) -> (Quarantine, bool) {
    let before = shared.voting.get(index);
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
    shared
        .voting
        .set(index, State::Quarantined(quarantine.clone()));
    (quarantine, new)
}

/// How long a node must not vote, by what the others say of the longest lease that is `known`.
pub(in crate::manager) fn length(
    shared: &Shared,
    index: usize,
    found: &Found,
    others: &Others,
    known: Duration,
) -> Option<Wait> {
    let rule = Rule {
        quorum: shared.terms.quorum,
        max_ttl: shared.max_ttl,
        drift: shared.terms.drift,
        skew: shared.max_clock_skew,
    };
    // Of those who were there before it is only what they agreed on with us that is waited for: who shortens the
    // longest lease has waited for the long ones.
    let earlier = found.earlier.max(others.earlier).min(shared.max_ttl);
    let wait = rule.wait(Census {
        intact: others.intact,
        answered: others.answered + 1,
        known: known.max(earlier),
    })?;
    // Others may count the server that this one replaced, for so long yet by their clocks, and be granted leases by it.
    let settle = shared.nodes.get(index).map(|node| node.settle_time());
    let settle = settle.filter(|settle| !settle.is_zero());
    let settle = settle.map(|settle| settle.saturating_add(shared.terms.drift.of(settle)));
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
    // The longest lease under a config before, on nodes that may not have waited for it yet.
    pub(in crate::manager) earlier: Duration,
    pub(in crate::manager) high_water: Option<FencingToken>,
}

pub(in crate::manager) async fn census(shared: &Shared, except: usize) -> Others {
    let mut census = Others::default();
    let others = shared.nodes.iter().enumerate();
    let others = others.filter(|(index, _)| *index != except);
    let mut asked =
        Fanout::new(others.map(|(index, node)| (index, ask(shared, node, CheckInMode::Normal))));
    let all = async {
        while let Some((_, answer)) = asked.next().await {
            match answer {
                Ok(CheckInReply::Voting {
                    max_lease,
                    high_water,
                    ..
                }) => {
                    census.intact += 1;
                    census.answered += 1;
                    census.known = census.known.max(max_lease);
                    census.high_water = census.high_water.max(high_water);
                }
                Ok(CheckInReply::Quarantined {
                    max_lease, earlier, ..
                }) => {
                    census.answered += 1;
                    census.known = census.known.max(max_lease);
                    census.earlier = census.earlier.max(earlier);
                }
                Ok(CheckInReply::Foreign { .. }) | Err(_) => {}
            }
        }
    };
    // Those that do not answer in time do not count.
    let _ = timeout(shared.node_timeout, all).await;
    census
}

/// Ends a quarantine. Returns when to look again.
pub(in crate::manager) async fn promote(
    shared: &Shared,
    index: usize,
    quarantine: Quarantine,
    plan: Plan,
) -> Duration {
    let Some(node) = shared.nodes.get(index) else {
        return IDLE;
    };
    let forgot = !quarantine.unused || !shared.voting.is_whole();
    let floor = if quarantine.remembered || !forgot {
        plan.high_water
    } else {
        // Nobody knows how high the tokens have come.
        FencingToken::proposed_at(shared.clock.unix_micros()).max(plan.high_water)
    };
    let promotion = PromoteRequest::new(
        shared.namespace.clone(),
        Arc::clone(&shared.config),
        quarantine.id.clone(),
        floor,
    );
    let at_risk = forgot && !quarantine.remembered && !shared.voting.is_trusted(index, &quarantine);
    let promotion = promotion.knowing(plan.known);
    match timeout(shared.node_timeout, node.promote(promotion)).await {
        Ok(Ok(true)) => {
            if at_risk {
                crate::trace::fencing_at_risk(node.name());
            }
            votes(shared, index);
            IDLE
        }
        // Somebody else has promoted it, or it has forgotten once more: the next look tells.
        Ok(Ok(false)) => Duration::ZERO,
        Ok(Err(error)) => {
            refused(shared, index, PROMOTION, &error);
            SOON
        }
        Err(_) => SOON,
    }
}

/// The command that ends a quarantine.
pub(in crate::manager) const PROMOTION: &str = "promotion";
