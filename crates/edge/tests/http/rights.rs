//! What a credential and the gateway's configuration allow and show.

use longshore_edge::{Exposure, Extension};
use longshore_engine::port::Session;
use longshore_model::{AgentEvent, BlockKind, BlockRef, Json, SessionId, ToolCall, ToolStatus};
use longshore_testkit::scripted_agent::{StartedTurn, text_block};
use serde_json::{Value, json};

use crate::support::{
    ADA, ADA_BLIND, ADA_CLAIMING, ADA_CURIOUS, Call, Gateway, HINTS, MODEL, SESSION, message,
};

const NOTHING: Exposure = Exposure { raw_thinking: false, tool_trace: false };

/// Plays a turn with reasoning, a tool call, and text in between.
async fn think_aloud(turn: StartedTurn) {
    let thought = |block: &str| BlockRef { kind: BlockKind::Reasoning, ..text_block(block) };
    let call = ToolCall {
        input: Json::parse(r#"{"command":"TOOL INPUT"}"#),
        output: Some("TOOL OUTPUT".to_owned()),
        ..ToolCall::new("call_1", "bash", ToolStatus::Completed)
    };
    turn.report(AgentEvent::Text { block: thought("prt_1"), text: "A THOUGHT ".to_owned() }).await;
    turn.report(AgentEvent::Text { block: thought("prt_1"), text: "AND ANOTHER".to_owned() }).await;
    turn.say("prt_2", "Let me see.").await;
    let block = BlockRef { kind: BlockKind::ToolCall, ..text_block("prt_3") };
    turn.report(AgentEvent::Tool { block, call: Box::new(call) }).await;
    turn.report(AgentEvent::Text { block: thought("prt_4"), text: "A LAST THOUGHT".to_owned() }).await;
    turn.complete().await;
}

/// Whether a text contains the turn's reasoning, and its tool calls.
fn shows(text: &str) -> (bool, bool) {
    (text.contains("THOUGHT") || text.contains("ANOTHER"), text.contains("TOOL"))
}

/// Every way to read a task, with the result for this credential.
async fn every_view(gateway: &Gateway, task: &str, message: &Value, credential: &str) -> Vec<String> {
    let calls: [Call; 9] = [
        gateway.call("GET", &format!("/tasks/{task}")),
        gateway.rpc("GetTask", &json!({"id": task})),
        gateway.call("GET", "/tasks?includeArtifacts=true"),
        gateway.rpc("ListTasks", &json!({"includeArtifacts": true})),
        gateway.call("POST", "/message:send").json(message),
        gateway.rpc("SendMessage", message),
        gateway.call("GET", &format!("/tasks/{task}:subscribe")).header("last-event-id", "0"),
        gateway.rpc("SendStreamingMessage", message),
        // From after the end: the task itself.
        gateway.rpc("SubscribeToTask", &json!({"id": task})).header("last-event-id", "99"),
    ];
    let mut texts = Vec::new();
    for call in calls {
        let answer = call.header("authorization", credential).header("a2a-extensions", HINTS).send().await;
        assert_eq!(answer.status.as_u16(), 200);
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(text.contains("Let me see.") && text.contains("TASK_STATE_COMPLETED"), "{text}");
        texts.push(text);
    }
    texts
}

#[tokio::test]
async fn reasoning_is_shown_as_the_credential_or_else_the_gateway_configures() {
    let cases: [(Exposure, &str, (bool, bool)); 7] = [
        (Exposure::default(), ADA, (true, true)),
        (Exposure::default(), ADA_BLIND, (false, false)),
        (NOTHING, ADA, (false, false)),
        (NOTHING, ADA_CURIOUS, (true, true)),
        (NOTHING, ADA_BLIND, (false, false)),
        (Exposure { raw_thinking: true, ..NOTHING }, ADA, (true, false)),
        (Exposure { tool_trace: true, ..NOTHING }, ADA, (false, true)),
    ];
    for (exposure, credential, expected) in cases {
        let mut gateway = Gateway::manual_with(|config| config.deployment.exposure = exposure).await;
        let body = json!({"message": message("m1", "go")});
        let sending = gateway.call("POST", "/message:send").json(&body).send();
        let (sent, ()) = tokio::join!(sending, async {
            think_aloud(gateway.turns.recv().await.unwrap()).await;
        });
        let task = sent.json()["task"]["id"].as_str().unwrap().to_owned();
        for text in every_view(&gateway, &task, &body, credential).await {
            assert_eq!(shows(&text), expected, "{exposure:?} {credential}: {text}");
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn readers_of_one_task_differ_only_in_hidden_content() {
    let mut gateway = Gateway::manual().await;
    let (task, turn) = gateway.working_task("m1").await;
    let path = format!("/tasks/{task}:subscribe");
    let subscribe = |credential: &str| {
        gateway.call("GET", &path).header("authorization", credential).header("last-event-id", "0")
    };
    let (mut open, mut blind) = (subscribe(ADA).stream().await, subscribe(ADA_BLIND).stream().await);
    think_aloud(turn).await;
    let (open, blind) = (open.rest().await, blind.rest().await);
    let visible: Vec<_> = open.iter().filter(|frame| shows(&frame.raw) == (false, false)).cloned().collect();
    assert!(visible.len() < open.len(), "{open:?}");
    assert_eq!(blind, visible);
    assert_eq!(blind.last().unwrap().id, open.last().unwrap().id);

    // A reader that resumes anywhere gets the rest of what it may see, in both bindings.
    for after in 0..open.len() as u64 {
        let expected: Vec<_> = visible.iter().filter(|frame| frame.id > Some(after)).cloned().collect();
        let call = subscribe(ADA_BLIND).header("last-event-id", &after.to_string());
        assert_eq!(call.stream().await.rest().await, expected, "after {after}");
        let call = gateway.rpc("SubscribeToTask", &json!({"id": task})).header("authorization", ADA_BLIND);
        let frames = call.header("last-event-id", &after.to_string()).stream().await.rest().await;
        let ids = |frames: &[crate::support::Frame]| frames.iter().map(|frame| frame.id).collect::<Vec<_>>();
        assert_eq!(ids(&frames), ids(&expected), "after {after}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_send_ends_at_an_ask_although_hidden_reasoning_follows() {
    let mut gateway = Gateway::manual().await;
    let body = json!({"message": message("m1", "go")});
    let call = gateway.call("POST", "/message:stream").json(&body).header("authorization", ADA_BLIND);
    let mut events = call.stream().await;
    let turn = gateway.turns.recv().await.unwrap();
    turn.ask("per_1").await;
    let thought = BlockRef { kind: BlockKind::Reasoning, ..text_block("prt_1") };
    turn.report(AgentEvent::Text { block: thought, text: "A THOUGHT".to_owned() }).await;
    let frames = events.rest().await;
    let last = &frames.last().unwrap().data["statusUpdate"]["status"];
    assert_eq!(last["state"], "TASK_STATE_INPUT_REQUIRED");
    gateway.stop().await;
}

/// A call of every operation, valid or not, in both bindings.
fn every_operation(gateway: &Gateway) -> Vec<Call> {
    let send = json!({"message": message("m1", "go")});
    let mut calls = vec![
        gateway.call("POST", "/message:send").json(&send),
        gateway.call("POST", "/message:send").json(&json!({"no": "message"})),
        gateway.call("POST", "/message:send").body("no type, no JSON"),
        gateway.call("POST", "/message:stream").json(&send),
        gateway.call("GET", "/tasks"),
        gateway.call("GET", "/tasks/t"),
        gateway.call("POST", "/tasks/t:cancel"),
        gateway.call("GET", "/tasks/t:subscribe"),
        gateway.call("POST", "/tasks/t:subscribe"),
        gateway.call("GET", "/tasks/t/pushNotificationConfigs"),
        gateway.call("DELETE", "/tasks/t/pushNotificationConfigs/c"),
    ];
    for method in [
        "SendMessage",
        "SendStreamingMessage",
        "GetTask",
        "ListTasks",
        "CancelTask",
        "SubscribeToTask",
        "CreateTaskPushNotificationConfig",
        "opencode.permissions.list",
        "a2a.interrupt.permission.reply",
        "nonsense",
    ] {
        calls.push(gateway.rpc(method, &json!({"strange": true})));
    }
    calls.push(gateway.rpc("SendMessage", &send));
    calls
}

#[tokio::test]
async fn every_operation_must_activate_the_required_extensions() {
    let required = vec![Extension::StreamHints, Extension::SessionBinding];
    let mut gateway = Gateway::manual_with(|config| config.deployment.required_extensions = required).await;
    for activated in ["", HINTS, "urn:unknown"] {
        for call in every_operation(&gateway) {
            let call = call.header("a2a-extensions", activated).header("a2a-version", "1.0");
            let answer = call.send().await;
            let body = answer.json();
            let error = &body["error"];
            if body.get("jsonrpc").is_some() {
                assert_eq!(
                    (answer.status.as_u16(), &error["code"], &body["id"]),
                    (200, &json!(-32008), &json!(1))
                );
            } else {
                assert_eq!((answer.status.as_u16(), &error["code"]), (400, &json!(400)), "{body}");
            }
            let details = error.get("data").or_else(|| error.get("details")).unwrap();
            assert_eq!(details[0]["reason"], "EXTENSION_SUPPORT_REQUIRED", "{body}");
            assert!(body.to_string().contains(SESSION), "{body}");
            let named = error["message"].as_str().unwrap();
            assert_eq!(named.contains(HINTS), activated != HINTS, "{body}");
        }
    }
    let notification =
        json!({"jsonrpc": "2.0", "method": "SendMessage", "params": {"message": message("m0", "go")}});
    let silent = gateway.call("POST", "/").json(&notification).send().await;
    assert_eq!((silent.status.as_u16(), silent.body.len()), (204, 0));
    let broken = gateway.call("POST", "/").header("content-type", "application/json").body("{").send().await;
    assert_eq!(broken.json()["error"]["code"], -32700);
    assert!(gateway.agent.log().prompted.is_empty() && gateway.agent.log().opened.is_empty());

    // Other paths require nothing, and neither do the cards, which list the required extensions.
    for (path, status) in [
        ("/.well-known/agent-card.json", 200),
        ("/extendedAgentCard", 200),
        ("/v1/card", 200),
        ("/agent/authenticatedExtendedCard", 200),
        ("/livez", 200),
        ("/artifacts/x", 404),
    ] {
        assert_eq!(gateway.call("GET", path).send().await.status.as_u16(), status, "{path}");
    }
    let extended = gateway.rpc("GetExtendedAgentCard", &json!({})).send().await.json();
    let entries = extended["result"]["capabilities"]["extensions"].as_array().unwrap();
    let marked: Vec<&Value> =
        entries.iter().filter(|entry| entry["required"] == true).map(|entry| &entry["uri"]).collect();
    assert_eq!(marked, [SESSION, HINTS]);
    // With all extensions activated, by either header, the operation is performed.
    let both = format!("{HINTS}, {SESSION}");
    let body = json!({"message": message("m1", "go"), "configuration": {"returnImmediately": true}});
    for (header, call) in [
        ("a2a-extensions", gateway.rpc("SendMessage", &body)),
        ("x-a2a-extensions", gateway.call("POST", "/message:send").json(&body)),
    ] {
        let answer = call.header(header, &both).send().await;
        assert!(answer.json().get("error").is_none(), "{}", answer.json());
    }
    gateway.turns.recv().await.unwrap().complete().await;
    gateway.stop().await;
}

/// The message with this metadata, by every operation that sends one.
fn sends(gateway: &Gateway, metadata: &Value) -> [Call; 4] {
    let body = json!({
        "message": message("m1", "go"),
        "metadata": metadata,
        "configuration": {"returnImmediately": true},
    });
    [
        gateway.call("POST", "/message:send").json(&body),
        gateway.call("POST", "/message:stream").json(&body),
        gateway.rpc("SendMessage", &body),
        gateway.rpc("SendStreamingMessage", &body),
    ]
}

#[tokio::test]
async fn an_option_needs_its_extension() {
    let gateway = Gateway::manual().await;
    let cases = [
        (json!({"shared": {"session": {"id": "ses_x"}}}), MODEL, SESSION),
        (json!({"opencode": {"directory": "sub"}}), HINTS, SESSION),
        (json!({"shared": {"model": {"providerID": "p", "modelID": "m"}}}), SESSION, MODEL),
    ];
    for (metadata, other, missing) in cases {
        for activated in ["", other] {
            for call in sends(&gateway, &metadata) {
                let answer = call.header("a2a-extensions", activated).send().await;
                let text = answer.json().to_string();
                assert!(answer.json().get("error").is_some(), "{metadata} {text}");
                assert!(text.contains("EXTENSION_NEGOTIATION_REQUIRED") && text.contains(missing), "{text}");
            }
        }
        let notification = json!({"jsonrpc": "2.0", "method": "SendMessage",
            "params": {"message": message("m1", "go"), "metadata": metadata}});
        assert_eq!(gateway.call("POST", "/").json(&notification).send().await.status.as_u16(), 204);
    }
    assert!(gateway.agent.log().prompted.is_empty() && gateway.agent.log().opened.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn an_unowned_session_needs_the_claim_capability() {
    let mut gateway = Gateway::manual().await;
    let id = SessionId::parse("ses_stranger").unwrap();
    gateway.agent.add_foreign_session(Session { id, directory: "/work".to_owned() });
    let metadata = json!({"shared": {"session": {"id": "ses_stranger"}}});
    for call in sends(&gateway, &metadata) {
        let answer = call.header("a2a-extensions", SESSION).send().await.json();
        assert!(answer.get("error").is_some(), "{answer}");
    }
    for call in sends(&gateway, &metadata) {
        // The same message leads to the same task, so there is one turn.
        let call = call.header("a2a-extensions", SESSION).header("authorization", ADA_CLAIMING);
        let (_, mut pieces) = call.pieces().await;
        let begun = pieces.next().await.unwrap().unwrap();
        assert!(!String::from_utf8_lossy(&begun).contains("\"error\""), "{begun:?}");
    }
    let turn = gateway.turns.recv().await.unwrap();
    assert_eq!(turn.request.session.id.as_str(), "ses_stranger");
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn output_modes_are_checked_before_anything_happens_and_kept_with_the_task() {
    let mut gateway = Gateway::manual().await;
    let body = |id: &str, modes: &[&str]| {
        json!({
            "message": message(id, "go"),
            "configuration": {"acceptedOutputModes": modes, "returnImmediately": true},
        })
    };
    for modes in [&["image/png"][..], &["application/json"], &["audio/*", "image/*"]] {
        let body = body("m1", modes);
        for (call, code) in [
            (gateway.rpc("SendMessage", &body), -32005),
            (gateway.rpc("SendStreamingMessage", &body), -32005),
            (gateway.call("POST", "/message:send").json(&body), 400),
            (gateway.call("POST", "/message:stream").json(&body), 400),
        ] {
            let answer = call.send().await.json();
            assert_eq!(answer["error"]["code"], code, "{modes:?} {answer}");
            assert!(answer.to_string().contains("CONTENT_TYPE_NOT_SUPPORTED"), "{answer}");
        }
    }
    assert!(gateway.agent.log().prompted.is_empty());

    // A task that was requested with text output shows no file or data, to any reader at any time.
    let sent = gateway.call("POST", "/message:send").json(&body("m2", &["text/plain"])).send().await.json();
    let task = sent["task"]["id"].as_str().unwrap().to_owned();
    let path = format!("/tasks/{task}:subscribe");
    let mut live = gateway.call("GET", &path).header("last-event-id", "0").stream().await;
    let turn = gateway.turns.recv().await.unwrap();
    turn.file("prt_f", "a.png", "image/png", b"PNG").await;
    think_aloud(turn).await;
    let live = live.rest().await;
    let late = gateway.call("GET", &path).header("last-event-id", "0").stream().await.rest().await;
    assert_eq!(live, late);
    let got = gateway.rpc("GetTask", &json!({"id": task})).send().await.json().to_string();
    let streamed: String = live.iter().map(|frame| frame.raw.clone()).collect();
    for text in [got, streamed] {
        assert!(text.contains("TOOL OUTPUT") && text.contains("THOUGHT"), "{text}");
        assert!(!text.contains("\"data\"") && !text.contains("a.png") && !text.contains("\"url\""), "{text}");
    }
    gateway.stop().await;
}
