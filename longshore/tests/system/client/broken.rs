//! Connections that break during one call.

use std::fmt::Write as _;
use std::time::Duration;

use longshore_testkit::chaos::proxy::{ChaosProxy, Plan};
use longshore_testkit::fake_opencode::Turn;

use super::fixture::Fixture;

/// How often the stream must break at least.
const BREAKS: u64 = 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_printed_complete_and_once_although_its_stream_breaks_ten_times() {
    let fixture = Fixture::new().await;
    let mut text = String::new();
    for number in 0..400 {
        writeln!(text, "This is line {number} of the answer.").unwrap();
    }
    let whole = text.clone();
    fixture
        .fake
        .answering(move |_| Turn::new().paced("text", &text, 200, Duration::from_millis(5)).finish("stop"));
    let address = fixture.gateway.url().trim_start_matches("http://").parse().unwrap();
    let proxy = ChaosProxy::start(address, 7).await.unwrap();
    // The first events come through. Later connections break after some more.
    proxy.set_plan(Plan { nothing: 0, cut_answer: 3, half_close: 1, after: 2_000..6_000, ..Plan::calm() });
    std::fs::write(fixture.gateway.data_dir().join("address"), proxy.url()).unwrap();
    let run = fixture.run(&["call", "tell"]).await;
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout, whole);
    assert!(proxy.counts().streams_cut >= BREAKS, "{:?}", proxy.counts());
}
