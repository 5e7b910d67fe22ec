//! The behaviour that every store must have: one suite, run on each of them.
//!
//! A crate with a store implements [`Fixture`] and turns the list of checks into tests:
//!
//! ```text
//! macro_rules! tests {
//!     ($($group:ident: $($check:ident),+;)+) => { $($(
//!         #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
//!         async fn $check() { store_suite::run(stringify!($check), &MyFixture::new()).await; }
//!     )+)+ };
//! }
//! longshore_testkit::for_each_store_check!(tests);
//! ```
//!
//! [`replay`] is the body of the property test: any log, in any batches, with any snapshots.

mod adopted;
mod approvals;
mod asks;
pub mod calls;
mod children;
mod claims;
mod directories;
mod files;
mod idempotency;
mod listing;
mod log;
pub mod make;
mod property;
pub mod push;
mod restart;
mod retention;
mod sessions;
mod task;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use longshore_engine::port::Store;

pub use property::{Script, replay, script};

/// Makes the stores that the checks use.
pub trait Fixture: Send + Sync {
    /// An empty store. Called once.
    fn open(&self) -> Arc<dyn Store>;

    /// The same store after a restart of the gateway. A store that keeps nothing returns the same one.
    fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store>;
}

/// The one list of checks, by group. A check that is not listed is dead code, which the compiler reports.
#[macro_export]
macro_rules! for_each_store_check {
    ($with:ident) => {
        $with! {
            idempotency:
                the_same_send_makes_one_task,
                the_same_send_at_the_same_time_makes_one_task,
                a_key_counts_until_its_window_ends,
                the_same_key_of_another_owner_makes_another_task,
                a_task_without_a_send_has_no_key,
                a_joined_send_leads_to_its_task,
                a_noted_send_leads_to_its_task,
                a_task_id_is_used_once,
                a_task_begins_with_its_submission;
            log:
                events_are_numbered_without_gaps,
                a_wrong_expected_number_writes_nothing,
                one_of_concurrent_writers_wins,
                nothing_follows_a_terminal_event,
                an_invalid_batch_is_refused,
                an_unknown_task_is_not_found,
                many_tasks_are_written_at_once,
                a_reader_gets_the_events_after_its_cursor;
            task:
                a_foreign_task_is_not_found,
                the_head_follows_the_log,
                the_head_contains_the_accepted_output_modes,
                a_task_is_folded_to_its_head,
                the_newest_turn_is_kept;
            listing:
                the_newest_status_comes_first,
                filters_narrow_the_list_and_its_total,
                the_tasks_of_sub_agents_can_be_left_out,
                pages_neither_skip_nor_repeat_tasks,
                an_empty_page_has_the_total,
                a_list_is_correct_without_snapshots;
            sessions:
                a_context_is_bound_until_it_is_bound_again,
                a_context_name_is_unique_per_owner_only,
                a_session_stays_with_its_first_owner,
                contexts_may_share_a_session;
            claims:
                a_session_has_an_owner,
                the_owners_of_many_sessions_are_read_at_once,
                a_session_is_claimed_once,
                one_of_concurrent_claims_and_bindings_wins,
                the_contexts_of_a_session_come_newest_first,
                only_the_newest_contexts_of_a_session_are_listed,
                recently_used_sessions_come_first;
            adopted:
                an_adopted_turn_is_created_with_its_task,
                an_adopted_turn_is_one_task,
                an_adopted_turn_belongs_to_the_owner_of_its_session,
                adoptions_and_native_prompts_do_not_rebind_a_context,
                a_prompt_leads_to_its_task;
            directories:
                a_context_keeps_the_directory_of_its_first_task,
                a_session_brings_its_directory,
                a_session_does_not_move_its_context,
                one_of_concurrent_directories_wins;
            children:
                children_come_in_the_order_of_creation,
                a_child_is_a_task_like_any_other,
                a_child_belongs_to_a_root_of_its_owner_and_context;
            files:
                a_file_is_read_in_ranges,
                a_file_is_stored_once,
                only_its_owner_sees_a_file,
                an_invalid_file_is_refused,
                large_files_are_stored_while_tasks_go_on;
            asks:
                an_ask_is_opened_closed_and_opened_again,
                ask_changes_apply_in_order,
                only_an_open_ask_of_the_task_is_closed,
                an_owner_sees_only_their_own_open_asks,
                the_soonest_deadline_comes_first,
                a_task_lists_its_open_asks_oldest_first,
                a_refused_append_changes_no_ask,
                an_invalid_ask_is_refused,
                the_end_of_a_task_drops_its_open_asks,
                asks_survive_a_restart,
                old_closed_asks_are_removed_a_few_at_a_time;
            approvals:
                approvals_are_kept_for_their_owner_and_session_until_they_are_revoked,
                the_newest_approvals_of_a_session_are_kept,
                approvals_are_forgotten_with_their_context;
            restart:
                unfinished_tasks_come_in_the_order_of_creation,
                possibly_running_ended_turns_are_listed_newest_first,
                everything_survives_a_restart;
            retention:
                folding_a_log_does_not_change_the_task,
                a_long_log_is_folded_in_steps,
                an_unfinished_task_is_neither_folded_nor_removed,
                removing_a_task_removes_everything_that_belongs_to_it,
                subagent_tasks_are_removed_with_their_root_when_all_are_old,
                unreachable_keys_and_asks_are_removed;
        }
    };
}

/// Runs one check.
pub async fn run(name: &str, fixture: &dyn Fixture) {
    let (_, check) = CHECKS
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("the store suite has no check {name}"));
    check(fixture).await;
}

type Check = for<'a> fn(&'a dyn Fixture) -> BoxFuture<'a, ()>;

macro_rules! list_checks {
    ($($group:ident: $($check:ident),+;)+) => {
        const CHECKS: &[(&str, Check)] =
            &[$($((stringify!($check), |fixture| Box::pin($group::$check(fixture)))),+),+];
    };
}

for_each_store_check!(list_checks);

/// The checks of the half of a store that push notifications use. Like [`for_each_store_check`].
#[macro_export]
macro_rules! for_each_push_check {
    ($with:ident) => {
        $with! {
            push:
                a_configuration_is_kept_for_its_owner_until_it_is_deleted,
                a_configuration_of_a_send_is_stored_with_its_task,
                limits_count_what_may_still_be_sent,
                a_configuration_is_due_when_its_log_has_news_for_it,
                one_lease_counts_until_it_expires_or_its_configuration_changes,
                a_failed_event_waits_and_keeps_its_attempts,
                given_up_events_become_dead_letters,
                the_newest_dead_letters_of_a_configuration_are_kept,
                configurations_are_deleted_with_their_task,
                news_before_a_restart_are_due_after_it;
        }
    };
}

/// Runs one check of [`for_each_push_check`].
pub async fn run_push(name: &str, fixture: &dyn push::PushFixture) {
    let (_, check) = PUSH_CHECKS
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("the store suite has no check {name}"));
    check(fixture).await;
}

type PushCheck = for<'a> fn(&'a dyn push::PushFixture) -> BoxFuture<'a, ()>;

macro_rules! list_push_checks {
    ($($group:ident: $($check:ident),+;)+) => {
        const PUSH_CHECKS: &[(&str, PushCheck)] =
            &[$($((stringify!($check), |fixture| Box::pin($group::$check(fixture)))),+),+];
    };
}

for_each_push_check!(list_push_checks);
