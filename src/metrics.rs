//! What the crate counts and measures, through the crate [`metrics`](https://docs.rs/metrics) (feature `metrics`).
//!
//! Install a recorder before the first [`LockManager`](crate::LockManager) is built: gauges go up and down by one, so a
//! later recorder starts from the wrong number. All managers of a process count together. The example `metrics`
//! shows a service that Prometheus can scrape.
//!
//! | name | kind | label | meaning |
//! |---|---|---|---|
//! | `redlock_acquire_total` | counter | `outcome`: `acquired`, `replayed`, `contended`, `wait-timeout`, `queue-full`, `no-quorum`, `too-slow`, `shutting-down`, `lost`, `invalid-key`, `no-entropy`, `cancelled` | calls for a lock that came to an end; `replayed`: the result was stored already, and no lock was needed; `cancelled`: the caller went away |
//! | `redlock_acquire_wait_seconds` | histogram | `outcome`: as above, except `invalid-key` | from the call to its end |
//! | `redlock_rounds_total` | counter | `verdict`: `granted`, `contended`, `split`, `no-quorum`, `recorded`, `undecided` | rounds over the nodes; `undecided`: the wait ended first |
//! | `redlock_hold_seconds` | histogram | | from the grant, or the hand-off, to the end: a release, a hand-off, or a loss |
//! | `redlock_held` | gauge | | locks that guards hold, lost ones among them |
//! | `redlock_waiting` | gauge | | callers in line behind others of their process |
//! | `redlock_lost_total` | counter | `reason`: `expired`, `taken`, `lender`, `max-hold`, `shutdown` | locks that ended before their guards, or were given up because [`lost`](crate::LockHandle::lost) told of the end |
//! | `redlock_release_total` | counter | `outcome`: `released`, `unconfirmed`, `handed-on`, `lost`, `returned` | ends of holders; `unconfirmed`: too few nodes answered in time; `lost`: the lock had been lost before; `returned`: it was borrowed |
//! | `redlock_node_up` | gauge | `node` | 1 while the node takes commands, else 0, as when its manager is gone; looked at every second |
//! | `redlock_node_voting` | gauge | `node` | 1 while the node's votes count, 0 while it is down, failing, quarantined, unknown or foreign; looked at every second |
//! | `redlock_rejected_total` | counter | `kind`: as in [`RejectionKind`](crate::middleware::RejectionKind) | requests that a layer or an extractor refused or ended |
//! | `redlock_idempotency_total` | counter | `outcome`: `run`, `replayed`, `unrecorded`, and the kinds of `IdempotencyRejection` | requests with an idempotency key; one that `run` may end otherwise, and counts for that too |
//!
//! No label holds a lock key or anything else that a client sent. How many time series there are is bounded by these
//! words and the number of nodes.

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

/// Describes the instruments to the recorder, for exporters that show descriptions. To be called once the recorder is
/// installed.
#[cfg(feature = "metrics")]
pub fn describe() {
    use metrics::{
        Unit::{Count, Seconds},
        describe_counter, describe_gauge, describe_histogram,
    };
    describe_counter!(
        "redlock_acquire_total",
        Count,
        "Calls for a lock that came to an end."
    );
    describe_histogram!(
        "redlock_acquire_wait_seconds",
        Seconds,
        "From the call for a lock to its end."
    );
    describe_counter!("redlock_rounds_total", Count, "Rounds over the nodes.");
    describe_histogram!("redlock_hold_seconds", Seconds, "How long locks were held.");
    describe_gauge!("redlock_held", Count, "Locks that guards hold.");
    describe_gauge!(
        "redlock_waiting",
        Count,
        "Callers in line behind others of their process."
    );
    describe_counter!(
        "redlock_lost_total",
        Count,
        "Locks that ended before their guards."
    );
    describe_counter!("redlock_release_total", Count, "Ends of holders.");
    describe_gauge!("redlock_node_up", "Whether the node takes commands.");
    describe_gauge!(
        "redlock_node_voting",
        "Whether the node's votes count towards the quorum."
    );
    describe_counter!(
        "redlock_rejected_total",
        Count,
        "Requests that a layer refused or ended."
    );
    describe_counter!(
        "redlock_idempotency_total",
        Count,
        "Requests with an idempotency key."
    );
}
