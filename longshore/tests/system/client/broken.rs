//! Connections that break during one call.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use longshore_client::{
    Binding, Client, Credential, Event, Interface, Outgoing, Part, ProtocolVersion, Settings, TaskState,
    new_message_id,
};
use longshore_testkit::chaos::proxy::{ChaosProxy, Plan};
use longshore_testkit::fake_opencode::Turn;

use super::fixture::Fixture;

/// How often the stream must break at least.
const BREAKS: u64 = 10;

/// Between two pieces of the text.
const PAUSE: Duration = Duration::from_millis(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_printed_complete_and_once_although_its_stream_breaks_ten_times() {
    let (fixture, proxy, whole) = broken_gateway(200, 2_000..6_000).await;
    std::fs::write(fixture.gateway.data_dir().join("address"), proxy.url()).unwrap();
    let run = fixture.run(&["call", "tell"]).await;
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout, whole);
    assert!(proxy.counts().streams_cut >= BREAKS, "{:?}", proxy.counts());
}

/// Over gRPC the cursor is in the events.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_over_grpc_is_complete_and_comes_once_although_its_connection_breaks_ten_times() {
    // A frame of HTTP/2 that breaks is lost as a whole, and has up to 16 KiB.
    let (fixture, proxy, whole) = broken_gateway(2_000, 20_000..40_000).await;
    let token = fixture.run(&["token"]).await.stdout;
    let interface = Interface {
        url: proxy.url().parse().unwrap(),
        binding: Binding::Grpc,
        version: ProtocolVersion::V1,
        tenant: String::new(),
    };
    let credential = Some(Credential::Bearer(token.trim().into()));
    let client =
        Client::at(interface, Settings { credential, resends: true, ..Settings::default() }).unwrap();
    let message = Outgoing::new(new_message_id(), vec![Part::text("tell")]);
    let mut stream = client.stream(message).await.unwrap();
    let mut text = String::new();
    while let Some(event) = stream.next().await.unwrap() {
        let artifacts = match event {
            Event::Task(task) => task.artifacts,
            Event::ArtifactUpdate(update) => vec![update.artifact],
            Event::StatusUpdate(_) | Event::Message(_) => continue,
        };
        text.extend(artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(Part::as_text));
    }
    assert_eq!(stream.task().and_then(|task| task.status.state), Some(TaskState::Completed));
    assert_eq!(text, whole);
    assert!(proxy.counts().cuts >= BREAKS, "{:?}", proxy.counts());
}

/// A gateway whose agent tells a long text in so many pieces, and a proxy that breaks each connection to it after so many bytes.
#[expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]
async fn broken_gateway(pieces: usize, after: Range<usize>) -> (Fixture, ChaosProxy, String) {
    let fixture = Fixture::new().await;
    let mut text = String::new();
    for number in 0..2 * pieces {
        writeln!(text, "This is line {number} of the answer.").unwrap();
    }
    let whole = text.clone();
    fixture.fake.answering(move |_| Turn::new().paced("text", &text, pieces, PAUSE).finish("stop"));
    let address: std::net::SocketAddr = fixture.gateway.url().trim_start_matches("http://").parse().unwrap();
    let proxy = ChaosProxy::start(address, 7).await.unwrap();
    // The first events come through. Later connections break after some more.
    proxy.set_plan(Plan { nothing: 0, cut_answer: 3, half_close: 1, after, ..Plan::calm() });
    (fixture, proxy, whole)
}
