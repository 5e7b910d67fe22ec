//! Clients that do not read what waits for them.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use longshore_edge::EdgeConfig;
use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_testkit::scripted_agent::StartedTurn;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::log_lines::LogLines;
use crate::support::{ADA, Events, Gateway, Http2, PATIENCE, http2_headers, http2_start, message};

const CARD: &str = "/.well-known/agent-card.json";

/// More than all buffers between a gateway and a client together.
const PIECES: usize = 80;
const PIECE: usize = 64 * 1024;

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

/// Waits until a condition on the metrics holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A connection with a small receive buffer.
async fn connect(gateway: &Gateway) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    socket.connect(gateway.address).await.unwrap()
}

/// Requests a stream over HTTP/1 and reads nothing of it.
async fn stalled_stream(gateway: &Gateway, message_id: &str) -> TcpStream {
    let body = json!({"message": message(message_id, "go")}).to_string();
    let mut stalled = connect(gateway).await;
    let request = format!(
        "POST /message:stream HTTP/1.1\r\nhost: localhost\r\nauthorization: {ADA}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stalled.write_all(request.as_bytes()).await.unwrap();
    stalled
}

async fn say_much(turn: &StartedTurn) {
    for number in 0..PIECES {
        turn.say(&format!("b{number}"), &"x".repeat(PIECE)).await;
    }
}

/// Reads until the server closes the connection, orderly or not.
async fn closed(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    let _ = read.expect("the server closes");
}

#[tokio::test]
async fn a_client_that_takes_no_byte_is_disconnected_and_a_silent_stream_is_not() {
    let (mut gateway, metrics) = gateway(|config| config.write_timeout = Duration::from_millis(200)).await;
    let lines = LogLines::begin();
    let slow = || metrics.refused.of(Limit::WriteTimeout).get();
    let (silent, silent_turn) = gateway.working_task("m1").await;
    let subscribe = || gateway.call("GET", &format!("/tasks/{silent}:subscribe"));
    let mut silent_events = [subscribe().stream().await, subscribe().http2().stream().await];
    for events in &mut silent_events {
        events.next().await.unwrap();
    }

    // HTTP/1: requests in a row, whose answers are never read. The gateway stops reading, and then closes.
    let mut pipelining = connect(&gateway).await;
    let requests =
        format!("GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nauthorization: {ADA}\r\n\r\n").repeat(100);
    let writing = async { while pipelining.write_all(requests.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, writing).await.expect("the server closes");
    assert_eq!(slow(), 1);

    // HTTP/2: the client grants no window, so the socket has room all the time.
    let authority = gateway.address.to_string();
    let card = [(":method", "GET"), (":scheme", "http"), (":path", CARD), (":authority", &*authority)];
    for window in [0, 1] {
        let mut no_window = connect(&gateway).await;
        let requests = [http2_start(window), http2_headers(1, &card, true), http2_headers(3, &card, true)];
        no_window.write_all(&requests.concat()).await.unwrap();
        closed(no_window).await;
    }
    assert_eq!(slow(), 3);

    // HTTP/1: a stream.
    let stalled = stalled_stream(&gateway, "m2").await;
    let turn = gateway.turns.recv().await.unwrap();
    say_much(&turn).await;
    until("the stalled stream ends", || metrics.stream_active.get() == 0).await;
    assert_eq!(slow(), 4);
    closed(stalled).await;

    // Longer than the limit has passed, and nothing waited for the silent streams.
    silent_turn.say("b1", "Hello.").await;
    for mut events in silent_events {
        assert!(events.next().await.unwrap().raw.contains("Hello."));
    }
    let reports = lines.take().into_iter().filter(|line| line.contains("serve.write_timeout"));
    assert_eq!(reports.count(), 1, "one line per minute");
    turn.complete().await;
    silent_turn.complete().await;
    gateway.stop().await;
}

/// The other requests of the connection go on.
#[tokio::test]
async fn an_http2_request_that_takes_no_byte_is_reset_alone() {
    let (mut gateway, metrics) = gateway(|config| config.write_timeout = Duration::from_millis(100)).await;
    // A line that is first written by a test that captures none would be captured by no other test.
    let _lines = LogLines::begin();
    let mut client = Http2::connect(gateway.address).await;
    let body = json!({"message": message("m1", "go")});
    let stalled = Events::of(client.open(gateway.call("POST", "/message:stream").json(&body)).await);
    let turn = gateway.turns.recv().await.unwrap();
    say_much(&turn).await;
    let ended = async {
        while metrics.stream_active.get() > 0 {
            let card = client.open(gateway.call("GET", CARD)).await;
            assert!(!card.into_body().collect().await.unwrap().to_bytes().is_empty());
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the stalled stream ends");
    assert_eq!(metrics.refused.of(Limit::WriteTimeout).get(), 1);
    assert_eq!(client.open(gateway.call("GET", "/livez")).await.status().as_u16(), 200);
    drop(stalled);
    turn.complete().await;
    gateway.stop().await;
}

/// A client that takes a few bytes now and then would hold a stream forever: its next event is never due.
#[tokio::test]
async fn a_stream_ends_at_its_duration_also_while_a_write_waits() {
    let (mut gateway, metrics) = gateway(|config| {
        config.limits.stream_duration = Some(Duration::from_millis(400));
        config.limits.streams = 1;
    })
    .await;
    let exceeded = || metrics.refused.of(Limit::StreamDuration).get();
    let http1 = stalled_stream(&gateway, "m1").await;
    let turn = gateway.turns.recv().await.unwrap();
    say_much(&turn).await;
    until("the HTTP/1 stream ends", || exceeded() == 1 && metrics.stream_active.get() == 0).await;
    drop(http1);
    turn.complete().await;

    let body = json!({"message": message("m2", "go")});
    let mut client = Http2::connect(gateway.address).await;
    let http2 = client.open(gateway.call("POST", "/message:stream").json(&body)).await;
    let turn = gateway.turns.recv().await.unwrap();
    say_much(&turn).await;
    until("the HTTP/2 stream ends", || exceeded() == 2 && metrics.stream_active.get() == 0).await;
    drop(http2);
    turn.complete().await;
    assert_eq!(metrics.refused.of(Limit::WriteTimeout).get(), 0);
    gateway.stop().await;
}

/// The kernel reports room for the gateway only when a third of its buffer is free. This client takes longer for that than
/// the limit, but takes bytes all the time.
#[tokio::test]
async fn a_client_that_reads_slowly_but_steadily_gets_everything() {
    let (mut gateway, metrics) = gateway(|config| config.write_timeout = Duration::from_millis(200)).await;
    let _lines = LogLines::begin();
    let mut slow = stalled_stream(&gateway, "m1").await;
    let turn = gateway.turns.recv().await.unwrap();
    let say = async {
        say_much(&turn).await;
        turn.complete().await;
    };
    let (mut buffer, mut taken) = (vec![0; 4 * 1024], Vec::new());
    let read = async {
        // Five times the limit.
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            let read = slow.read(&mut buffer).await.expect("the connection is open");
            taken.extend_from_slice(&buffer[..read]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        slow.read_to_end(&mut taken).await
    };
    let both = tokio::time::timeout(PATIENCE, async { tokio::join!(read, say) }).await;
    both.expect("the stream ends").0.expect("the stream is not cut");
    assert!(taken.len() > PIECES * PIECE && taken.ends_with(b"0\r\n\r\n"), "{} bytes", taken.len());
    assert_eq!(metrics.refused.of(Limit::WriteTimeout).get(), 0);
    gateway.stop().await;
}
