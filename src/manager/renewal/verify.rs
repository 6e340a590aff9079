//! Asking the nodes whether a borrowed lock is still held by its lender.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::manager::error::borrow::BorrowError;
use crate::manager::lease::held::HeldLease;
use crate::manager::nodes::effect::NodeEffect;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::node_set::NodeSet;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::{NodeError, VerifyReply, VerifyRequest};
use crate::protocol::renewal::{LeaseNodes, Terms};
use crate::token::{Claim, OwnerHash};

/// A lock that a quorum of nodes keeps for its lender.
pub(crate) struct Verified {
    pub(crate) sent: Moment,
    pub(crate) nodes: LeaseNodes,
    // The replies that were not waited for.
    pub(crate) late: Fanout<Result<VerifyReply, NodeError>>,
}

/// Asks all nodes for the owner, until a quorum confirms it or none can, after the node time-out at the latest. The
/// lock is followed under these `terms`.
pub(crate) async fn verify(
    set: &NodeSet,
    terms: Terms,
    keys: &NodeKeys,
    (owner, claim): (OwnerHash, Claim),
) -> Result<Verified, BorrowError> {
    let config = Some(Arc::clone(&set.config));
    let request = VerifyRequest::new(keys.clone(), owner, config).claiming(claim);
    // Before anything can leave: the owner's remaining time counts from here.
    let sent = set.clock.now();
    let mut replies = set.send_all(|node| node.verify(request.clone()));
    replies.until(sleep(set.node_timeout));
    let mut nodes = LeaseNodes::following(terms, sent);
    let mut errors: Vec<(usize, NodeError)> = Vec::new();
    let (mut longest, mut is_claimed, mut is_enough) = (Duration::ZERO, false, false);
    while !is_enough && let Some((node, reply)) = replies.next().await {
        is_claimed |= reply == Ok(VerifyReply::Taken);
        match set.after_verify(node, sent, reply) {
            Ok(effect) => {
                if let NodeEffect::ConfirmedFor { remaining, .. } = effect {
                    longest = longest.max(remaining);
                }
                effect.apply(node, &mut nodes);
            }
            Err(error) => errors.push((node, error)),
        }
        // Unless a node among them missed an extension and the others will give more time.
        let left = nodes.deadline().since(set.clock.now());
        is_enough = nodes.taken() || (!left.is_zero() && left >= longest.min(terms.ttl) / 2);
    }
    if !is_enough {
        let late = replies.abandon().into_iter();
        errors.extend(late.map(|node| (node, set.timed_out())));
    }
    if let Some(error) = set.disagreement() {
        return Err(BorrowError::NoQuorum(error));
    }
    if nodes.taken() {
        return Err(if is_claimed {
            BorrowError::Taken
        } else {
            BorrowError::NotOwner
        });
    }
    if set.clock.now() < nodes.deadline() {
        return Ok(Verified {
            sent,
            nodes,
            late: replies,
        });
    }
    if set.nodes.len() - nodes.missing() >= set.terms.quorum.needed() {
        return Err(BorrowError::TooLate);
    }
    Err(BorrowError::NoQuorum(set.no_quorum(errors)))
}

/// Takes in the replies that were not waited for, so that a node which forgets does not end a lock that other nodes
/// confirm.
pub(crate) async fn take_late_replies(
    set: Arc<NodeSet>,
    lease: Arc<HeldLease>,
    mut late: Fanout<Result<VerifyReply, NodeError>>,
    sent: Moment,
) {
    late.until(sleep(set.node_timeout));
    while let Some((node, reply)) = late.next().await {
        // If it failed, the next command to it will, too.
        let effect = set.after_verify(node, sent, reply);
        let effect = effect.unwrap_or(NodeEffect::Unchanged);
        lease.reply(node, effect);
    }
}

/// Asks one node again for the owner of a borrowed lock.
pub(crate) async fn follow(
    set: Arc<NodeSet>,
    index: usize,
    lease: Arc<HeldLease>,
    (owner, claim): (OwnerHash, Claim),
    sent: Moment,
) {
    let Some(node) = set.nodes.get(index) else {
        return;
    };
    // The claim again, for a node that has missed or forgotten it.
    let config = Some(Arc::clone(&set.config));
    let request = VerifyRequest::new(lease.keys.clone(), owner, config).claiming(claim);
    let reply = set.reply(node.verify(request)).await;
    let effect = set.after_verify(index, sent, reply);
    let effect = effect.unwrap_or_else(|error| {
        set.log_refusal(index, "verify", &error);
        NodeEffect::Unchanged
    });
    lease.reply(index, effect);
}
