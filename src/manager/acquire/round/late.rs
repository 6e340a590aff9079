//! What comes after the verdict: late answers, and what is owed for them.

use std::sync::Arc;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::manager::lease::held::HeldLease;
use crate::manager::ledger::Obligation;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::release::command::Command;
use crate::manager::release::releaser::Release;
use crate::manager::shared::Shared;
use crate::node::{AcquireReply, NodeError};

/// Settles a lost round: releases what is owed now, and what is granted late.
pub(in crate::manager) async fn lost(
    shared: Arc<Shared>,
    command: Command,
    mut fanout: Fanout<Result<AcquireReply, NodeError>>,
    owed: Vec<usize>,
    obligation: Obligation,
) {
    // A dropped release goes on in the background, where we are already: this only starts it.
    let release = |nodes: &[usize]| {
        let share = Some(obligation.share());
        drop(Release::new(&shared, command.clone(), nodes, 0, share));
    };
    if !owed.is_empty() {
        release(&owed);
    }
    let timer = sleep(shared.node_timeout);
    tokio::pin!(timer);
    loop {
        tokio::select! {
            biased;
            answer = fanout.next() => match answer {
                Some((node, Ok(AcquireReply::Granted { .. } | AcquireReply::Promised { .. }))) => release(&[node]),
                Some((node, Err(error))) if error.outcome_unknown() => release(&[node]),
                Some(_) => {}
                None => break,
            },
            () = &mut timer => {
                let late = fanout.abandon();
                release(&late);
                break;
            }
        }
    }
    // What is left to be done, the releases do.
    obligation.meet();
}

/// Takes in the late answers of a round that was won; plans a top-up for the nodes that are missing then.
pub(in crate::manager) async fn late(
    shared: Arc<Shared>,
    hold: Arc<HeldLease>,
    mut fanout: Fanout<Result<AcquireReply, NodeError>>,
) {
    let sent = hold.lease.started;
    let timer = sleep(shared.node_timeout);
    tokio::pin!(timer);
    loop {
        let (node, answer) = tokio::select! {
            biased;
            answer = fanout.next() => match answer {
                Some((node, answer)) => (node, Some(answer)),
                None => break,
            },
            () = &mut timer => {
                for node in fanout.abandon() {
                    hold.answered(node, |holding| holding.unknown(node));
                }
                break;
            }
        };
        hold.answered(node, |holding| match answer {
            Some(Ok(AcquireReply::Granted { .. } | AcquireReply::Promised { .. })) => {
                if shared.in_time(sent) {
                    holding.confirm(node, sent);
                } else {
                    holding.unknown(node);
                }
            }
            Some(Ok(AcquireReply::Held(_))) => holding.foreign(node, sent),
            Some(Err(error)) => {
                shared.heard(node, &error);
                if error.outcome_unknown() {
                    holding.unknown(node);
                }
            }
            Some(Ok(AcquireReply::Recorded(_))) | None => {}
        });
    }
    shared
        .registry
        .top_up(&hold, shared.clock.now() + shared.node_timeout);
}
