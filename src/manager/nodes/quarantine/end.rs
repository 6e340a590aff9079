//! The end of a quarantine: the node is told the high-water mark and the longest lease, and votes again.

use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::nodes::node_set::NodeSet;
use crate::manager::nodes::quarantine::check_in::{IDLE, SOON, refused, votes};
use crate::manager::nodes::voting::state::{Plan, Quarantine, State};
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::node::PromoteRequest;
use crate::token::FencingToken;

/// Promotes a node whose quarantine is over, together with others where none votes. Returns when to ask again.
///
/// The others are asked at once if the plan `is_new`; not again, for nodes that cannot be promoted would be asked
/// without a pause.
pub(crate) async fn try_promote(
    set: &NodeSet,
    index: usize,
    quarantine: Quarantine,
    (plan, is_new): (Plan, bool),
    now: Moment,
) -> Duration {
    set.voting
        .set(index, State::Quarantined(quarantine.clone()));
    if set.voting.serves_others() {
        return IDLE;
    }
    // Where none votes yet, all are promoted together. Otherwise, when too few of them vote already, the next would
    // take it that a quorum has forgotten.
    if plan.alone {
        let together = set.voting.others_end_by(index, now + IDLE);
        if together && now.since(plan.asked) < IDLE {
            return SOON;
        }
        if is_new {
            set.voting.recheck_all();
        }
    }
    promote(set, index, quarantine, plan).await
}

/// Ends a quarantine. Returns when to ask again.
async fn promote(set: &NodeSet, index: usize, quarantine: Quarantine, plan: Plan) -> Duration {
    let Some(node) = set.nodes.get(index) else {
        return IDLE;
    };
    let forgot = !quarantine.unused || !set.voting.is_intact();
    let floor = if quarantine.remembered || !forgot {
        plan.high_water
    } else {
        // No node knows how high the fencing tokens have come.
        FencingToken::proposed_at(set.clock.unix_micros()).max(plan.high_water)
    };
    let floor = floor.filter(|_| !mutant::is(Mutant::MarkNotLearnt));
    let promotion = PromoteRequest::new(
        set.namespace.clone(),
        set.longest.config(),
        quarantine.id.clone(),
        floor,
    );
    // A node that nothing is known of may be as new as it looks.
    let at_risk = forgot
        && !quarantine.remembered
        && !quarantine.fresh
        && !set.voting.is_trusted(index, &quarantine);
    let promotion = promotion.knowing(plan.known);
    match set.reply(node.promote(promotion)).await {
        Ok(true) => {
            if at_risk {
                crate::trace::fencing_at_risk(node.name());
            }
            votes(set, index);
            IDLE
        }
        // Another process has promoted it, or it has forgotten once more: the next check-in tells.
        Ok(false) => Duration::ZERO,
        Err(error) => refused(set, index, PROMOTION, &error),
    }
}

/// The command that ends a quarantine.
const PROMOTION: &str = "promotion";
