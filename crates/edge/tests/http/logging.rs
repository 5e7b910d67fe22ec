//! What the log contains, and what it must never contain.

use longshore_edge::{EdgeConfig, PayloadLog, Protobuf};
use longshore_model::{Error, EventId, Result};
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::method::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::log_lines::LogLines;
use crate::support::{Call, Gateway, INTERRUPT, PATIENCE, RECOVERY, message};

fn payloads(enabled: bool, body_limit: usize) -> impl FnOnce(&mut EdgeConfig) {
    move |config| config.payload_log = PayloadLog { enabled, body_limit }
}

/// The logged bodies of requests (`< …`) and responses (`> …`).
fn bodies(lines: &LogLines) -> Vec<String> {
    let of = |line: String| {
        let (head, body) = line.split_once(" body=")?;
        let direction =
            if head.contains("request body") || body.contains("request body") { "<" } else { ">" };
        Some(format!("{direction} {body}"))
    };
    lines.take().into_iter().filter(|line| line.contains("longshore_edge::payload")).filter_map(of).collect()
}

#[tokio::test]
async fn bodies_are_logged_only_where_the_contract_allows_it() {
    let get = json!({"id": "nope"});
    let on = Gateway::manual_with(payloads(true, 0)).await;
    let off = Gateway::manual_with(payloads(false, 0)).await;
    let short = Gateway::manual_with(payloads(true, 90)).await;
    let lines = LogLines::begin();
    let with = |call: Call, extension: &str| call.header("a2a-extensions", extension);
    let permission = json!({"request_id": "per_1", "reply": "once"});
    let send = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}});
    let long = json!({"message": {"messageId": "x".repeat(90), "role": "ROLE_USER", "parts": []}});
    // The call, and whether its body and that of the response are logged.
    let cases: Vec<(&str, Call, bool, bool)> = vec![
        ("JSON-RPC", on.rpc("GetTask", &get), true, true),
        ("JSON-RPC of 0.3", on.rpc("tasks/get", &get), true, true),
        ("REST without a body", on.call("GET", "/tasks/nope"), false, true),
        ("REST", on.call("POST", "/message:send").json(&send), true, true),
        ("REST of 0.3", on.call("POST", "/v1/message:send").json(&send), true, true),
        ("switched off", off.rpc("GetTask", &get), false, false),
        ("switched off, REST", off.call("POST", "/message:send").json(&send), false, false),
        ("within the limit", short.rpc("GetTask", &json!({"id": "n"})), true, false),
        ("over the limit", short.call("POST", "/message:send").json(&long), false, false),
        (
            "no JSON",
            on.call("POST", "/message:send").body("token").header("content-type", "text/plain"),
            false,
            true,
        ),
        (
            "no JSON in fact",
            on.call("POST", "/message:send").body("{").header("content-type", "application/json"),
            false,
            true,
        ),
        ("an answer", with(on.rpc("a2a.interrupt.permission.reply", &permission), INTERRUPT), false, false),
        ("permissions", with(on.rpc("opencode.permissions.list", &json!({})), RECOVERY), false, false),
        ("questions", with(on.rpc("opencode.questions.list", &json!({})), RECOVERY), false, false),
        ("sessions", on.rpc("opencode.sessions.prompt_async", &get), false, false),
        ("workspaces", on.rpc("opencode.workspaces.create", &get), false, false),
        ("worktrees", on.rpc("opencode.worktrees.create", &get), false, false),
        ("projects", on.rpc("opencode.projects.list", &get), false, false),
        ("an unknown method", on.rpc("opencode.session.prompt", &get), false, false),
        ("an unknown method without dots", on.rpc("foo", &get), false, false),
        ("a method that looks like a path", on.rpc("/opencode.sessions.get", &get), false, false),
        ("providers", on.rpc("opencode.providers.list", &get), false, false),
        ("models", on.rpc("opencode.models.list", &get), false, false),
        ("no envelope", on.call("POST", "/").json(&json!({"password": 1})), false, false),
        ("no credential", on.rpc("GetTask", &get).header("authorization", ""), false, false),
        ("the card", on.call("GET", "/.well-known/agent-card.json"), false, false),
        ("unknown path", on.call("POST", "/nope").json(&get), false, false),
    ];
    for (name, call, request, answer) in cases {
        call.send().await;
        let written = bodies(&lines);
        let found = ["<", ">"].map(|sign| written.iter().filter(|line| line.starts_with(sign)).count());
        assert_eq!(found, [usize::from(request), usize::from(answer)], "{name}: {written:#?}");
    }
    for gateway in [on, off, short] {
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_is_logged_only_without_a_limit() {
    for (limit, expected) in [(0, 1), (10_000, 0)] {
        let gateway = Gateway::manual_with(payloads(true, limit)).await;
        let lines = LogLines::begin();
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let head = "POST /message:send HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer tok-ada\r\nconnection: close\r\n\
                    content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        read.expect("the server closes").unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{:?}", String::from_utf8_lossy(&answer));
        let written = bodies(&lines);
        let requests = written.iter().filter(|line| line.starts_with('<')).count();
        assert_eq!(requests, expected, "{limit}: {written:?}");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn streams_are_never_logged_and_secrets_are_left_out() {
    let gateway = Gateway::echoing_with(payloads(true, 0)).await;
    let lines = LogLines::begin();
    let body = json!({
        "message": message("m", "the key is sk-0123456789abcdef"),
        "metadata": {"x": {"api_key": "hunter2", "note": "secret too"}},
    });
    gateway.rpc("SendStreamingMessage", &body).stream().await.rest().await;
    let written = bodies(&lines);
    let [request] = written.as_slice() else { panic!("{written:#?}") };
    assert!(
        request.contains("\"messageId\":\"m\"") && request.contains("\"text\":\"[30 characters]\""),
        "{request}"
    );
    assert!(
        !request.contains("sk-0123") && !request.contains("hunter2") && !request.contains("note"),
        "{request}"
    );
    // The operation is logged too, without the id in its path.
    for name in ["sk-0123456789abcdef".to_owned(), "x".repeat(1000)] {
        gateway.call("GET", &format!("/tasks/{name}")).send().await;
        let of_bodies = |line: &String| line.contains("longshore_edge::payload");
        let written: Vec<String> = lines.take().into_iter().filter(of_bodies).collect();
        assert!(!written.is_empty());
        for line in &written {
            assert!(line.contains(" what=/tasks/{id}") && !line.contains(&name), "{line}");
        }
    }
    gateway.stop().await;
}

/// JSON in place of protocol buffers.
#[derive(Debug)]
struct PlainJson;

impl Protobuf for PlainJson {
    fn request(&self, _: ProtocolVersion, _: Method, message: &[u8]) -> Result<String> {
        Ok(String::from_utf8(message.to_vec()).unwrap())
    }

    fn reply(&self, _: ProtocolVersion, _: Method, json: &[u8]) -> Result<Vec<u8>> {
        Ok(json.to_vec())
    }

    fn event(&self, _: ProtocolVersion, _: Option<EventId>, json: &[u8]) -> Result<Vec<u8>> {
        Ok(json.to_vec())
    }

    fn status(&self, _: i32, _: &Error) -> Vec<u8> {
        Vec::new()
    }
}

#[tokio::test]
async fn a_call_of_grpc_is_logged_without_its_secrets() {
    let text = "the key is sk-0123456789abcdef";
    let call = json!({"message": message("m", text), "metadata": {"api_key": "hunter2"}}).to_string();
    let mut framed = vec![0];
    framed.extend(u32::try_from(call.len()).unwrap().to_be_bytes());
    framed.extend(call.bytes());
    for (config, expected) in [
        (PayloadLog { enabled: true, body_limit: 0 }, 1),
        (PayloadLog { enabled: true, body_limit: call.len() - 1 }, 0),
        (PayloadLog { enabled: false, body_limit: 0 }, 0),
    ] {
        let gateway = Gateway::echoing_with(|edge| {
            edge.payload_log = config;
            edge.grpc = Some(&PlainJson);
        })
        .await;
        let lines = LogLines::begin();
        for path in ["/lf.a2a.v1.A2AService/SendMessage", "/lf.a2a.v1.A2AService/SendStreamingMessage"] {
            let sending = gateway.call("POST", path).http2().header("content-type", "application/grpc");
            let answer = sending.body(framed.clone()).send().await;
            assert_eq!(answer.status.as_u16(), 200);
            let written = bodies(&lines);
            assert_eq!(written.len(), expected, "{config:?}: {written:#?}");
            for line in written {
                let is_shown =
                    line.contains("\"messageId\":\"m\"") && line.contains("\"text\":\"[30 characters]\"");
                assert!(is_shown && !line.contains("sk-0123") && !line.contains("hunter2"), "{line}");
            }
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn every_log_line_of_a_request_has_its_trace() {
    let gateway = Gateway::manual().await;
    let lines = LogLines::begin();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    gateway.call("GET", "/tasks/nope").header("traceparent", parent).send().await;
    let written = lines.take();
    let span = "longshore_edge::dispatch request trace_id=4bf92f3577b34da6a3ce929d0e0e4736";
    assert!(written.iter().any(|line| line == span), "{written:#?}");
    gateway.stop().await;

    // A stream fails long after its request was answered.
    let soon = Some(std::time::Duration::from_millis(1));
    let mut gateway = Gateway::manual_with(|config| config.limits.stream_duration = soon).await;
    let (task, _turn) = gateway.working_task("m1").await;
    let lines = LogLines::begin();
    let events = gateway.call("GET", &format!("/tasks/{task}:subscribe")).header("traceparent", parent);
    events.stream().await.rest().await;
    let written = lines.take();
    let failed: Vec<_> = written.iter().filter(|line| line.contains("what=stream")).collect();
    let [failed] = failed.as_slice() else { panic!("{written:#?}") };
    assert!(failed.contains(&format!(" in [{span}]")), "{failed}");
    gateway.stop().await;
}

/// Pseudo-random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const SECRET: &str = "hunter2correcthorse";

/// A value that contains the secret somewhere.
fn planted(random: &mut Random, depth: usize) -> Value {
    const NAMES: [&str; 8] = [
        "api_key",
        "X-API-Key",
        "apiKey",
        "password",
        "clientSecret",
        "Authorization",
        "set-cookie",
        "accessToken",
    ];
    match random.below(if depth == 0 { 3 } else { 5 }) {
        0 => {
            let name = random.of(&NAMES);
            let value = [json!(SECRET), json!([SECRET]), json!({"a": SECRET})][random.below(3)].clone();
            json!({name: value, "kept": 1})
        }
        1 => {
            let text = random.of(&[
                "curl -H 'Authorization: Bearer @'",
                "set PASSWORD=@",
                "https://u:@@host/x",
                "x?access_token=@&y=1",
            ]);
            json!({"text": text.replacen('@', SECRET, 1)})
        }
        2 => json!({"text": format!("take sk-{SECRET} for it")}),
        3 => json!([planted(random, depth - 1), "plain"]),
        _ => json!({"inner": planted(random, depth - 1), "more": [1, null, "x"], SECRET: 1}),
    }
}

#[tokio::test]
async fn no_log_line_has_a_secret() {
    for is_logged in [false, true] {
        let gateway = Gateway::echoing_with(payloads(is_logged, 0)).await;
        let lines = LogLines::begin();
        let mut random = Random(7);
        let mut count = 0;
        for round in 0..300 {
            let metadata = planted(&mut random, 3);
            let mut body =
                json!({"message": message(&format!("m{round}"), SECRET), "metadata": {"x": metadata}});
            // The secret may stand anywhere in the body, not only in free text.
            if random.below(2) == 0 {
                body["configuration"] = planted(&mut random, 1);
                body["message"][random.of(&["name", "contextid", "key", SECRET])] = json!(SECRET);
            }
            let path =
                random.of(&["/message:send", "/tasks", "/nope", "/", "/v1/message:send", "/artifacts/x"]);
            let queries = ["", "?api_key=hunter2correcthorse", "?A2A-Version=hunter2correcthorse"];
            let query = random.of(&queries);
            let call = match random.below(6) {
                0 => gateway.rpc("SendMessage", &body),
                1 => gateway.rpc("hunter2correcthorse.method", &body),
                2 => gateway.rpc("GetTask", &json!({"id": 1, "token": SECRET})),
                3 => gateway.call("POST", path).json(&json!([metadata])),
                4 => {
                    gateway.call("POST", &format!("{path}{query}")).body(format!("{{\"password\":\"{SECRET}"))
                }
                _ => gateway.call("POST", &format!("{path}{query}")).json(&body),
            };
            let call = match random.below(6) {
                0 => call.header("authorization", "Bearer hunter2correcthorse"),
                1 => call.header("authorization", "hunter2correcthorse"),
                2 => call.header("authorization", "").header("x-api-key", SECRET),
                3 => call.header("cookie", SECRET).header("last-event-id", SECRET),
                4 => call.header("origin", "https://hunter2correcthorse").header("traceparent", SECRET),
                _ => call.header("tracestate", "a=hunter2correcthorse").header("a2a-extensions", SECRET),
            };
            call.send().await;
            let written = lines.take();
            count += written.len();
            for line in written {
                assert!(!line.contains(SECRET), "round {round}: {line}");
                assert!(!line.contains("tok-ada"), "round {round}: {line}");
            }
        }
        assert!(count > 300, "only {count} lines were written");
        gateway.stop().await;
    }
}

/// The request lines, without the numbers that differ from run to run.
fn request_lines(lines: &LogLines, task: &str) -> Vec<String> {
    let of = |line: String| {
        let line =
            line.strip_prefix("INFO longshore::request ")?.split_once(" message=request ")?.1.to_owned();
        let (facts, span) = line.split_once(" in [longshore_edge::dispatch request trace_id=")?;
        assert_eq!(span.find(']'), Some(32), "{span}");
        let (facts, ms) = facts.rsplit_once(" ms=")?;
        let _: f64 = ms.parse().unwrap();
        Some(facts.replace(task, "[task]"))
    };
    lines.take().into_iter().filter_map(of).collect()
}

#[tokio::test]
async fn each_request_has_one_line_with_its_method_principal_task_state_and_outcome() {
    let mut gateway = Gateway::manual().await;
    let lines = LogLines::begin();
    let (task, turn) = gateway.working_task("m1").await;
    let stream = gateway.call("GET", &format!("/tasks/{task}:subscribe"));
    let mut events = stream.stream().await;
    events.next().await.unwrap();
    assert_eq!(
        request_lines(&lines, &task),
        ["method=SendMessage principal=ada task=[task] state=submitted status=200"],
        "the line of a stream is written at its end"
    );
    turn.complete().await;
    events.rest().await;
    let get = json!({"id": &task});
    let calls = [
        gateway.call("GET", &format!("/tasks/{task}")),
        gateway.call("GET", &format!("/v1/tasks/{task}")),
        gateway.rpc("GetTask", &get),
        gateway.rpc("tasks/get", &get),
        gateway.rpc("GetTask", &json!({"id": "nope"})),
        gateway.rpc("NoSuchMethod", &get),
        gateway.call("GET", "/tasks"),
        gateway.call("GET", "/nope"),
        gateway.call("GET", "/tasks").header("authorization", "Bearer wrong"),
        gateway.call("GET", "/.well-known/agent-card.json"),
        gateway.call("GET", "/").header("accept", "text/html"),
        gateway.rpc("opencode.permissions.list", &json!({})),
        // Probes have no line.
        gateway.call("GET", "/health"),
        gateway.call("GET", "/livez"),
        gateway.call("GET", "/metrics"),
    ];
    for call in calls {
        call.send().await;
    }
    gateway.stop().await;
    insta::assert_snapshot!(request_lines(&lines, &task).join("\n"));
}
