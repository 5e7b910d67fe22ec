//! What only WebSockets have: the handshake, several requests at once, frames, and how they end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::SinkExt as _;
use longshore_edge::{EdgeConfig, Listeners};
use longshore_meter::Metrics;
use longshore_meter::label::{Answered, Binding, Limit, ProtocolVersion};
use longshore_testkit::certificates::Authority;
use longshore_testkit::scripted_agent::StartedTurn;
use longshore_testkit::websocket::{Received, Refused, WebSocket, handshake};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::support::log_lines::LogLines;
use crate::support::route::{Route, TlsClient, tls};
use crate::support::{ADA, Gateway, PATIENCE, message};

type Socket = WebSocket<TcpStream>;

/// A gateway whose agent the test controls, and its metrics.
async fn gateway(configure: impl FnOnce(&mut EdgeConfig)) -> (Gateway, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new("1"));
    let counted = Arc::clone(&metrics);
    let gateway = Gateway::manual_with(|config| {
        config.metrics = counted;
        configure(config);
    })
    .await;
    (gateway, metrics)
}

async fn open(gateway: &Gateway, headers: &[(&'static str, &str)]) -> Result<Socket, Box<Refused>> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    WebSocket::open(stream, handshake(&format!("ws://{}/ws", gateway.address), headers)).await
}

async fn open_as_ada(gateway: &Gateway) -> Socket {
    open(gateway, &[("authorization", ADA)]).await.unwrap()
}

async fn next(socket: &mut Socket) -> Received {
    tokio::time::timeout(PATIENCE, socket.next()).await.expect("a message or the end")
}

/// Sends a message whose task streams on the socket. Returns its turn, after the first event.
async fn stream(gateway: &mut Gateway, socket: &mut Socket, id: &Value) -> StartedTurn {
    let params = json!({"message": message(&format!("m{id}").replace('"', ""), "go")});
    socket.request(id, "SendStreamingMessage", &params).await;
    let first = loop {
        let received = next(socket).await.message();
        if received["id"] == *id {
            break received;
        }
    };
    assert!(first["result"]["task"].is_object(), "{first}");
    gateway.turns.recv().await.unwrap()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// How many requests for an operation were answered so.
fn count_of(metrics: &Metrics, operation: &str, kind: Answered) -> u64 {
    let requests = metrics.http_requests.of(operation).unwrap();
    requests.of(ProtocolVersion::V1).of(Binding::WebSocket).of(kind).get()
}

#[tokio::test]
async fn requests_and_streams_share_a_socket_by_their_ids() {
    let (mut gateway, metrics) = gateway(|_| {}).await;
    let mut socket = open_as_ada(&gateway).await;
    let one = stream(&mut gateway, &mut socket, &json!(1)).await;
    let two = stream(&mut gateway, &mut socket, &json!("two")).await;
    assert_eq!(metrics.stream_active.get(), 2);
    let task = one.request.task.to_string();

    // A response with the id of an open request would end that request, so a duplicate is refused without its id.
    socket.request(&json!(1), "GetTask", &json!({"id": task})).await;
    loop {
        let received = next(&mut socket).await.message();
        if received.get("error").is_some() {
            assert_eq!(received["id"], Value::Null);
            assert_eq!(received["error"]["data"][0]["reason"], "INVALID_REQUEST", "{received}");
            break;
        }
    }
    socket.request(&json!("1"), "GetTask", &json!({"id": task})).await;
    let read = loop {
        let received = next(&mut socket).await.message();
        if received["id"] == "1" {
            break received;
        }
    };
    assert_eq!((&read["result"]["id"], read.get("eventId")), (&json!(task), None), "{read}");

    // A canceled stream ends, its id is free, and its task goes on.
    socket.cancel(&json!(1)).await;
    let is_end = |received: &Value, id: &Value| {
        received["method"] == "$/requestEnded" && received["params"]["id"] == *id
    };
    while !is_end(&next(&mut socket).await.message(), &json!(1)) {}
    until("the slot is free", || metrics.stream_active.get() == 1).await;
    one.say("b", "still here").await;
    let resumed = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task},
        "serviceParameters": {"Last-Event-ID": "1"}});
    socket.send(&resumed).await;
    one.complete().await;
    two.complete().await;
    let (mut ended, mut seen) = (0, String::new());
    while ended < 2 {
        let received = next(&mut socket).await.message();
        ended += usize::from(received["method"] == "$/requestEnded");
        if received["id"] == 1 {
            assert!(received["result"].get("task").is_none(), "a resumed stream: {received}");
            seen.push_str(&received.to_string());
        }
    }
    assert!(seen.contains("still here") && seen.contains("TASK_STATE_COMPLETED"), "{seen}");
    assert_eq!(count_of(&metrics, "SendStreamingMessage", Answered::Ok), 2);
    assert_eq!(count_of(&metrics, "SubscribeToTask", Answered::Ok), 1);
    assert_eq!(count_of(&metrics, "GetTask", Answered::Ok), 1);
    assert_eq!(count_of(&metrics, "GetTask", Answered::InvalidRequest), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_canceled_send_ends_and_its_task_goes_on() {
    let (mut gateway, _) = gateway(|_| {}).await;
    let mut socket = open_as_ada(&gateway).await;
    socket.request(&json!(7), "SendMessage", &json!({"message": message("m1", "go")})).await;
    let turn = gateway.turns.recv().await.unwrap();
    socket.cancel(&json!(8)).await;
    socket.cancel(&json!(7)).await;
    let ended = next(&mut socket).await.message();
    assert_eq!(ended, json!({"jsonrpc": "2.0", "method": "$/requestEnded", "params": {"id": 7}}));
    assert!(gateway.agent.log().aborted.is_empty());
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn messages_that_are_no_requests_get_typed_errors_or_nothing() {
    let (gateway, _) = gateway(|_| {}).await;
    let mut socket = open_as_ada(&gateway).await;
    let parameters = |given: Value| json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}, "serviceParameters": given});
    let cases = [
        ("{".to_owned(), json!(null), "PARSE"),
        ("[]".to_owned(), json!(null), "INVALID_REQUEST"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"Nonsense"}"#.to_owned(), json!(1), "METHOD_NOT_FOUND"),
        // Only a notification cancels.
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"$/cancelRequest"}"#.to_owned(),
            json!(1),
            "METHOD_NOT_SUPPORTED",
        ),
        (parameters(json!([])).to_string(), json!(1), "INVALID_PARAMS"),
        (parameters(json!({"A2A-Version": "9.9"})).to_string(), json!(1), "VERSION_NOT_SUPPORTED"),
        (parameters(json!({"A2A-Extensions": "a\nb"})).to_string(), json!(1), "INVALID_PARAMS"),
    ];
    for (text, id, expected) in cases {
        // A notification has no response, so the next one is that of the request after it.
        socket.send_text(r#"{"jsonrpc":"2.0","method":"$/unknown"}"#).await;
        socket.send_text(r#"{"jsonrpc":"2.0","method":"ListTasks"}"#).await;
        socket.send_text(text.as_str()).await;
        let received = next(&mut socket).await.message();
        assert_eq!(received["id"], id, "{text} {received}");
        let error = received["error"].to_string();
        assert!(error.contains(expected), "{text} {received}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_handshake_checks_origin_credential_and_path_and_never_repeats_a_token() {
    let lines = LogLines::begin();
    let (gateway, _) = gateway(|_| {}).await;
    let protocol = "sec-websocket-protocol";
    let cases: [(&[(&str, &str)], u16); 6] = [
        (&[], 401),
        (&[("authorization", "Bearer wrong")], 401),
        (&[(protocol, "longshore.jsonrpc, longshore.bearer.wrong")], 401),
        (&[("authorization", "Bearer wrong"), (protocol, "longshore.bearer.tok-ada")], 401),
        (&[("authorization", ADA), ("origin", "https://evil.example")], 403),
        (&[(protocol, "longshore.bearer.tok-ada"), ("origin", "https://evil.example")], 403),
    ];
    for (headers, expected) in cases {
        let refused = open(&gateway, headers).await.unwrap_err();
        assert_eq!(refused.status().as_u16(), expected, "{headers:?}");
        assert!(!format!("{refused:?}").contains("tok-ada"), "{refused:?}");
    }
    let offered = "longshore.bearer.tok%2dada, longshore.jsonrpc";
    let mut socket = open(&gateway, &[(protocol, offered), ("origin", "http://agent.test")]).await.unwrap();
    assert_eq!(socket.response.headers()[protocol], "longshore.jsonrpc");
    socket.request(&json!(1), "ListTasks", &json!({})).await;
    assert!(next(&mut socket).await.message()["result"]["tasks"].is_array());
    drop(socket);

    // Other requests for the path.
    let plain = gateway.call("GET", "/ws").send().await;
    assert_eq!((plain.status.as_u16(), plain.header("upgrade")), (426, "websocket"));
    let http2 = gateway.call("GET", "/ws").http2().send().await;
    assert_eq!(http2.status.as_u16(), 426);
    let posted = gateway.call("POST", "/ws").send().await;
    assert_eq!((posted.status.as_u16(), posted.header("allow")), (405, "GET"));
    gateway.stop().await;
    let log = lines.take().join("\n");
    assert!(log.contains("WebSocket") && !log.contains("tok-ada") && !log.contains("tok%2dada"), "{log}");

    let (off, _) = self::gateway(|config| config.deployment.websocket = None).await;
    assert_eq!(open(&off, &[("authorization", ADA)]).await.unwrap_err().status().as_u16(), 404);
    off.stop().await;
}

#[tokio::test]
async fn a_websocket_works_over_tls() {
    let authority = Authority::new("test");
    let listeners = Listeners { tls: Some(tls(&authority.server())), ..Listeners::default() };
    let gateway = Gateway::manual_listening(listeners, |_| {}).await;
    let route = Route::Tls(gateway.address, TlsClient::trusting(&authority)).websocket();
    let answer = gateway.rpc("ListTasks", &json!({})).over(&route).send().await;
    assert_eq!(answer.json()["result"]["tasks"], json!([]));
    gateway.stop().await;
}

#[tokio::test]
async fn what_cannot_be_served_closes_the_socket_with_a_reason() {
    let (gateway, _) = gateway(|config| config.max_body_bytes = 2000).await;
    let not_text: &[u8] = &[0x81, 0x81, 0, 0, 0, 0, 0xff];
    let reserved: &[u8] = &[0x83, 0x80, 0, 0, 0, 0];
    let unmasked: &[u8] = &[0x81, 0x01, b'x'];
    for (bytes, expected) in [(not_text, 1007), (reserved, 1002), (unmasked, 1002)] {
        let mut socket = open_as_ada(&gateway).await;
        socket.socket.get_mut().write_all(bytes).await.unwrap();
        assert_eq!(next(&mut socket).await.closed().0, expected, "{bytes:?}");
    }
    let mut socket = open_as_ada(&gateway).await;
    socket.socket.send(Message::binary("{}")).await.unwrap();
    assert_eq!(next(&mut socket).await.closed().0, 1003);
    let mut socket = open_as_ada(&gateway).await;
    socket.send_text("x".repeat(100_000)).await;
    assert_eq!(next(&mut socket).await.closed(), (1009, "the message is too long".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_that_does_not_arrive_and_a_socket_without_requests_are_closed() {
    let (gateway, _) = gateway(|config| config.websocket_idle = Some(Duration::from_millis(50))).await;
    let mut idle = open_as_ada(&gateway).await;
    assert_eq!(next(&mut idle).await.closed().0, 1000);
    gateway.stop().await;

    let (gateway, _) = self::gateway(|config| {
        config.websocket_idle = Some(Duration::from_millis(50));
        config.body_timeout = Duration::from_millis(20);
    })
    .await;
    let mut slow = open_as_ada(&gateway).await;
    slow.socket.get_mut().write_all(&[0x81, 0xfe, 0x0f, 0xff, 0, 0, 0, 0, b'x']).await.unwrap();
    assert_eq!(next(&mut slow).await.closed().0, 1008);
    gateway.stop().await;
}

#[tokio::test]
async fn at_the_shutdown_streams_end_and_the_socket_is_closed() {
    let (mut gateway, _) = gateway(|_| {}).await;
    let mut socket = open_as_ada(&gateway).await;
    let turn = stream(&mut gateway, &mut socket, &json!(1)).await;
    gateway.shutdown.cancel();
    let closed = loop {
        match next(&mut socket).await {
            // The stream is not complete, so nothing says that it is.
            Received::Message(message) => assert!(message.get("eventId").is_some(), "{message}"),
            other => break other.closed(),
        }
    };
    assert_eq!(closed.0, 1001);
    drop((socket, turn));
    gateway.stop().await;
}

#[tokio::test]
async fn requests_beyond_the_limit_of_a_socket_are_refused() {
    let (mut gateway, metrics) = gateway(|config| config.limits.requests_per_connection = 2).await;
    let mut socket = open_as_ada(&gateway).await;
    let one = stream(&mut gateway, &mut socket, &json!(1)).await;
    let two = stream(&mut gateway, &mut socket, &json!(2)).await;
    for id in 3..40 {
        socket.request(&json!(id), "ListTasks", &json!({})).await;
    }
    let mut refused = 0;
    while refused < 37 {
        let received = next(&mut socket).await.message();
        if let Some(error) = received.get("error") {
            assert!(received["id"].as_u64().unwrap() > 2, "{received}");
            assert_eq!(error["data"][0]["reason"], "TOO_MANY_REQUESTS", "{error}");
            refused += 1;
        }
    }
    assert_eq!(metrics.refused.of(Limit::RequestsPerConnection).get(), 37);
    // A place that is free can be used.
    socket.cancel(&json!(1)).await;
    while next(&mut socket).await.message()["method"] != "$/requestEnded" {}
    socket.request(&json!(1), "ListTasks", &json!({})).await;
    while next(&mut socket).await.message()["result"]["tasks"].is_null() {}
    for turn in [one, two] {
        turn.complete().await;
    }
    gateway.stop().await;
}

/// More than all buffers between a gateway and a client together.
const PIECES: usize = 80;
const PIECE: usize = 64 * 1024;

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_and_resumes_later() {
    let (mut gateway, metrics) = gateway(|config| config.write_timeout = Duration::from_millis(200)).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    let stream_of_client = socket.connect(gateway.address).await.unwrap();
    let url = format!("ws://{}/ws", gateway.address);
    let mut stalled =
        WebSocket::open(stream_of_client, handshake(&url, &[("authorization", ADA)])).await.unwrap();
    let turn = stream(&mut gateway, &mut stalled, &json!(1)).await;
    let task = turn.request.task.to_string();
    for _ in 0..PIECES {
        turn.say("b", &"x".repeat(PIECE)).await;
    }
    until("the client is disconnected", || metrics.refused.of(Limit::WriteTimeout).get() == 1).await;
    until("the slot is free", || metrics.stream_active.get() == 0).await;

    // Another socket gets everything, in fragments.
    let mut resumed = open_as_ada(&gateway).await;
    let params = json!({"jsonrpc": "2.0", "id": 2, "method": "SubscribeToTask", "params": {"id": task},
        "serviceParameters": {"Last-Event-ID": "0"}});
    resumed.send(&params).await;
    turn.complete().await;
    let mut text = 0;
    loop {
        let received = next(&mut resumed).await.message();
        if received["method"] == "$/requestEnded" {
            break;
        }
        let part = received.pointer("/result/artifactUpdate/artifact/parts/0/text");
        text += part.and_then(Value::as_str).map_or(0, str::len);
    }
    assert_eq!(text, PIECES * PIECE);
    gateway.stop().await;
}

#[tokio::test]
async fn a_flood_of_requests_is_answered_as_the_client_reads() {
    let (gateway, metrics) = gateway(|config| config.limits.requests_per_connection = 0).await;
    let mut socket = open_as_ada(&gateway).await;
    let flood = async {
        for id in 0..500 {
            socket.request(&json!(id), "ListTasks", &json!({})).await;
        }
        socket
    };
    let mut socket = tokio::time::timeout(PATIENCE, flood).await.expect("the requests are taken");
    let mut answered = Vec::new();
    while answered.len() < 500 {
        answered.push(next(&mut socket).await.message()["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..500));
    assert_eq!(count_of(&metrics, "ListTasks", Answered::Ok), 500);
    gateway.stop().await;
}
