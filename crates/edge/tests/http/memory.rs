//! The memory of a waiting stream, and of messages that are too long.
#![cfg(target_os = "linux")]

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::StreamBody;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use longshore_edge::EdgeConfig;
use longshore_testkit::gateway::{peak_kilobytes, resident_kilobytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bindings;
use crate::floods::multiplexed_or_on_unix_socket;
use crate::support::{ADA, BOB, Binding, Gateway, PATIENCE};

/// The number of streams that warm the allocator up, and the number that is measured.
const WARM: usize = 100;
const MORE: usize = 400;

/// Includes the client's end of the connection, which lives in this process too, in a build without optimisation.
const BOUND_BYTES: usize = 12 * 1024;

#[tokio::test]
async fn a_waiting_stream_needs_little_memory() {
    let mut gateway = Gateway::manual().await;
    let (task, turn) = gateway.working_task("m1").await;
    let mut open = Vec::with_capacity(WARM + MORE);
    let mut before = 0;
    for number in 0..WARM + MORE {
        if number == WARM {
            before = resident_kilobytes(std::process::id());
        }
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let request = format!(
            "GET /tasks/{task}:subscribe HTTP/1.1\r\nhost: {}\r\nauthorization: {ADA}\r\n\r\n",
            gateway.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        // The head of the response has arrived, so its body exists.
        stream.read_exact(&mut [0; 15]).await.unwrap();
        open.push(stream);
    }
    // Each stream has sent an event and waits again.
    turn.say("b1", "Hello.").await;
    for stream in &mut open {
        let (mut text, mut buffer) = (String::new(), [0; 1024]);
        while !text.contains("Hello.") {
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    }
    let after = resident_kilobytes(std::process::id());
    let each = usize::try_from(after.saturating_sub(before)).unwrap() * 1024 / MORE;
    println!("{each} bytes for each stream");
    assert!(each < BOUND_BYTES, "{each} bytes for each stream, from {before} to {after} KB");
    drop(open);
    gateway.stop().await;
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The calls with a long message on one connection. The gateway must not keep what they send: 512 MB.
const LONG_CALLS: usize = 32;
const LONG: usize = 16 * MIB;
const CHUNK: usize = 16 * KIB;

/// The memory that they may cost. With the limits of these tests they cost about 15 MB.
const BOUND_KILOBYTES: u64 = 64 * 1024;

#[tokio::test]
async fn messages_that_are_too_long_are_refused_while_they_arrive_and_keep_no_memory() {
    type Configure = fn(&mut EdgeConfig);
    // The limit of one message, and that of all unfinished ones together, with the status of HTTP and the text of gRPC.
    let cases: [(Configure, u16, &str); 2] = [
        (|config| config.max_body_bytes = 64 * KIB, 413, "The body of the request is larger than"),
        (
            |config| {
                config.max_body_bytes = 0;
                config.limits.body_bytes = 4 * MIB;
            },
            429,
            "Too many request bodies are arriving.",
        ),
    ];
    for (configure, status, text) in cases {
        let (gateway, bindings, _directory) = bindings::gateway(configure).await;
        for binding in multiplexed_or_on_unix_socket(&bindings) {
            let before = peak_kilobytes(std::process::id());
            let (refused, ()) = tokio::join!(flood_with_long_messages(binding), async {
                assert_eq!(binding.list(&gateway, BOB).await.unwrap(), [], "{}", binding.name);
            });
            // The kernel's count is not exact, so it can even be a little smaller than before.
            let grown = peak_kilobytes(std::process::id()).saturating_sub(before);
            println!("{}: {grown} KB more", binding.name);
            assert!(grown < BOUND_KILOBYTES, "{}: {grown} KB", binding.name);
            for answer in refused {
                let header = |name| answer.headers().get(name).map_or("", |value| value.to_str().unwrap());
                if binding.is_grpc() {
                    assert_eq!(header("grpc-status"), "8", "RESOURCE_EXHAUSTED: {answer:?}");
                    assert!(header("grpc-message").starts_with(text), "{answer:?}");
                } else {
                    assert_eq!(answer.status().as_u16(), status, "{answer:?}");
                }
            }
        }
        gateway.stop().await;
    }
}

/// Returns the heads of the answers.
#[expect(clippy::disallowed_methods, reason = "the client's connection is no task of the gateway")]
async fn flood_with_long_messages(binding: &Binding) -> Vec<Response<Incoming>> {
    let io = TokioIo::new(binding.connect().await);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let (path, content) = if binding.is_grpc() {
        ("/lf.a2a.v1.A2AService/SendMessage", "application/grpc")
    } else {
        ("/message:send", "application/json")
    };
    let calls = (0..LONG_CALLS).map(|_| {
        let request = Request::post(format!("http://localhost{path}"))
            .header("content-type", content)
            .header("authorization", ADA)
            .body(long_body());
        let mut sender = sender.clone();
        async move { sender.send_request(request.unwrap()).await.unwrap() }
    });
    tokio::time::timeout(PATIENCE, join_all(calls)).await.expect("every call is refused")
}

/// Costs the client no memory.
fn long_body() -> impl Body<Data = Bytes, Error = Infallible> + Send + Unpin {
    let chunks = std::iter::repeat_n(Bytes::from_static(&[b' '; CHUNK]), LONG / CHUNK);
    StreamBody::new(stream::iter(chunks.map(|chunk| Ok(Frame::data(chunk)))))
}
