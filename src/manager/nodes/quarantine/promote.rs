//! The end of a quarantine: the node is given what it must know, and votes again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::nodes::node_set::NodeSet;
use crate::manager::nodes::quarantine::check_in::{IDLE, SOON, refused, votes};
use crate::manager::nodes::voting::state::{Plan, Quarantine, State};
use crate::moment::Moment;
use crate::node::PromoteRequest;
use crate::token::FencingToken;

/// Lets a node in whose wait is over. Returns when to look again.
pub(in crate::manager) async fn let_in(
    set: &NodeSet,
    index: usize,
    quarantine: Quarantine,
    plan: Plan,
    now: Moment,
) -> Duration {
    set.voting
        .set(index, State::Quarantined(quarantine.clone()));
    if set.voting.is_blocked() {
        return IDLE;
    }
    // Where none votes yet they begin together. To one that is looked at when others vote already, but too few of them,
    // it would seem that a quorum has forgotten.
    if plan.alone {
        let together = set.voting.is_awaited(index, now + IDLE);
        if together && now.since(plan.asked) < IDLE {
            return SOON;
        }
        if now == plan.asked {
            set.voting.suspect_all();
        }
    }
    promote(set, index, quarantine, plan).await
}

/// Ends a quarantine. Returns when to look again.
pub(in crate::manager) async fn promote(
    set: &NodeSet,
    index: usize,
    quarantine: Quarantine,
    plan: Plan,
) -> Duration {
    let Some(node) = set.nodes.get(index) else {
        return IDLE;
    };
    let forgot = !quarantine.unused || !set.voting.is_whole();
    let floor = if quarantine.remembered || !forgot {
        plan.high_water
    } else {
        // Nobody knows how high the tokens have come.
        FencingToken::proposed_at(set.clock.unix_micros()).max(plan.high_water)
    };
    let promotion = PromoteRequest::new(
        set.namespace.clone(),
        Arc::clone(&set.config),
        quarantine.id.clone(),
        floor,
    );
    let at_risk = forgot && !quarantine.remembered && !set.voting.is_trusted(index, &quarantine);
    let promotion = promotion.knowing(plan.known);
    match timeout(set.node_timeout, node.promote(promotion)).await {
        Ok(Ok(true)) => {
            if at_risk {
                crate::trace::fencing_at_risk(node.name());
            }
            votes(set, index);
            IDLE
        }
        // Somebody else has promoted it, or it has forgotten once more: the next look tells.
        Ok(Ok(false)) => Duration::ZERO,
        Ok(Err(error)) => {
            refused(set, index, PROMOTION, &error);
            SOON
        }
        Err(_) => SOON,
    }
}

/// The command that ends a quarantine.
pub(in crate::manager) const PROMOTION: &str = "promotion";
