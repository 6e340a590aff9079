//! One function for each event and span of `tracing`. Without the feature they are empty. The guide has the same list
//! (`docs::operating`), and a test compares them.
//!
//! Values are recorded as strings, because subscribers put strings in quotes. `times` and `refused` count since the last
//! event of the same kind.

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "the events are compiled out")
)]

use std::fmt::Display;
use std::time::Duration;

/// Replaces the macros of `tracing`, and computes no field.
#[cfg(not(feature = "tracing"))]
mod tracing {
    macro_rules! silent {
        ($($fields:tt)*) => {};
    }
    pub(super) use {silent as debug, silent as error, silent as info, silent as warn};
}

pub(crate) fn node_missing(node: &str, reason: &dyn Display) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        reason = &*reason.to_string(),
        "a node does not answer; going on with the quorum that does"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn node_changed(node: &str, state: &str, reason: &dyn Display) {
    #[cfg(feature = "tracing")]
    if state == "up" {
        tracing::info!(target: "tower_redlock::node", node, state, "node is up");
    } else {
        tracing::warn!(target: "tower_redlock::node", node, state, reason = &*reason.to_string(), "node is not up");
    }
}

#[cfg(feature = "redis")]
pub(crate) fn notices_unavailable(node: &str, reason: &str) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        reason,
        "a node does not let us listen to releases; waiting callers ask the nodes from time to time instead"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn credentials_stale(node: &str, reason: &str) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        reason,
        "the credentials of a node could not be renewed; its connections continue with the old credentials"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn credentials_renewed(node: &str) {
    tracing::info!(target: "tower_redlock::node", node, "the credentials of a node are renewed again");
}

pub(crate) fn node_quarantined(node: &str, wait: Duration, remembered: bool) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        ?wait,
        remembered,
        "a node restarted, lost its data or was adopted; it does not vote until the locks that it may have forgotten have ended"
    );
}

pub(crate) fn list_incomplete(node: &str) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        "a node does not vote before every node has accepted this list once; `redlock status` shows which have not"
    );
}

pub(crate) fn node_is_new(node: &str, wait: Duration) {
    tracing::info!(
        target: "tower_redlock::node",
        node,
        ?wait,
        "a node is new or emptied; it votes once locks that it may have forgotten have ended"
    );
}

pub(crate) fn new_node_votes(node: &str) {
    tracing::info!(
        target: "tower_redlock::node",
        node,
        "a new or emptied node votes; its fencing tokens go on from the clock"
    );
}

pub(crate) fn waits_for_votes(ready_in: Duration, verdict: &dyn Display) {
    tracing::info!(
        target: "tower_redlock::node",
        ?ready_in,
        verdict = &*verdict.to_string(),
        "waiting until a quorum votes; if no lock can be held, for example on new servers, `bootstrap` avoids the wait"
    );
}

pub(crate) fn node_promoted(node: &str) {
    tracing::info!(target: "tower_redlock::node", node, "a node votes again");
}

pub(crate) fn fencing_at_risk(node: &str) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        "a node votes again with the clock in place of its lost fencing tokens, because fewer than a quorum remember theirs; tokens may repeat if clocks differ by more than a second"
    );
}

pub(crate) fn node_foreign(node: &str, reason: &str) {
    tracing::error!(target: "tower_redlock::node", node, reason, "a node cannot serve this process");
}

pub(crate) fn lock_lost(key: &str, reason: &dyn Display) {
    tracing::error!(target: "tower_redlock::lock", key, reason = &*reason.to_string(), "lock lost");
}

pub(crate) fn command_failed(node: &str, command: &str, reason: &dyn Display, times: u64) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        command,
        reason = &*reason.to_string(),
        times,
        "a node refused a command"
    );
}

pub(crate) fn command_runs(node: &str, command: &str, refused: u64) {
    tracing::info!(target: "tower_redlock::node", node, command, refused, "a node runs a command again that it had refused");
}

pub(crate) fn vote_possible(node: &str, command: &str) {
    tracing::info!(target: "tower_redlock::node", node, command, "a node no longer refuses a command that its vote needs");
}

pub(crate) fn left_to_expire(key: &str, reason: &str, times: u64) {
    tracing::warn!(
        target: "tower_redlock::lock",
        key,
        reason,
        times,
        "a lock could not be released everywhere; its ttl ends it"
    );
}

/// `reason` names nodes.
pub(crate) fn no_quorum(reason: &dyn Display, times: u64) {
    tracing::warn!(
        target: "tower_redlock::lock",
        reason = &*reason.to_string(),
        times,
        "locks are refused, because too few nodes vote, answer in time and have room"
    );
}

/// `reason` names nodes.
#[cfg(feature = "idempotency")]
pub(crate) fn runs_without_record(reason: &dyn Display, times: u64) {
    tracing::warn!(
        target: "tower_redlock::idempotency",
        reason = &*reason.to_string(),
        times,
        "requests run without a record on the nodes; only the database excludes a second effect"
    );
}

pub(crate) fn quorum_again(refused: u64) {
    tracing::info!(
        target: "tower_redlock::lock",
        refused,
        "enough nodes vote and answer again, and locks are granted"
    );
}

/// `by` and `ahead` are in seconds.
#[cfg(feature = "redis")]
pub(crate) fn clock_set(node: &str, by: f64, ahead: f64) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        by,
        ahead,
        "the clock of a node was set"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn identity_asked(node: &str) {
    tracing::info!(
        target: "tower_redlock::node",
        node,
        "the server has replicas or was promoted; each command reads its identity from now on"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn nodes_on_one_server(node: &str, other: &str) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        other,
        "two slots of the cluster that are nodes have the same master, and go down together; move one of them"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn no_identity(node: &str) {
    tracing::warn!(
        target: "tower_redlock::node",
        node,
        "a node does not tell which server it is; after a restart or a failover it may grant a lock that is still held"
    );
}

#[cfg(all(feature = "redis", feature = "idempotency"))]
pub(crate) fn no_append_only_file(node: &str) {
    tracing::warn!(
        target: "tower_redlock::idempotency",
        node,
        "a node keeps no append-only file; its restart forgets stored responses, and repeats run again"
    );
}

/// The level is only `debug`, because every request can be rejected. `reason` can name nodes.
pub(crate) fn rejected(kind: &str, reason: &dyn Display) {
    tracing::debug!(target: "tower_redlock::layer", kind, reason = &*reason.to_string(), "request rejected");
}

pub(crate) fn idempotency_rejected(kind: &str, reason: &dyn Display) {
    tracing::debug!(target: "tower_redlock::idempotency", kind, reason = &*reason.to_string(), "request rejected");
}

pub(crate) fn misconfigured(route: &str, reason: &str) {
    tracing::error!(
        target: "tower_redlock::layer",
        route,
        reason,
        "requests are answered 500 because of a mistake in the program"
    );
}

#[cfg(feature = "idempotency")]
pub(crate) fn refusal_kept(kind: &str) {
    tracing::warn!(
        target: "tower_redlock::idempotency",
        kind,
        "a refusal is kept as the response to an idempotency key, because it is not marked as not processed"
    );
}

pub(crate) fn acquire(
    key: &str,
    outcome: &str,
    wait: Duration,
    nodes: Option<&str>,
    reason: Option<&dyn Display>,
) {
    tracing::debug!(
        target: "tower_redlock::lock",
        key,
        outcome,
        ?wait,
        nodes,
        reason = reason.map(ToString::to_string).as_deref(),
        "acquire"
    );
}

/// Whether the event [`acquire`] is enabled. If not, callers need not compute its fields.
pub(crate) fn hears_acquire() -> bool {
    #[cfg(feature = "tracing")]
    return tracing::enabled!(target: "tower_redlock::lock", tracing::Level::DEBUG);
    #[cfg(not(feature = "tracing"))]
    false
}

#[derive(Debug)]
pub(crate) struct AcquireSpan(#[cfg(feature = "tracing")] tracing::Span);

impl AcquireSpan {
    /// Makes the span of a call. Computes `key` only if the span is enabled.
    pub(crate) fn new(key: impl FnOnce() -> String) -> Self {
        #[cfg(feature = "tracing")]
        return Self(
            if tracing::span_enabled!(target: "tower_redlock::lock", tracing::Level::DEBUG) {
                let nothing = tracing::field::Empty;
                tracing::debug_span!(target: "tower_redlock::lock", "acquire", key = key(), outcome = nothing, nodes = nothing)
            } else {
                tracing::Span::none()
            },
        );
        #[cfg(not(feature = "tracing"))]
        Self()
    }

    pub(crate) fn around<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        #[cfg(feature = "tracing")]
        return tracing::Instrument::instrument(work, self.0.clone());
        #[cfg(not(feature = "tracing"))]
        {
            let Self() = self;
            work
        }
    }

    pub(crate) fn end(&self, outcome: &str, nodes: &str) {
        #[cfg(feature = "tracing")]
        self.0.record("outcome", outcome).record("nodes", nodes);
        #[cfg(not(feature = "tracing"))]
        let Self() = self;
    }
}

pub(crate) fn not_extended(key: &str, node: &str, reason: &dyn Display) {
    tracing::debug!(
        target: "tower_redlock::lock",
        key,
        node,
        reason = &*reason.to_string(),
        "a node did not extend a lock"
    );
}

/// The span of the caller that acquired a lock. Events of the lock in the background belong to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller(#[cfg(feature = "tracing")] Option<tracing::Span>);

impl Caller {
    pub(crate) fn current() -> Self {
        Self(
            #[cfg(feature = "tracing")]
            Some(tracing::Span::current()),
        )
    }

    pub(crate) fn tell(&self, tell: impl FnOnce()) {
        #[cfg(feature = "tracing")]
        if let Some(span) = &self.0 {
            return span.in_scope(tell);
        }
        #[cfg(not(feature = "tracing"))]
        let Self() = self;
        tell();
    }

    pub(crate) fn around<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        #[cfg(feature = "tracing")]
        return {
            let span = self.0.clone().unwrap_or_else(tracing::Span::none);
            tracing::Instrument::instrument(work, span)
        };
        #[cfg(not(feature = "tracing"))]
        {
            let Self() = self;
            work
        }
    }
}

pub(crate) fn in_span<F: Future>(work: F) -> impl Future<Output = F::Output> {
    #[cfg(feature = "tracing")]
    return tracing::Instrument::in_current_span(work);
    #[cfg(not(feature = "tracing"))]
    work
}
