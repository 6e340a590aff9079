//! What the crate tells `tracing`: one function per event, so that names, levels and fields stand in one place.
//!
//! Without the feature `tracing` they are empty. No event holds an owner token, a password or a client's text
//! other than the lock key.

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "the events are compiled out")
)]

use std::fmt::Display;

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
