//! Tests that need no gateway of their own: several scenarios share one, because OpenCode takes seconds to start.

use longshore_testkit::gateway::Setup;
use serde_json::json;

use crate::client::Client;
use crate::harness::{Harness, LONGSHORE, scenario};
use crate::{broken_streams, conversations, files, resume, sub_agents, thinking, tools, turns};

const BOB_TOKEN: &str = "another-token-for-tests-0123456789";

#[tokio::test(flavor = "multi_thread")]
async fn turns_with_tools_errors_and_aborts_end_as_in_opencode() {
    let harness = Harness::demo().await;
    scenario("replies", turns::replies_and_provider_errors_end_as_opencode_reports(&harness)).await;
    scenario("tools", tools::tool_calls_show_their_input_and_output(&harness)).await;
    scenario("a broken reply", broken_streams::a_broken_reply_is_withdrawn(&harness)).await;
    scenario("stopped turns", broken_streams::turns_that_are_stopped_end_canceled(&harness)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sub_agents_and_interrupted_clients_get_whole_streams() {
    let harness = Harness::demo().await;
    scenario("usage", sub_agents::a_sub_agent_is_a_task_with_its_own_stream_usage_and_end(&harness)).await;
    let asks = sub_agents::an_ask_of_a_sub_agent_is_shown_on_both_tasks_and_answered_on_its_own(&harness);
    scenario("asks of sub-agents", asks).await;
    let cut = resume::a_cut_stream_is_the_uncut_stream(&harness, "scn:text n=150 delay=6 size=10", 8);
    scenario("a cut stream", cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn principals_share_no_task_file_or_thinking() {
    let bob = json!({"scheme": "bearer", "token": BOB_TOKEN, "principal": "bob"});
    let [open, closed] = thinking::credentials();
    let setup = Setup::demo(LONGSHORE).flag("--written-files");
    let setup = setup.env("A2A_STATIC_AUTH_CREDENTIALS", json!([bob, open, closed]).to_string());
    let mut harness = Harness::start(setup).await;
    let bob = Client::with_token(&harness.gateway, BOB_TOKEN);
    let same = conversations::the_same_message_makes_one_task_and_one_prompt(&harness, &bob);
    scenario("the same message", same).await;
    scenario("thinking", thinking::thinking_is_hidden_from_one_credential(&harness)).await;
    scenario("written files", files::files_that_a_turn_wrote_are_offered(&harness)).await;
    let served = files::a_file_of_a_tool_is_served_to_its_owner_alone(&mut harness, BOB_TOKEN);
    scenario("files of tools", served).await;
}
