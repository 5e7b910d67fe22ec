//! MCP over HTTP on a real gateway, whose agent the test controls.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod gateway;

use serde_json::{Value, json};

use gateway::{ADA, BOB, Gateway, progress_of, text_of};

#[tokio::test]
async fn a_call_is_a_task_of_its_caller_and_returns_what_the_agent_says() {
    let mut gateway = Gateway::start().await;
    let mut call = gateway.call(ADA, "a2a_call", json!({"agent": "Test agent", "message": "go"})).await;
    let turn = gateway.turns.recv().await.unwrap();
    turn.say("prt_1", "All ").await;
    turn.say("prt_1", "done.").await;
    turn.file("file_1", "a.txt", "text/plain", b"abc").await;
    turn.complete().await;
    let result = call.result().await;
    assert!(text_of(&result).contains("All done."), "{result}");
    let structured = &result["structuredContent"];
    assert_eq!(
        (&structured["state"], &structured["words_of_the_agent"]),
        (&json!("completed"), &json!("All done."))
    );
    let file = &result["content"][1];
    assert_eq!((&file["type"], &file["name"]), (&json!("resource_link"), &json!("a.txt")), "{result}");
    assert!(file["uri"].as_str().unwrap().starts_with("/artifacts/"), "{result}");
    // This version of MCP does not know resource links.
    gateway.version = "2025-03-26";
    let status = json!({"call": structured["call"]});
    let old = gateway.call(ADA, "a2a_status", status).await.result().await;
    assert!(text_of(&old).contains("a.txt: /artifacts/"), "{old}");
    let kinds = old["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap());
    assert!(kinds.into_iter().all(|kind| kind == "text"), "{old}");
    // A2A shows the same task.
    let task = gateway.get(ADA, &format!("/tasks/{}", structured["call"].as_str().unwrap())).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn discover_names_the_agent_and_other_names_are_refused() {
    let gateway = Gateway::start().await;
    let result = gateway.call(ADA, "a2a_discover", json!({})).await.result().await;
    assert_eq!(result["structuredContent"]["agents"][0]["name"], "Test agent", "{result}");
    for agent in ["other", "http://169.254.169.254/", "http://127.0.0.1:1/"] {
        let result =
            gateway.call(ADA, "a2a_call", json!({"agent": agent, "message": "x"})).await.result().await;
        assert_eq!(result["isError"], true);
        assert!(text_of(&result).contains("The only agent here is `Test agent`."), "{result}");
    }
}

#[tokio::test]
async fn an_ask_is_answered_with_a_tool_and_seen_over_a2a() {
    let mut gateway = Gateway::start().await;
    let mut call = gateway.call(ADA, "a2a_call", json!({"agent": "test agent", "message": "go"})).await;
    let turn = gateway.turns.recv().await.unwrap();
    turn.ask("per_1").await;
    let result = call.result().await;
    let structured = &result["structuredContent"];
    assert_eq!(structured["state"], "asks", "{result}");
    assert!(text_of(&result).contains("Answer with a2a_answer"), "{result}");
    let handle = structured["call"].clone();
    let task = gateway.get(ADA, &format!("/tasks/{}", handle.as_str().unwrap())).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let arguments = json!({"call": handle, "answer": "once"});
    let mut answer = gateway.call(ADA, "a2a_answer", arguments.clone()).await;
    gateway.answered("per_1").await;
    turn.say("prt_1", "Thanks.").await;
    turn.complete().await;
    assert_eq!(answer.result().await["structuredContent"]["words_of_the_agent"], "Thanks.");
    let again = gateway.call(ADA, "a2a_answer", arguments).await.result().await;
    assert!(text_of(&again).contains("The call asks nothing: it is completed."), "{again}");
}

#[tokio::test]
async fn an_answer_that_is_sent_again_or_names_a_closed_ask_does_not_answer_the_next_ask() {
    let mut gateway = Gateway::start().await;
    let mut call = gateway.call(ADA, "a2a_call", json!({"agent": "Test agent", "message": "go"})).await;
    let turn = gateway.turns.recv().await.unwrap();
    turn.ask("per_1").await;
    let asked = call.result().await;
    assert_eq!(asked["structuredContent"]["asks"], json!(["per_1"]), "{asked}");
    let call = asked["structuredContent"]["call"].clone();
    let arguments = json!({"call": call, "answer": "once", "wait_seconds": 0});
    let named = json!({"call": call, "ask": "per_1", "answer": "once", "wait_seconds": 0});
    gateway.keyed("k-1", "a2a_answer", arguments.clone()).await;
    gateway.answered("per_1").await;
    turn.ask("per_2").await;
    let status = json!({"call": call, "wait_seconds": 0});
    while gateway.keyed("k-2", "a2a_status", status.clone()).await["structuredContent"]["asks"]
        != json!(["per_2"])
    {
        tokio::task::yield_now().await;
    }
    let again = gateway.keyed("k-1", "a2a_answer", arguments).await;
    assert_eq!(again["structuredContent"]["asks"], json!(["per_2"]), "{again}");
    let late = gateway.keyed("k-3", "a2a_answer", named).await;
    assert_eq!(late["isError"], true, "{late}");
    assert_eq!(gateway.replied(), ["per_1"]);
    let right = json!({"call": call, "ask": "per_2", "answer": "once", "wait_seconds": 0});
    gateway.keyed("k-4", "a2a_answer", right).await;
    gateway.answered("per_2").await;
}

#[tokio::test]
async fn a_long_call_returns_its_handle_and_is_continued_or_canceled_by_it() {
    let mut gateway = Gateway::start().await;
    let arguments = json!({"agent": "Test agent", "message": "go", "wait_seconds": 0});
    let begun = gateway.call(ADA, "a2a_call", arguments).await.result().await;
    assert_eq!(begun["structuredContent"]["state"], "working", "{begun}");
    let handle = begun["structuredContent"]["call"].clone();
    let turn = gateway.turns.recv().await.unwrap();
    let context = turn.request.session.id.clone();
    let mut status = gateway.call(ADA, "a2a_status", json!({"call": handle, "wait_seconds": 600})).await;
    turn.complete().await;
    assert_eq!(status.result().await["structuredContent"]["state"], "completed");
    let arguments = json!({"call": handle, "message": "more", "wait_seconds": 0});
    let more = gateway.call(ADA, "a2a_continue", arguments).await.result().await;
    let second = gateway.turns.recv().await.unwrap();
    assert_eq!(second.request.session.id, context, "the same conversation");
    let canceled = gateway.call(ADA, "a2a_cancel", json!({"call": more["structuredContent"]["call"]})).await;
    assert_eq!({ canceled }.result().await["structuredContent"]["state"], "canceled");
    let again = gateway.call(ADA, "a2a_cancel", json!({"call": more["structuredContent"]["call"]})).await;
    assert_eq!({ again }.result().await["structuredContent"]["state"], "canceled");
}

#[tokio::test]
async fn progress_is_reported_to_a_client_that_asks_for_it() {
    let mut gateway = Gateway::start().await;
    let params = json!({
        "name": "a2a_call",
        "arguments": {"agent": "Test agent", "message": "go"},
        "_meta": {"progressToken": "p"},
    });
    let mut call = gateway.request(ADA, "tools/call", params).await;
    let first = call.next().await;
    assert!(progress_of(&first).starts_with("Test agent has the message; the call is "), "{first}");
    let turn = gateway.turns.recv().await.unwrap();
    turn.complete().await;
    assert_eq!(call.result().await["structuredContent"]["state"], "completed");
}

#[tokio::test]
async fn a_client_that_vanishes_leaves_its_call_running() {
    let mut gateway = Gateway::start().await;
    let params = json!({
        "name": "a2a_call",
        "arguments": {"agent": "Test agent", "message": "go"},
        "_meta": {"progressToken": "p"},
    });
    let mut call = gateway.request(ADA, "tools/call", params).await;
    let handle = progress_of(&call.next().await).rsplit(' ').next().unwrap().to_owned();
    let turn = gateway.turns.recv().await.unwrap();
    drop(call);
    gateway.until_alone().await;
    turn.say("prt_1", "Still here.").await;
    turn.complete().await;
    let status = gateway.call(ADA, "a2a_status", json!({"call": handle})).await.result().await;
    assert_eq!(status["structuredContent"]["words_of_the_agent"], "Still here.", "{status}");
}

#[tokio::test]
async fn a_call_that_is_repeated_with_its_key_is_made_once() {
    let mut gateway = Gateway::start().await;
    let params = json!({
        "name": "a2a_call",
        "arguments": {"agent": "Test agent", "message": "go", "wait_seconds": 0},
        "_meta": {"longshore/call-key": "k-1"},
    });
    let first = gateway.request(ADA, "tools/call", params.clone()).await.result().await;
    let second = gateway.request(ADA, "tools/call", params.clone()).await.result().await;
    assert_eq!(first["structuredContent"]["call"], second["structuredContent"]["call"]);
    gateway.turns.recv().await.unwrap();
    // Keys are separate for each principal: the same key makes a new call here.
    let other = gateway.request(BOB, "tools/call", params).await.result().await;
    assert_ne!(first["structuredContent"]["call"], other["structuredContent"]["call"]);
    let mut wrong = json!({"name": "a2a_discover", "_meta": {"longshore/call-key": "k\n1"}});
    wrong["arguments"] = json!({});
    let refused = gateway.request(ADA, "tools/call", wrong).await.result().await;
    assert_eq!(refused["isError"], true, "{refused}");
}

#[tokio::test]
async fn a_call_of_another_principal_does_not_exist() {
    let gateway = Gateway::start().await;
    let arguments = json!({"agent": "Test agent", "message": "go", "wait_seconds": 0});
    let begun = gateway.call(ADA, "a2a_call", arguments).await.result().await;
    let handle = begun["structuredContent"]["call"].clone();
    let cases = [
        ("a2a_status", json!({"call": handle})),
        ("a2a_cancel", json!({"call": handle})),
        ("a2a_answer", json!({"call": handle, "answer": "once"})),
        ("a2a_continue", json!({"call": handle, "message": "x"})),
    ];
    for (tool, arguments) in cases {
        let result = gateway.call(BOB, tool, arguments.clone()).await.result().await;
        assert_eq!(result["isError"], true, "{tool}");
        let mut unknown = arguments;
        unknown["call"] = json!("00000000-0000-7000-8000-000000000000");
        let nobody = gateway.call(BOB, tool, unknown).await.result().await;
        let text = |result: &Value| text_of(result).replace(handle.as_str().unwrap(), "ID");
        assert_eq!(
            text(&result),
            text(&nobody).replace("00000000-0000-7000-8000-000000000000", "ID"),
            "{tool}"
        );
    }
    let own =
        gateway.call(ADA, "a2a_status", json!({"call": handle, "wait_seconds": 0})).await.result().await;
    assert_eq!(own["structuredContent"]["state"], "working");
}

type Headers<'a> = &'a [(&'a str, &'a str)];

#[tokio::test]
async fn requests_that_the_gate_or_the_protocol_refuses_reach_no_agent() {
    let gateway = Gateway::start().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "a2a_call", "arguments": {"agent": "Test agent", "message": "x"},
    }});
    let long = "x".repeat(2 * 1024 * 1024);
    let ok = "application/json, text/event-stream";
    let huge = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": long}}).to_string();
    let cases: [(&str, Headers<'_>, String, u16); 10] = [
        ("POST", &[("accept", ok)], call.to_string(), 401),
        ("POST", &[("authorization", "Bearer wrong"), ("accept", ok)], call.to_string(), 401),
        (
            "POST",
            &[("authorization", ADA), ("accept", ok), ("origin", "https://evil.example")],
            call.to_string(),
            403,
        ),
        ("POST", &[("authorization", ADA), ("accept", ok), ("host", "evil.example")], call.to_string(), 403),
        ("GET", &[("authorization", ADA), ("accept", "text/event-stream")], String::new(), 405),
        ("DELETE", &[("authorization", ADA)], String::new(), 405),
        ("POST", &[("authorization", ADA), ("accept", "text/html")], call.to_string(), 406),
        ("POST", &[("authorization", ADA), ("accept", ok)], huge, 413),
        (
            "POST",
            &[("authorization", ADA), ("accept", ok), ("content-type", "text/plain")],
            call.to_string(),
            415,
        ),
        // The SDK answers unreadable JSON with 415, as if the media type were wrong.
        ("POST", &[("authorization", ADA), ("accept", ok)], "[{".to_owned(), 415),
    ];
    for (verb, headers, body, status) in cases {
        let answer = gateway.raw(verb, headers, body).await;
        assert_eq!(answer.status().as_u16(), status, "{verb} {headers:?}");
    }
    let list = gateway.get(ADA, "/tasks").await;
    assert_eq!(list["totalSize"], 0, "{list}");
}

#[tokio::test]
async fn clients_that_never_end_their_sessions_leave_nothing_behind() {
    let gateway = Gateway::start().await;
    for _ in 0..1_000 {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let mut begun = gateway.request(ADA, "initialize", params).await;
        assert_eq!(begun.header("mcp-session-id"), None);
        let begun = begun.result().await;
        assert_eq!(begun["serverInfo"]["name"], "longshore");
    }
    gateway.until_alone().await;
    // The server keeps no session, so the requests above need no cleanup.
    let result = gateway.call(ADA, "a2a_discover", json!({})).await.result().await;
    assert_eq!(result["isError"], false);
}

#[tokio::test]
async fn waiting_calls_take_the_slots_of_streams() {
    let mut gateway = Gateway::with_streams(2).await;
    let arguments = json!({"agent": "Test agent", "message": "go"});
    let mut calls = Vec::new();
    for _ in 0..2 {
        let call = gateway.call(ADA, "a2a_call", arguments.clone()).await;
        calls.push((call, gateway.turns.recv().await.unwrap()));
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let headers = [("authorization", ADA), ("accept", "application/json, text/event-stream")];
    let refused = gateway.raw("POST", &headers, body.clone()).await;
    assert_eq!(refused.status(), 429, "{:?}", refused.text().await);
    calls.clear();
    gateway.until_alone().await;
    assert_eq!(gateway.raw("POST", &headers, body).await.status(), 200);
}

#[tokio::test]
async fn a_waiting_call_returns_its_handle_when_the_gateway_stops() {
    let mut gateway = Gateway::start().await;
    let mut call = gateway.call(ADA, "a2a_call", json!({"agent": "Test agent", "message": "go"})).await;
    let _turn = gateway.turns.recv().await.unwrap();
    gateway.shutdown.cancel();
    let result = call.result().await;
    assert_eq!(result["structuredContent"]["state"], "working", "{result}");
}
