//! After the verdict: late replies, and the release of what they granted.

use std::sync::Arc;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::manager::lease::held::HeldLease;
use crate::manager::ledger::Obligation;
use crate::manager::nodes::effect::NodeEffect;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::release::command::Command;
use crate::manager::release::releaser::Release;
use crate::manager::shared::Shared;
use crate::mutant::{self, Mutant};
use crate::node::{AcquireReply, NodeError};

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
