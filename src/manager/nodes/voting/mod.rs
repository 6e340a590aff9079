//! Which nodes vote, and how a node that may have lost its data gets its vote back. A [`monitor`] asks each node
//! repeatedly. [`Roll`] is the rule as a value, and [`SharedRoll`] shares it between tasks.
//!
//! ```text
//!   unknown ─────► voting, quarantined, foreign    by its first answer
//!   voting ──────► quarantined                     a reply shows that it may have lost data
//!   quarantined ─► voting                          promoted: all leases that it may have forgotten have ended
//!   any ─────────► foreign                         it serves processes with another list
//!   foreign ─────► voting, quarantined             it accepts ours, for example because it was adopted
//! ```
//!
//! The rule is a delayed restart, timed by the clocks of the clients. A node that may have lost data answers a
//! *check-in* with the unique name of its quarantine: its identity, the digest of the config, and a random number. Each
//! process waits on its own clock, from its first sight of that name, for the [length of a
//! quarantine](crate::protocol::quorum::quarantine). The wait is longer for a server that witnesses confirm, and for a
//! node that was taken over from a list whose quarantines lasted longer. Then the process reads the high-water marks of
//! the nodes that vote, and ends the quarantine of that name. The highest mark becomes the floor of later fencing
//! tokens. If fewer than a quorum vote, the floor comes from the clock of the process and the skew of clocks.
//!
//! A node that was taken over keeps all nodes from granting until its quarantine is over. A *list* of nodes grants
//! nothing before each of its nodes has accepted the list once, nor while a node is known to serve another list. A
//! process that was stopped for a while may not know that yet, so a lock counts only if each node was asked at most two
//! seconds before the validity of the lock begins. Otherwise the nodes are [asked again](ask_again).

mod roll;
pub(crate) mod shared_roll;
pub(crate) mod status;

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::clock::Clock as _;
use crate::manager::error::NoQuorum;
use crate::manager::nodes::NodeSet;
use crate::manager::nodes::voting::roll::{IDLE, Logged, Origin, Quarantine, Roll, Tokens};
use crate::manager::nodes::voting::shared_roll::SharedRoll;
use crate::manager::nodes::voting::status::Replies;
use crate::manager::nodes::waiting::is_retryable;
use crate::moment::Moment;
use crate::node::{
    CheckInMode, CheckInReply, CheckInRequest, ClusterConfig, Node, NodeError, NodeErrorKind,
    NodeFuture, NodeState, PromoteRequest,
};
use crate::protocol::quorum::quarantine;
use crate::seam::for_pause;
use crate::token::FencingToken;

/// Called while a node is in quarantine, with the time at which that was first seen, and with the time now.
type Forgot<'a> = &'a (dyn Fn(Moment, Moment) + Sync);

pub(crate) async fn monitor(
    set: Weak<NodeSet>,
    voting: Arc<SharedRoll>,
    index: usize,
    forgot: impl Fn(Moment, Moment) + Sync,
) {
    let mut pause = Duration::ZERO;
    let mut connected: NodeFuture<Result<(), NodeError>> = Box::pin(pending());
    loop {
        tokio::select! {
            biased;
            () = voting.recheck_due(index) => {}
            _ = &mut connected => {}
            () = sleep(pause) => {}
        }
        let Some(set) = set.upgrade() else {
            return;
        };
        match ask(&set, index, &forgot).await {
            Some(next) => pause = next,
            None => return,
        }
        connected = match set.nodes.get(index) {
            Some(node) if node.state() == NodeState::Connecting => node.ready(),
            _ => Box::pin(pending()),
        };
    }
}

/// Does one check-in. Returns when to ask again, or `None` if never.
async fn ask(set: &NodeSet, index: usize, forgot: Forgot<'_>) -> Option<Duration> {
    let node = set.nodes.get(index)?;
    let mode = match set.observes {
        true => CheckInMode::Look,
        false => set.voting.at(index, |roll, node| roll.mode(node)),
    };
    let was_connecting = node.state() == NodeState::Connecting;
    set.voting.replies(index, Replies::begin);
    let sent = set.clock.now();
    match set.reply(check_in(set, &**node, mode)).await {
        Ok(reply) => {
            set.voting.replies(index, Replies::answered);
            runs(set, index, Some(CHECK_IN));
            if matches!(mode, CheckInMode::Adopt { .. }) {
                (set.voting).at(index, |roll, node| roll.adoption.pending.remove(&node));
            }
            Some(match apply(set, index, &**node, (reply, sent), forgot) {
                Some(found) => follow(set, index, &**node, found).await,
                None => IDLE,
            })
        }
        // The node was closed, and nobody opens it again. If it still takes commands, the error is wrong: ask again.
        Err(error) if error.kind() == NodeErrorKind::Closed && !set.is_up(index) => None,
        // The node is down, slow, or refuses the command. The roll keeps what it knew of the node until the node
        // answers again, but the failure keeps the node from counting.
        Err(error) => {
            let next = refused(set, index, CHECK_IN, &error);
            // If the node was never connected, the command has not reached it, and the error says nothing about it.
            if !was_connecting {
                set.voting.replies(index, |replies| replies.failed(error));
                set.voting.unanswered(index, sent);
            }
            Some(next)
        }
    }
}

fn check_in(
    set: &NodeSet,
    node: &dyn Node,
    mode: CheckInMode,
) -> NodeFuture<Result<CheckInReply, NodeError>> {
    node.check_in(request(set, node, mode))
}

fn request(set: &NodeSet, node: &dyn Node, mode: CheckInMode) -> CheckInRequest {
    CheckInRequest {
        namespace: set.namespace.clone(),
        config: Arc::clone(&set.config),
        quarantine: length(set, node),
        fresh: format!("{:016x}{:016x}", for_pause(), for_pause()),
        mode,
    }
}

/// Makes the nodes serve a config that no process has. Fails if the nodes that did not answer could still be a quorum.
pub(crate) async fn retire(
    set: &NodeSet,
    config: &Arc<ClusterConfig>,
    end: Instant,
) -> Result<(), NoQuorum> {
    let retire = |node: &dyn Node| {
        let former = Duration::ZERO;
        let request = request(set, node, CheckInMode::Adopt { former });
        let config = Arc::clone(config);
        node.check_in(CheckInRequest { config, ..request })
    };
    let mut missing: Vec<usize> = (0..set.nodes.len()).collect();
    loop {
        let (mut failed, mut ours) = (Vec::new(), Vec::new());
        for (node, reply) in replies(set, &missing, |it| check_in(set, it, CheckInMode::Look)).await
        {
            match reply {
                // This process has other settings than the service, so it cannot know how long the locks of the service
                // last.
                Ok(CheckInReply::Foreign { config, digest })
                    if ClusterConfig::successor(&config).is_none() =>
                {
                    let error = NodeError::foreign(&config, digest, &set.config.text);
                    return Err(set.without_quorum(vec![(node, error)]));
                }
                Ok(_) => ours.push(node),
                Err(error) => failed.push((node, error)),
            }
        }
        for (node, reply) in replies(set, &ours, retire).await {
            match reply {
                Ok(_) => missing.retain(|it| *it != node),
                Err(error) => failed.push((node, error)),
            }
        }
        if missing.is_empty() || Instant::now() >= end {
            let needed = set.terms.quorum.needed();
            return match missing.len() < needed {
                true => Ok(()),
                false => Err(set.without_quorum(failed)),
            };
        }
        sleep(SOON).await;
    }
}

async fn replies(
    set: &NodeSet,
    nodes: &[usize],
    ask: impl Fn(&dyn Node) -> NodeFuture<Result<CheckInReply, NodeError>>,
) -> Vec<(usize, Result<CheckInReply, NodeError>)> {
    let mut asked = set.send(nodes.iter().copied(), ask);
    let mut deadline = pin!(sleep(set.node_timeout));
    let mut replies = Vec::new();
    while let Some(reply) = asked.next_before(deadline.as_mut()).await {
        replies.push(reply);
    }
    replies
}

pub(crate) fn length(set: &NodeSet, node: &dyn Node) -> Duration {
    // Two successive promotions can take their floors from the clocks of two processes. If the second clock is behind,
    // it must have passed the first floor by then. So a quarantine lasts at least as long as the skew of clocks.
    let longest = set.terms.max_ttl.max(set.terms.max_clock_skew);
    quarantine(longest, node.settle_time(), set.terms.drift)
}

/// Asks the nodes of all groups once, because the monitors have not done so lately.
pub(crate) async fn ask_again(groups: &[Arc<NodeSet>]) {
    for set in groups {
        let sent = set.clock.now();
        let mut silent: Vec<usize> = (0..set.nodes.len()).collect();
        let ask = |it: &dyn Node| check_in(set, it, CheckInMode::Normal);
        for (index, reply) in replies(set, &silent.clone(), ask).await {
            if let (Ok(reply), Some(node)) = (reply, set.nodes.get(index)) {
                silent.retain(|it| *it != index);
                apply(set, index, &**node, (reply, sent), &|_, _| {});
            }
        }
        for index in silent {
            set.voting.unanswered(index, sent);
        }
    }
}

/// Applies what a node has answered to a check-in. Returns its quarantine, if it is in one.
fn apply(
    set: &NodeSet,
    index: usize,
    node: &dyn Node,
    (reply, sent): (CheckInReply, Moment),
    forgot: Forgot<'_>,
) -> Option<(Moment, String)> {
    if set
        .voting
        .at(index, |roll, node| roll.is_outdated(node, sent))
    {
        return None;
    }
    let now = set.clock.now();
    let mut in_quarantine = None;
    match reply {
        CheckInReply::Voting { .. } => votes(set, index),
        CheckInReply::Foreign { config, digest } => {
            let reason = crate::node::foreign_config(&config, &set.config.text);
            let event = |roll: &mut Roll, node| roll.foreign(node, reason.clone(), Some(digest));
            if set.voting.event(index, now, event) {
                crate::trace::node_foreign(set.name_of(index), &reason);
            }
        }
        CheckInReply::Quarantined {
            id,
            former,
            accepted,
            unused,
        } => {
            let found = Quarantine {
                id: id.clone(),
                since: now,
                length: length(set, node),
                origin: Origin::default(),
                former,
                accepted,
                unused,
                logged: Logged::default(),
            };
            let event = |roll: &mut Roll, node| {
                roll.quarantined(node, found);
                roll.quarantine(node).map(|known| known.since)
            };
            // If witnesses confirm the server of the node, each command already checks the identity of that server.
            // Then an extension now would tell nothing new.
            let since = set.voting.event(index, now, event);
            if let Some(since) = since.filter(|_| node.settle_time().is_zero()) {
                forgot(since, now);
            }
            in_quarantine = Some((now, id));
        }
    }
    set.voting.asked(index, sent);
    in_quarantine
}

fn votes(set: &NodeSet, index: usize) {
    runs(set, index, None);
    set.voting.replies(index, Replies::votes);
    match set.voting.event(index, set.clock.now(), Roll::voted) {
        // The quarantine was not logged when it began, so its end is not logged either.
        Some(quarantine) if quarantine.unused && quarantine.logged == Logged::Nothing => {}
        Some(quarantine) if quarantine.unused || quarantine.origin == Origin::New => {
            crate::trace::new_node_votes(set.name_of(index));
        }
        Some(_) => crate::trace::node_promoted(set.name_of(index)),
        None => {}
    }
}

async fn follow(set: &NodeSet, index: usize, node: &dyn Node, found: (Moment, String)) -> Duration {
    let (now, id) = found;
    if set.observes {
        return IDLE;
    }
    if (set.voting).at(index, |roll, node| roll.may_promote(node, now)) {
        return promote(set, index, node, id).await;
    }
    let left = set.voting.at(index, |roll, node| roll.left(node, now));
    if let Some(line) = set.voting.at(index, |roll, node| roll.next_line(node, now)) {
        log(set, index, line, left.unwrap_or_default()).await;
    }
    // If the wait is over and the node was not promoted, a node serves processes with another list. Nothing is promoted
    // while that lasts, so ask at the usual pace.
    let left = left.filter(|left| !left.is_zero());
    left.unwrap_or(IDLE).min(IDLE)
}

async fn log(set: &NodeSet, index: usize, line: Logged, left: Duration) {
    let node = set.name_of(index);
    if line == Logged::Incomplete {
        crate::trace::list_incomplete(node);
        return;
    }
    let (intact, _) = high_water(set, index).await;
    if (set.voting).at(index, |roll, node| roll.is_new(node, intact)) {
        crate::trace::node_is_new(node, left);
    } else {
        crate::trace::node_quarantined(node, left, intact >= set.terms.quorum.needed());
    }
}

async fn promote(set: &NodeSet, index: usize, node: &dyn Node, id: String) -> Duration {
    let (intact, mark) = high_water(set, index).await;
    let now = set.clock.now();
    let tokens = (set.voting).at(index, |roll, node| roll.promotion(node, intact, now));
    let floor = match tokens {
        None => return IDLE,
        Some(Tokens::Remembered) => mark,
        Some(Tokens::Lost { .. }) => latest(set).max(mark),
    };
    let promotion = PromoteRequest {
        namespace: set.namespace.clone(),
        config: Arc::clone(&set.config),
        quarantine: id,
        floor,
    };
    match set.reply(node.promote(promotion)).await {
        Ok(true) => {
            if tokens == Some(Tokens::Lost { warns: true }) {
                crate::trace::fencing_at_risk(node.name());
            }
            votes(set, index);
            IDLE
        }
        // Another process has promoted the node, or the node has lost its data again. Check in now to see which.
        Ok(false) => Duration::ZERO,
        Err(error) => refused(set, index, PROMOTION, &error),
    }
}

/// The highest fencing token that any process can have had, by our clock and the skew of clocks.
fn latest(set: &NodeSet) -> Option<FencingToken> {
    let skew = u64::try_from(set.terms.max_clock_skew.as_micros()).unwrap_or(u64::MAX);
    FencingToken::proposed_at(set.clock.unix_micros().saturating_add(skew))
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
            | NodeErrorKind::Full
            | NodeErrorKind::WrongType
            | NodeErrorKind::Misconfigured
            | NodeErrorKind::Garbled
    );
    let is_news = |roll: &mut Roll, node| roll.refuses(node, (command, error.clone()));
    if is_lasting && set.voting.at(index, is_news) {
        crate::trace::command_failed(set.name_of(index), command, error, 1);
    }
    // Ask less often if somebody must repair the fault.
    if is_retryable(error) && !is_lasting {
        SOON
    } else {
        REPAIRED
    }
}

fn runs(set: &NodeSet, index: usize, command: Option<&str>) {
    if let Some(command) = set.voting.at(index, |roll, node| roll.runs(node, command)) {
        crate::trace::vote_possible(set.name_of(index), command);
    }
}

const SOON: Duration = Duration::from_millis(50);
const REPAIRED: Duration = Duration::from_millis(200);
const CHECK_IN: &str = "check-in";
const PROMOTION: &str = "promotion";
