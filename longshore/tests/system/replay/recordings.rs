//! Each recording of the real OpenCode, and the A2A stream that a client gets.

use longshore_testkit::fake_opencode::{FakeOpenCode, Play};
use longshore_testkit::raw::message;
use serde_json::{Value, json};

use crate::replay::asks;
use crate::replay::fixture::{CheckedStream, Fixture, check, until_settled};
use crate::replay::usage::Usage;

/// Plays a recording, prompt by prompt in one context, and compares the streams with the snapshots of that name. Asks
/// are answered as in the recording.
pub(crate) async fn replay(name: &str, play: Play) -> Vec<CheckedStream> {
    let fixture = Fixture::new().await;
    let (play, mut answers) = asks::hold(play);
    fixture.fake.play(&play);
    let mut turns: Vec<CheckedStream> = Vec::new();
    let mut used = Usage::default();
    for (turn, prompt) in play.prompts().iter().enumerate() {
        let context = turns.last().map(|seen| seen.context().to_owned());
        let stream = fixture.open_in(context.as_deref(), &format!("message-{}", turn + 1), prompt).await;
        // All answers of a recording belong to its first turn.
        let frames = asks::answer(&fixture, stream, std::mem::take(&mut answers)).await;
        let seen = check(fixture.client(), frames).await;
        let snapshot = if turn == 0 { name.to_owned() } else { format!("{name}_{}", turn + 1) };
        assert_snapshot(&snapshot, &fixture.fake, &seen);
        // Late events belong to this prompt, and the message list is final only after them.
        fixture.fake.wait_until_idle().await;
        let total = Usage::of_opencode(&fixture.fake);
        assert_eq!(Usage::of_task(&seen), total.minus(&used), "the usage is not the sum of the steps");
        used = total;
        turns.push(seen);
    }
    assert_matches_opencode(&fixture.fake, &fixture.fake.sessions()[0], &turns);
    compare_children(name, &fixture, turns[0].context()).await;
    asks::as_recorded(&fixture.fake, &play);
    assert!(fixture.fake.prompts().iter().all(|prompt| !prompt.while_busy), "a prompt came during a turn");
    assert_eq!(fixture.fake.prompts().len(), turns.len(), "one prompt for each message");
    turns
}

/// The turns of sub-agents are tasks with their own streams.
async fn compare_children(name: &str, fixture: &Fixture, context: &str) {
    let listed = fixture.client_with_extensions().rpc("ListTasks", json!({"contextId": context})).await;
    let tasks = listed.result()["tasks"].as_array().cloned().unwrap_or_default();
    let children: Vec<&Value> =
        tasks.iter().filter(|task| !task["metadata"]["shared"]["parent"].is_null()).collect();
    let sessions = fixture.fake.sessions();
    assert_eq!(children.len(), sessions.len() - 1, "each session but the first is a sub-agent's");
    for (nth, child) in children.into_iter().enumerate() {
        let stream = fixture
            .client_with_extensions()
            .rpc_stream("SubscribeToTask", json!({"id": child["id"]}), Some(0))
            .await;
        let seen = check(fixture.client(), until_settled(stream.expect("the child's log")).await).await;
        let snapshot = if nth == 0 { format!("{name}_child") } else { format!("{name}_child_{}", nth + 1) };
        assert_snapshot(&snapshot, &fixture.fake, &seen);
        let session = seen.session().to_owned();
        assert!(sessions[1..].contains(&session), "{session} is no sub-agent's");
        assert_eq!(
            Usage::of_task(&seen),
            Usage::of_session(&fixture.fake, &session),
            "the child's own usage"
        );
        assert_matches_opencode(&fixture.fake, &session, &[seen]);
    }
}

pub(crate) fn assert_snapshot(name: &str, fake: &FakeOpenCode, seen: &CheckedStream) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, seen.comparable(fake));
    });
}

/// Fails unless the texts of the tasks are those of the message list in OpenCode, block by block, without the parts of
/// the user.
pub(crate) fn assert_matches_opencode(fake: &FakeOpenCode, session: &str, turns: &[CheckedStream]) {
    let (mut texts, mut reasonings, mut of_user) = (Vec::new(), Vec::new(), Vec::new());
    for message in fake.messages(session) {
        for part in message["parts"].as_array().into_iter().flatten() {
            let id = part["id"].as_str().unwrap_or_default().to_owned();
            let text = part["text"].as_str().unwrap_or_default().to_owned();
            match (message["info"]["role"].as_str(), part["type"].as_str()) {
                (Some("user"), _) => of_user.push(id),
                // The summary of a session that became too long is no reply.
                _ if message["info"]["summary"] == true || text.is_empty() => {}
                (_, Some("text")) => texts.push((id, text)),
                (_, Some("reasoning")) => reasonings.push((id, text)),
                _ => {}
            }
        }
    }
    let said = |name| turns.iter().flat_map(|seen| seen.blocks(name)).collect::<Vec<_>>();
    assert_eq!(said("text"), texts);
    assert_eq!(said("reasoning"), reasonings);
    for seen in turns {
        let artifacts = seen.task["artifacts"].as_array().into_iter().flatten();
        let ids: Vec<&Value> = artifacts.map(|artifact| &artifact["artifactId"]).collect();
        assert!(
            of_user.iter().all(|part| !ids.iter().any(|id| **id == part.as_str())),
            "the user's words came back"
        );
    }
}

/// One test for each recording: its name, its options, and the states of its tasks.
macro_rules! replays {
    ($($name:ident $(. $option:ident ($($argument:tt)*))* => $state:expr;)*) => {
    $(
        #[tokio::test]
        async fn $name() {
            let name = stringify!($name);
            let turns = replay(name, Play::new(name)$(.$option($($argument)*))*).await;
            let states: Vec<&str> = turns.iter().map(CheckedStream::state).collect();
            assert_eq!(states, $state, "{:?}", turns.iter().map(CheckedStream::reason).collect::<Vec<_>>());
        }
    )*

    /// The recordings above.
    pub(crate) const REPLAYED: &[&str] = &[$(stringify!($name)),*];
    };
}

replays! {
    text => ["COMPLETED"];
    text_async => ["COMPLETED"];
    title_generation => ["COMPLETED"];
    mid_stream_get => ["COMPLETED"];
    reasoning => ["COMPLETED"];
    reasoning_then_tool => ["COMPLETED", "COMPLETED"];
    empty_reply => ["COMPLETED"];
    todo => ["COMPLETED"];
    long => ["COMPLETED"];
    // The client that sent the prompt disconnected.
    client_disconnect => ["COMPLETED"];
    global_race => ["COMPLETED"];
    // With files, for which OpenCode adds texts to the message of the user.
    prompt_options => ["COMPLETED"];

    tool_bad_args => ["COMPLETED"];
    tool_bash => ["COMPLETED"];
    tool_bash_fail => ["COMPLETED"];
    tool_bash_slow => ["COMPLETED"];
    tool_denied => ["COMPLETED"];
    tool_edit => ["COMPLETED"];
    tool_glob => ["COMPLETED"];
    tool_pair => ["COMPLETED"];
    tool_read => ["COMPLETED"];
    tool_read_missing => ["COMPLETED"];
    tool_unknown => ["COMPLETED"];
    tool_write => ["COMPLETED"];

    finish_length => ["COMPLETED"];
    finish_content_filter => ["FAILED"];
    bad_json => ["FAILED"];
    error_400 => ["FAILED"];
    // The task waits until OpenCode has a key.
    error_401 => ["AUTH_REQUIRED"];
    error_429_recovers => ["COMPLETED"];
    error_500_recovers => ["COMPLETED"];
    error_500_gives_up => ["FAILED"];
    sse_error_midstream => ["COMPLETED"];
    sse_error_not_retryable => ["FAILED"];
    cut_fin_partial => ["COMPLETED"];
    cut_fin_recovers => ["COMPLETED"];
    cut_rst_partial => ["COMPLETED"];
    cut_rst_recovers => ["COMPLETED"];
    cut_noend_recovers => ["COMPLETED"];
    context_overflow => ["COMPLETED"];
    auto_compact => ["COMPLETED"];
    stop_then_compact => ["COMPLETED"];
    overflow_replays_prompt => ["COMPLETED", "COMPLETED"];
    // The turn after another client summarized the session.
    summarize.only_prompts(&[1]) => ["COMPLETED"];

    task => ["COMPLETED"];
    task_background_disabled => ["COMPLETED"];
    task_child_error => ["COMPLETED"];

    // Another client of the same OpenCode stops the turn.
    abort_stream.foreign_aborts() => ["CANCELED", "COMPLETED"];
    abort_tool.foreign_aborts() => ["CANCELED"];
    abort_before_first_byte.foreign_aborts() => ["CANCELED"];
    task_abort.foreign_aborts() => ["CANCELED"];
    cut_fin_then_abort.foreign_aborts() => ["CANCELED"];
    cut_noend_loop.foreign_aborts() => ["CANCELED"];
    instance_dispose => ["CANCELED"];

    permission_once => ["COMPLETED"];
    // Another client answers, by the older endpoint of OpenCode.
    permission_legacy_endpoint => ["COMPLETED"];
    permission_always.only_prompts(&[0]) => ["COMPLETED"];
    permission_edit => ["COMPLETED"];
    permission_external_directory => ["COMPLETED"];
    // OpenCode ends the turn when a tool is rejected, and the other ask with it.
    permission_pair => ["FAILED"];
    permission_reject => ["FAILED"];
    permission_reject_message => ["COMPLETED"];
    question_answer => ["COMPLETED"];
    question_multi => ["COMPLETED"];
    question_reject => ["FAILED"];
    question_abort.foreign_aborts() => ["CANCELED"];
    task_permission => ["COMPLETED"];
}

/// The other binding gives the same stream.
#[tokio::test]
async fn a_stream_over_rest_is_the_stream_over_json_rpc() {
    for name in ["tool_bash", "cut_fin_partial", "error_400"] {
        let fixture = Fixture::new().await;
        let play = Play::new(name);
        fixture.fake.play(&play);
        let body = message("message-1", &play.prompts()[0]);
        let opened =
            fixture.client_with_extensions().rest_stream("POST", "/message:stream", Some(&body), None).await;
        let frames = opened.expect("a stream").all().await;
        let seen = check(fixture.client(), frames).await;
        assert_snapshot(name, &fixture.fake, &seen);
    }
}
