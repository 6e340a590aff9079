//! Counters, gauges and histograms through the crate [`metrics`](https://docs.rs/metrics) (feature `metrics`).
//!
//! Install a recorder before the first [`LockManager`](crate::LockManager) is built: gauges go up and down by one. All
//! managers of a process count together.
//!
//! | name | kind | label | meaning |
//! |---|---|---|---|
//! | `redlock_acquire_total` | counter | `outcome`: `acquired`, `replayed`, `contended`, `wait-timeout`, `queue-full`, `no-quorum`, `too-slow`, `shutting-down`, `lost`, `invalid-key`, `no-entropy`, `cancelled` | calls for a lock that came to an end; `replayed`: the result was stored already, and no lock was needed; `cancelled`: the caller went away |
//! | `redlock_acquire_wait_seconds` | histogram | `outcome`: as above, except `invalid-key` | from the call to its end |
//! | `redlock_rounds_total` | counter | `verdict`: `granted`, `contended`, `split`, `no-quorum`, `recorded`, `undecided` | rounds over the nodes; `undecided`: the wait ended first |
//! | `redlock_hold_seconds` | histogram | | from the grant, or the hand-off, to the end: a release, a hand-off, or a loss |
//! | `redlock_held` | gauge | | locks that guards hold, lost ones among them |
//! | `redlock_waiting` | gauge | | callers in line behind others of their process |
//! | `redlock_lost_total` | counter | `reason`: `expired`, `taken`, `max-hold`, `shutdown` | locks that ended before their guards, or were given up because [`lost`](crate::LockHandle::lost) told of the end |
//! | `redlock_release_total` | counter | `outcome`: `released`, `unconfirmed`, `handed-on`, `lost` | ends of holders; `unconfirmed`: too few nodes answered in time; `lost`: the lock had been lost before, or was given up because its end was told |
//! | `redlock_node_up` | gauge | `node` | 1 while the node takes commands, else 0, as when its manager is gone; looked at every second |
//! | `redlock_node_voting` | gauge | `node` | 1 while the node's votes count, 0 while it is down, failing, quarantined, unknown or foreign; looked at every second |
//! | `redlock_without_quorum` | gauge | | managers that can grant no lock now: too few nodes vote; looked at every second |
//! | `redlock_node_clock_skew_seconds` | gauge | `node` | by how much a Redis node's clock is ahead of this process's (behind it: less than 0); looked at every second while the node is up |
//! | `redlock_node_memory_used_bytes` | gauge | `node` | how much memory the Redis server of the node uses; looked at every second while the node is up |
//! | `redlock_node_memory_limit_bytes` | gauge | `node` | how much memory that server may use (`maxmemory`); 0 without a limit |
//! | `redlock_node_credentials_stale` | gauge | `node` | 1 while the [credentials](crate::Settings::credentials) of a Redis node cannot be renewed, so that its connections go on with those before; else 0, also without a callback |
//! | `redlock_rejected_total` | counter | `kind`: `invalid-key`, `misconfigured`, `contended`, `wait-timeout`, `queue-full`, `too-many-detached`, `no-quorum`, `nodes-full`, `lock-lost`, `shutting-down` | requests that a layer or an extractor refused or ended, and each [`Rejection`](crate::layer::Rejection) that a handler makes of an error, as of that of [`run`](crate::LockManager::run) |
//! | `redlock_idempotency_total` | counter | `outcome`: `run`, `replayed`, `unrecorded`, `without-record`, `missing-idempotency-key`, `invalid-idempotency-key`, `body-unreadable`, `caller-unknown`, `request-in-progress`, `wait-timeout`, `not-replayable`, `body-too-large`, `idempotency-key-reused`, `misconfigured`, `queue-full`, `buffers-full`, `too-many-detached`, `no-quorum`, `nodes-full`, `lock-lost`, `outcome-unknown`, `record-unreadable`, `shutting-down` | requests with an idempotency key; one that `run` may end otherwise, and counts for that too |
//!
//! The first manager sets every counter to zero, under each of its words, so that `increase()` sees the first event. No
//! label holds a lock key or other text of a client.

/// Describes the instruments to the installed recorder, for exporters that show descriptions.
pub fn describe() {
    crate::instruments::describe();
}
