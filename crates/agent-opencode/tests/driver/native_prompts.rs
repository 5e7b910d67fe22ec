//! Native prompts: prompts and commands in OpenCode's own form.

use std::collections::BTreeSet;

use longshore_model::{ErrorKind, NativePrompt, NativePromptPart, Retry, Subtask};
use longshore_testkit::fake_opencode::{Fault, Gate, Turn as Script};
use serde_json::{Value, json};

use super::stage::stage;
use super::*;

fn command(name: &str) -> NativePrompt {
    NativePrompt::Command { name: name.to_owned(), arguments: "all of it".to_owned(), may_run: true }
}

async fn start_native(
    bench: &Bench,
    session: &Session,
    prompt: &PromptId,
    order: NativePrompt,
) -> Result<Turn> {
    let input =
        if let NativePrompt::Prompt { .. } = order { vec![Input::Text("go".to_owned())] } else { Vec::new() };
    let request = request(session, prompt, "", None);
    bench.agent.start_turn(TurnRequest { input, order: Some(order), ..request }).await
}

/// The bodies of the commands that were sent.
fn commands(bench: &Bench) -> Vec<Value> {
    let log = bench.fake.log();
    let commands =
        log.iter().filter(|request| request.method == "POST" && request.path.ends_with("/command"));
    commands.map(|request| request.body.clone()).collect()
}

#[tokio::test]
async fn a_native_prompt_is_sent_unchanged_with_an_id_of_the_gateway() {
    let bench = Bench::new();
    bench.fake.queue(Script::new().text("Done.", 1));
    let (session, prompt) = (bench.session().await, new_prompt());
    let parts = vec![NativePromptPart::Agent("plan".to_owned()), NativePromptPart::Content];
    let order = NativePrompt::Prompt { parts, withheld: BTreeSet::from(["bash".to_owned()]) };
    let turn = start_native(&bench, &session, &prompt, order).await.unwrap();
    assert!(turn.refusal.is_none());
    assert_eq!(outcome(&all(turn).await), "completed");
    let expected = json!({"messageID": message_of(&bench, &prompt), "tools": {"bash": false},
        "parts": [{"type": "agent", "name": "plan"}, {"type": "text", "text": "go"}]});
    assert_eq!(bench.fake.prompts()[0].body, expected);
    bench.stop().await;
}

#[tokio::test]
async fn a_refused_native_prompt_returns_an_error_and_ends_the_turn() {
    let prompt =
        || NativePrompt::Prompt { parts: vec![NativePromptPart::Content], withheld: BTreeSet::new() };
    let cases = [
        (prompt(), "/prompt_async", 400, Retry::Never),
        // OpenCode's messages show that it does not have the prompt.
        (prompt(), "/prompt_async", 500, Retry::Later),
        (command("nope"), "/command", 400, Retry::Never),
        (command("nope"), "/command", 500, Retry::Later),
    ];
    for (order, path, status, retry) in cases {
        let bench = Bench::new();
        let (session, prompt) = (bench.session().await, new_prompt());
        bench.fake.fault_once("POST", path, Fault::Status(status));
        let turn = start_native(&bench, &session, &prompt, order).await.unwrap();
        let refusal = turn.refusal.clone().expect("OpenCode refused it");
        assert_eq!(
            (refusal.kind(), refusal.retry()),
            (ErrorKind::UpstreamHttpError, retry),
            "{path} {status}"
        );
        let detail = ("upstreamStatus".to_owned(), status.to_string());
        assert!(refusal.details().contains(&detail), "{refusal:?}");
        assert!(outcome(&all(turn).await).starts_with("failed: "), "{path} {status}");
        bench.stop().await;
    }
}

/// OpenCode responds to the call only at the end of the turn, and perhaps never.
#[tokio::test]
async fn a_command_is_followed_from_its_first_event_to_its_end() {
    let bench = Bench::new();
    let (session, prompt) = (bench.session().await, new_prompt());
    let message = &format!("msg_1dd488432001_{prompt}");
    let called = Gate::new();
    bench.fake.fault_once("POST", "/command", Fault::Hold(called.clone()));
    let play = async {
        called.reached().await;
        let stage = stage(&bench);
        let (id, answer) = (session.id.as_str(), "msg_zz_answer");
        stage.user(id, message, "the whole template").await;
        stage.begin(id, answer, message).await;
        stage.text(id, answer, "Reviewed.").await;
        stage
    };
    let (turn, stage) = tokio::join!(start_native(&bench, &session, &prompt, command("review")), play);
    let mut turn = turn.unwrap();
    assert!(turn.refusal.is_none());
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Text { .. })).await;
    stage.finish(session.id.as_str(), "msg_zz_answer", message, "stop").await;
    stage.idle(session.id.as_str()).await;
    events.extend(all(turn).await);
    assert_eq!(result(&events), ended("completed", "Reviewed."));
    bench.stop().await;
    called.open();
}

/// A failure of the call says nothing about a turn that OpenCode has.
#[tokio::test]
async fn a_command_that_opencode_has_is_followed_even_if_its_call_fails() {
    let bench = Bench::new();
    let (session, prompt) = (bench.session().await, new_prompt());
    bench.fake.fault_once("POST", "/command", Fault::Status(502));
    let info = json!({"id": format!("msg_1dd488432001_{prompt}"), "role": "user", "sessionID": session.id.as_str(),
        "time": {"created": 1}});
    let stored = json!({"sessionID": session.id.as_str(), "info": info});
    bench.fake.emit("message.updated", stored).await;
    let turn = start_native(&bench, &session, &prompt, command("review")).await.unwrap();
    assert!(turn.refusal.is_none());
    let end = outcome(&all(turn).await);
    assert!(end.starts_with("failed: OpenCode has the prompt but never began to answer it"), "{end}");
    bench.stop().await;
}

#[tokio::test]
async fn a_command_whose_call_fails_late_without_any_event_ends_its_turn() {
    let bench = Bench::new();
    let (session, prompt) = (bench.session().await, new_prompt());
    bench.fake.fault_once("POST", "/command", Fault::Delay(Duration::from_millis(2_300)));
    let turn = start_native(&bench, &session, &prompt, command("nope")).await.unwrap();
    assert!(turn.refusal.is_none(), "not known yet");
    let end = outcome(&all(turn).await);
    assert!(end.starts_with("failed: "), "{end}");
    let mut sent = commands(&bench);
    let message = sent[0]["messageID"].take();
    assert!(message.as_str().unwrap().ends_with(&format!("_{prompt}")), "{message}");
    assert_eq!(sent, [json!({"messageID": null, "command": "nope", "arguments": "all of it"})]);
    bench.stop().await;
}

#[tokio::test]
async fn a_command_that_surely_did_not_arrive_starts_no_turn() {
    let bench = Bench::new();
    let (session, prompt) = (bench.session().await, new_prompt());
    bench.fake.fault_once("POST", "/command", Fault::Html);
    let refused = start_native(&bench, &session, &prompt, command("review")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidAgentResponse);
    bench.fake.forget_session(session.id.as_str());
    let request = start_native(&bench, &session, &prompt, command("review")).await;
    assert_eq!(request.unwrap_err().kind(), ErrorKind::SessionGone);
    bench.stop().await;
}

/// OpenCode does not show whether it has the message.
#[tokio::test]
async fn a_command_that_may_have_arrived_returns_an_error_that_says_so() {
    let bench = Bench::new();
    let (session, prompt) = (bench.session().await, new_prompt());
    bench.fake.fault_once("POST", "/command", Fault::Html);
    bench.fake.fault_always("GET", "/message", Fault::Status(500));
    let refused = start_native(&bench, &session, &prompt, command("review")).await.unwrap_err();
    assert!(refused.is_maybe_applied() && refused.message().contains("may have arrived"), "{refused:?}");
    bench.stop().await;
}

/// A proxy in front of OpenCode gives up, and OpenCode does not.
#[tokio::test]
async fn a_command_that_a_proxy_failed_is_not_reported_as_refused() {
    for status in [502, 503, 504] {
        let bench = Bench::new();
        let (session, prompt) = (bench.session().await, new_prompt());
        bench.fake.fault_once("POST", "/command", Fault::Status(status));
        let turn = start_native(&bench, &session, &prompt, command("review")).await.unwrap();
        assert!(turn.refusal.is_none(), "{status}");
        let end = outcome(&all(turn).await);
        assert!(end.starts_with("failed: "), "{end}");
        bench.stop().await;
    }
}

/// A success in another form is not OpenCode's, or is about something else.
#[tokio::test]
async fn a_success_response_of_another_form_is_an_error() {
    let prompt =
        || NativePrompt::Prompt { parts: vec![NativePromptPart::Content], withheld: BTreeSet::new() };
    let faults = [
        Fault::Html,
        Fault::Body("true"),
        Fault::Body("{}"),
        Fault::Body(""),
        Fault::Answer(202, "null"),
        Fault::Answer(201, "7"),
    ];
    for fault in faults {
        for (order, path) in [(prompt(), "/prompt_async"), (command("review"), "/command")] {
            let bench = Bench::new();
            let (session, prompt) = (bench.session().await, new_prompt());
            bench.fake.fault_once("POST", path, fault.clone());
            let refused = start_native(&bench, &session, &prompt, order).await.unwrap_err();
            let about = format!("{path} {fault:?}: {refused:?}");
            assert_eq!(refused.kind(), ErrorKind::InvalidAgentResponse, "{about}");
            // OpenCode responds to a prompt before it stores it, and to a command afterwards; it has no message of either.
            let may_have_it = path == "/prompt_async";
            assert_eq!(refused.message().contains("may have arrived"), may_have_it, "{about}");
            assert_eq!(refused.is_maybe_applied(), may_have_it, "{about}");
            bench.stop().await;
        }
    }
}

/// A link may lead elsewhere by the time that the turn begins, whatever it led to when the request came.
#[tokio::test]
async fn no_turn_begins_with_a_file_outside_the_workspace() {
    let subtask = Subtask {
        prompt: "Read @link".to_owned(),
        description: "A look".to_owned(),
        agent: "general".to_owned(),
        model: None,
        command: None,
    };
    let prompt =
        NativePrompt::Prompt { parts: vec![NativePromptPart::Subtask(subtask)], withheld: BTreeSet::new() };
    let command =
        NativePrompt::Command { name: "review".to_owned(), arguments: "@link".to_owned(), may_run: false };
    for (order, field) in [(prompt, "request.parts[0].prompt"), (command, "request.arguments")] {
        let bench = Bench::new();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), bench.fake.workspace().join("link")).unwrap();
        let (session, prompt) = (bench.session().await, new_prompt());
        let refused = start_native(&bench, &session, &prompt, order).await.unwrap_err();
        assert_eq!(refused.violations()[0].field, field);
        let log = bench.fake.log();
        assert!(log.iter().all(|it| it.method != "POST" || it.path.ends_with("/session")), "{log:?}");
        bench.stop().await;
    }
}
