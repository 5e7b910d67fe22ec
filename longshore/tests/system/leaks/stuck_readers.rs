//! The memory of readers that see their stream begin and read nothing more, on every binding.

use std::time::{Duration, Instant};

use longshore_testkit::chaos::{ClientProtocol, Transport};
use longshore_testkit::fake_opencode::{FakeOpenCode, Turn};
use longshore_testkit::gateway::{Gateway, Setup, TOKEN, resident_kilobytes};
use longshore_testkit::raw::RawClient;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::leaks::connection::{Disconnect, PATIENCE, Target, is_refused_by_grpc};

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
    let target = Target { address, socket, token: TOKEN };
    let client = RawClient::new(gateway.url(), TOKEN);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "say it all"}]});
    let sent = client.rpc("SendMessage", json!({"message": message})).await;
    let task = &sent.result()["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let task = task["id"].as_str().expect("a task has an id");

    // The first readers get the memory that the turn has freed.
    let events = ClientProtocol::ALL[0];
    let speakers =
        [ClientProtocol::UNIX_SOCKET, ClientProtocol::WEBSOCKET, ClientProtocol::GRPC].map(|both| both[0]);
    let (mut readers, mut costs) = (Vec::new(), Vec::new());
    for speaker in [events, events].into_iter().chain(speakers) {
        let before = settled(gateway.pid()).await;
        for _ in 0..READERS {
            readers.push(subscribe(speaker, &target, task).await);
        }
        costs.push((speaker.name(), settled(gateway.pid()).await.saturating_sub(before)));
    }
    println!("kilobytes of {READERS} stuck readers each: {costs:?}");
    let (_, of_events) = costs[1];
    for (name, cost) in &costs {
        assert!(*cost < BOUND_KILOBYTES, "{name} costs too much: {costs:?}");
    }
    for (name, cost) in &costs[2..] {
        let most = of_events * 3 / 2 + NOISE_KILOBYTES;
        assert!(*cost < most, "{name} costs more than server-sent events: {costs:?}");
    }
    drop(readers);
}

async fn subscribe(speaker: ClientProtocol, target: &Target, task: &str) -> Box<dyn Connection> {
    let (spelled, from) = (speaker.subscribe(task), Some("0"));
    let request = match speaker.transport {
        Transport::Grpc => target.grpc_request(speaker, &spelled, from, 0),
        Transport::Http | Transport::UnixSocket | Transport::WebSocket => {
            target.request(speaker, &spelled, from)
        }
    };
    let mut connection: Box<dyn Connection> = match speaker.transport {
        Transport::UnixSocket => {
            Box::new(UnixStream::connect(&target.socket).await.expect("the gateway listens"))
        }
        Transport::Http | Transport::WebSocket | Transport::Grpc => {
            Box::new(target.open(Disconnect::Stall).await)
        }
    };
    connection.write_all(&request).await.expect("the gateway takes requests");
    let (mut seen, mut buffer) = (Vec::new(), [0; 64]);
    while !has_begun(speaker.transport, &seen) {
        let read = tokio::time::timeout(PATIENCE, connection.read(&mut buffer)).await;
        match read.expect("the stream begins") {
            Ok(read @ 1..) => seen.extend_from_slice(&buffer[..read]),
            ended => panic!("{}: {ended:?} after {:?}", speaker.name(), String::from_utf8_lossy(&seen)),
        }
    }
    connection
}

/// Whether these bytes contain the beginning of a stream.
fn has_begun(transport: Transport, seen: &[u8]) -> bool {
    let text = String::from_utf8_lossy(seen);
    match transport {
        Transport::Http | Transport::UnixSocket => text.contains("data:"),
        Transport::WebSocket => text.contains("\"eventId\"") || text.contains("\"result\""),
        // The window lets no message through: a head that does not end the stream is all that comes.
        Transport::Grpc => is_refused_by_grpc(seen).is_some_and(|is_refused| {
            assert!(!is_refused, "the call is refused: {text:?}");
            true
        }),
    }
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
