//! A client speaks to the server over a pipe, in lines of JSON. The tools behind it are a fake.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod fake;

use longshore_peers::CallState;
use serde_json::json;

use fake::{Client, FakeTools};

const DONE: CallState = CallState::Completed;

#[tokio::test]
async fn a_client_lists_the_tools_with_their_schemas() {
    let mut client = Client::connect(FakeTools::new(DONE)).await;
    let listed = client.request("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let shown: Vec<String> = tools
        .iter()
        .map(|tool| {
            let schema = &tool["inputSchema"];
            let names: Vec<&str> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)));
            format!("{}({}) needs {}", tool["name"].as_str().unwrap(), names.join(", "), schema["required"])
        })
        .collect();
    assert_eq!(
        shown,
        [
            "a2a_discover() needs []",
            r#"a2a_call(agent, message, wait_seconds) needs ["agent","message"]"#,
            r#"a2a_continue(call, message, wait_seconds) needs ["call","message"]"#,
            r#"a2a_answer(call, ask, answer, wait_seconds) needs ["call","answer"]"#,
            r#"a2a_status(call, wait_seconds) needs ["call"]"#,
            r#"a2a_cancel(call) needs ["call"]"#,
        ]
    );
}

#[tokio::test]
async fn each_tool_reaches_the_calls_with_its_arguments() {
    let tools = FakeTools::new(DONE);
    let mut client = Client::connect(tools.clone()).await;
    let cases = [
        ("a2a_discover", json!({}), "discover"),
        ("a2a_call", json!({"agent": "b", "message": "hi"}), "call key-a2a_call b hi 45s"),
        (
            "a2a_continue",
            json!({"call": "c1", "message": "more", "wait_seconds": 5}),
            "call key-a2a_continue  more 5s continues c1",
        ),
        ("a2a_answer", json!({"call": "c1", "answer": "yes"}), "answer key-a2a_answer c1 None yes 45s"),
        (
            "a2a_answer",
            json!({"call": "c1", "ask": "q1", "answer": "yes"}),
            "answer key-a2a_answer c1 Some(\"q1\") yes 45s",
        ),
        ("a2a_status", json!({"call": "c1", "wait_seconds": 0}), "status c1 0ns"),
        ("a2a_cancel", json!({"call": "c1"}), "cancel c1"),
    ];
    for (tool, arguments, expected) in cases {
        let answer = client.call(tool, arguments).await;
        assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
        assert_eq!(tools.last(), expected);
    }
}

#[tokio::test]
async fn what_the_transport_adds_to_the_arguments_does_not_reach_the_tool() {
    let tools = FakeTools::new(DONE);
    let mut client = Client::connect(tools.clone()).await;
    let answer = client.call("a2a_cancel", json!({"call": "c1", "session": "s1"})).await;
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert_eq!(tools.last(), "cancel c1");
}

#[tokio::test]
async fn refusals_are_results_that_the_model_reads() {
    let mut client = Client::connect(FakeTools::new(DONE)).await;
    let cases = [
        ("a2a_call", json!({"agent": "b"}), "`message` is missing"),
        ("a2a_call", json!({"agent": "b", "message": "panic"}), "The gateway failed"),
        ("a2a_call", json!({"agent": "b", "message": "refuse"}), "There is no agent `b`."),
        (
            "a2a_call",
            json!({"agent": "b", "message": "x", "who": "nobody"}),
            "The calling task is not known.",
        ),
    ];
    for (tool, arguments, expected) in cases {
        let answer = client.call(tool, arguments).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(expected), "{text}");
    }
    let answer = client.call("a2a_destroy", json!({})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn progress_reaches_a_client_that_asked_for_it() {
    let mut client = Client::connect(FakeTools::new(DONE)).await;
    let params = json!({
        "name": "a2a_call",
        "arguments": {"agent": "b", "message": "report progress"},
        "_meta": {"progressToken": "p1"},
    });
    let id = client.send("tools/call", params).await;
    let first = client.next().await;
    assert_eq!(first["method"], "notifications/progress");
    assert_eq!(
        first["params"],
        json!({"progressToken": "p1", "progress": 1.0, "message": "asked b: report progress"})
    );
    client.tools.release();
    assert_eq!(client.next().await["id"], id);
    // The same call without a progress token.
    let params = json!({"name": "a2a_call", "arguments": {"agent": "b", "message": "report progress"}});
    let id = client.send("tools/call", params).await;
    client.tools.release();
    assert_eq!(client.next().await["id"], id);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_hears_regularly_from_a_silent_call() {
    let mut client = Client::connect(FakeTools::new(CallState::Working)).await;
    let params = json!({
        "name": "a2a_call",
        "arguments": {"agent": "b", "message": "hang"},
        "_meta": {"progressToken": 7},
    });
    client.send("tools/call", params).await;
    for seconds in [10, 20, 30] {
        let beat = client.next().await;
        assert_eq!(beat["params"]["message"], format!("waiting for {seconds} s"), "{beat}");
    }
}

#[tokio::test]
async fn the_end_of_a_client_or_its_cancel_ends_only_the_wait() {
    let tools = FakeTools::new(DONE);
    let mut client = Client::connect(tools.clone()).await;
    let id = client.send("tools/call", hang()).await;
    tools.until("call key-a2a_call b hang 45s").await;
    client.notify("notifications/cancelled", json!({"requestId": id, "reason": "enough"})).await;
    tools.until("dropped").await;
    client.send("tools/call", hang()).await;
    tools.until("call key-a2a_call b hang 45s").await;
    client.stop();
    drop(client);
    tools.until("dropped").await;
    assert!(!tools.log().iter().any(|line| line.starts_with("cancel")), "{:?}", tools.log());
}

#[tokio::test]
async fn a_gateway_that_stops_leaves_the_open_calls_unanswered() {
    let mut client = Client::connect(FakeTools::new(DONE)).await;
    client.send("tools/call", hang()).await;
    client.tools.until("call key-a2a_call b hang 45s").await;
    client.stop();
    assert_eq!(client.rest().await, Vec::<serde_json::Value>::new());
}

fn hang() -> serde_json::Value {
    json!({"name": "a2a_call", "arguments": {"agent": "b", "message": "hang"}})
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused_and_the_others_go_on() {
    let mut client = Client::connect(FakeTools::new(DONE)).await;
    for _ in 0..32 {
        client.send("tools/call", hang()).await;
    }
    let refused = client.call("a2a_call", json!({"agent": "b", "message": "one more"})).await;
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("32 calls are waited for already"), "{text}");
    for _ in 0..32 {
        client.tools.release();
        assert_eq!(client.next().await["result"]["isError"], false);
    }
}

#[tokio::test]
async fn hostile_lines_end_nothing_but_their_own_connection() {
    let mut client = Client::connect(FakeTools::new(DONE)).await;
    for line in ["", "{", "[]", "\u{0}", r#"{"jsonrpc":"2.0","method":7}"#, &"x".repeat(5 * 1024 * 1024)] {
        client.write(line).await;
    }
    // An error without an id may come before the answer to the ping.
    let id = client.send("ping", json!({})).await;
    while client.next().await["id"] != id {}
    // The second request reuses the id of a request that is still open.
    client.write(r#"{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"a2a_call","arguments":{"agent":"b","message":"hang"}}}"#).await;
    client.write(r#"{"jsonrpc":"2.0","id":99,"method":"ping"}"#).await;
    client.rest().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_read_no_more() {
    let client = Client::connect(FakeTools::new(DONE)).await;
    // The requests are long, so that few of them fit into the pipe.
    let long = "x".repeat(4096);
    let request =
        format!(r#"{{"jsonrpc":"2.0","id":$,"method":"tools/list","params":{{"cursor":"{long}"}}}}"#);
    let written = client.flood(&request, 10_000).await;
    assert!(written < 200, "{written} requests were read while no answer could be written");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_begins_is_disconnected() {
    let error = Client::silent(FakeTools::new(DONE)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}
