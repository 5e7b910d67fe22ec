//! The memory of readers that see their stream begin and read nothing more, on every binding.

use std::path::Path;
use std::time::{Duration, Instant};

use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::fake_opencode::{FakeOpenCode, Turn};
use longshore_testkit::gateway::{Gateway, Setup, TOKEN, resident_kilobytes};
use longshore_testkit::raw::RawClient;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::leaks::connection::{Disconnect, PATIENCE, Target, http2_fields};

/// Of each binding.
const READERS: usize = 40;

/// More text than the kernel holds for a connection: no reader can take it all.
const TEXT: usize = 8 * 1024 * 1024;

/// The gateway gets the text in blocks, each of which becomes events of this size at most.
const BLOCK: usize = 8 * 1024;

/// What the stuck readers of one binding may cost together: each holds some events that it has read from the log. A copy of the
/// text for each would be 320 MB.
const BOUND_KILOBYTES: u64 = 64 * 1024;

/// By how much the memory of a process differs from run to run.
const NOISE_KILOBYTES: u64 = 8 * 1024;

/// How a reader subscribes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    ServerSentEvents,
    UnixSocket,
    WebSocket,
    Grpc,
}

trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<C: AsyncRead + AsyncWrite + Unpin + Send> Connection for C {}

#[tokio::test(flavor = "multi_thread")]
async fn long_stuck_readers_cost_no_more_on_other_bindings_than_those_of_server_sent_events() {
    let fake = FakeOpenCode::start();
    let block = "x".repeat(BLOCK);
    fake.queue((0..TEXT / BLOCK).fold(Turn::new(), |turn, _| turn.text(&block, 1)));
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let socket = directory.path().join("gateway.sock");
    let setup = Setup::attached(env!("CARGO_BIN_EXE_longshore"), &fake.url());
    // Longer than the test: it measures readers that are still connected.
    let setup = setup.env("LONGSHORE_WRITE_TIMEOUT", "600").flag("--unix-socket").flag(&socket);
    let gateway = Gateway::start(setup).await;
    let address = gateway.url().trim_start_matches("http://").parse().expect("the gateway has an address");
    let target = Target { address, token: TOKEN };
    let client = RawClient::new(gateway.url(), TOKEN);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "say it all"}]});
    let sent = client.rpc("SendMessage", json!({"message": message})).await;
    let task = &sent.result()["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let task = task["id"].as_str().expect("a task has an id");

    // The first readers get the memory that the turn has freed.
    let ways = [Way::ServerSentEvents, Way::ServerSentEvents, Way::UnixSocket, Way::WebSocket, Way::Grpc];
    let (mut readers, mut costs) = (Vec::new(), Vec::new());
    for way in ways {
        let before = settled(gateway.pid()).await;
        for _ in 0..READERS {
            readers.push(subscribe(way, target, &socket, task).await);
        }
        costs.push((way, settled(gateway.pid()).await.saturating_sub(before)));
    }
    println!("kilobytes of {READERS} stuck readers each: {costs:?}");
    let (_, of_events) = costs[1];
    for (way, cost) in &costs {
        assert!(*cost < BOUND_KILOBYTES, "{way:?} costs too much: {costs:?}");
    }
    for (way, cost) in &costs[2..] {
        let most = of_events * 3 / 2 + NOISE_KILOBYTES;
        assert!(*cost < most, "{way:?} costs more than server-sent events: {costs:?}");
    }
    drop(readers);
}

async fn subscribe(way: Way, target: Target, socket: &Path, task: &str) -> Box<dyn Connection> {
    let speaker = ClientProtocol::ALL[0];
    let request = match way {
        Way::ServerSentEvents | Way::UnixSocket => {
            target.request(speaker, &speaker.subscribe(task), Some("0"))
        }
        Way::WebSocket => over_websocket(target, task),
        Way::Grpc => over_grpc(target, task),
    };
    let mut connection: Box<dyn Connection> = match way {
        Way::UnixSocket => Box::new(UnixStream::connect(socket).await.expect("the gateway listens")),
        Way::ServerSentEvents | Way::WebSocket | Way::Grpc => Box::new(target.open(Disconnect::Stall).await),
    };
    connection.write_all(&request).await.expect("the gateway takes requests");
    let (mut seen, mut buffer) = (Vec::new(), [0; 64]);
    while !way.has_begun(&seen) {
        let read = tokio::time::timeout(PATIENCE, connection.read(&mut buffer)).await;
        match read.expect("the stream begins") {
            Ok(read @ 1..) => seen.extend_from_slice(&buffer[..read]),
            ended => panic!("{way:?}: {ended:?} after {:?}", String::from_utf8_lossy(&seen)),
        }
    }
    connection
}

impl Way {
    /// Whether these bytes contain the beginning of a stream.
    fn has_begun(self, seen: &[u8]) -> bool {
        let text = String::from_utf8_lossy(seen);
        match self {
            Self::ServerSentEvents | Self::UnixSocket => text.contains("data:"),
            Self::WebSocket => text.contains("\"eventId\"") || text.contains("\"result\""),
            // The window lets no message through: a head that does not end the stream is all that comes.
            Self::Grpc => {
                let mut frames = seen;
                while let [0, high, low, kind, flags, 0, 0, 0, stream, rest @ ..] = frames {
                    if (*kind, *stream) == (1, 1) {
                        assert_eq!(flags & 1, 0, "the call is refused: {text:?}");
                        return true;
                    }
                    let length = usize::from(u16::from_be_bytes([*high, *low]));
                    frames = rest.get(length..).unwrap_or_default();
                }
                false
            }
        }
    }
}

/// A handshake, and a message after it.
fn over_websocket(target: Target, task: &str) -> Vec<u8> {
    let handshake = format!(
        "GET /ws HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\na2a-version: 1.0\r\n\r\n",
        target.token
    );
    let message: Value = json!({
        "jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task},
        "serviceParameters": {"Last-Event-ID": "0"},
    });
    let message = message.to_string();
    let length = u16::try_from(message.len()).expect("a short message").to_be_bytes();
    // A text message whose length has two bytes, and a mask that changes nothing.
    let head = [0x81, 0xfe, length[0], length[1], 0, 0, 0, 0];
    [handshake.as_bytes(), &head, message.as_bytes()].concat()
}

/// A call on a connection whose window is 0.
fn over_grpc(target: Target, task: &str) -> Vec<u8> {
    let authorization = format!("Bearer {}", target.token);
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/lf.a2a.v1.A2AService/SubscribeToTask"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("authorization", &authorization),
        ("last-event-id", "0"),
    ];
    let block = http2_fields(fields);
    // The field 2 of the request is the id of the task.
    let length = u8::try_from(task.len()).expect("an id is short");
    let message = [&[0x12, length], task.as_bytes()].concat();
    let body = [&[0, 0, 0, 0, length + 2], &message[..]].concat();
    // SETTINGS with an initial window of 0; HEADERS with END_HEADERS; DATA with END_STREAM.
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    let frame = |kind: u8, flags: u8, payload: &[u8]| {
        let length = u16::try_from(payload.len()).expect("a short frame").to_be_bytes();
        [&[0, length[0], length[1], kind, flags, 0, 0, 0, 1], payload].concat()
    };
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &frame(1, 4, &block), &frame(0, 1, &body)].concat()
}

/// The memory of the process once it does not grow any more: nothing announces that a reader is stuck.
async fn settled(pid: u32) -> u64 {
    const LOOKS: usize = 10;
    const LONGEST: Duration = Duration::from_secs(30);

    let (mut most, mut quiet, begun) = (0, 0, Instant::now());
    while quiet < LOOKS {
        assert!(begun.elapsed() < LONGEST, "the memory still grows: {most} KB");
        let now = resident_kilobytes(pid);
        quiet = if now > most { 0 } else { quiet + 1 };
        most = most.max(now);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    resident_kilobytes(pid)
}
