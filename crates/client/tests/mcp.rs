//! The bridge between an MCP client on a pipe and a stub gateway.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_client::{Credential, Settings, carry_mcp};
use longshore_testkit::stub_agent::{Reply, Request, StubAgent};
use serde_json::{Value, json};
use url::Url;

const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}"#;

fn gateway(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> StubAgent {
    let count = AtomicUsize::new(0);
    StubAgent::start(move |request, _| answer(request, count.fetch_add(1, Ordering::SeqCst)))
}

/// An SSE response with a progress notification and then the answer to the request.
fn stream(request: &Request, result: &Value) -> Reply {
    let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
    Reply::new(200, "text/event-stream", format!(": ping\n\ndata: {PROGRESS}\n\ndata: {answer}\n\n"))
}

/// Writes these lines as the client, closes the input, and returns what the client reads.
async fn carried(gateway: &StubAgent, lines: &[&str]) -> Vec<Value> {
    carried_within(Duration::from_secs(10), gateway, lines).await
}

async fn carried_within(timeout: Duration, gateway: &StubAgent, lines: &[&str]) -> Vec<Value> {
    let url = Url::parse(&format!("{}/mcp", gateway.url())).unwrap();
    let settings =
        Settings { timeout, credential: Some(Credential::Bearer("tok".into())), ..Settings::default() };
    // The last line has no line end.
    let (input, mut output) = (lines.join("\n"), Vec::new());
    carry_mcp(&url, &settings, input.as_bytes(), &mut output).await.unwrap();
    String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn messages_pass_with_the_credential_and_the_headers_of_mcp() {
    let gateway = gateway(|request, _| match request.rpc() {
        "initialize" => {
            Reply::json(&json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-11-25"}}))
        }
        method if method.starts_with("notifications/") => Reply::new(202, "text/plain", ""),
        _ => stream(request, &json!({"content": []})),
    });
    let call = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"a2a_status","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let read = carried(&gateway, &[r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#, "", call]).await;
    let ids: Vec<&Value> = read.iter().map(|message| &message["id"]).collect();
    assert!(ids.contains(&&json!(1)) && ids.contains(&&json!("c")), "{read:?}");
    assert!(read.iter().any(|message| message["method"] == "notifications/progress"), "{read:?}");
    let requests = gateway.requests();
    let call = requests.iter().find(|request| request.rpc() == "tools/call").unwrap();
    let headers =
        ["authorization", "mcp-protocol-version", "mcp-method", "mcp-name"].map(|name| call.header(name));
    assert_eq!(headers, [Some("Bearer tok"), Some("2026-07-28"), Some("tools/call"), Some("a2a_status")]);
    assert_eq!(call.target, "/mcp");
}

#[tokio::test]
async fn a_call_whose_answer_was_lost_is_sent_again_with_its_key() {
    // The connection breaks in the middle of the answer, and the gateway restarts.
    let gateway = gateway(|request, count| match count {
        0 => Reply::new(200, "text/event-stream", format!("data: {PROGRESS}\n\n")).broken(),
        1 => Reply::new(503, "text/plain", "restarting"),
        _ => stream(request, &json!({"content": []})),
    });
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a2a_call"}}"#;
    let read = carried(&gateway, &[call]).await;
    assert_eq!(read.last().unwrap()["id"], 7, "{read:?}");
    let progress: Vec<&Value> =
        read.iter().filter_map(|message| message.pointer("/params/progress")).collect();
    assert_eq!(progress, [&json!(1), &json!(2.0)], "the numbers increase");
    let keys: Vec<String> = gateway
        .requests()
        .iter()
        .map(|request| request.body["params"]["_meta"]["longshore/call-key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(keys.len(), 3);
    assert!(keys[0].starts_with("mcp-") && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn a_call_may_be_silent_as_long_as_it_waits() {
    const TIMEOUT: Duration = Duration::from_millis(50);
    #[expect(
        clippy::disallowed_methods,
        reason = "the stub is silent for longer than other messages may take"
    )]
    let gateway = gateway(|request, _| {
        std::thread::sleep(4 * TIMEOUT);
        stream(request, &json!({"content": []}))
    });
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a2a_call","arguments":{"wait_seconds":60}}}"#;
    let read = carried_within(TIMEOUT, &gateway, &[call]).await;
    assert_eq!((read.last().unwrap()["id"].as_i64(), gateway.requests().len()), (Some(7), 1), "{read:?}");
}

#[tokio::test]
async fn what_no_gateway_of_mcp_answers_is_an_error_for_the_client() {
    let unauthenticated =
        json!({"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "Send a credential."}});
    let body = unauthenticated.to_string();
    let cases = [
        (Reply::new(401, "application/json", body), "Send a credential."),
        (Reply::new(404, "text/html", "<html>"), "HTTP status 404. Check the URL"),
        (Reply::new(200, "text/html", "<html>hello"), "no message of MCP. Check the URL."),
        (Reply::new(200, "application/json", "[1]"), "no message of MCP"),
    ];
    for (reply, expected) in cases {
        let shown = format!("{reply:?}");
        let gateway = gateway(move |_, _| reply.clone());
        let read = carried(&gateway, &[r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#]).await;
        assert_eq!((read.len(), &read[0]["id"]), (1, &json!(3)), "{shown}");
        let message = read[0]["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{shown}: {message}");
    }
    // An MCP error passes unchanged, although it has an error status.
    let error = json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32022, "message": "unsupported"}});
    let (body, expected) = (error.to_string(), error);
    let gateway = gateway(move |_, _| Reply::new(400, "application/json", body.clone()));
    assert_eq!(
        carried(&gateway, &[r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#]).await,
        std::slice::from_ref(&expected)
    );
    // An error without a request id answers the request that was sent.
    let unnamed = json!({"jsonrpc": "2.0", "id": null, "error": expected["error"]}).to_string();
    let gateway = self::gateway(move |_, _| Reply::new(400, "application/json", unnamed.clone()));
    assert_eq!(carried(&gateway, &[r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#]).await, [expected]);
}

#[tokio::test]
async fn a_line_that_is_no_message_is_answered_and_a_canceled_request_is_not() {
    let gateway = gateway(|_, _| Reply::silent());
    let read = carried(
        &gateway,
        &[
            "{nonsense",
            r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#,
        ],
    )
    .await;
    assert_eq!(read.len(), 1, "{read:?}");
    assert_eq!(read[0]["error"]["code"], -32700);
}
