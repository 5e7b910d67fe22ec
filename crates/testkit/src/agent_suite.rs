//! The behaviour that every agent must have: one suite, run on each implementation of `engine::port::Agent`.
//!
//! An implementation is wrapped in an [`AgentUnderTest`], which scripts the agent behind it, and turns the list of checks into
//! tests:
//!
//! ```text
//! macro_rules! tests {
//!     ($($group:ident: $($check:ident),+;)+) => { $($(
//!         #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
//!         async fn $check() { agent_suite::run(stringify!($check), &MyAgent::start()).await; }
//!     )+)+ };
//! }
//! longshore_testkit::for_each_agent_check!(tests);
//! ```

mod asks;
mod bounds;
mod cancel;
mod death;
mod long;
mod port;
mod reply;
mod restart;
mod running;
mod scripted;
mod sessions;
mod steering;
mod turns;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use longshore_engine::port::Agent;

pub use reply::{Reply, Step};
pub use scripted::ScriptedUnderTest;

/// Long enough for a loaded machine; no check waits for it unless it fails.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// An implementation of the port, and the agent behind it, which does what the check scripts.
pub trait AgentUnderTest: Send + Sync + Debug {
    fn abilities(&self) -> Abilities;

    /// The implementation as the current gateway process has it.
    fn agent(&self) -> Arc<dyn Agent>;

    /// What the agent does with a prompt. Each prompt takes the oldest reply that is left.
    fn reply_with(&self, reply: Reply);

    /// Everything that the agent received, in order.
    fn received(&self) -> Vec<Received>;

    /// Ends the agent as `kill -9` does. Returns when it is dead and the gateway's side has noticed. The agent can then be started
    /// again, and is if the gateway's side does not start it.
    fn kill(&self) -> BoxFuture<'_, ()>;

    /// Ends the gateway's side without a word to the agent about its turns, and starts it again. The agent itself lives on if it can
    /// live without the gateway.
    fn restart_gateway(&self) -> BoxFuture<'_, ()>;

    /// Ends the gateway's side. Panics if a background task or a process is left.
    fn stop(&self) -> BoxFuture<'_, ()>;
}

/// What only some agents can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each one is an ability of its own")]
pub struct Abilities {
    /// A message can join a running turn.
    pub steers: bool,
    /// A turn goes on while the gateway restarts, and is followed again.
    pub resumes: bool,
    /// The agent keeps its sessions when its process ends.
    pub keeps_sessions: bool,
    /// A session that does not exist is refused.
    pub checks_sessions: bool,
    /// When the agent dies, the driver reports the end of the tool calls that ran.
    pub closes_tools_of_the_dead: bool,
}

/// What an agent received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    Prompt { session: String, text: String },
    Cancel { session: String },
    Answer { is_allowed: bool },
}

/// The one list of checks, by group. A check that is not listed is dead code, which the compiler reports.
#[macro_export]
macro_rules! for_each_agent_check {
    ($with:ident) => {
        $with! {
            turns:
                a_reply_comes_whole_in_order_and_ends_once,
                a_reply_without_text_ends,
                text_is_not_changed_on_its_way,
                a_long_chunk_comes_whole,
                thoughts_and_text_are_different_blocks,
                tool_calls_come_between_the_texts_around_them,
                many_tool_calls_keep_their_outputs,
                the_prompt_arrives_once_as_it_was_sent,
                turns_of_a_session_follow_each_other,
                a_failure_of_the_agent_fails_the_turn_with_its_reason,
                garbage_does_not_change_the_turn,
                a_turn_that_nobody_reads_any_more_goes_on;
            asks:
                an_allowed_tool_runs,
                a_rejected_tool_does_not_run,
                asks_of_one_turn_are_answered_one_after_the_other,
                a_second_answer_finds_no_ask,
                an_answer_after_the_end_finds_no_ask,
                an_answer_to_an_unknown_ask_finds_no_ask,
                concurrent_answers_are_one_answer;
            cancel:
                a_cancel_before_any_prompt_changes_nothing,
                a_cancel_before_the_first_word_ends_the_turn,
                a_cancel_during_the_text_keeps_what_was_said,
                a_cancel_with_an_open_ask_closes_the_ask,
                a_cancel_of_a_running_tool_closes_its_call,
                a_cancel_after_the_end_changes_nothing,
                two_cancels_end_the_turn_once,
                a_cancel_and_the_end_at_the_same_time_end_the_turn_once,
                a_cancel_stops_only_its_session,
                a_prompt_right_after_a_cancel_waits_for_its_end,
                an_unread_turn_can_be_canceled;
            death:
                an_agent_that_died_while_idle_takes_the_next_prompt,
                a_death_before_the_first_word_fails_the_turn,
                a_death_during_the_text_keeps_what_was_said,
                a_death_with_an_open_ask_closes_the_ask,
                a_death_while_a_tool_runs_closes_its_call,
                a_death_fails_the_turns_of_all_sessions,
                a_death_after_a_cancel_ends_the_turn_once,
                a_death_of_an_unread_turn_loses_nothing_that_was_reported,
                an_agent_dies_again_and_again;
            restart:
                a_restart_of_the_gateway_during_the_text_ends_truthfully,
                a_restart_of_the_gateway_with_an_open_ask_ends_truthfully,
                a_turn_that_ended_while_the_gateway_was_down_ends_truthfully,
                a_prompt_that_was_never_sent_is_not_sent_by_a_resume,
                the_session_goes_on_after_a_restart_of_the_gateway;
            steering:
                a_message_joins_the_running_turn_or_is_refused,
                a_message_after_the_end_is_refused;
            sessions:
                sessions_do_not_mix,
                asks_of_two_sessions_do_not_mix,
                many_sessions_work_at_once,
                an_unknown_session_is_gone_and_nothing_is_prompted,
                a_healthy_agent_passes_its_check;
            bounds:
                an_unread_turn_is_bounded_and_loses_nothing,
                an_unread_turn_harms_no_other;
            long:
                long_deaths_while_the_agent_speaks_leave_nothing_behind,
                long_deaths_while_the_agent_works_leave_nothing_behind,
                long_cancels_at_many_moments_leave_nothing_behind;
        }
    };
}

/// Runs one check.
pub async fn run(name: &str, agent: &dyn AgentUnderTest) {
    let (_, check) = CHECKS
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("the agent suite has no check {name}"));
    check(agent).await;
    tokio::time::timeout(PATIENCE, agent.stop()).await.expect("the gateway's side ends");
}

type Check = for<'a> fn(&'a dyn AgentUnderTest) -> BoxFuture<'a, ()>;

macro_rules! list_checks {
    ($($group:ident: $($check:ident),+;)+) => {
        const CHECKS: &[(&str, Check)] =
            &[$($((stringify!($check), |agent| Box::pin($group::$check(agent)))),+),+];
    };
}

for_each_agent_check!(list_checks);
