//! Counters, gauges and histograms: one function per change, so that names and labels are in one place. The table of
//! them is in the docs of the module `metrics`, which is there with the feature `metrics`; without it these functions
//! are empty.

#![cfg_attr(
    not(feature = "metrics"),
    expect(unused_variables, reason = "the instruments are compiled out")
)]

use std::time::Duration;

/// One call for a lock has come to its end.
pub(crate) fn acquired(outcome: &'static str, waited: Duration) {
    #[cfg(feature = "metrics")]
    {
        metrics::counter!("redlock_acquire_total", "outcome" => outcome).increment(1);
        metrics::histogram!("redlock_acquire_wait_seconds", "outcome" => outcome).record(waited);
    }
}

/// A call for a lock had an invalid key.
pub(crate) fn invalid_key() {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_acquire_total", "outcome" => "invalid-key").increment(1);
}

/// One round over the nodes is over.
pub(crate) fn round(verdict: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_rounds_total", "verdict" => verdict).increment(1);
}

/// One more lock is held.
pub(crate) fn held_more() {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_held").increment(1);
}

/// One lock less is held.
pub(crate) fn held_less() {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_held").decrement(1);
}

/// One holder's time is over.
pub(crate) fn held_for(time: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("redlock_hold_seconds").record(time);
}

/// One more caller waits in line.
pub(crate) fn waiting_more() {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_waiting").increment(1);
}

/// One caller less waits in line.
pub(crate) fn waiting_less() {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_waiting").decrement(1);
}

/// A lock ended before its guard, or was given up for its end.
pub(crate) fn lost(reason: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_lost_total", "reason" => reason).increment(1);
}

/// A holder has released its lock.
pub(crate) fn released(outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_release_total", "outcome" => outcome).increment(1);
}

/// The present state of a node.
#[cfg(feature = "metrics")]
pub(crate) fn node(name: &str, up: bool, voting: bool) {
    let number = |yes| if yes { 1.0 } else { 0.0 };
    metrics::gauge!("redlock_node_up", "node" => name.to_owned()).set(number(up));
    metrics::gauge!("redlock_node_voting", "node" => name.to_owned()).set(number(voting));
}

/// A layer or an extractor refused a request, or ended it.
pub(crate) fn rejected(kind: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_rejected_total", "kind" => kind).increment(1);
}

/// The result of a request with an idempotency key.
#[cfg(feature = "idempotency")]
pub(crate) fn idempotency(outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_idempotency_total", "outcome" => outcome).increment(1);
}
