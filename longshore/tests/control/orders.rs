//! What OpenCode is told by those methods that change something or have it work, word by word; and orders of which nobody knows
//! whether OpenCode got them.

use longshore_testkit::fake_opencode::Fault;
use longshore_wire::methods;
use longshore_wire::surface::Line;
use serde_json::{Value, json};

use crate::scene::{Scene, furnish, over, play};
use crate::stage::{Rules, call};

/// A name that a caller gives its message. OpenCode would write into the message of that name, in whichever session it is.
const NAMED: &str = "msg_callers";

/// Calls with everything that they can say.
fn wordy() -> Vec<(&'static str, Value)> {
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
async fn opencode_is_told_what_the_caller_said_and_no_name_that_the_caller_chose() {
    let (scene, mut shown) = (Scene::of_sessions(Rules::default()).await, Vec::new());
    for (number, (name, params)) in wordy().into_iter().enumerate() {
        let method = methods::find(name).unwrap_or_else(|| panic!("no method {name}"));
        let mut told = Vec::new();
        for line in Line::ALL {
            let session = format!("ses_own{number}{}", line.version().replace('.', ""));
            furnish(&scene.stage, &session).await;
            let mut params = params.clone();
            params["session_id"] = session.as_str().into();
            let played = play(&scene, line, method, params).await;
            let changes = played.asked.iter().filter(|request| request.method != "GET");
            let said =
                changes.map(|request| format!("  {} {} {}", request.method, request.path, request.body));
            let said = scene.redacted(&session, &said.collect::<Vec<_>>().join("\n"));
            assert!(!said.contains(NAMED), "{name} {line:?}: {said}");
            told.push(said);
        }
        assert_eq!(told[0], told[1], "{name} is the same on both lines");
        shown.push(format!("{name} {params}\n{}", told[0]));
    }
    scene.stage.stop().await;
    insta::assert_snapshot!(shown.join("\n"));
}

/// It is never said twice: whoever ordered it has a task that tells what became of it.
#[tokio::test]
async fn an_order_that_may_have_arrived_is_a_task_that_says_what_became_of_it() {
    let scene = Scene::of_sessions(Rules::default()).await;
    let stage = &scene.stage;
    for (name, body, end) in [
        (
            "opencode.sessions.prompt_async",
            json!({"parts": [{"type": "text", "text": "Go."}]}),
            "/prompt_async",
        ),
        ("opencode.sessions.command", json!({"command": "review", "arguments": "it"}), "/command"),
    ] {
        let method = methods::find(name).unwrap_or_else(|| panic!("no method {name}"));
        for (number, (fault, state)) in
            [(Fault::CutAfter, "TASK_STATE_COMPLETED"), (Fault::CutBefore, "TASK_STATE_FAILED")]
                .into_iter()
                .enumerate()
        {
            for line in Line::ALL {
                let session =
                    format!("ses_{}{number}{}", method.key.replace('_', ""), line.version().replace('.', ""));
                furnish(stage, &session).await;
                stage.fake.fault_once("POST", end, fault.clone());
                let before = stage.fake.arrived().len();
                let params = json!({"session_id": session, "request": body});
                let answer = call(&stage.ada, line, method, &params).await;
                let what = format!("{name} {line:?} {fault:?} {}", answer.body);
                let task = answer.result()["task_id"]
                    .as_str()
                    .unwrap_or_else(|| panic!("no task: {what}"))
                    .to_owned();
                let task = over(&stage.ada, &task).await;
                assert_eq!(task["status"]["state"], state, "{what} {task}");
                let posted = stage.fake.arrived().split_off(before);
                let posted =
                    posted.iter().filter(|line| line.starts_with("POST") && line.contains(end)).count();
                assert_eq!(posted, 1, "{what}");
                if method.key == "command" {
                    let error = &answer.result()["item"]["metadata"]["opencode"]["error"];
                    assert_eq!(error.is_null(), state == "TASK_STATE_COMPLETED", "{what}");
                }
            }
        }
    }
    scene.stage.stop().await;
}
