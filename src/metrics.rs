//! Counters, gauges and histograms through the crate [`metrics`](https://docs.rs/metrics) (feature `metrics`).
//!
//! Install a recorder before the first [`LockManager`](crate::LockManager) is built, because gauges count changes. The
//! metrics count all managers of a process together.
//!
//! | name | kind | label | meaning |
//! |---|---|---|---|
//! | `redlock_acquire_total` | counter | `outcome`: `acquired`, `replayed`, `contended`, `wait-timeout`, `queue-full`, `no-quorum`, `nodes-full`, `too-slow`, `shutting-down`, `lost`, `invalid-key`, `no-entropy`, `cancelled` | calls for a lock that have ended; `replayed`: the result was already stored, so no lock was needed; `cancelled`: the caller was dropped |
//! | `redlock_acquire_wait_seconds` | histogram | `outcome`: as above, except `invalid-key` | time from the call to its end |
//! | `redlock_rounds_total` | counter | `verdict`: `granted`, `contended`, `split`, `no-quorum`, `recorded`, `undecided` | rounds over the nodes; `undecided`: the wait ended first |
//! | `redlock_hold_seconds` | histogram | | time from the grant or hand-off to the release, hand-off or loss |
//! | `redlock_held` | gauge | | locks that guards hold, including lost locks |
//! | `redlock_waiting` | gauge | | callers that wait behind other callers of their process |
//! | `redlock_lost_total` | counter | `reason`: `expired`, `taken`, `max-hold`, `shutdown` | locks that ended before their guards, or were given up after [`lost`](crate::LockHandle::lost) had reported the end |
//! | `redlock_release_total` | counter | `outcome`: `released`, `unconfirmed`, `handed-on`, `lost` | holders that have ended; `unconfirmed`: too few nodes answered in time; `lost`: the lock had already been lost |
//! | `redlock_node_up` | gauge | `node` | 1 while the node takes commands, otherwise 0 |
//! | `redlock_node_voting` | gauge | `node` | 1 while the node's votes count, otherwise 0 |
//! | `redlock_without_quorum` | gauge | | managers that cannot grant locks, because too few nodes vote |
//! | `redlock_node_clock_skew_seconds` | gauge | `node` | how far the clock of a Redis node is ahead of this process; negative if it is behind |
//! | `redlock_node_memory_used_bytes` | gauge | `node` | memory that the node's Redis server uses |
//! | `redlock_node_memory_limit_bytes` | gauge | `node` | memory that the server may use (`maxmemory`); 0 without a limit |
//! | `redlock_node_credentials_stale` | gauge | `node` | 1 while the [credentials](crate::Settings::credentials) of a Redis node cannot be renewed, otherwise 0 |
//! | `redlock_rejected_total` | counter | `kind`: `invalid-key`, `misconfigured`, `contended`, `wait-timeout`, `queue-full`, `too-many-detached`, `no-quorum`, `nodes-full`, `lock-lost`, `shutting-down` | requests that a layer or an extractor refused or ended, and errors that a handler converted into a [`Rejection`](crate::layer::Rejection) |
//! | `redlock_idempotency_total` | counter | `outcome`: `run`, `replayed`, `unrecorded`, `without-record`, `missing-idempotency-key`, `invalid-idempotency-key`, `body-unreadable`, `caller-unknown`, `request-in-progress`, `wait-timeout`, `not-replayable`, `body-too-large`, `idempotency-key-reused`, `misconfigured`, `queue-full`, `buffers-full`, `too-many-detached`, `no-quorum`, `nodes-full`, `lock-lost`, `outcome-unknown`, `record-unreadable`, `shutting-down` | requests with an idempotency key; a request that was counted as `run` is counted again if it ends with another outcome |
//!
//! The first manager sets every counter to zero for each value of its label, so that `increase()` sees the first event. No
//! label contains a lock key or other text from a client.

/// Describes the metrics to the installed recorder, for exporters that show descriptions.
pub fn describe() {
    crate::instruments::describe();
}
