use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use http::request::Builder;
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use longshore_meter::label::{Binding, Limit};
use longshore_model::{Principal, TraceContext};
use longshore_testkit::scripted_agent::ScriptedAgent;
use longshore_wire::contract::Deployment;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use super::*;
use crate::auth::Rights;
use crate::{Credentials, Limits, Rate, test_engine};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A body that must not be read.
struct Panicking;

impl http_body::Body for Panicking {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        panic!("on purpose")
    }
}

fn dispatcher(limits: Limits) -> Dispatcher {
    dispatcher_of(limits, test_engine::echoing())
}

fn dispatcher_of(limits: Limits, engine: Engine) -> Dispatcher {
    let credentials = Credentials::builder()
        .api_key("key".into(), "ada")
        .api_key("key-of-bob".into(), "bob")
        .build()
        .unwrap();
    let deployment =
        Deployment { public_url: "https://agent.example".to_owned(), ..Deployment::of_opencode() };
    let config = EdgeConfig { limits, ..EdgeConfig::new(deployment, credentials) };
    let bound = Bound { address: Some(SocketAddr::from(([0, 0, 0, 0], 8000))), has_tls: false };
    Dispatcher::new(engine, config, bound, CancellationToken::new(), Tasks::new())
}

fn in_a_minute(requests: u32) -> Rate {
    Rate { requests, window: Duration::from_mins(1) }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

fn keyed(builder: Builder, key: &str) -> Builder {
    builder.header("x-api-key", key).header("content-type", "application/json")
}

async fn ask(dispatcher: &Dispatcher, peer: IpAddr, request: Builder) -> Answer {
    ask_with(dispatcher, peer, request, Panicking).await
}

async fn ask_with<B>(dispatcher: &Dispatcher, peer: IpAddr, request: Builder, body: B) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let response = dispatcher.answer(peer, None, request.body(body).unwrap()).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// For each version and binding, a request that is refused before its body is read.
fn in_all_formats() -> [(&'static str, Builder); 4] {
    [
        ("1.0 JSON-RPC", Request::post("/a2a/1.0")),
        ("1.0 REST", Request::get("/tasks/t")),
        ("0.3 JSON-RPC", Request::post("/a2a/0.3")),
        ("0.3 REST", Request::get("/v1/tasks/t")),
    ]
}

#[tokio::test]
async fn a_panic_is_answered_with_status_500() {
    let dispatcher = dispatcher(Limits::default());
    for (path, format) in [
        ("/", "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,"),
        ("/message:send", "{\"error\":{\"code\":500,\"status\":\"INTERNAL\","),
        ("/a2a/0.3", "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,"),
        (
            "/v1/message:send",
            "{\"message\":\"The gateway failed to handle this request; its log says why.\",",
        ),
    ] {
        let answer = ask(&dispatcher, HERE, keyed(Request::post(path), "key")).await;
        assert_eq!(answer.status, 500);
        assert!(answer.body.starts_with(format), "{}", answer.body);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scrape_is_exempt_from_the_rate_limit() {
    let dispatcher = dispatcher(Limits { rate: Some(in_a_minute(1)), ..Limits::default() });
    let ask =
        async |path: &str, key: &str| ask(&dispatcher, HERE, keyed(Request::get(path), key)).await.status;
    // A request for the metrics is neither counted nor limited.
    for _ in 0..3 {
        assert_eq!(ask("/metrics", "key").await, 200);
    }
    assert_eq!((ask("/tasks/t", "key").await, ask("/tasks/t", "key").await), (404, 429));
    assert_eq!(ask("/metrics", "key").await, 200);
    assert_eq!(ask("/metrics", "wrong").await, 401);
}

#[tokio::test(start_paused = true)]
async fn a_rate_limited_request_is_refused_in_its_own_format_before_the_body_is_read() {
    let dispatcher = dispatcher(Limits { rate: Some(in_a_minute(2)), ..Limits::default() });
    for _ in 0..2 {
        let answer = ask(&dispatcher, HERE, keyed(Request::get("/tasks/t"), "key")).await;
        assert_eq!(answer.status, 404);
    }
    let text = "Too many requests: 2 in 60 seconds are allowed. Send this one again later.";
    let info = "[{\"@type\":\"type.googleapis.com/google.rpc.ErrorInfo\",\"reason\":\"TOO_MANY_REQUESTS\",\"domain\":\
                \"a2a-protocol.org\",\"metadata\":{\"limit\":\"rate_requests\",\"max\":\"2\",\"retryAfterSeconds\":\"30\"}}]";
    let data =
        "\"type\":\"TOO_MANY_REQUESTS\",\"limit\":\"rate_requests\",\"max\":2,\"retry_after_seconds\":30}";
    let expected = [
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{{\"code\":-31056,\"message\":\"{text}\",\"data\":{info}}}}}"
        ),
        format!(
            "{{\"error\":{{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"{text}\",\"details\":{info}}}}}"
        ),
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{{\"code\":-31056,\"message\":\"{text}\",\"data\":{{{data}}}}}"
        ),
        format!("{{\"message\":\"{text}\",\"error\":\"{text}\",\"code\":-31056,{data}"),
    ];
    for ((name, request), expected) in in_all_formats().into_iter().zip(expected) {
        let answer = ask(&dispatcher, HERE, keyed(request, "key")).await;
        assert_eq!(answer.status, 429, "{name}");
        assert_eq!(answer.header("retry-after"), Some("30"), "{name}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{name}");
        assert_eq!(answer.header("www-authenticate"), None, "{name}");
        assert_eq!(answer.body, expected, "{name}");
    }
    assert_eq!(dispatcher.metrics.rate_limit_rejected.get(), 4);
    // Another principal is not affected, and exempt paths are not limited.
    assert_eq!(ask(&dispatcher, HERE, keyed(Request::get("/tasks/t"), "key-of-bob")).await.status, 404);
    for (request, status) in [
        (Request::get("/livez"), 200),
        (Request::get("/.well-known/agent-card.json"), 200),
        (Request::get("/.well-known/agent.json"), 200),
        (Request::options("/tasks/t"), 405),
        (Request::options("/"), 405),
        // Requests without a credential are counted by address, for all clients together.
        (Request::get("/openapi.json"), 200),
    ] {
        let request = if status == 405 { keyed(request, "key") } else { request };
        assert_eq!(ask(&dispatcher, HERE, request).await.status, status);
    }
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(ask(&dispatcher, HERE, keyed(Request::get("/tasks/t"), "key")).await.status, 404);
    assert_eq!(ask(&dispatcher, HERE, keyed(Request::get("/tasks/t"), "key")).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_credential_are_counted_by_address() {
    let dispatcher = dispatcher(Limits { rate: Some(in_a_minute(1)), ..Limits::default() });
    let there = IpAddr::from([192, 0, 2, 1]);
    for (peer, status) in [(HERE, 200), (HERE, 429), (there, 200), (there, 429)] {
        assert_eq!(ask(&dispatcher, peer, Request::get("/openapi.json")).await.status, status);
    }
    // Proxy headers are not trusted: any client can send them.
    for header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let request = Request::get("/openapi.json").header(header, "198.51.100.7");
        assert_eq!(ask(&dispatcher, there, request).await.status, 429);
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_guesses_credentials_is_refused_even_with_a_right_one() {
    let guesser = IpAddr::from([192, 0, 2, 1]);
    let other = IpAddr::from([192, 0, 2, 2]);
    let dispatcher = dispatcher(Limits { failed_logins: Some(in_a_minute(3)), ..Limits::default() });
    let get = |key: &'static str| keyed(Request::get("/tasks/t"), key);
    // A request without a credential does not count as a guess, and a valid credential in between does not reset the count.
    for _ in 0..10 {
        assert_eq!(ask(&dispatcher, guesser, Request::get("/tasks/t")).await.status, 401);
    }
    assert_eq!(ask(&dispatcher, guesser, get("wrong")).await.status, 401);
    assert_eq!(ask(&dispatcher, guesser, get("key")).await.status, 404);
    // A wrong credential counts with every verb and path.
    assert_eq!(ask(&dispatcher, guesser, keyed(Request::options("/"), "wrong")).await.status, 401);
    assert_eq!(ask(&dispatcher, guesser, keyed(Request::get("/openapi.json"), "wrong")).await.status, 401);
    assert_eq!(dispatcher.metrics.failed_logins.get(), 3);
    for (name, request) in in_all_formats() {
        for key in ["wrong", "key"] {
            let request = keyed(
                Request::builder().method(request.method_ref().unwrap()).uri(request.uri_ref().unwrap()),
                key,
            );
            let answer = ask(&dispatcher, guesser, request).await;
            assert_eq!((answer.status, answer.header("retry-after")), (429, Some("20")), "{name} {key}");
            assert_eq!(answer.header("www-authenticate"), None);
            assert!(answer.body.contains("TOO_MANY_REQUESTS"), "{}", answer.body);
        }
    }
    assert_eq!(dispatcher.metrics.refused.of(Limit::FailedLogins).get(), 8);
    assert_eq!(dispatcher.metrics.failed_logins.get(), 3);
    // Public paths are still served, and other addresses are not affected.
    assert_eq!(ask(&dispatcher, guesser, Request::get("/livez")).await.status, 200);
    assert_eq!(ask(&dispatcher, guesser, Request::get("/openapi.json")).await.status, 200);
    assert_eq!(ask(&dispatcher, other, get("key")).await.status, 404);
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(ask(&dispatcher, guesser, get("key")).await.status, 404);
    // A loopback address is never locked, because a proxy may run there.
    for _ in 0..10 {
        assert_eq!(ask(&dispatcher, HERE, get("wrong")).await.status, 401);
    }
    assert_eq!(ask(&dispatcher, HERE, get("key")).await.status, 404);
}

#[tokio::test]
async fn the_guard_checks_every_path_and_verb() {
    let limits = Limits { allowed_hosts: vec!["agent.example".to_owned()], ..Limits::default() };
    let dispatcher = dispatcher(limits);
    let paths = [
        "/",
        "/tasks",
        "/v1/tasks",
        "/a2a/0.3",
        "/livez",
        "/health",
        "/openapi.json",
        "/nope",
        "/artifacts/f",
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/extendedAgentCard",
    ];
    let mut refused = 0;
    for path in paths {
        for verb in [Method::GET, Method::POST, Method::OPTIONS, Method::DELETE] {
            for (host, origin, text) in [
                ("agent.example", Some("https://evil.example"), "Cross-origin request rejected"),
                ("agent.example", Some("null"), "Cross-origin request rejected"),
                ("evil.example", None, "Host not allowed"),
                ("evil.example", Some("https://agent.example"), "Host not allowed"),
            ] {
                let mut request = Request::builder().method(&verb).uri(path).header("host", host);
                if let Some(origin) = origin {
                    request = request.header("origin", origin);
                }
                // The same holds with a valid credential.
                let answer = ask(&dispatcher, HERE, keyed(request, "key")).await;
                assert_eq!(answer.status, 403, "{verb} {path}");
                assert!(answer.body.contains(text), "{}", answer.body);
                assert_eq!(answer.header("www-authenticate"), None);
                let cors = answer.headers.keys().find(|name| name.as_str().starts_with("access-control"));
                assert_eq!(cors, None);
                refused += 1;
            }
        }
    }
    let counted = |limit| dispatcher.metrics.refused.of(limit).get();
    assert_eq!(counted(Limit::AllowedOrigins) + counted(Limit::AllowedHosts), refused);
    let own =
        Request::get("/livez").header("host", "agent.example").header("origin", "https://agent.example");
    let answer = ask(&dispatcher, HERE, own).await;
    assert_eq!(answer.status, 200);
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn the_guard_answers_in_the_format_of_the_request() {
    let dispatcher = dispatcher(Limits::default());
    let text = "Cross-origin request rejected: the header Origin names a site whose pages may not call this gateway. The \
                operator of this gateway can allow the site with A2A_ALLOWED_ORIGINS. The gateway sends no CORS headers; if a \
                page of the site must read the responses, a proxy must add these headers.";
    let starts = [
        format!("{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{{\"code\":-31052,\"message\":\"{text}\""),
        format!("{{\"error\":{{\"code\":403,\"status\":\"PERMISSION_DENIED\",\"message\":\"{text}\""),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{{\"code\":-32007,\"message\":\"{text}\""),
        format!("{{\"message\":\"{text}\",\"error\":\"{text}\",\"code\":-32007,"),
    ];
    for ((name, request), start) in in_all_formats().into_iter().zip(starts) {
        let answer = ask(&dispatcher, HERE, request.header("origin", "https://evil.example")).await;
        assert_eq!(answer.status, 403, "{name}");
        assert!(answer.body.starts_with(&start), "{name} {}", answer.body);
    }
}

#[tokio::test(start_paused = true)]
async fn every_response_has_its_trace() {
    let limits =
        Limits { rate: Some(in_a_minute(4)), failed_logins: Some(in_a_minute(1)), ..Limits::default() };
    let dispatcher = dispatcher(limits);
    let there = IpAddr::from([192, 0, 2, 1]);
    let cases = [
        (200, HERE, Request::get("/livez")),
        (200, HERE, Request::get("/.well-known/agent-card.json")),
        (401, HERE, Request::get("/tasks/t")),
        (401, there, keyed(Request::get("/tasks/t"), "wrong")),
        (429, there, keyed(Request::get("/tasks/t"), "wrong")),
        (403, HERE, Request::get("/livez").header("origin", "null")),
        (404, HERE, keyed(Request::get("/tasks/t"), "key")),
        (404, HERE, keyed(Request::get("/nope"), "key")),
        (405, HERE, keyed(Request::delete("/"), "key")),
        (500, HERE, keyed(Request::post("/"), "key")),
        (429, HERE, keyed(Request::post("/"), "key")),
    ];
    for (status, peer, request) in cases {
        let request = request.header("traceparent", PARENT).header("tracestate", "a=1");
        let answer = ask(&dispatcher, peer, request).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("traceparent"), Some(PARENT), "{status}");
        assert_eq!(answer.header("tracestate"), Some("a=1"), "{status}");
    }
    let fresh = async |request: Builder| {
        let answer = ask(&dispatcher, HERE, request).await;
        assert_eq!(answer.header("tracestate"), None);
        let parent = answer.header("traceparent").unwrap().to_owned();
        assert!(TraceContext::parse(&parent).is_some() && parent.ends_with("-01"), "{parent}");
        parent
    };
    let first = fresh(Request::get("/livez")).await;
    let second =
        fresh(Request::get("/livez").header("traceparent", "nonsense").header("tracestate", "a=1")).await;
    assert_ne!(first, second);
}

#[tokio::test]
async fn responses_are_counted_by_operation_version_binding_and_kind() {
    let dispatcher = dispatcher(Limits::default());
    let body = |method: &str| {
        let body =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{{\"id\":\"t\"}}}}");
        Full::new(Bytes::from(body))
    };
    for method in ["GetTask", "GetTask", "tasks/get", "a2a.interrupt.permission.reply"] {
        ask_with(&dispatcher, HERE, keyed(Request::post("/"), "key"), body(method)).await;
    }
    for (path, key) in [("/tasks/t", "key"), ("/v1/tasks/t", "wrong"), ("/tasks", "key"), ("/nope", "key")] {
        ask(&dispatcher, HERE, keyed(Request::get(path), key)).await;
    }
    ask(&dispatcher, HERE, Request::get("/livez")).await;
    // A notification gets no error response, but is counted.
    let notification = Full::new(Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"Nonsense\"}"));
    ask_with(&dispatcher, HERE, keyed(Request::post("/"), "key"), notification).await;
    let no_valid_id =
        Full::new(Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"CancelTask\"}"));
    ask_with(&dispatcher, HERE, keyed(Request::post("/"), "key"), no_valid_id).await;
    let ada = Caller { principal: Principal::new("ada"), rights: Rights::of_owner() };
    let head = MessageHead::new(HERE, Arc::new(ada), Binding::WebSocket, None, None);
    for method in ["CancelTask", "a2a.interrupt.permission.reply"] {
        let message = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\"}}");
        let error = Error::new(ErrorKind::TooManyRequests, "Too many requests are open.");
        let refusal = Refusal { error, shows_id: true };
        dispatcher.answer_message(&head, Bytes::from(message), Some(refusal)).await;
    }
    let mut page = String::new();
    dispatcher.metrics.render(&mut page);
    let counted: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("longshore_http_requests_total")).collect();
    let expected = [
        r#"{operation="GetTask",line="1.0",binding="jsonrpc",kind="TASK_NOT_FOUND"} 2"#,
        r#"{operation="GetTask",line="1.0",binding="rest",kind="TASK_NOT_FOUND"} 1"#,
        r#"{operation="GetTask",line="0.3",binding="jsonrpc",kind="TASK_NOT_FOUND"} 1"#,
        r#"{operation="GetTask",line="0.3",binding="rest",kind="UNAUTHENTICATED"} 1"#,
        r#"{operation="ListTasks",line="1.0",binding="rest",kind="OK"} 1"#,
        r#"{operation="CancelTask",line="1.0",binding="jsonrpc",kind="INVALID_REQUEST"} 1"#,
        r#"{operation="CancelTask",line="1.0",binding="websocket",kind="TOO_MANY_REQUESTS"} 1"#,
        r#"{operation="extension",line="0.3",binding="jsonrpc",kind="INVALID_PARAMS"} 1"#,
        r#"{operation="extension",line="0.3",binding="websocket",kind="TOO_MANY_REQUESTS"} 1"#,
        r#"{operation="other",line="1.0",binding="jsonrpc",kind="METHOD_NOT_FOUND"} 1"#,
        r#"{operation="other",line="none",binding="none",kind="OK"} 1"#,
        r#"{operation="other",line="none",binding="none",kind="ROUTE_NOT_FOUND"} 1"#,
    ];
    assert_eq!(counted, expected);
}

/// The bytes of a body, which notices when it is dropped.
struct Watched(Vec<u8>, #[expect(dead_code, reason = "cancels its token on drop")] DropGuard);

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[tokio::test]
async fn a_send_that_waits_for_its_turn_holds_no_body() {
    let (agent, mut turns) = ScriptedAgent::manual();
    let engine = test_engine::engine(Arc::new(longshore_store::memory()), agent);
    let dispatcher = dispatcher_of(Limits::default(), engine);
    let ada = Caller { principal: Principal::new("ada"), rights: Rights::of_owner() };
    let head = MessageHead::new(HERE, Arc::new(ada), Binding::WebSocket, None, None);
    let message = |id: &str, parts: &str| json!({"message": {"messageId": id, "role": "ROLE_USER", parts: [{"text": "go"}]}});
    let rpc = |params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    let mut blocking = message("m2", "content");
    blocking["configuration"] = json!({"blocking": true});
    // `None` stands for a message on a WebSocket.
    let cases = [
        (Some("/"), rpc(message("m0", "parts"))),
        (Some("/message:send"), message("m1", "parts")),
        (Some("/v1/message:send"), blocking),
        (None, rpc(message("m3", "parts"))),
    ];
    for (path, text) in cases {
        let gone = CancellationToken::new();
        let body = Bytes::from_owner(Watched(text.to_string().into_bytes(), gone.clone().drop_guard()));
        let answering = async {
            match path {
                Some(path) => {
                    let request = keyed(Request::post(path), "key").body(Full::new(body)).unwrap();
                    dispatcher.answer(HERE, None, request).await
                }
                None => dispatcher.answer_message(&head, body, None).await,
            }
        };
        let mut answering = std::pin::pin!(answering);
        let turn = tokio::select! {
            answered = &mut answering => panic!("{path:?} {:?}", answered.status()),
            turn = turns.recv() => turn.unwrap(),
        };
        assert!(gone.is_cancelled(), "{path:?}");
        turn.complete().await;
        assert_eq!(answering.await.status(), 200, "{path:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_counts_for_the_rate_limit() {
    let dispatcher = dispatcher(Limits { rate: Some(in_a_minute(1)), ..Limits::default() });
    for expected in [200, 429] {
        let answer = ask(&dispatcher, HERE, Request::get("/").header("accept", "text/html")).await;
        assert_eq!(answer.status, expected, "{}", answer.body);
    }
}
