//! [`NodeSet`]: the nodes of a manager, or of one of its groups, and the terms under which they are asked.

pub(crate) mod counting;
pub(crate) mod fanout;
pub(crate) mod repeats;
pub(crate) mod voting;
pub(crate) mod waiting;

use std::fmt::Display;
use std::sync::Arc;
#[cfg(tower_redlock_tests)]
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::clock::Clock;
use crate::manager::error::{NoQuorum, NodeFailure};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::repeats::{Repeats, Trouble};
use crate::manager::nodes::voting::shared_roll::SharedRoll;
use crate::manager::nodes::voting::status::Replies;
use crate::namespace::Namespace;
use crate::node::{
    ClusterConfig, ExtendReply, Fence, Node, NodeError, NodeErrorKind, NodeFuture, NodeState,
};
use crate::protocol::on_nodes::Landed;
use crate::protocol::quorum::{Drift, Quorum};
use crate::token::{FencingToken, Label};

#[derive(Debug)]
pub(crate) struct NodeSet {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) namespace: Namespace,
    // Whether the manager only looks whether nodes vote, without changing anything on them.
    pub(crate) observes: bool,
    // The label that nodes store next to our owner tokens.
    pub(crate) instance: Label,
    // The node list and the settings that each node must accept.
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) terms: CommonTerms,
    pub(crate) node_timeout: Duration,
    pub(crate) connecting: Connecting,
    pub(crate) voting: Arc<SharedRoll>,
    #[cfg(tower_redlock_tests)]
    pub(crate) fences: Fences,
    pub(crate) repeats: Repeats,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonTerms {
    pub(crate) quorum: Quorum,
    pub(crate) drift: Drift,
    // No process has a longer lease than this.
    pub(crate) max_ttl: Duration,
    pub(crate) max_clock_skew: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Connecting {
    pub(crate) began: Instant,
    pub(crate) timeout: Duration,
}

/// How many fencing tokens the nodes agreed on in one round trip, and how many took a second one.
#[cfg(tower_redlock_tests)]
#[derive(Debug, Default)]
pub(crate) struct Fences {
    pub(crate) agreed: AtomicU64,
    pub(crate) written_back: AtomicU64,
}

impl NodeSet {
    pub(crate) fn send<T>(
        &self,
        to: impl IntoIterator<Item = usize>,
        command: impl Fn(&dyn Node) -> NodeFuture<T>,
    ) -> Fanout<T> {
        let nodes = to.into_iter();
        Fanout::new(nodes.filter_map(|index| Some((index, command(&**self.nodes.get(index)?)))))
    }

    pub(crate) fn send_all<T>(&self, command: impl Fn(&dyn Node) -> NodeFuture<T>) -> Fanout<T> {
        self.send(0..self.nodes.len(), command)
    }

    pub(crate) async fn reply<T>(
        &self,
        command: NodeFuture<Result<T, NodeError>>,
    ) -> Result<T, NodeError> {
        let reply = timeout(self.node_timeout, command).await;
        reply.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// The error if nothing may be granted or extended, because a node serves processes with another list.
    pub(crate) fn disagreement(&self) -> Option<NoQuorum> {
        self.voting.is_blocked().then(|| NoQuorum {
            retry_after: self.quorum_in().filter(|_| !self.voting.serves_others()),
            disagreed: true,
            failures: self.voting.blocking(self.clock.now()),
            ..self.without_quorum(Vec::new())
        })
    }

    pub(crate) fn no_quorum(&self, failures: Vec<(usize, NodeError)>) -> NoQuorum {
        self.disagreement()
            .unwrap_or_else(|| self.without_quorum(failures))
    }

    pub(crate) fn without_quorum(&self, mut failures: Vec<(usize, NodeError)>) -> NoQuorum {
        failures.sort_by_key(|(node, _)| *node);
        let failure = |(node, error)| self.failure(node, error);
        NoQuorum {
            needed: self.terms.quorum.needed(),
            nodes: self.nodes.len(),
            failures: failures.into_iter().map(failure).collect(),
            retry_after: self.quorum_in(),
            disagreed: false,
        }
    }

    pub(crate) fn failure(&self, node: usize, error: NodeError) -> NodeFailure {
        // The node knows only that it is quarantined. This process also knows for how long.
        let is_vague = error.kind() == NodeErrorKind::Quarantined;
        let explain = || self.voting.explain(node, self.clock.now());
        let explained = is_vague.then(explain).flatten();
        NodeFailure::new(self.name_of(node), explained.unwrap_or(error))
    }

    pub(crate) fn name_of(&self, node: usize) -> &str {
        self.nodes.get(node).map_or("?", |node| node.name())
    }

    pub(super) fn quorum_in(&self) -> Option<Duration> {
        self.until_quorum().filter(|wait| !wait.is_zero())
    }

    /// The time until a quorum of the nodes that take commands votes.
    pub(super) fn until_quorum(&self) -> Option<Duration> {
        let (voting, now) = (&self.voting, self.clock.now());
        let waits = voting.until_votes(now, |node| self.is_up(node));
        waits.into_iter().nth(self.terms.quorum.needed() - 1)
    }

    pub(crate) fn is_up(&self, node: usize) -> bool {
        let node = self.nodes.get(node);
        node.is_some_and(|node| node.state() == NodeState::Up)
    }

    pub(crate) fn up(&self) -> usize {
        (0..self.nodes.len()).filter(|n| self.is_up(*n)).count()
    }

    /// Waits until every node was asked once which processes it serves.
    pub(crate) async fn all_asked(&self) {
        if self.voting.were_all_asked() {
            return;
        }
        let connecting = self.connecting.timeout.min(FIRST_CONNECTION);
        let connecting = connecting.saturating_sub(self.connecting.began.elapsed());
        let asking = connecting.max(self.node_timeout);
        self.voting.all_asked(asking, self.node_timeout).await;
    }

    pub(crate) fn heard(&self, node: usize, error: &NodeError) {
        self.voting.heard(node, error, self.clock.now());
    }

    pub(crate) fn ran(&self, node: usize) {
        self.voting.replies(node, Replies::ran);
    }

    pub(crate) fn refused(&self, node: usize, name: &'static str, error: &NodeError) {
        if error.kind() == NodeErrorKind::Foreign {
            self.heard(node, error);
        }
        self.tell_refusal(node, name, error);
    }

    pub(crate) fn log_refusal(&self, node: usize, name: &'static str, error: &NodeError) {
        if matches!(
            error.kind(),
            NodeErrorKind::Rejected
                | NodeErrorKind::Full
                | NodeErrorKind::FullForRecords
                | NodeErrorKind::WrongType
                | NodeErrorKind::Misconfigured
                | NodeErrorKind::Foreign
        ) {
            self.tell_refusal(node, name, error);
        }
    }

    pub(crate) fn timed_out(&self) -> NodeError {
        no_answer(self.node_timeout)
    }

    pub(crate) fn proposal(&self, keep: Duration) -> Option<Fence> {
        // If the clock gives no valid token, propose the lowest one: the nodes go on from the tokens that they have.
        let token = FencingToken::proposed_at(self.clock.unix_micros()).or(FencingToken::new(1))?;
        Some(Fence { token, keep })
    }
}

impl NodeSet {
    pub(crate) fn tell_refusal(&self, node: usize, command: &'static str, error: &NodeError) {
        let trouble = Trouble::Refused(node, command);
        if let Some(times) = self.repeats.count(trouble, self.clock.now()) {
            crate::trace::command_failed(self.name_of(node), command, error, times);
        }
    }

    pub(crate) fn tell_run(&self, node: usize, command: &'static str) {
        let trouble = Trouble::Refused(node, command);
        if let Some(refused) = self.repeats.end(trouble, || self.clock.now()) {
            crate::trace::command_runs(self.name_of(node), command, refused);
        }
    }

    pub(crate) fn left_to_expire(&self, key: &str, reason: &'static str) {
        if let Some(times) = self.repeats.count(Trouble::Left(reason), self.clock.now()) {
            crate::trace::left_to_expire(key, reason, times);
        }
    }

    pub(crate) fn quorum_missed(&self, error: &dyn Display) {
        if let Some(times) = self.repeats.count(Trouble::NoQuorum, self.clock.now()) {
            crate::trace::no_quorum(error, times);
        }
    }

    #[cfg(feature = "idempotency")]
    pub(crate) fn runs_without_record(&self, error: &dyn Display) {
        if let Some(times) = self.repeats.count(Trouble::WithoutRecord, self.clock.now()) {
            crate::trace::runs_without_record(error, times);
        }
    }

    pub(crate) fn quorum_answered(&self) {
        if let Some(refused) = self.repeats.end(Trouble::NoQuorum, || self.clock.now()) {
            crate::trace::quorum_again(refused);
        }
    }
}

impl NodeSet {
    /// How an extension has landed. Also records what the reply says about the node.
    pub(crate) fn after_extend(
        &self,
        node: usize,
        several: bool,
        reply: &Result<ExtendReply, NodeError>,
    ) -> Landed {
        let (fence, key) = (None, 0);
        match reply {
            Ok(ExtendReply::Extended | ExtendReply::Refilled) => {
                self.ran(node);
                self.tell_run(node, "extend");
                Landed::Ours { fence, key }
            }
            Ok(ExtendReply::Quarantined) => {
                self.voting.recheck(node);
                // If this server has replaced another one, other processes may still count the former server. The node
                // would have two votes if this reply counted, too.
                let node = self.nodes.get(node);
                if node.is_some_and(|node| node.settle_time().is_zero()) {
                    Landed::InQuarantine(self.clock.now())
                } else {
                    // Our token is on the node, but counts only once the node votes again.
                    Landed::Abandoned
                }
            }
            Ok(ExtendReply::Absent) => Landed::Absent,
            Ok(ExtendReply::Held(_)) if several => Landed::Partly,
            Ok(ExtendReply::Held(holder)) => Landed::Anothers(*holder),
            Err(error) => {
                self.heard(node, error);
                self.log_refusal(node, "extend", error);
                // If one of several keys has another type, the node has already set the keys before that one.
                if error.kind() == NodeErrorKind::WrongType {
                    return Landed::Abandoned;
                }
                of_error(error)
            }
        }
    }
}

impl Drop for NodeSet {
    fn drop(&mut self) {
        // Wake the monitors, so that they see that the nodes are gone, and end.
        self.voting.recheck_all();
    }
}

pub(crate) const fn of_error(error: &NodeError) -> Landed {
    if error.may_have_run() {
        Landed::Abandoned
    } else {
        Landed::NoEffect
    }
}

pub(crate) fn no_answer(limit: Duration) -> NodeError {
    NodeError::new(
        NodeErrorKind::TimedOut,
        format!("no answer within {limit:?}"),
    )
}

const FIRST_CONNECTION: Duration = Duration::from_secs(1);
pub(crate) const LOOK: Duration = Duration::from_secs(1);
