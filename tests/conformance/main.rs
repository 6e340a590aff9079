//! One suite of claims about the `Node` port, run over every kind of node: real servers, started for each claim.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
mod support;

mod claims;
mod configs;
mod ends;
mod fencing_tokens;
mod holders;
mod keeping;
mod marks;
mod readers;
mod records;
mod slots;
mod standing;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::clock::{Clock as _, SystemClock};
use tower_redlock::node::*;
use tower_redlock::{FencingToken, LockKey};

use crate::claims::*;
use crate::fencing_tokens::*;
use crate::records::*;
use crate::standing::*;
use crate::support::nodes::*;
use crate::support::requests::*;
use crate::support::resp::Raw;
use crate::support::server::{Kind, Server};
use crate::support::{PATIENCE, eventually};

/// A node on a server of its own.
struct Real {
    server: Server,
    node: LiveNode,
    // Only there to acknowledge.
    _replica: Option<Server>,
}

impl Real {
    async fn start(kind: Kind) -> Self {
        let server = Server::start(kind, &[]);
        let node = ready(&server.url()).await;
        Self {
            server,
            node,
            _replica: None,
        }
    }

    /// The same with a replica that must acknowledge.
    async fn replicated(kind: Kind) -> Self {
        let server = Server::start(kind, &[]);
        let replica = Server::replica_of(&server, &[]);
        let builder = RedisNode::new(&server.url()).require(1);
        let node = builder.within(PATIENCE).build().unwrap();
        let mut context = context();
        context.node_timeout = 2 * PATIENCE;
        node.start(context);
        settled(&node).await.unwrap();
        Self {
            server,
            node,
            _replica: Some(replica),
        }
    }
}

/// Once it is dropped, the server no longer counts it.
struct Listener(Raw);

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.0.end();
    }
}

impl Bench for Real {
    const REMOTE: bool = true;

    fn node(&self) -> Arc<dyn Node> {
        Arc::new(self.node.clone())
    }

    fn forget(&self) {
        self.server.run("FLUSHALL");
    }

    fn listen(&self, name: &str) -> Box<dyn Send> {
        Box::new(Listener(
            self.server.subscribe(&key(name).channel().concat()),
        ))
    }
}

impl Remote for Real {
    fn set_forever(&self, name: &str) {
        self.server.command(&["SET", key(name).as_str(), "foreign"]);
    }

    fn command(&self, words: &[&str]) -> String {
        self.server.command(words)
    }

    fn disconnect(&self) {
        let ended = self.server.run("CLIENT KILL TYPE normal");
        assert_ne!(ended, "0", "it was not connected");
    }
}

impl Bench for MemoryNode {
    const REMOTE: bool = false;

    fn node(&self) -> Arc<dyn Node> {
        Arc::new(self.clone())
    }

    fn forget(&self) {
        Self::forget(self);
    }

    fn listen(&self, name: &str) -> Box<dyn Send> {
        Box::new(Notifier::subscribe(
            self,
            &key(name),
            NoticeReceiver::new(1).sender(0),
        ))
    }
}

/// A started node in this process.
fn memory() -> MemoryNode {
    let node = MemoryNode::new("memory");
    node.start(context());
    node
}

/// What a claim is about: a node, or a bench with ways around it.
macro_rules! subject {
    (node $bench:ident) => {
        &*$bench.node()
    };
    (bench $bench:ident) => {
        &$bench
    };
}

/// Makes a module of tests, one per claim, each over a fresh bench.
macro_rules! hold {
    ($module:ident, $bench:expr, $($claims:ident($of:ident): [$($claim:ident,)*])*) => {
        mod $module {
            use super::*;

            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $claim() {
                    let bench = $bench;
                    $claims::$claim(subject!($of bench)).await;
                }
            )*)*
        }
    };
}

macro_rules! all_claims {
    ($($module:ident: $bench:expr;)*) => {
        $(
            hold!($module, $bench, claims(node): [
                a_free_key_is_granted_and_a_held_one_refused_with_its_rest,
                a_refusal_of_several_tells_which_of_them_is_held,
                a_tag_tells_holders_apart,
                a_lock_ends_with_its_ttl,
                only_the_owner_releases,
                a_listener_hears_of_a_release,
                a_release_that_is_not_announced_tells_nobody,
                of_two_listeners_to_one_key_each_hears_until_it_leaves,
                an_own_lock_is_granted_again_or_extended_for_a_full_ttl,
                an_absent_lock_is_left_absent_unless_refilled,
                anothers_lock_is_neither_extended_nor_refilled,
                an_extension_that_lost_one_of_its_keys_leaves_the_others,
                a_batch_is_answered_in_order,
                nothing_happens_before_the_first_poll,
                a_label_is_a_part_of_the_owner,
            ] claims(bench): [
                a_release_tells_its_listeners,
                a_dropped_acquire_and_a_release_leave_no_key,
            ] fencing_tokens(node): [
                a_grant_counts_one_step_up_or_to_the_proposal,
                a_refused_acquire_counts_nothing,
                a_missing_counter_counts_as_the_highest_there_ever_was,
                a_counter_may_be_kept_for_ever,
                a_proposal_of_a_clock_that_is_far_ahead_is_not_looked_at,
                a_raise_counts_up_and_never_down_where_the_lock_is_owned,
                a_raise_for_a_lock_that_is_not_owned_does_nothing,
                several_keys_get_one_token,
                an_extend_raises_lower_counters,
                a_refill_writes_the_counter,
                a_late_grant_leaves_no_token_below_the_mark,
                no_digit_is_lost,
                nothing_is_counted_unless_asked,
            ] fencing_tokens(bench): [
                a_counter_is_kept_for_as_long_as_was_asked,
            ] standing(node): [
                a_release_on_the_same_connection_is_no_farewell,
            ] standing(bench): [
                a_quarantine_keeps_its_name_until_it_is_over,
                a_promotion_raises_the_mark_and_never_lowers_it,
                a_node_that_forgets_again_is_back_in_quarantine,
                a_node_in_quarantine_is_written_and_does_not_count,
                a_node_in_quarantine_releases,
            ] slots(node): [
                of_any_keys_the_first_that_is_free_is_granted_and_no_other,
                where_all_of_any_keys_are_held_the_one_that_ends_first_is_told,
                of_any_keys_the_counter_of_the_granted_one_counts,
            ] slots(bench): [
                a_node_in_quarantine_grants_none_of_any_keys,
            ] readers(node): [
                readers_have_a_key_together_and_nobody_beside_them,
                readers_are_one_holder_to_everybody_else,
                each_reader_ends_by_itself_and_only_its_own_end_is_set,
                only_the_last_reader_frees_the_key_and_announces_it,
                a_waiting_writer_stops_new_readers_and_no_others,
                a_reader_comes_back_where_it_is_missing_and_beside_nobody_else,
                readers_and_writers_count_on_from_each_other,
                operators_see_readers_and_take_the_key_from_all,
            ] readers(bench): [
                a_reader_of_a_node_in_quarantine_is_written_and_does_not_count,
            ] holders(node): [
                each_key_is_told_with_its_holder,
                a_holder_is_told_with_its_fencing_token,
                a_stored_result_is_told_by_its_end_alone,
                a_scan_tells_the_locks_and_nothing_else,
                all_pages_of_a_scan_are_all_keys,
                a_key_is_taken_from_the_owner_that_was_seen_and_from_no_other,
            ] holders(bench): [
                an_owner_whose_key_was_taken_sets_it_no_more,
                an_owner_is_buried_whatever_kind_of_lock_was_taken,
                a_look_changes_nothing,
            ] marks(node): [
                where_no_number_is_left_nothing_is_granted,
            ] marks(bench): [
                a_promotion_s_floor_counts_for_keys_with_lower_counters,
                a_node_in_quarantine_raises_nothing,
                a_promotion_to_where_no_number_is_left_is_refused,
            ] configs(bench): [
                a_node_under_another_config_refuses_and_shows_both,
                a_node_that_changed_its_config_refuses_the_one_before,
                an_unguarded_process_keeps_to_its_config,
                what_writes_another_format_is_refused_with_both,
                a_node_that_is_taken_over_tells_how_long_quarantines_lasted_before,
            ] records(node): [
                what_was_recorded_is_told_to_the_byte,
                a_recall_of_what_is_under_way_is_held,
                a_record_is_adopted_under_a_higher_number,
                nothing_is_recorded_behind_another_s_back,
                an_overrun_lock_does_not_matter_while_nobody_came,
                the_same_completion_twice_does_nothing_more,
                of_two_ballots_the_higher_stays,
                nothing_is_recorded_under_a_lower_ballot_than_was_promised,
                a_chosen_record_is_kept_whoever_came,
                without_a_record_the_key_is_free_again,
            ] ends(node): [
                a_record_is_kept_until_its_end,
                a_record_keeps_its_end_whoever_writes_it_again,
                the_end_is_that_of_the_record_which_is_there,
                nothing_is_kept_that_has_ended,
                a_record_that_has_ended_is_no_obstacle_to_a_lower_ballot,
                a_grant_tells_what_the_clock_shows,
            ] keeping(node): [
                a_grant_is_remembered_for_as_long_as_was_asked,
            ] keeping(bench): [
                a_completion_tells_its_listeners,
                a_node_in_quarantine_keeps_nothing_of_its_own_and_releases,
                a_record_on_a_node_in_quarantine_is_not_told,
                records_stay_within_their_config,
            ]);
        )*
    };
}

/// What only a server can show.
macro_rules! remote_claims {
    ($($module:ident: $bench:expr;)*) => {
        $(
            hold!($module, $bench, claims(bench): [
                a_foreign_key_without_expiry_has_no_remaining_time,
                an_acquire_that_is_dropped_once_executed_leaves_no_key,
                a_closed_node_says_so,
            ] marks(bench): [
                a_counter_that_is_no_number_is_written_over,
                a_mark_that_is_no_number_refuses,
            ] readers(bench): [
                a_release_that_was_given_up_keeps_a_reader_out,
                what_is_written_by_hand_is_no_reader,
                without_memory_readers_go_on_and_no_new_one_comes,
            ] standing(bench): [
                what_comes_late_on_an_old_connection_is_void,
            ] configs(bench): [
                a_format_that_says_nothing_else_is_refused_too,
            ] keeping(bench): [
                a_recall_that_comes_late_is_void,
                what_is_no_record_is_left_alone,
                what_was_granted_before_a_promotion_is_not_kept_after_it,
                where_there_is_no_lock_nothing_is_recalled,
                without_memory_nothing_is_kept_and_the_lock_is_given_back,
            ] ends(bench): [
                a_record_takes_no_room_after_its_end,
            ]);
        )*
    };
}

all_claims! {
    memory: memory();
    redis: Real::start(Kind::Redis).await;
    valkey: Real::start(Kind::Valkey).await;
    replicated: Real::replicated(Kind::Redis).await;
}

remote_claims! {
    remote_redis: Real::start(Kind::Redis).await;
    remote_valkey: Real::start(Kind::Valkey).await;
}
