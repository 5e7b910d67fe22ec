//! Native prompts and commands: each is a task, and none affects the sessions of others.

use longshore_testkit::raw::{self, Frame};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::caller::{Caller, Kind};
use crate::control::fixture::{Fixture, OwnedSession};
use crate::frames::{self, explanation, state_of};
use crate::model_log;
use crate::upstream::{self, Agreement};

const COMMAND: &str = "opencode.sessions.command";
const PROMPT: &str = "opencode.sessions.prompt_async";

/// A text in base64.
const ROPE: &str = "ninety fathoms of rope";
const ROPE_URL: &str = "data:text/plain;base64,bmluZXR5IGZhdGhvbXMgb2Ygcm9wZQo=";

#[tokio::test(flavor = "multi_thread")]
async fn native_prompts_and_commands_are_tasks_with_their_streams() {
    prompt_and_command(ProtocolVersion::V1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_native_prompts_and_commands_are_tasks_over_0_3() {
    prompt_and_command(ProtocolVersion::V03).await;
}

async fn prompt_and_command(version: ProtocolVersion) {
    let fixture = Fixture::start(&[version], &[]).await;
    for ada in fixture.ada() {
        let own = fixture.session("scn:text n=1 (prompting)").await;
        every_kind_of_part_is_accepted(&fixture, &ada, &own).await;
        sub_agents_are_sent(&fixture, &ada).await;
        a_prompt_without_reply_makes_no_task(&fixture, &ada).await;
        s_ids_of_other_sessions_have_no_effect(&fixture, &ada, &own).await;
        s_tools_never_lift_a_deny(&fixture, &ada).await;

        let own = fixture.session("scn:text n=1 (commands)").await;
        o03_a_command_accepts_its_model_in_both_spellings(&fixture, &ada, &own).await;
        errors_and_files_of_commands_are_reported(&fixture, &ada, &own).await;
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// The frames of the whole log of a task, and the stored task.
async fn played(fixture: &Fixture, task: &str) -> (Vec<Frame>, Value) {
    let frames = fixture.harness.client.resume(task, 0).await.rest().await;
    frames::check_log(task, &frames);
    let stored = raw::plain_text(&fixture.harness.client.get(task).await);
    assert_eq!(raw::fold(&frames), stored, "the stream folds into another task");
    (frames, stored)
}

/// Sends a native prompt, and returns the frames and the task when it has ended.
async fn prompt(fixture: &Fixture, ada: &Caller, own: &OwnedSession, request: Value) -> (Vec<Frame>, Value) {
    let begun = ada.result(PROMPT, json!({"session_id": own.session, "request": request})).await;
    let task = begun["task_id"].as_str().unwrap_or_else(|| panic!("no task: {begun:#}")).to_owned();
    let expected = json!({"ok": true, "session_id": own.session, "task_id": task, "context_id": own.context});
    assert_eq!(begun, expected, "{request}");
    let (frames, stored) = played(fixture, &task).await;
    assert_eq!(stored["contextId"], own.context.as_str(), "{stored:#}");
    (frames, stored)
}

/// The requests to the model whose prompt contains this mark.
async fn asked(fixture: &Fixture, mark: &str) -> Vec<Value> {
    let mut asked = model_log::turns(&fixture.harness.opencode).await;
    asked.retain(|asked| asked["prompt"].as_str().is_some_and(|prompt| prompt.contains(mark)));
    asked
}

async fn every_kind_of_part_is_accepted(fixture: &Fixture, ada: &Caller, own: &OwnedSession) {
    let version = ada.version.as_str();
    let words = format!("scn:bash cmd=\"echo ahoy\" scn:text text=\"Done.\" (words {version})");
    let (frames, _) = prompt(fixture, ada, own, json!({"parts": [text(&words)]})).await;
    let played = fixture.harness.check(&words, frames, Agreement::Whole).await;
    played.ended("COMPLETED", "").has(&[("tool:bash", "completed"), ("text", "Done.")]);
    assert_eq!(played.turn.session, own.session, "it went to another session");

    let workspace = fixture.harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let kept = format!("file://{}", workspace.join("ships/crew.txt").display());
    for (name, url, content) in [("data", ROPE_URL, ROPE), ("file", &kept, "captain")] {
        let words = format!("scn:text n=1 (a file as {name} {version})");
        let file = json!({"type": "file", "mime": "text/plain", "url": url, "filename": "given.txt"});
        let (_, task) = prompt(fixture, ada, own, json!({"parts": [text(&words), file]})).await;
        assert_eq!(state_of(&task), "COMPLETED", "{words}: {task:#}");
        let asked = asked(fixture, &words).await;
        assert_eq!(asked.len(), 1, "{words}: {asked:#?}");
        let reported = asked[0]["prompt"].as_str().unwrap_or_default();
        assert!(reported.contains(content), "{words}: the model saw {reported}");
    }

    let words = format!("scn:text n=1 (an agent {version})");
    let called = json!({"type": "agent", "name": "general"});
    let (_, task) = prompt(fixture, ada, own, json!({"parts": [text(&words), called]})).await;
    assert_eq!(state_of(&task), "COMPLETED", "{words}: {task:#}");
    let messages = fixture.harness.opencode.messages(&own.session).await;
    let said = messages.iter().rfind(|message| message["info"]["role"] == "user").expect("it was said");
    let parts = said["parts"].as_array().expect("a message has parts");
    assert!(parts.iter().any(|part| part["type"] == "agent" && part["name"] == "general"), "{said:#}");

    let words = format!("scn:text n=1 (another model {version})");
    let request = json!({
        "parts": [text(&words)],
        "model": {"providerID": "demo", "modelID": "demo-small"},
        "agent": "plan",
        "format": {"type": "text"},
        "noReply": false,
    });
    let (_, task) = prompt(fixture, ada, own, request).await;
    assert_eq!(state_of(&task), "COMPLETED", "{words}: {task:#}");
    let asked = asked(fixture, &words).await;
    assert_eq!(asked[0]["model"], "demo-small", "{asked:#?}");
    let turn = upstream::turn(&fixture.harness.opencode, &words).await;
    assert_eq!(turn.answers[0]["info"]["mode"], "plan", "{turn:#?}");

    // OpenCode keeps the model and the agent for the session: set them back for the scenarios that follow.
    let words = format!("scn:text n=1 (the first model {version})");
    let model = json!({"providerID": "demo", "modelID": "demo"});
    prompt(fixture, ada, own, json!({"parts": [text(&words)], "model": model, "agent": "build"})).await;
}

async fn sub_agents_are_sent(fixture: &Fixture, ada: &Caller) {
    let version = ada.version.as_str();
    for command in [None, Some("review")] {
        let own = fixture.session(&format!("scn:text n=1 (sends others {version} {command:?})")).await;
        let mut errand = json!({
            "type": "subtask",
            "prompt": format!("scn:text text=\"Rope.\" (errand {version} {command:?})"),
            "description": "an errand",
            "agent": "general",
            "model": {"providerID": "demo", "modelID": "demo-small"},
        });
        if let Some(command) = command {
            errand["command"] = command.into();
        }
        let (frames, task) = prompt(fixture, ada, &own, json!({"parts": [errand]})).await;
        assert_eq!(state_of(&task), "COMPLETED", "{command:?}: {task:#}");
        let named = |frame: &Frame| Some(frames::tool(frame)?["child_task_id"].as_str()?.to_owned());
        let child = frames.iter().find_map(named).unwrap_or_else(|| panic!("no child: {frames:#?}"));
        let child = fixture.harness.client.get(&child).await;
        assert_eq!(state_of(&child), "COMPLETED", "{command:?}: {child:#}");
        assert!(child.to_string().contains("Rope."), "{command:?}: {child:#}");
        let children = ada.result("opencode.sessions.children", json!({"session_id": own.session})).await;
        assert_eq!(children["items"].as_array().map(Vec::len), Some(1), "{command:?}: {children:#}");
        let mark = format!("(errand {version} {command:?})");
        let asked = asked(fixture, &mark).await;
        assert_eq!(asked[0]["model"], "demo-small", "{command:?}: {asked:#?}");
        fixture.idle().await;
    }
}

async fn a_prompt_without_reply_makes_no_task(fixture: &Fixture, ada: &Caller) {
    let version = ada.version.as_str();
    let own = fixture.session(&format!("scn:text n=1 (notes {version})")).await;
    let asked = fixture.model.journal().turns().len();
    let words = format!("scn:text n=1 (only said {version})");
    let request = json!({"parts": [text(&words)], "noReply": true});
    let reported = ada.result(PROMPT, json!({"session_id": own.session, "request": request})).await;
    assert_eq!(reported, json!({"ok": true, "session_id": own.session}), "{words}");
    let messages = fixture.harness.opencode.messages(&own.session).await;
    assert_eq!(upstream::message_text(messages.last().expect("it was said")), words);
    let listed = ada.result("opencode.sessions.messages.list", json!({"session_id": own.session})).await;
    let last = listed["items"].as_array().and_then(|items| items.last()).expect("it is listed");
    ada.assert_is_message(last, messages.last().expect("it was said"));
    // Only the next prompt is answered.
    let words = format!("scn:text n=1 (after what was only said {version})");
    prompt(fixture, ada, &own, json!({"parts": [text(&words)]})).await;
    assert_eq!(fixture.model.journal().turns().len(), asked + 1, "the prompt without reply was answered");
    let tasks = fixture.harness.client.call("ListTasks", json!({"contextId": own.context})).await;
    assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(2), "{tasks:#}");
    let running = fixture.running(&own).await;
    let request = json!({"parts": [text("said in between")], "noReply": true});
    let busy = ada.refused(PROMPT, json!({"session_id": own.session, "request": request}), Kind::BUSY).await;
    assert!(!busy.detail("retry_after_seconds").is_null(), "{:#}", busy.body);
    // A prompt with a reply waits for its turn instead.
    let words = format!("scn:text n=1 (waits for its turn {version})");
    let request = json!({"parts": [text(&words)]});
    let begun = ada.result(PROMPT, json!({"session_id": own.session, "request": request})).await;
    fixture.harness.client.cancel(&running).await.unwrap_or_else(|error| panic!("{}", error.body));
    let (frames, _) = played(fixture, begun["task_id"].as_str().expect("it is a task")).await;
    fixture.harness.check(&words, frames, Agreement::Whole).await.ended("COMPLETED", "");
}

/// OpenCode itself appends to any message that is named and overwrites any part, in any session.
async fn s_ids_of_other_sessions_have_no_effect(fixture: &Fixture, ada: &Caller, own: &OwnedSession) {
    let version = ada.version.as_str();
    let bobs = fixture.session_of_bob(&format!("scn:text n=1 (of bob {version})")).await;
    let other = fixture.session(&format!("scn:text n=1 (another of ada's {version})")).await;
    for (name, victim) in [("bob's", &bobs), ("her own", &other), ("the same", own)] {
        let before = fixture.content(&victim.session).await;
        let (user, parts) = &before[0];
        let words = format!("scn:text n=1 (in the message of {name} {version})");
        let request = json!({"parts": [text(&words)], "messageID": user});
        let (frames, task) = prompt(fixture, ada, own, request.clone()).await;
        fixture.harness.check(&words, frames, Agreement::Whole).await.ended("COMPLETED", "");
        let after = fixture.content(&victim.session).await;
        assert_eq!(after[..before.len()], before[..], "{words}: what was said there is something else now");
        let more = if victim.session == own.session { 2 } else { 0 };
        assert_eq!(after.len(), before.len() + more, "{words}: {after:#?}");
        // The id names the message of this caller: the same id is the same task.
        assert_eq!(task["history"][0]["messageId"], *user, "{task:#}");
        let again = ada.result(PROMPT, json!({"session_id": own.session, "request": request})).await;
        assert_eq!(again["task_id"], task["id"], "{words}: another task");
        assert_eq!(asked(fixture, &words).await.len(), 1, "{words}: the model was asked again");
        let part = &parts[0]["id"];
        for (name, value) in [("id", part), ("messageID", user), ("sessionID", &json!(victim.session))] {
            let mut overwriting = text("overwritten");
            overwriting[name] = value.clone();
            let request = json!({"parts": [overwriting]});
            let params = json!({"session_id": own.session, "request": request});
            ada.invalid(PROMPT, params, &format!("request.parts[0].{name}")).await;
        }
        assert_eq!(fixture.content(&victim.session).await, after, "{words}");
    }
}

/// OpenCode stores the tools of a prompt in the session, and they would override the rules of its operator.
async fn s_tools_never_lift_a_deny(fixture: &Fixture, ada: &Caller) {
    let version = ada.version.as_str();
    let own = fixture.session(&format!("scn:text n=1 (tools {version})")).await;
    let before = fixture.upstream(&own.session).await["permission"].take();
    let push = format!("scn:bash cmd=\"git push origin main\" scn:text n=1 (pushes {version})");
    let request = json!({"parts": [text(&push)], "tools": {"bash": true}});
    ada.invalid(PROMPT, json!({"session_id": own.session, "request": request}), "request.tools.bash").await;
    assert_eq!(fixture.upstream(&own.session).await["permission"], before, "{version}: the session may more");
    let (frames, task) = prompt(fixture, ada, &own, json!({"parts": [text(&push)]})).await;
    let played = fixture.harness.check(&push, frames, Agreement::Whole).await;
    let call = played.call("bash");
    assert_eq!(call["status"], "error", "{version}: the command ran: {task:#}");

    let words = format!("scn:text n=1 (without a shell {version})");
    prompt(fixture, ada, &own, json!({"parts": [text(&words)], "tools": {"bash": false}})).await;
    let asked = asked(fixture, &words).await;
    let tools: Vec<&str> =
        asked[0]["tools"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(!tools.contains(&"bash") && tools.contains(&"read"), "{version}: {tools:?}");
}

/// Runs a command, and compares its answer with the last message in OpenCode.
async fn command(fixture: &Fixture, ada: &Caller, own: &OwnedSession, request: Value) -> (Value, Value) {
    let reported = ada.result(COMMAND, json!({"session_id": own.session, "request": request})).await;
    let task = reported["task_id"].as_str().unwrap_or_else(|| panic!("no task: {reported:#}")).to_owned();
    assert_eq!(reported["context_id"], own.context.as_str(), "{reported:#}");
    let (_, stored) = played(fixture, &task).await;
    let messages = fixture.harness.opencode.messages(&own.session).await;
    let answer = messages.last().expect("it was answered");
    assert_eq!(answer["info"]["role"], "assistant", "{answer:#}");
    ada.assert_is_message(&reported["item"], answer);
    (reported, stored)
}

/// OpenCode accepts only the short spelling. (The Python peer sends an object.)
async fn o03_a_command_accepts_its_model_in_both_spellings(
    fixture: &Fixture,
    ada: &Caller,
    own: &OwnedSession,
) {
    let version = ada.version.as_str();
    let small = json!({"providerID": "demo", "modelID": "demo-small"});
    for (number, (name, model, used)) in [
        ("review", Value::Null, "demo"),
        ("/review", small, "demo-small"),
        ("review", json!("demo/demo-small"), "demo-small"),
        ("/review", json!("demo/demo"), "demo"),
    ]
    .into_iter()
    .enumerate()
    {
        let words = format!("scn:text text=\"Reviewed {number} on {version}.\"");
        let mut request = json!({"command": name, "arguments": words});
        if !model.is_null() {
            request["model"] = model;
        }
        let (reported, task) = command(fixture, ada, own, request.clone()).await;
        assert_eq!(
            reported["item"]["parts"][0]["text"],
            format!("Reviewed {number} on {version}."),
            "o03 {reported:#}"
        );
        assert_eq!(state_of(&task), "COMPLETED", "o03 {task:#}");
        assert_eq!(task["history"][0]["parts"][0]["text"], format!("/review {words}"), "o03 {task:#}");
        let turn = upstream::turn(&fixture.harness.opencode, &format!("Look at this. {words}")).await;
        let by = &turn.answers[0]["info"];
        assert_eq!((&by["providerID"], &by["modelID"]), (&json!("demo"), &json!(used)), "o03 {request}");
    }
}

async fn errors_and_files_of_commands_are_reported(fixture: &Fixture, ada: &Caller, own: &OwnedSession) {
    let version = ada.version.as_str();
    // An error of the provider is the answer of OpenCode.
    let request =
        json!({"command": "review", "arguments": format!("scn:http status=400 body=\"not so\" ({version})")});
    let (reported, task) = command(fixture, ada, own, request).await;
    let error = reported["item"]["metadata"]["opencode"]["error"].as_str().unwrap_or_default();
    assert!(error.contains("not so"), "{reported:#}");
    assert_eq!(state_of(&task), "FAILED", "{task:#}");
    assert!(explanation(&task).contains("not so"), "{task:#}");

    let file = json!({"type": "file", "mime": "text/plain", "url": ROPE_URL, "filename": "rope.txt"});
    let words = format!("scn:text text=\"Read.\" (a file {version})");
    let request = json!({"command": "review", "arguments": words, "parts": [file], "agent": "build"});
    command(fixture, ada, own, request).await;
    let asked = asked(fixture, &words).await;
    assert!(asked[0]["prompt"].as_str().unwrap_or_default().contains(ROPE), "{asked:#?}");

    // A command without arguments, sent twice with the same id.
    let id = format!("msg_of_the_caller_{}", if version == "1.0" { "new" } else { "old" });
    let request = json!({"command": "review", "arguments": "", "messageID": id});
    let (reported, _) = command(fixture, ada, own, request.clone()).await;
    let (again, _) = command(fixture, ada, own, request).await;
    assert_eq!(again, reported, "{version}: another answer to the same command");

    // A command that starts a sub-agent.
    let sender = fixture.session(&format!("scn:text n=1 (surveys {version})")).await;
    let request = json!({"command": "survey", "arguments": format!("scn:text text=\"Land.\" ({version})")});
    let (_, task) = command(fixture, ada, &sender, request).await;
    assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
    let children = ada.result("opencode.sessions.children", json!({"session_id": sender.session})).await;
    assert_eq!(children["items"].as_array().map(Vec::len), Some(1), "{version}: {children:#}");
    assert!(task.to_string().contains("Land."), "{version}: {task:#}");
}
