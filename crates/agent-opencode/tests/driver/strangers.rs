//! Something else answers in OpenCode's place while a turn runs, or OpenCode does not let the gateway in any more.

use longshore_testkit::fake_opencode::{Fault, Gate, Turn as Script};

use super::*;

const LIMIT: Duration = Duration::from_secs(1);

fn bench() -> Bench {
    let change = |config: &mut OpenCodeConfig| config.watchdog.strange = LIMIT;
    Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), change)
}

/// A turn that stands in the middle.
async fn in_the_middle(bench: &Bench, gate: &Gate) -> Turn {
    bench.fake.queue(Script::new().text("alpha ", 1).hold(gate).text("bravo", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.expect("the turn starts");
    gate.reached().await;
    turn
}

#[tokio::test]
async fn a_turn_that_gets_only_strange_answers_ends_and_says_which() {
    let cases = [
        ("", Fault::Status(401), "failed: OpenCode refused the gateway's user name or password."),
        ("", Fault::Html, "failed: The agent's address does not answer like OpenCode"),
        // The stream is as it should be.
        ("/session/status", Fault::Html, "failed: The agent's address does not answer like OpenCode"),
        ("/session/status", Fault::Status(500), "failed: OpenCode would not tell how the turn stands"),
    ];
    let check = async |(path, fault, end): (&'static str, Fault, &str)| {
        let bench = bench();
        let gate = Gate::new();
        let turn = in_the_middle(&bench, &gate).await;
        bench.fake.fault_always("*", path, fault.clone());
        bench.fake.end_streams();
        let events = all(turn).await;
        let told = outcome(&events);
        assert!(told.starts_with(end), "{path} {fault:?}: {told}");
        assert!(told.contains("It has been so for 1 s"), "{told}");
        assert_eq!(text_of(&events), "alpha ", "{path} {fault:?}");
        assert_eq!(bench.fake.prompts().len(), 1);
        bench.stop().await;
    };
    futures_util::future::join_all(cases.into_iter().map(check)).await;
}

/// What stands before an OpenCode that is away for longer than the limit is no stranger, and nobody at all is none either.
#[tokio::test]
async fn a_turn_waits_for_an_opencode_that_is_away() {
    for fault in [Fault::Status(503), Fault::CutBefore] {
        let bench = bench();
        let gate = Gate::new();
        let turn = in_the_middle(&bench, &gate).await;
        // Six pauses at least, of 6.3 s in all: many times the limit.
        bench.fake.fault_times("GET", "/session/status", fault.clone(), 6);
        bench.fake.end_streams();
        gate.open();
        let events = all(turn).await;
        assert_eq!(outcome(&events), "completed", "{fault:?}");
        assert_eq!(text_of(&events), "alpha bravo", "{fault:?}");
        bench.stop().await;
    }
}

/// Something on the way spoils the stream and nothing else.
#[tokio::test]
async fn a_turn_without_a_stream_is_asked_for() {
    let bench = bench();
    let gate = Gate::new();
    let turn = in_the_middle(&bench, &gate).await;
    bench.fake.fault_always("GET", "/event", Fault::Html);
    bench.fake.end_streams();
    gate.open();
    let events = all(turn).await;
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", "alpha bravo"));
    bench.stop().await;
}
