//! After the verdict: the fencing token of a granted round, late replies, and the release of what a lost round set.

use std::sync::Arc;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::manager::acquire::round::attempt::{Attempt, Purpose};
use crate::manager::error::acquire::AcquireError;
use crate::manager::lease::held::HeldLease;
use crate::manager::ledger::Obligation;
use crate::manager::nodes::effect::NodeEffect;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::release::command::Command;
use crate::manager::release::releaser::Release;
use crate::manager::shared::Shared;
use crate::mutant::{self, Mutant};
use crate::node::{AcquireReply, Fence, NodeError, NodeErrorKind, RaiseReply, RaiseRequest};
use crate::protocol::fence::{FenceVerdict, agree, highest};
use crate::token::FencingToken;

impl Attempt {
    /// Settles the fencing token of a granted round. If the nodes do not agree on one, the highest is written back,
    /// which takes a second round trip.
    ///
    /// # Errors
    ///
    /// [`AcquireError::NoQuorum`] if too few nodes confirmed it within the node time-out.
    pub(crate) async fn settle_fence(&mut self) -> Result<(), AcquireError> {
        let Some(keep) = self.keep_fence else {
            return Ok(());
        };
        let tokens = self.round.fences().map(|(_, token)| token);
        let needed = self.shared.terms.quorum.needed();
        let verdict = match self.purpose {
            Purpose::Lock => agree(tokens, needed),
            Purpose::Idempotent { .. } => highest(tokens, needed),
        };
        match verdict {
            FenceVerdict::Agreed(token) => {
                self.fence = Some(token);
                self.shared.fences.count(true);
                Ok(())
            }
            FenceVerdict::Open(token) if mutant::is(Mutant::FenceNotWrittenBack) => {
                self.fence = Some(token);
                Ok(())
            }
            FenceVerdict::Open(token) => {
                self.shared.fences.count(false);
                self.write_back(Fence::new(token, keep)).await
            }
            // No round is granted without fencing tokens.
            FenceVerdict::None => Err(self.no_quorum()),
        }
    }

    async fn write_back(&mut self, fence: Fence) -> Result<(), AcquireError> {
        let (shared, token) = (Arc::clone(&self.shared), fence.token);
        let needed = shared.terms.quorum.needed();
        let request = RaiseRequest::new(self.keys.clone(), self.token, fence)
            .under(Some(Arc::clone(&shared.config)));
        let granted: Vec<(usize, FencingToken)> = self.round.fences().collect();
        let lower = granted.iter().filter(|(_, number)| *number < token);
        let lower = lower.map(|(node, _)| *node);
        let mut raising = shared.send(lower, |node| node.raise(request.clone()));
        raising.until(sleep(shared.patience(self.sent)));
        // Those that reported it have it already.
        let mut have = granted
            .iter()
            .filter(|(_, number)| *number == token)
            .count();
        while have < needed {
            match raising.next().await {
                Some((_, Ok(RaiseReply::Raised))) => have += 1,
                Some((node, Ok(RaiseReply::NotOwner))) => self.errors.push((node, expired())),
                Some((node, Err(error))) => self.errors.push((node, error)),
                None => {
                    let late = raising.abandon().into_iter();
                    self.errors
                        .extend(late.map(|node| (node, shared.timed_out())));
                    return Err(self.no_quorum());
                }
            }
        }
        self.fence = Some(token);
        Ok(())
    }
}

fn expired() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "the lock had ended there before its fencing token was settled",
    )
}

/// Settles a lost round: releases the keys that were granted, and those that are granted late.
pub(crate) async fn settle_lost(
    shared: Arc<Shared>,
    command: Command,
    mut fanout: Fanout<Result<AcquireReply, NodeError>>,
    owed: Vec<usize>,
    obligation: Obligation,
) {
    // A dropped release goes on in the background, where we are already: this only starts it.
    let release = |nodes: &[usize]| {
        let (share, ttl) = (Some(obligation.share()), obligation.ttl());
        drop(Release::new(&shared, command.clone(), nodes, 0, share, ttl));
    };
    if !owed.is_empty() {
        release(&owed);
    }
    fanout.until(sleep(shared.node_timeout));
    while let Some((node, reply)) = fanout.next().await {
        match reply {
            _ if mutant::is(Mutant::LateGrantForgotten) => {}
            Ok(AcquireReply::Granted { .. } | AcquireReply::Promised { .. }) => release(&[node]),
            Err(error) if error.outcome_unknown() => release(&[node]),
            Ok(_) | Err(_) => {}
        }
    }
    let late = fanout.abandon();
    if !late.is_empty() {
        release(&late);
    }
    // The rest is done by the releases.
    obligation.meet();
}

/// Counts the late replies of a round that was won; plans a top-up for the nodes that are missing then.
pub(crate) async fn take_late_replies(
    shared: Arc<Shared>,
    held: Arc<HeldLease>,
    mut fanout: Fanout<Result<AcquireReply, NodeError>>,
) {
    let sent = held.lease.started;
    fanout.until(sleep(shared.node_timeout));
    while let Some((node, reply)) = fanout.next().await {
        let effect = shared.after_acquire(node, sent, &reply);
        held.reply(node, effect);
    }
    for node in fanout.abandon() {
        held.reply(node, NodeEffect::Unknown);
    }
    shared
        .registry
        .top_up(&held, shared.clock.now() + shared.node_timeout);
}
