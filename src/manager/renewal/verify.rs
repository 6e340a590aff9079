//! Asking the nodes whether a borrowed lock is still held by its lender.

use crate::clock::Clock as _;
use crate::manager::error::acquire::NoQuorum;
use crate::manager::error::borrow::BorrowError;
use crate::manager::lease::held::Hold;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::shared::Core;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::{NodeError, NodeErrorKind, VerifyReply, VerifyRequest};
use crate::protocol::renewal::Holding;
use crate::token::{Claim, OwnerHash};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// What came of asking all nodes for the owner.
pub(in crate::manager) struct Look {
    pub(in crate::manager) sent: Moment,
    pub(in crate::manager) holding: Holding,
    // The nodes that were not waited for.
    pub(in crate::manager) late: Fanout<Result<VerifyReply, NodeError>>,
}

/// Asks all nodes for the owner, until a quorum vouches for it or none can, after the node time-out at the latest.
pub(in crate::manager) async fn look(
    core: &Core,
    keys: &NodeKeys,
    (owner, claim): (OwnerHash, Claim),
) -> Result<Look, BorrowError> {
    let charter = Some(Arc::clone(&core.charter));
    let request = VerifyRequest::new(keys.clone(), owner, charter).claiming(claim);
    // Before anything can leave: what is left to the owner counts from here.
    let sent = core.clock.now();
    let nodes = core.nodes.iter().enumerate();
    let mut fanout = Fanout::new(nodes.map(|(index, node)| (index, node.verify(request.clone()))));
    let mut holding = Holding::following(core.terms, sent);
    let mut errors: Vec<(usize, NodeError)> = Vec::new();
    let (mut longest, mut is_claimed) = (Duration::ZERO, false);
    let timer = sleep(core.patience(sent));
    tokio::pin!(timer);
    loop {
        let answer = tokio::select! {
            biased;
            answer = fanout.next() => answer,
            () = &mut timer => {
                let late = fanout.abandon().into_iter();
                errors.extend(late.map(|node| (node, core.timed_out())));
                None
            }
        };
        let Some((node, answer)) = answer else { break };
        if let Ok(VerifyReply::Owner { remaining }) = &answer {
            longest = longest.max(*remaining);
        }
        is_claimed |= answer == Ok(VerifyReply::Taken);
        if let Some(error) = note(core, &mut holding, node, sent, answer) {
            errors.push((node, error));
        }
        // Enough, unless a node among them missed an extension and the others will give more time.
        let left = holding.deadline().since(core.clock.now());
        if holding.taken() || (!left.is_zero() && left >= longest.min(core.terms.ttl) / 2) {
            break;
        }
    }
    if let Some(error) = core.disagreement() {
        return Err(BorrowError::NoQuorum(error));
    }
    if holding.taken() {
        return Err(if is_claimed {
            BorrowError::Taken
        } else {
            BorrowError::NotOwner
        });
    }
    if core.clock.now() < holding.deadline() {
        return Ok(Look {
            sent,
            holding,
            late: fanout,
        });
    }
    let needed = core.terms.quorum.needed();
    if core.nodes.len() - holding.missing() >= needed {
        return Err(BorrowError::TooLate);
    }
    errors.sort_by_key(|(node, _)| *node);
    let failures = errors.into_iter();
    Err(BorrowError::NoQuorum(NoQuorum {
        needed,
        nodes: core.nodes.len(),
        failures: failures
            .map(|(node, error)| core.failure(node, error))
            .collect(),
        retry_after: core.quorum_in(),
        disagreed: false,
    }))
}

/// Takes in the answers that were not waited for, so that a node which forgets is no reason to end what others would
/// have vouched for.
pub(in crate::manager) async fn take_in(
    core: Arc<Core>,
    hold: Arc<Hold>,
    mut late: Fanout<Result<VerifyReply, NodeError>>,
    sent: Moment,
) {
    let answers = async {
        while let Some((node, answer)) = late.next().await {
            hold.answered(node, |holding| {
                // What is amiss with the node the next look will tell.
                let _ = note(&core, holding, node, sent, answer);
            });
        }
    };
    let _ = timeout(core.node_timeout, answers).await;
}

/// Takes in what `node` answered to a look that was sent at `sent`.
pub(in crate::manager) fn note(
    core: &Core,
    holding: &mut Holding,
    node: usize,
    sent: Moment,
    answer: Result<VerifyReply, NodeError>,
) -> Option<NodeError> {
    match answer {
        Ok(VerifyReply::Owner { remaining }) if core.in_time(sent) => {
            holding.vouch(node, sent, remaining);
        }
        Ok(VerifyReply::Owner { .. }) => return Some(core.too_late()),
        Ok(VerifyReply::NotOwner | VerifyReply::Taken) => holding.foreign(node, sent),
        Err(error) => {
            core.heard(node, &error);
            return Some(error);
        }
    }
    None
}

/// Asks one node again for the owner of a borrowed lock.
pub(in crate::manager) async fn follow(
    core: Arc<Core>,
    index: usize,
    hold: Arc<Hold>,
    (owner, claim): (OwnerHash, Claim),
    sent: Moment,
) {
    let Some(node) = core.nodes.get(index) else {
        return;
    };
    // The claim again, for a node that has missed or forgotten it.
    let charter = Some(Arc::clone(&core.charter));
    let request = VerifyRequest::new(hold.keys.clone(), owner, charter).claiming(claim);
    let answer = match timeout(core.node_timeout, node.verify(request)).await {
        Ok(answer) => answer,
        Err(_) => Err(core.timed_out()),
    };
    hold.answered(index, |holding| {
        if let Some(error) = note(&core, holding, index, sent, answer)
            && matches!(
                error.kind(),
                NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Foreign
            )
        {
            crate::trace::command_failed(core.name_of(index), "verify", &error);
        }
    });
}
