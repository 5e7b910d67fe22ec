//! Connections: both versions of HTTP, slow clients, and the shutdown of the gateway.

use std::time::Duration;

use longshore_meter::label::Limit;
use longshore_wire::v1::method::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bindings;
use crate::support::log_lines::LogLines;
use crate::support::{ADA, Binding, Events, Gateway, Http2, PATIENCE, http2_headers, http2_start, message};

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset shows as clearly as an end of file that the server has closed.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server closes");
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_served_on_the_same_port() {
    let gateway = Gateway::echoing().await;
    let body = json!({"message": message("m1", "one two")});
    let sent = gateway.call("POST", "/message:send").json(&body).http2().send().await;
    assert_eq!(sent.json()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let streamed = gateway.rpc("SendStreamingMessage", &body).http2().stream().await.rest().await;
    let plain = gateway.rpc("SendStreamingMessage", &body).stream().await.rest().await;
    assert_eq!(streamed, plain);
    let head = gateway.call("HEAD", "/.well-known/agent-card.json").http2().send().await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let gateway = Gateway::manual_with(|config| config.header_timeout = Duration::from_millis(50)).await;
    // Nothing; the first letter of both protocols; the start of HTTP/2; half a request head.
    for beginning in ["", "P", "PRI * HTTP/2.0\r\n", "GET /livez HTTP/1.1\r\nhost:"] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        assert_eq!(read_to_end(&mut stream).await, "", "{beginning:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_http1_connection_is_closed_when_it_is_idle() {
    let gateway = Gateway::manual_with(|config| config.header_timeout = Duration::from_millis(50)).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    gateway.stop().await;
}

/// Reads until the responses contain this word this many times.
async fn read_until(stream: &mut TcpStream, word: &str, times: usize) -> String {
    let (mut bytes, mut text) = (Vec::new(), String::new());
    while text.matches(word).count() < times {
        let read =
            tokio::time::timeout(PATIENCE, stream.read_buf(&mut bytes)).await.expect("more comes").unwrap();
        assert!(read > 0, "{text}");
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    text
}

/// Requests before, during and after a stream are answered in order on one connection.
#[tokio::test]
async fn a_connection_is_reused_after_a_stream() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let authority = gateway.address;
    let livez = format!("GET /livez HTTP/1.1\r\nhost: {authority}\r\n\r\n");
    let subscribe = |more: &str| {
        format!(
            "GET /tasks/{id}:subscribe HTTP/1.1\r\nhost: {authority}\r\nauthorization: {ADA}\r\n{more}\r\n"
        )
    };
    stream.write_all(format!("{livez}{}", subscribe("")).as_bytes()).await.unwrap();
    read_until(&mut stream, "data: ", 1).await;
    // Longer than the part that is read while the stream runs.
    let long = format!("x-long: {}\r\n\r\n", "x".repeat(1000));
    stream.write_all(livez.replace("\r\n\r\n", &format!("\r\n{long}")).as_bytes()).await.unwrap();
    turn.say("b1", "Hello.").await;
    read_until(&mut stream, "Hello.", 1).await;
    turn.complete().await;
    let after_stream = read_until(&mut stream, "HTTP/1.1 200 OK", 1).await;
    assert!(after_stream.split("HTTP/1.1 ").next().unwrap().ends_with("\r\n0\r\n\r\n"), "{after_stream}");
    stream.write_all(subscribe("connection: close\r\n").as_bytes()).await.unwrap();
    let last = read_to_end(&mut stream).await;
    assert!(last.contains("connection: close\r\n"), "{last}");
    gateway.stop().await;
}

/// A body that the gateway does not read must not be parsed as the next request.
#[tokio::test]
async fn a_body_that_is_not_read_is_not_taken_for_a_request() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let (authority, hidden) = (gateway.address, "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let head = format!(
        "GET /tasks/{id}:subscribe HTTP/1.1\r\nhost: {authority}\r\nauthorization: {ADA}\r\ncontent-length: {}\r\n\r\n",
        hidden.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let begun = read_until(&mut stream, "data: ", 1).await;
    stream.write_all(hidden.as_bytes()).await.unwrap();
    turn.complete().await;
    read_until(&mut stream, "\r\n0\r\n\r\n", 1).await;
    // The server may have closed the connection by now.
    let _ = stream.write_all(b"GET /nowhere HTTP/1.1\r\nconnection: close\r\nhost: localhost\r\n\r\n").await;
    let rest = read_to_end(&mut stream).await;
    assert!(begun.starts_with("HTTP/1.1 200 ") && !rest.contains("HTTP/1.1 200 "), "{rest}");
    gateway.stop().await;
}

#[tokio::test]
async fn an_http2_connection_is_closed_when_it_has_no_open_request() {
    let mut gateway = Gateway::manual_with(|config| {
        config.header_timeout = Duration::from_millis(50);
        config.keep_alive = Duration::from_millis(25);
    })
    .await;
    // A connection that never sends a request.
    let never = Http2::connect(gateway.address).await;
    never.closed().await;

    // A connection whose request is answered completely.
    let mut asked = Http2::connect(gateway.address).await;
    let livez = gateway.call("GET", "/livez");
    assert_eq!(asked.open(livez).await.status().as_u16(), 200);
    asked.closed().await;

    // A connection with an open stream stays, however long, and is closed after the stream has ended.
    let (id, turn) = gateway.working_task("m1").await;
    let mut streaming = Http2::connect(gateway.address).await;
    let answer = streaming.open(gateway.call("GET", &format!("/tasks/{id}:subscribe"))).await;
    let mut events = Events::of(answer);
    events.next().await.unwrap();
    for _ in 0..10 {
        assert_eq!(events.next_raw().await.unwrap(), ": keep-alive");
    }
    assert!(!streaming.is_closed());
    turn.complete().await;
    let end = events.next().await.unwrap();
    assert_eq!(end.data["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(events.next().await, None);
    streaming.closed().await;
    gateway.stop().await;
}

/// A client that answers no ping, so that an orderly end of its connection never comes.
#[tokio::test]
async fn an_idle_http2_connection_of_a_client_that_does_not_cooperate_is_closed() {
    let gateway = Gateway::manual_with(|config| config.header_timeout = Duration::from_millis(50)).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/livez"), (":authority", "localhost")];
    stream.write_all(&[http2_start(65_535), http2_headers(1, &fields, true)].concat()).await.unwrap();
    let mut bytes = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    let _ = closed.expect("the server closes");
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_never_comes_is_refused() {
    let gateway = Gateway::manual_with(|config| config.body_timeout = Duration::from_millis(50)).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = "POST /message:send HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer tok-ada\r\n\
                content-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("The body of the request did not arrive in time."), "{answer}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_chunked_body_over_the_limit_is_refused_as_well() {
    let gateway = Gateway::manual_with(|config| config.max_body_bytes = 1000).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = "POST /message:send HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer tok-ada\r\nconnection: close\r\n\
                content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("400\r\n{}\r\n", "x".repeat(0x400));
    stream.write_all(format!("{head}{chunk}{chunk}0\r\n\r\n").as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_closes_its_half_leaves_nothing_behind() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let before = gateway.tasks.running();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let head = format!(
            "GET /tasks/{id}:subscribe HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer tok-ada\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut start = [0; 15];
        stream.read_exact(&mut start).await.unwrap();
        stream.shutdown().await.unwrap();
        read_to_end(&mut stream).await;
    }
    // The connections end a moment after their sockets.
    let gone = async {
        while gateway.tasks.running() > before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("no connection is left");
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn shutdown_ends_streams_with_a_retry_hint_and_lets_requests_finish() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let mut events = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
    events.next().await.unwrap();
    let blocking = gateway.rpc("SendMessage", &json!({"message": message("m2", "other")}));
    let (answer, ()) = tokio::join!(blocking.send(), async {
        let other = gateway.turns.recv().await.unwrap();
        gateway.shutdown.cancel();
        assert_eq!(events.next_raw().await.as_deref(), Some("retry: 1000"));
        assert_eq!(events.next_raw().await, None);
        other.complete().await;
    });
    assert_eq!(answer.json()["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let address = gateway.address;
    gateway.stop().await;
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
    drop(turn);
}

#[tokio::test]
async fn shutdown_waits_no_longer_than_the_grace_period() {
    let mut gateway = Gateway::manual_with(|config| config.shutdown_grace = Duration::from_millis(50)).await;
    let call = gateway.rpc("SendMessage", &json!({"message": message("m1", "go")}));
    let (answer, turn) = tokio::join!(call.send(), async {
        let turn = gateway.turns.recv().await.unwrap();
        gateway.shutdown.cancel();
        turn
    });
    let error = answer.json()["error"].clone();
    assert_eq!(error["data"][0]["reason"], "UNAVAILABLE");
    assert_eq!(error["data"][0]["metadata"]["taskId"], turn.request.task.as_str());

    // An idle connection that is never closed does not delay the shutdown.
    gateway.stop().await;

    let gateway = Gateway::manual_with(|config| config.shutdown_grace = Duration::from_millis(50)).await;
    let mut silent = TcpStream::connect(gateway.address).await.unwrap();
    silent.write_all(b"POST / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer tok-ada\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n").await.unwrap();
    gateway.stop().await;
    assert_eq!(read_to_end(&mut silent).await, "");
}

/// A connection that sends nothing, or asks without a credential, gives its place to a new one.
#[tokio::test]
async fn health_checks_and_callers_are_served_when_all_connections_are_taken() {
    let mut metrics = None;
    let mut gateway = Gateway::manual_with(|config| {
        config.limits.connections = 8;
        metrics = Some(config.metrics.clone());
    })
    .await;
    let metrics = metrics.unwrap();
    let lines = LogLines::begin();
    let (id, turn) = gateway.working_task("m1").await;
    let mut events = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
    events.next().await.unwrap();
    let mut hostile = Vec::new();
    for number in 0..40 {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        if number % 2 == 0 {
            // The oldest may be closed by now.
            let _ = stream
                .write_all(b"GET /tasks HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n\r\n")
                .await;
        }
        hostile.push(stream);
        if number % 8 == 0 {
            let livez = gateway.call("GET", "/livez").header("authorization", "");
            assert_eq!(livez.send().await.status.as_u16(), 200);
            assert_eq!(gateway.call("GET", "/health").http2().send().await.status.as_u16(), 200);
            assert_eq!(gateway.call("GET", "/tasks").send().await.status.as_u16(), 200);
        }
    }
    assert!(metrics.connections.get() <= 8, "{}", metrics.connections.get());
    assert!(metrics.refused.of(Limit::Connections).get() >= 32);
    // The stream of a caller keeps its place.
    turn.say("b1", "Still here.").await;
    assert!(events.next().await.unwrap().raw.contains("Still here."));
    let reports = lines.take().into_iter().filter(|line| line.contains("limits.connections"));
    assert_eq!(reports.count(), 1, "one line per minute");
    turn.complete().await;
    gateway.stop().await;
}

/// Half of two places is the reserve.
#[tokio::test]
async fn a_caller_beyond_the_kept_connections_is_refused_with_an_error() {
    let (mut gateway, bindings, _directory) = bindings::gateway(|config| config.limits.connections = 2).await;
    // A line that is first written by a test that captures none would be captured by no other test.
    let _lines = LogLines::begin();
    let (id, turn) = gateway.working_task("m1").await;
    let mut events = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
    events.next().await.unwrap();
    for binding in bindings.iter().filter(|binding| !binding.is_owner) {
        let Binding { client, version, .. } = binding;
        // The body, which would tell the version, is not read.
        let get = client.on(&gateway, Method::GetTask, &id).header("a2a-version", version.as_str());
        let refused = binding.apart().answer(ADA, get).await;
        binding.assert_limited(&refused, 429);
        assert_eq!(
            gateway.call("GET", "/livez").header("authorization", "").send().await.status.as_u16(),
            200
        );
    }
    turn.complete().await;
    events.rest().await;
    let path = format!("/tasks/{id}");
    let served = async { while gateway.call("GET", &path).send().await.status.as_u16() != 200 {} };
    tokio::time::timeout(PATIENCE, served).await.expect("the place is free again");
    gateway.stop().await;
}

#[tokio::test]
async fn a_stalled_stream_does_not_delay_the_shutdown() {
    let mut gateway = Gateway::manual_with(|config| config.shutdown_grace = Duration::from_millis(50)).await;
    let (id, turn) = gateway.working_task("m1").await;
    let mut stalled = TcpStream::connect(gateway.address).await.unwrap();
    let head = format!(
        "GET /tasks/{id}:subscribe HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer tok-ada\r\n\r\n"
    );
    stalled.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 15];
    stalled.read_exact(&mut start).await.unwrap();
    let mut quick = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
    let (_, ()) = tokio::join!(quick.rest(), async {
        for number in 0..800 {
            turn.say(&format!("b{number}"), &"x".repeat(16 * 1024)).await;
        }
        turn.complete().await;
    });
    gateway.stop().await;
    read_to_end(&mut stalled).await;
}
