//! The restart guard against servers that forget: eight contenders with a short ttl, five real servers, and one kind
//! of amnesia after the other, inflicted on one node or on a majority at once while locks are held.
//!
//! Each scene runs twice. With the guard no two holders may ever overlap, and the work must go on. Without it overlaps
//! must be found: that shows that the scene, the contenders and the checker can find what they look for.
//!
//! [`processes`] does the same to real processes and to clocks.
//!
//! `REDLOCK_SOAK_SECONDS` is how long all of it takes, roughly; `make soak` sets it.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a panic is how a test fails, in its helpers too; the counts are for whoever reads the run"
)]

#[path = "../support/mod.rs"]
mod support;

mod checker;
mod clients;
mod cluster;
mod dice;
mod forwarder;
#[path = "../fencing/checker.rs"]
mod order;
mod processes;
mod run;
mod scene;

use std::time::Duration;

use tower_redlock::Settings;

use run::{assert_no_overlap, assert_overlaps_are_found};
use scene::Scene;

/// A contender that minds which nodes have forgotten. All contenders connect before the first lock is taken.
fn guarded(builder: Settings) -> Settings {
    // All clocks are one here.
    let builder = builder.bootstrap(true);
    builder.max_clock_skew(Duration::from_millis(10))
}

/// A contender that trusts every node. It holds its lock for longer than a server takes to come back on a busy machine,
/// or there would be nothing to forget.
fn unguarded(builder: Settings) -> Settings {
    let ttl = Duration::from_millis(1_500);
    let builder = builder.ttl(ttl).max_ttl(ttl);
    builder.without_restart_guard()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_overlaps_while_no_node_forgets() {
    assert_no_overlap(Scene::Calm, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_data_is_masked() {
    assert_no_overlap(Scene::KillRestartEmpty, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_data_would_show() {
    assert_overlaps_are_found(Scene::KillRestartEmpty, unguarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_is_masked() {
    assert_no_overlap(Scene::FlushAll, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_would_show() {
    assert_overlaps_are_found(Scene::FlushAll, unguarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_from_a_damaged_log_is_masked() {
    assert_no_overlap(Scene::AofRestart, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_from_a_damaged_log_would_show() {
    assert_overlaps_are_found(Scene::AofRestart, unguarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_replica_is_masked() {
    assert_no_overlap(Scene::ReplicaFailover, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_replica_would_show() {
    assert_overlaps_are_found(Scene::ReplicaFailover, unguarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_moves_is_masked() {
    assert_no_overlap(Scene::EndpointMoved, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_moves_would_show() {
    assert_overlaps_are_found(Scene::EndpointMoved, unguarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_copy_with_the_marker_is_masked() {
    assert_no_overlap(Scene::FailoverToPromoted, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_copy_with_the_marker_would_show() {
    assert_overlaps_are_found(Scene::FailoverToPromoted, unguarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_data_is_masked() {
    assert_no_overlap(Scene::OldData, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_data_would_show() {
    assert_overlaps_are_found(Scene::OldData, unguarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_while_processes_are_cut_off_is_masked() {
    assert_no_overlap(Scene::CutsAndForgetting, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_while_processes_are_cut_off_would_show() {
    assert_overlaps_are_found(Scene::CutsAndForgetting, unguarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_their_threads_and_servers_that_are_busy_change_nothing() {
    assert_no_overlap(Scene::BlockedThreads, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_list_with_a_node_in_common_is_kept_out() {
    assert_no_overlap(Scene::OverlappingLists, guarded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_list_would_show() {
    // Nobody can know of the others: with the guard, too.
    assert_overlaps_are_found(Scene::SeparateLists, guarded).await;
}
