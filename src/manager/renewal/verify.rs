//! Asking the nodes whether a borrowed lock is still held by its lender.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::clock::Clock as _;
use crate::manager::error::acquire::NoQuorum;
use crate::manager::error::borrow::BorrowError;
use crate::manager::lease::held::HeldLease;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::{NodeError, NodeErrorKind, VerifyReply, VerifyRequest};
use crate::protocol::renewal::LeaseNodes;
use crate::token::{Claim, OwnerHash};

/// What came of asking all nodes for the owner.
pub(in crate::manager) struct Look {
    pub(in crate::manager) sent: Moment,
    pub(in crate::manager) holding: LeaseNodes,
    // The nodes that were not waited for.
    pub(in crate::manager) late: Fanout<Result<VerifyReply, NodeError>>,
}

/// Asks all nodes for the owner, until a quorum vouches for it or none can, after the node time-out at the latest.
pub(in crate::manager) async fn look(
    shared: &Shared,
    keys: &NodeKeys,
    (owner, claim): (OwnerHash, Claim),
) -> Result<Look, BorrowError> {
    let config = Some(Arc::clone(&shared.config));
    let request = VerifyRequest::new(keys.clone(), owner, config).claiming(claim);
    // Before anything can leave: what is left to the owner counts from here.
    let sent = shared.clock.now();
    let nodes = shared.nodes.iter().enumerate();
    let mut fanout = Fanout::new(nodes.map(|(index, node)| (index, node.verify(request.clone()))));
    let mut holding = LeaseNodes::following(shared.terms, sent);
    let mut errors: Vec<(usize, NodeError)> = Vec::new();
    let (mut longest, mut is_claimed) = (Duration::ZERO, false);
    let timer = sleep(shared.patience(sent));
    tokio::pin!(timer);
    loop {
        let answer = tokio::select! {
            biased;
            answer = fanout.next() => answer,
            () = &mut timer => {
                let late = fanout.abandon().into_iter();
                errors.extend(late.map(|node| (node, shared.timed_out())));
                None
            }
        };
        let Some((node, answer)) = answer else { break };
        if let Ok(VerifyReply::Owner { remaining }) = &answer {
            longest = longest.max(*remaining);
        }
        is_claimed |= answer == Ok(VerifyReply::Taken);
        if let Some(error) = note(shared, &mut holding, node, sent, answer) {
            errors.push((node, error));
        }
        // Enough, unless a node among them missed an extension and the others will give more time.
        let left = holding.deadline().since(shared.clock.now());
        if holding.taken() || (!left.is_zero() && left >= longest.min(shared.terms.ttl) / 2) {
            break;
        }
    }
    if let Some(error) = shared.disagreement() {
        return Err(BorrowError::NoQuorum(error));
    }
    if holding.taken() {
        return Err(if is_claimed {
            BorrowError::Taken
        } else {
            BorrowError::NotOwner
        });
    }
    if shared.clock.now() < holding.deadline() {
        return Ok(Look {
            sent,
            holding,
            late: fanout,
        });
    }
    let needed = shared.terms.quorum.needed();
    if shared.nodes.len() - holding.missing() >= needed {
        return Err(BorrowError::TooLate);
    }
    errors.sort_by_key(|(node, _)| *node);
    let failures = errors.into_iter();
    Err(BorrowError::NoQuorum(NoQuorum {
        needed,
        nodes: shared.nodes.len(),
        failures: failures
            .map(|(node, error)| shared.failure(node, error))
            .collect(),
        retry_after: shared.quorum_in(),
        disagreed: false,
    }))
}

/// Takes in the answers that were not waited for, so that a node which forgets is no reason to end what others would
/// have vouched for.
pub(in crate::manager) async fn take_in(
    shared: Arc<Shared>,
    hold: Arc<HeldLease>,
    mut late: Fanout<Result<VerifyReply, NodeError>>,
    sent: Moment,
) {
    let answers = async {
        while let Some((node, answer)) = late.next().await {
            hold.answered(node, |holding| {
                // What is amiss with the node the next look will tell.
                let _ = note(&shared, holding, node, sent, answer);
            });
        }
    };
    let _ = timeout(shared.node_timeout, answers).await;
}

/// Takes in what `node` answered to a look that was sent at `sent`.
pub(in crate::manager) fn note(
    shared: &Shared,
    holding: &mut LeaseNodes,
    node: usize,
    sent: Moment,
    answer: Result<VerifyReply, NodeError>,
) -> Option<NodeError> {
    match answer {
        Ok(VerifyReply::Owner { remaining }) if shared.in_time(sent) => {
            holding.vouch(node, sent, remaining);
        }
        Ok(VerifyReply::Owner { .. }) => return Some(shared.too_late()),
        Ok(VerifyReply::NotOwner | VerifyReply::Taken) => holding.foreign(node, sent),
        Err(error) => {
            shared.heard(node, &error);
            return Some(error);
        }
    }
    None
}

/// Asks one node again for the owner of a borrowed lock.
pub(in crate::manager) async fn follow(
    shared: Arc<Shared>,
    index: usize,
    hold: Arc<HeldLease>,
    (owner, claim): (OwnerHash, Claim),
    sent: Moment,
) {
    let Some(node) = shared.nodes.get(index) else {
        return;
    };
    // The claim again, for a node that has missed or forgotten it.
    let config = Some(Arc::clone(&shared.config));
    let request = VerifyRequest::new(hold.keys.clone(), owner, config).claiming(claim);
    let answer = match timeout(shared.node_timeout, node.verify(request)).await {
        Ok(answer) => answer,
        Err(_) => Err(shared.timed_out()),
    };
    hold.answered(index, |holding| {
        if let Some(error) = note(&shared, holding, index, sent, answer)
            && matches!(
                error.kind(),
                NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Foreign
            )
        {
            crate::trace::command_failed(shared.name_of(index), "verify", &error);
        }
    });
}
