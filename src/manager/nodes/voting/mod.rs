//! Which nodes vote, and how a node that may have lost its data gets its vote back: the [`monitor`] of each node asks it
//! again and again, and sees it through its quarantine.
//!
//! ```text
//!   unknown ─────► voting, quarantined, foreign    by its first answer
//!   voting ──────► quarantined                     a reply shows that it may have lost data
//!   quarantined ─► voting                          promoted: all leases that it may have forgotten have ended
//!   any ─────────► foreign                         it serves processes with another list
//!   foreign ─────► voting, quarantined             it accepts ours, as when it was adopted
//! ```
//!
//! The rule is that of a delayed restart, timed by the clocks of the clients:
//!
//! * A *check-in* asks a node whether it votes: once a second, 50 ms after one without an answer, 200 ms after a
//!   refusal. A node that may have lost data answers by a quarantine, under a name that nothing else has: its identity,
//!   the digest of the config, a random number.
//! * Each process waits on its own clock, from its first sight of that name. The
//!   [length](crate::protocol::quorum::quarantine) is that of `max_ttl`; longer for a server that witnesses confirm,
//!   and where a node was taken over from a list whose quarantines lasted longer.
//! * Then it reads the high-water marks of the nodes that vote, and ends the quarantine of that name with the highest
//!   as the floor of later fencing tokens. If fewer than a quorum vote, its clock and the skew of clocks give the
//!   floor, and the log says so.
//!
//! A *list* of nodes grants nothing before each of its nodes has accepted it once, nor while any node is known to serve
//! another list.

pub(crate) mod list;
pub(crate) mod statuses;

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::manager::nodes::NodeSet;
use crate::manager::nodes::voting::list::{Quarantine, Replies, Told};
use crate::manager::nodes::voting::statuses::{IDLE, VotingStatuses};
use crate::manager::nodes::waiting::is_retryable;
use crate::moment::Moment;
use crate::node::{
    CheckInMode, CheckInReply, CheckInRequest, Node, NodeError, NodeErrorKind, NodeFuture,
    PromoteRequest,
};
use crate::protocol::quorum::quarantine;
use crate::seam::for_pause;
use crate::token::FencingToken;

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
    let mode = match set.observes {
        true => CheckInMode::Look,
        false => set.voting.mode(index),
    };
    let was_connecting = set.is_connecting(index);
    set.voting.replies(index, Replies::begin);
    let reply = set.reply(check_in(set, &**node, mode)).await;
    let answered = reply.is_ok();
    let next = match reply {
        Ok(reply) => {
            set.voting.replies(index, Replies::answered);
            refuses_no_more(set, index, Some(CHECK_IN));
            if matches!(mode, CheckInMode::Adopt { .. }) {
                set.voting.adopted(index);
            }
            apply(set, index, reply).await
        }
        // It was closed, and nobody opens it again. A node that says so and still takes commands is asked again.
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
    // The first connection is being made: nobody has asked it yet.
    if answered || !was_connecting {
        set.voting.checked_in(index, answered);
    }
    Some(next)
}

fn check_in(
    set: &NodeSet,
    node: &dyn Node,
    mode: CheckInMode,
) -> NodeFuture<Result<CheckInReply, NodeError>> {
    node.check_in(CheckInRequest {
        namespace: set.namespace.clone(),
        config: Arc::clone(&set.config),
        quarantine: length(set, node),
        fresh: format!("{:016x}{:016x}", for_pause(), for_pause()),
        mode,
    })
}

fn length(set: &NodeSet, node: &dyn Node) -> Duration {
    // Two promotions may be by two clocks, of which the second is behind: it must have come up with the floor of the first.
    let longest = set.max_ttl.max(set.max_clock_skew);
    quarantine(longest, node.settle_time(), set.terms.drift)
}

async fn apply(set: &NodeSet, index: usize, reply: CheckInReply) -> Duration {
    let now = set.clock.now();
    match reply {
        CheckInReply::Voting { .. } => {
            votes(set, index);
            IDLE
        }
        CheckInReply::Foreign { config, digest } => {
            let reason = crate::node::foreign_config(&config, &set.config.text);
            if (set.voting).foreign(index, reason.clone(), Some(&digest), now) {
                crate::trace::node_foreign(set.name_of(index), &reason);
            }
            IDLE
        }
        CheckInReply::Quarantined {
            id,
            former,
            accepted,
            unused,
        } => {
            let length = set.nodes.get(index).map(|node| length(set, &**node));
            let found = Quarantine {
                id,
                since: now,
                length: length.unwrap_or_default(),
                former,
                accepted,
                first: false,
                unused,
                reclaimed: false,
                fresh: None,
                told: Told::Nothing,
            };
            follow(set, index, found).await
        }
    }
}

fn votes(set: &NodeSet, index: usize) {
    refuses_no_more(set, index, None);
    set.voting.replies(index, Replies::votes);
    match set.voting.votes(index, set.clock.now()) {
        // The log did not speak of its quarantine, so it does not speak of the end.
        Some(quarantine) if quarantine.unused && quarantine.told == Told::Nothing => {}
        Some(quarantine) if quarantine.unused || quarantine.fresh == Some(true) => {
            crate::trace::new_node_votes(set.name_of(index));
        }
        Some(_) => crate::trace::node_promoted(set.name_of(index)),
        None => {}
    }
}

async fn follow(set: &NodeSet, index: usize, found: Quarantine) -> Duration {
    let (now, id) = (found.since, found.id.clone());
    set.voting.waits(index, found);
    set.voting.checked_in(index, true);
    if set.observes {
        return IDLE;
    }
    if set.voting.may_promote(index, now) {
        return promote(set, index, id).await;
    }
    let left = set.voting.left(index, now);
    tell(set, index, now, left.unwrap_or_default()).await;
    // While a node serves others nothing is promoted, however long it waits.
    let left = left.filter(|left| !left.is_zero());
    left.unwrap_or(IDLE).min(IDLE)
}

async fn tell(set: &NodeSet, index: usize, now: Moment, left: Duration) {
    let Some(what) = set.voting.news_of(index, now) else {
        return;
    };
    let node = set.name_of(index);
    if what == Told::Incomplete {
        crate::trace::list_incomplete(node);
        return;
    }
    let (intact, _) = high_water(set, index).await;
    if set.voting.is_fresh(index, intact) {
        crate::trace::node_is_new(node, left);
    } else {
        crate::trace::node_quarantined(node, left, intact >= set.terms.quorum.needed());
    }
}

async fn promote(set: &NodeSet, index: usize, id: String) -> Duration {
    let Some(node) = set.nodes.get(index) else {
        return IDLE;
    };
    let (intact, mark) = high_water(set, index).await;
    let (tokens_lost, tell) = set.voting.lost_tokens(index, intact);
    // The operator's word that no lock is held may have ended meanwhile.
    if !set.voting.may_promote(index, set.clock.now()) {
        return IDLE;
    }
    let floor = if tokens_lost {
        // No node knows how high they have come. The clocks of others may be ahead of ours.
        let skew = u64::try_from(set.max_clock_skew.as_micros()).unwrap_or(u64::MAX);
        let latest = set.clock.unix_micros().saturating_add(skew);
        FencingToken::proposed_at(latest).max(mark)
    } else {
        mark
    };
    let config = Arc::clone(&set.config);
    let promotion = PromoteRequest {
        namespace: set.namespace.clone(),
        config,
        quarantine: id,
        floor,
    };
    match set.reply(node.promote(promotion)).await {
        Ok(true) => {
            if tell {
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

async fn high_water(set: &NodeSet, index: usize) -> (usize, Option<FencingToken>) {
    let others = (0..set.nodes.len()).filter(|other| *other != index);
    let mut replies = set.send(others, |node| check_in(set, node, CheckInMode::Normal));
    let mut deadline = pin!(sleep(set.node_timeout));
    let (mut intact, mut highest) = (0, None);
    while let Some((_, reply)) = replies.next_before(deadline.as_mut()).await {
        if let Ok(CheckInReply::Voting { high_water }) = reply {
            intact += 1;
            highest = highest.max(high_water);
        }
    }
    (intact, highest)
}

fn refused(set: &NodeSet, index: usize, command: &'static str, error: &NodeError) -> Duration {
    let is_lasting = matches!(
        error.kind(),
        NodeErrorKind::Rejected
            | NodeErrorKind::WrongType
            | NodeErrorKind::Misconfigured
            | NodeErrorKind::Garbled
    );
    if is_lasting && set.voting.note_refusal(index, command, error.clone()) {
        crate::trace::command_failed(set.name_of(index), command, error, 1, None);
    }
    // A fault that somebody must repair is asked about less often.
    if is_retryable(error) && !is_lasting {
        SOON
    } else {
        REPAIRED
    }
}

fn refuses_no_more(set: &NodeSet, index: usize, command: Option<&'static str>) {
    if let Some(command) = set.voting.clear_refusal(index, command) {
        crate::trace::vote_possible(set.name_of(index), command);
    }
}

/// How soon a node that did not answer is asked again.
const SOON: Duration = Duration::from_millis(50);
/// How soon a node that refused is asked again.
const REPAIRED: Duration = Duration::from_millis(200);
const CHECK_IN: &str = "check-in";
const PROMOTION: &str = "promotion";
