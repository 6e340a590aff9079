//! Real processes, each with its own way to each of the servers: they are stopped, suspended, killed and cut off,
//! servers forget meanwhile, and the clocks of processes and servers are set and run wrong.
//!
//! While they hold a lock they count, with a fence and without. With the guard, holders exclude each other and all of
//! them go on; without it overlaps must be found. Whatever happens, the fenced counter loses nothing. The one without a
//! fence must be seen to lose something.

mod contender;
mod counters;
mod part;
mod process;
mod program;
mod records;
mod run;
mod scene;
mod site;
mod suspended;

use tokio::sync::Mutex;

use run::{assert_no_overlap, assert_only_the_fence_stops_the_late, assert_overlaps_are_found};
use scene::Scene;

/// Two such runs at once would be in each other's way. Beside one there may be one without processes: both wait most of
/// the time.
static ALONE: Mutex<()> = Mutex::const_new(());

scenes! {
    of_holders_that_act_late_only_the_fence_is_not_deceived:
        assert_only_the_fence_stops_the_late(Scene::Pauses);
    a_suspended_host_has_lost_its_locks_when_it_wakes_up: assert_no_overlap(Scene::Suspends);
    a_suspended_host_would_go_on_by_a_clock_that_stands_still: assert_overlaps_are_found(Scene::Suspends);
    clocks_that_run_wrong_are_borne_by_the_drift_that_is_allowed_for: assert_no_overlap(Scene::Rates);
    clocks_that_run_more_wrong_than_is_allowed_for_would_show: assert_overlaps_are_found(Scene::Rates);
    clocks_of_servers_that_are_set_forward_are_masked: assert_no_overlap(Scene::Steps);
    clocks_of_servers_that_are_set_forward_would_show: assert_overlaps_are_found(Scene::Steps);
    servers_that_forget_while_processes_are_stopped_are_masked: assert_no_overlap(Scene::Forgets);
    servers_that_forget_while_processes_are_stopped_would_show: assert_overlaps_are_found(Scene::Forgets);
}
