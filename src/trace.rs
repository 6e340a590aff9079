//! What the crate tells `tracing`: one function per event, so that names, levels and fields stand in one place.
//!
//! Without the feature `tracing` they are empty. No event holds an owner token, a password or a client's text
//! other than the lock key.

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "the events are compiled out")
)]

use std::fmt::Display;
use std::time::Duration;

/// A node did not answer when the manager connected, and a quorum did.
pub(crate) fn node_missing(node: &str, reason: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(node, %reason, "a node does not answer; going on with the quorum that does");
}

/// A node changed its state.
#[cfg(feature = "redis")]
pub(crate) fn node_changed(node: &str, state: &str, reason: &dyn Display) {
    #[cfg(feature = "tracing")]
    if state == "up" {
        tracing::info!(node, state, "node is up");
    } else {
        tracing::warn!(node, state, %reason, "node is not up");
    }
}

/// A node does not let us listen to releases. Said once for each node.
#[cfg(feature = "redis")]
pub(crate) fn notices_unavailable(node: &str, reason: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        node,
        reason,
        "a node does not let us listen to releases; who waits for a lock asks again now and then instead"
    );
}

/// A node may have forgotten its locks and begins to sit them out.
pub(crate) fn node_quarantined(node: &str, wait: Duration, remembered: bool) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        node,
        ?wait,
        remembered,
        "a node restarted or lost its data; it does not vote until the locks that it may have forgotten have ended"
    );
}

/// A quarantine is over.
pub(crate) fn node_promoted(node: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(node, "a node votes again");
}

/// A node was let in although fewer than a quorum of others remember how high the fencing tokens have come.
pub(crate) fn fencing_at_risk(node: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(
        node,
        "a node votes again with the clock in place of its lost fencing tokens, for fewer than a quorum remember theirs; they may repeat if clocks differ by more than max_clock_skew"
    );
}

/// A node serves processes with another charter.
pub(crate) fn node_foreign(node: &str, reason: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(node, reason, "a node cannot serve this process");
}

/// A lock ended while its guard was still alive.
pub(crate) fn lock_lost(key: &str, reason: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::error!(key, %reason, "lock lost");
}

/// A node refused a command that it should have run.
pub(crate) fn command_failed(node: &str, command: &str, reason: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(node, command, %reason, "a node refused a command");
}

/// A key was left on a node until its ttl ends.
pub(crate) fn left_to_expire(key: &str, reason: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        key,
        reason,
        "a lock could not be released everywhere; its ttl ends it"
    );
}

/// The layer refused a request, or ended it. `reason` may name nodes.
pub(crate) fn rejected(kind: &str, reason: &dyn Display) {
    #[cfg(feature = "tracing")]
    if kind == "no-quorum" {
        tracing::warn!(kind, %reason, "request rejected");
    } else {
        tracing::debug!(kind, %reason, "request rejected");
    }
}

/// `work`, with what it says in the caller's span.
pub(crate) fn in_span<F: Future>(work: F) -> impl Future<Output = F::Output> {
    #[cfg(feature = "tracing")]
    return tracing::Instrument::in_current_span(work);
    #[cfg(not(feature = "tracing"))]
    work
}
