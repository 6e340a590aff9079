//! The restart guard against servers that forget: eight contenders with a short ttl, five real servers, and one kind
//! of amnesia after the other, inflicted on one node or on a majority at once while locks are held.
//!
//! Most scenes run twice. With the guard, no two holders may ever overlap, and the work must go on. Without it, overlaps or
//! fencing tokens that fall back must be found, which shows that the scene, its contenders and its checker can find them.
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

/// A test of each claim of a scene.
macro_rules! scenes {
    ($($name:ident: $claim:ident($($scene:expr),*);)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $claim($($scene),*).await;
        }
    )*};
}

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

scenes! {
    nobody_overlaps_while_no_node_forgets: assert_no_overlap(Scene::Calm, guarded);
    a_restart_without_data_is_masked: assert_no_overlap(Scene::KillRestartEmpty, guarded);
    a_restart_without_data_would_show: assert_overlaps_are_found(Scene::KillRestartEmpty, unguarded);
    a_flush_is_masked: assert_no_overlap(Scene::FlushAll, guarded);
    a_flush_would_show: assert_overlaps_are_found(Scene::FlushAll, unguarded);
    a_restart_from_a_damaged_log_is_masked: assert_no_overlap(Scene::AofRestart, guarded);
    a_restart_from_a_damaged_log_would_show: assert_overlaps_are_found(Scene::AofRestart, unguarded);
    a_failover_to_a_replica_is_masked: assert_no_overlap(Scene::ReplicaFailover, guarded);
    a_failover_to_a_replica_would_show: assert_overlaps_are_found(Scene::ReplicaFailover, unguarded);
    an_endpoint_that_moves_is_masked: assert_no_overlap(Scene::EndpointMoved, guarded);
    an_endpoint_that_moves_would_show: assert_overlaps_are_found(Scene::EndpointMoved, unguarded);
    a_failover_to_a_copy_with_the_marker_is_masked: assert_no_overlap(Scene::FailoverToPromoted, guarded);
    a_failover_to_a_copy_with_the_marker_would_show:
        assert_overlaps_are_found(Scene::FailoverToPromoted, unguarded);
    old_data_is_masked: assert_no_overlap(Scene::OldData, guarded);
    old_data_would_show: assert_overlaps_are_found(Scene::OldData, unguarded);
    forgetting_while_processes_are_cut_off_is_masked: assert_no_overlap(Scene::CutsAndForgetting, guarded);
    forgetting_while_processes_are_cut_off_would_show:
        assert_overlaps_are_found(Scene::CutsAndForgetting, unguarded);
    handlers_that_block_their_threads_and_servers_that_are_busy_change_nothing:
        assert_no_overlap(Scene::BlockedThreads, guarded);
}
