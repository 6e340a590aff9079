//! One function for each change of a metric. Without the feature `metrics` they are empty.

#![cfg_attr(
    not(feature = "metrics"),
    expect(unused_variables, reason = "the instruments are compiled out")
)]

use std::time::Duration;

#[cfg(feature = "metrics")]
use metrics::Unit::{self, Count, Seconds};

#[cfg(feature = "metrics")]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[cfg(feature = "metrics")]
use Kind::{Counter, Gauge, Histogram};

/// Kind, name, unit and description of a metric; for a counter also its label, and the values of the label.
#[cfg(feature = "metrics")]
type Metric = (
    Kind,
    &'static str,
    Option<Unit>,
    &'static str,
    &'static str,
    &'static str,
);

#[cfg(feature = "metrics")]
#[rustfmt::skip]
const METRICS: &[Metric] = &[
    (Counter, "redlock_acquire_total", Some(Count), "Calls for a lock that came to an end.", "outcome",
        "acquired replayed contended wait-timeout queue-full no-quorum nodes-full too-slow shutting-down lost invalid-key \
         no-entropy cancelled"),
    (Histogram, "redlock_acquire_wait_seconds", Some(Seconds), "From the call for a lock to its end.", "", ""),
    (Counter, "redlock_rounds_total", Some(Count), "Rounds over the nodes.", "verdict",
        "granted contended split no-quorum recorded undecided"),
    (Histogram, "redlock_hold_seconds", Some(Seconds), "How long locks were held.", "", ""),
    (Gauge, "redlock_held", Some(Count), "Locks that guards hold.", "", ""),
    (Gauge, "redlock_waiting", Some(Count), "Callers in line behind others of their process.", "", ""),
    (Counter, "redlock_lost_total", Some(Count), "Locks that ended before their guards.", "reason",
        "expired taken max-hold shutdown"),
    (Counter, "redlock_release_total", Some(Count), "Ends of holders.", "outcome",
        "released unconfirmed handed-on lost"),
    (Gauge, "redlock_node_up", None, "Whether the node takes commands.", "", ""),
    (Gauge, "redlock_node_voting", None, "Whether the node's votes count towards the quorum.", "", ""),
    (Gauge, "redlock_without_quorum", Some(Count),
        "Managers that can grant no lock, because too few nodes vote.", "", ""),
    (Gauge, "redlock_node_clock_skew_seconds", Some(Seconds),
        "By how much the clock of the node is ahead of this process's.", "", ""),
    (Gauge, "redlock_node_memory_used_bytes", Some(Unit::Bytes), "How much memory the server of the node uses.", "", ""),
    (Gauge, "redlock_node_memory_limit_bytes", Some(Unit::Bytes),
        "How much memory the server of the node may use (`maxmemory`); zero without a limit.", "", ""),
    (Gauge, "redlock_node_credentials_stale", None,
        "Whether the credentials of the node could not be renewed.", "", ""),
    (Counter, "redlock_rejected_total", Some(Count), "Requests that a layer refused or ended.", "kind",
        "invalid-key misconfigured contended wait-timeout queue-full too-many-detached no-quorum nodes-full \
         lock-lost shutting-down"),
    #[cfg(feature = "idempotency")]
    (Counter, "redlock_idempotency_total", Some(Count), "Requests with an idempotency key.", "outcome",
        "run replayed unrecorded without-record missing-idempotency-key invalid-idempotency-key body-unreadable caller-unknown \
         request-in-progress wait-timeout not-replayable body-too-large idempotency-key-reused misconfigured \
         queue-full buffers-full too-many-detached no-quorum nodes-full lock-lost outcome-unknown record-unreadable shutting-down"),
];

#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    for (kind, name, unit, about, ..) in METRICS {
        match (kind, unit) {
            (Counter, Some(unit)) => describe_counter!(*name, *unit, *about),
            (Gauge, Some(unit)) => describe_gauge!(*name, *unit, *about),
            (Histogram, Some(unit)) => describe_histogram!(*name, *unit, *about),
            (Counter, None) => describe_counter!(*name, *about),
            (Gauge, None) => describe_gauge!(*name, *about),
            (Histogram, None) => describe_histogram!(*name, *about),
        }
    }
}

/// Creates the counters and gauges when a manager starts, so that alarms can see their first change.
pub(crate) fn at_zero() {
    #[cfg(feature = "metrics")]
    for (_, name, _, _, label, words) in METRICS {
        for word in words.split_whitespace() {
            metrics::counter!(*name, *label => word).increment(0);
        }
    }
    // Add zero instead of setting zero, because other managers may already have changed these gauges.
    #[cfg(feature = "metrics")]
    for name in ["redlock_held", "redlock_waiting", "redlock_without_quorum"] {
        metrics::gauge!(name).increment(0);
    }
}

pub(crate) fn acquired(outcome: &'static str, waited: Duration) {
    #[cfg(feature = "metrics")]
    {
        metrics::counter!("redlock_acquire_total", "outcome" => outcome).increment(1);
        metrics::histogram!("redlock_acquire_wait_seconds", "outcome" => outcome).record(waited);
    }
}

pub(crate) fn invalid_key() {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_acquire_total", "outcome" => "invalid-key").increment(1);
}

pub(crate) fn round(verdict: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_rounds_total", "verdict" => verdict).increment(1);
}

pub(crate) fn held_more() {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_held").increment(1);
}

pub(crate) fn held_less() {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_held").decrement(1);
}

pub(crate) fn held_for(time: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("redlock_hold_seconds").record(time);
}

pub(crate) fn waiting_more() {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_waiting").increment(1);
}

pub(crate) fn waiting_less() {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_waiting").decrement(1);
}

pub(crate) fn lost(reason: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_lost_total", "reason" => reason).increment(1);
}

pub(crate) fn released(outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_release_total", "outcome" => outcome).increment(1);
}

#[cfg(feature = "metrics")]
pub(crate) fn node(name: &str, up: bool, voting: bool) {
    let number = |yes| if yes { 1.0 } else { 0.0 };
    metrics::gauge!("redlock_node_up", "node" => name.to_owned()).set(number(up));
    metrics::gauge!("redlock_node_voting", "node" => name.to_owned()).set(number(voting));
}

/// Counts one manager that can grant no lock, until it is dropped.
#[cfg(feature = "metrics")]
pub(crate) struct WithoutQuorum(());

#[cfg(feature = "metrics")]
impl WithoutQuorum {
    pub(crate) fn new() -> Self {
        metrics::gauge!("redlock_without_quorum").increment(1);
        Self(())
    }
}

#[cfg(feature = "metrics")]
impl Drop for WithoutQuorum {
    fn drop(&mut self) {
        metrics::gauge!("redlock_without_quorum").decrement(1);
    }
}

#[cfg(feature = "redis")]
pub(crate) fn clock_skew(name: &str, ahead: f64) {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_node_clock_skew_seconds", "node" => name.to_owned()).set(ahead);
}

#[cfg(feature = "redis")]
pub(crate) fn memory(name: &str, used: u64, limit: u64) {
    #[cfg(feature = "metrics")]
    {
        let gauge = |metric: &'static str| metrics::gauge!(metric, "node" => name.to_owned());
        gauge("redlock_node_memory_used_bytes").set(used as f64);
        gauge("redlock_node_memory_limit_bytes").set(limit as f64);
    }
}

#[cfg(feature = "redis")]
pub(crate) fn credentials_stale(name: &str, stale: bool) {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_node_credentials_stale", "node" => name.to_owned())
        .set(f64::from(u8::from(stale)));
}

pub(crate) fn rejected(kind: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_rejected_total", "kind" => kind).increment(1);
}

pub(crate) fn idempotency(outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_idempotency_total", "outcome" => outcome).increment(1);
}
