//! Cancellation: every public asynchronous operation is dropped at every point at which it waits, while nodes answer,
//! refuse, are slow, never answer, or lose their answers. Whatever it had begun, nothing is left behind: no key on any
//! node, no place in a queue, no task, no subscription.
//!
//! `census` holds the list of operations against the source of the crate: one that is new and is not dropped here fails
//! a test. Time is paused and nothing runs beside the test, so a failure can be had again; only owner tokens and the
//! jitter of delays are random.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, also in its helpers, and says what it counted"
)]

mod census;
mod gates;
mod guards;
mod locks;
mod managers;
#[path = "../support/requests.rs"]
mod node_requests;
mod requests;
mod runtimes;
mod scene;
mod suspended;
mod sweep;
mod values;
#[path = "../support/wrapper.rs"]
mod wrapper;

use sweep::{Operation, sweep};

/// All operations of this suite.
fn operations() -> Vec<Operation> {
    let all = [
        locks::operations(),
        locks::crowded(),
        guards::operations(),
        guards::runs(),
        managers::operations(),
        requests::operations(),
        requests::once(),
        values::operations(),
    ];
    all.into_iter().flatten().collect()
}

#[test]
fn a_call_for_a_lock_leaves_nothing_behind() {
    sweep(&locks::operations());
}

#[test]
fn a_call_among_others_leaves_nothing_behind() {
    sweep(&locks::crowded());
}

#[test]
fn the_end_of_a_lock_leaves_nothing_behind() {
    sweep(&guards::operations());
}

#[test]
fn idempotent_work_leaves_nothing_behind_but_its_result() {
    sweep(&guards::runs());
}

#[test]
fn what_a_manager_begins_and_ends_leaves_nothing_behind() {
    sweep(&managers::operations());
}

#[test]
fn a_request_under_a_lock_leaves_nothing_behind() {
    sweep(&requests::operations());
}

#[test]
fn a_request_with_an_idempotency_key_leaves_nothing_behind_but_its_response() {
    sweep(&requests::once());
}

#[test]
fn what_only_reads_a_request_leaves_nothing_behind() {
    sweep(&values::operations());
}
