//! The exact bodies that OpenCode receives from methods that change something, and native prompts of which it is
//! unknown whether OpenCode received them.

use longshore_testkit::fake_opencode::{Command, Gate, LoggedRequest, Turn};
use longshore_testkit::raw::{Answer, RawClient};
use longshore_wire::opencode;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{error_fields, method_named};
use crate::control::fixture::{Fixture, GIL_TOKEN, Settings, call};
use crate::control::populated::{Populated, add_furnished_session, call_and_log, wait_until_ended};

/// A message id of the caller. OpenCode would append to the message of this id, in any session.
const NAMED: &str = "msg_callers";

/// Calls with every optional parameter.
fn calls_with_every_parameter() -> Vec<(&'static str, Value)> {
    let file = json!({"type": "file", "mime": "text/plain", "url": "data:text/plain;base64,c3RvbmUK", "filename": "a.txt"});
    let model = |model: &str| json!({"providerID": "scripted", "modelID": model});
    let agent = json!({"type": "agent", "name": "explore"});
    let subtask = json!({
        "type": "subtask", "prompt": "Look around.", "description": "A look", "agent": "general", "model": model("vision"),
        "command": "survey",
    });
    let text = json!({"type": "text", "text": " As it is. \n"});
    vec![
        (
            "opencode.sessions.prompt_async",
            json!({"request": {
                "parts": [text, file, agent], "messageID": NAMED, "model": model("scripted"), "agent": "plan",
                "tools": {"bash": false}, "format": {"type": "text"}, "system": "Be brief.", "variant": "high",
            }}),
        ),
        ("opencode.sessions.prompt_async", json!({"request": {"parts": [subtask], "messageID": NAMED}})),
        (
            "opencode.sessions.prompt_async",
            json!({"request": {"parts": [text], "messageID": NAMED, "noReply": "yes", "model": model("vision")}}),
        ),
        (
            "opencode.sessions.command",
            json!({"request": {
                "command": "/review", "arguments": "", "messageID": NAMED, "agent": "plan", "model": "scripted/vendor/deep",
                "parts": [file],
            }}),
        ),
        (
            "opencode.sessions.command",
            json!({"request": {"command": "review", "arguments": "a  b\n", "model": model("scripted"), "variant": "low"}}),
        ),
        ("opencode.sessions.fork", json!({"request": {}})),
        (
            "opencode.sessions.summarize",
            json!({"request": {"auto": "1", "providerID": "scripted", "modelID": "vendor/deep"}}),
        ),
        (
            "opencode.sessions.shell",
            json!({"request": {"agent": "build", "command": "ls | wc", "model": model("vision")}}),
        ),
    ]
}

#[tokio::test]
async fn opencode_receives_every_parameter_and_no_message_id_of_the_caller() {
    let (populated, mut shown) = (Populated::of_sessions(Settings::default()).await, Vec::new());
    for (number, (name, params)) in calls_with_every_parameter().into_iter().enumerate() {
        let method = opencode::method(name).unwrap_or_else(|| panic!("no method {name}"));
        let mut reported = Vec::new();
        for version in ProtocolVersion::ALL {
            let session = format!("ses_own{number}{}", version.as_str().replace('.', ""));
            add_furnished_session(&populated.fixture, &session).await;
            let mut params = params.clone();
            params["session_id"] = session.as_str().into();
            let played = call_and_log(&populated, version, method, params).await;
            let changes = played.asked.iter().filter(|request| request.method != "GET");
            let said =
                changes.map(|request| format!("  {} {} {}", request.method, request.path, request.body));
            let said = populated.redacted(&session, &said.collect::<Vec<_>>().join("\n"));
            assert!(!said.contains(NAMED), "{name} {version:?}: {said}");
            reported.push(said);
        }
        assert_eq!(reported[0], reported[1], "{name} is the same on both lines");
        shown.push(format!("{name} {params}\n{}", reported[0]));
    }
    populated.fixture.stop().await;
    insta::assert_snapshot!(shown.join("\n"));
}

fn task_of(answer: &Answer) -> String {
    answer.result()["task_id"].as_str().unwrap_or_else(|| panic!("no task: {}", answer.body)).to_owned()
}

/// A symbolic link in the workspace can change its target while the prompt waits for its turn.
#[tokio::test]
async fn files_of_a_native_prompt_are_checked_again_when_its_turn_starts() {
    let populated = Populated::of_sessions(Settings::default()).await;
    let fixture = &populated.fixture;
    let outside = tempfile::tempdir().expect("there is a disk");
    std::fs::write(outside.path().join("secret"), "canary").expect("it can be written");
    std::fs::write(fixture.fake.workspace().join("inside"), "plain").expect("it can be written");
    let link = fixture.fake.workspace().join("link");
    let subtask =
        json!({"type": "subtask", "prompt": "Read @link", "description": "A look", "agent": "general"});
    for (name, body) in [
        ("opencode.sessions.prompt_async", json!({"parts": [subtask]})),
        ("opencode.sessions.command", json!({"command": "review", "arguments": "@link"})),
    ] {
        for version in ProtocolVersion::ALL {
            let method = method_named(name);
            let session = populated.session_for(method).await;
            std::os::unix::fs::symlink("inside", &link).expect("it can be made");
            let gate = Gate::new();
            fixture.fake.queue(Turn::new().hold(&gate).text("first", 1).finish("stop"));
            let first =
                json!({"session_id": session, "request": {"parts": [{"type": "text", "text": "Wait."}]}});
            call(&fixture.ada, version, method_named("opencode.sessions.prompt_async"), &first)
                .await
                .result();
            gate.reached().await;
            let params = json!({"session_id": session, "request": body});
            let ordered = call(&fixture.ada, version, method, &params);
            let swapped = async {
                let listed = json!({"contextId": format!("ctx:opencode-session:{session}")});
                let waits = async || {
                    let listed = fixture.ada.rpc("ListTasks", listed.clone()).await;
                    let tasks = listed.result()["tasks"].as_array().cloned().unwrap_or_default();
                    tasks.iter().any(|task| task["status"]["state"] == "TASK_STATE_SUBMITTED")
                };
                while !waits().await {}
                std::fs::remove_file(&link).expect("it is there");
                std::os::unix::fs::symlink(outside.path().join("secret"), &link).expect("it can be made");
                gate.open();
            };
            let (answer, ()) = tokio::join!(ordered, swapped);
            let text = if method.key == "command" {
                // The refused command names its field.
                assert_eq!(error_fields(&answer), ["request.arguments"], "{}", answer.body);
                answer.body["error"].to_string()
            } else {
                let task = wait_until_ended(&fixture.ada, &task_of(&answer)).await;
                assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{name} {task}");
                task["status"].to_string()
            };
            assert!(text.contains("must be in the workspace"), "{text}");
            let end = name.replace("opencode.sessions.", "/");
            let of_session = |request: &&LoggedRequest| {
                request.method == "POST" && request.path.ends_with(&format!("{session}{end}"))
            };
            let posted = fixture.fake.log();
            let posted = posted.iter().filter(of_session).count();
            assert_eq!(posted, usize::from(end == "/prompt_async"), "{name}: the first one only");
            std::fs::remove_file(&link).expect("it is there");
        }
    }
    populated.fixture.stop().await;
}

/// It is unknown what an MCP server does with its arguments, so they need the capability to run a shell.
#[tokio::test]
async fn arguments_of_mcp_and_shell_commands_need_the_shell_capability() {
    for session_shell in [true, false] {
        let fixture = Fixture::start_with(Settings { session_shell, ..Settings::default() }).await;
        fixture.fake.project(|project| {
            let known = project.commands[0].clone();
            let runs =
                Command { name: "runs".to_owned(), template: "!`git log $1`".to_owned(), ..known.clone() };
            let mcp = Command { name: "docs:search".to_owned(), is_mcp: true, ..known };
            project.commands.extend([runs, mcp]);
        });
        let gil = RawClient::new(fixture.url.clone(), GIL_TOKEN);
        let method = method_named("opencode.sessions.command");
        for (client, may_run) in [(&gil, session_shell), (&fixture.eve, false)] {
            let session = fixture.session_of(client, &format!("hello-{may_run}")).await;
            for command in ["docs:search", "runs"] {
                for version in ProtocolVersion::ALL {
                    let order = async |arguments: &str| {
                        let request = json!({"command": command, "arguments": arguments});
                        call(client, version, method, &json!({"session_id": session, "request": request}))
                            .await
                    };
                    let about = format!("{command} {version:?} {may_run}");
                    order("").await.result();
                    let plain = order("one two").await;
                    if may_run {
                        plain.result();
                    } else {
                        assert_eq!(error_fields(&plain), ["request.arguments"], "{about} {}", plain.body);
                        assert!(plain.body.to_string().contains("session_shell"), "{about} {}", plain.body);
                    }
                    // Files outside the workspace are refused for every caller.
                    let elsewhere = order("@/etc/hostname").await;
                    assert_eq!(error_fields(&elsewhere), ["request.arguments"], "{about} {}", elsewhere.body);
                }
            }
        }
        fixture.stop().await;
    }
}
