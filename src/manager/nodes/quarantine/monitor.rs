//! The monitor of a node: asks again and again whether it votes, and sees it through its quarantine.

use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::manager::nodes::node_set::NodeSet;
use crate::manager::nodes::quarantine::check_in::{
    CHECK_IN, IDLE, check_in, refused, refuses_no_more, votes,
};
use crate::manager::nodes::quarantine::observe::{Found, observe};
use crate::manager::nodes::voting::replies::Replies;
use crate::manager::nodes::voting::state::{Foreign, State};
use crate::manager::nodes::voting::statuses::VotingStatuses;
use crate::node::{CheckInMode, CheckInReply, NodeError, NodeErrorKind, NodeFuture};

/// Asks one node again and again whether it votes, until its manager is gone.
pub(crate) async fn monitor(set: Weak<NodeSet>, voting: Arc<VotingStatuses>, index: usize) {
    let mut pause = Duration::ZERO;
    let mut connecting: Option<NodeFuture<Result<(), NodeError>>> = None;
    loop {
        let connected = async {
            match connecting.take() {
                Some(connecting) => drop(connecting.await),
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = voting.recheck_due(index) => {}
            () = connected => {}
            () = sleep(pause) => {}
        }
        let Some(set) = set.upgrade() else {
            return;
        };
        set.tell_repeats();
        match ask(&set, index).await {
            Some(next) => pause = next,
            None => return,
        }
        let node = (set.nodes.get(index)).filter(|_| set.is_connecting(index));
        connecting = node.map(|node| node.ready());
    }
}

/// One check-in. Returns when to ask again; `None` if never.
async fn ask(set: &NodeSet, index: usize) -> Option<Duration> {
    let node = set.nodes.get(index)?;
    let adopted = set.voting.is_adopted(index);
    let mode = if adopted {
        CheckInMode::Adopt
    } else {
        CheckInMode::Normal
    };
    let was_connecting = set.is_connecting(index);
    set.voting.replies(index, Replies::begin);
    let reply = set.reply(check_in(set, &**node, mode)).await;
    let answered = reply.is_ok();
    let next = match reply {
        Ok(reply) => {
            set.voting.replies(index, Replies::answered);
            refuses_no_more(set, index, Some(CHECK_IN));
            if adopted {
                set.voting.done(index, true);
            }
            apply(set, index, reply).await
        }
        // A node that says so and takes commands is not, and others may wait for its vote.
        Err(error) if error.kind() == NodeErrorKind::Closed && !set.is_up(index) => return None,
        // It is down, slow, or refuses: what was known of it holds until it answers, but its replies do not count.
        Err(error) => {
            // Before it was ever connected that says nothing.
            if !was_connecting {
                let error = error.clone();
                set.voting.replies(index, |replies| replies.failed(error));
            }
            refused(set, index, CHECK_IN, &error)
        }
    };
    set.voting.give_up_waiting(set.clock.now());
    // The first connection is being made: nobody has asked it yet.
    if answered || !was_connecting {
        set.voting.checked_in(index, answered);
    }
    Some(next)
}

/// Applies the reply to a check-in. Returns when to ask again.
async fn apply(set: &NodeSet, index: usize, reply: CheckInReply) -> Duration {
    match reply {
        CheckInReply::Voting {
            replaced,
            max_lease,
            ..
        } => {
            set.longest.knows(index, max_lease);
            let now = set.clock.now();
            set.voting.accepts(index, replaced, now);
            votes(set, index);
            IDLE
        }
        CheckInReply::Foreign {
            config,
            digest,
            replaced,
        } => {
            let reason = crate::node::foreign_config(&config, &set.config.text);
            let state = State::Foreign(Foreign {
                reason: reason.clone(),
                replaces_ours: replaced.contains(&set.config.digest),
                digest: Some(digest),
            });
            if set.voting.set(index, state.clone()) != state {
                crate::trace::node_foreign(set.name_of(index), &reason);
            }
            IDLE
        }
        CheckInReply::Quarantined {
            id,
            max_lease,
            earlier,
            accepted,
            unused,
            replaced,
        } => {
            set.longest.knows(index, max_lease);
            let found = Found {
                replaced,
                id,
                max_lease,
                earlier,
                accepted,
                unused,
            };
            observe(set, index, found).await
        }
    }
}
