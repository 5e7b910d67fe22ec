//! Another program responds at OpenCode's address while a turn runs, or OpenCode refuses the gateway.

use longshore_testkit::fake_opencode::{Fault, Gate, Turn as Script};

use super::*;

const LIMIT: Duration = Duration::from_secs(1);

fn bench() -> Bench {
    let change = |config: &mut OpenCodeConfig| config.watchdog.invalid_responses = LIMIT;
    Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), change)
}

/// A turn that stops in its first step.
async fn start_and_hold(bench: &Bench, gate: &Gate) -> Turn {
    let (_, _, turn) =
        bench.start_held(Script::new().text("alpha ", 1).hold(gate).text("bravo", 1), gate).await;
    turn
}

#[tokio::test]
async fn a_turn_that_gets_only_invalid_responses_ends_and_says_which() {
    let cases = [
        ("", Fault::Status(401), "failed: OpenCode refused the gateway's user name or password."),
        ("", Fault::Html, "failed: The agent's address does not answer like OpenCode"),
        // The stream itself is valid.
        ("/session/status", Fault::Html, "failed: The agent's address does not answer like OpenCode"),
        ("/session/status", Fault::Status(500), "failed: OpenCode would not report the state of the turn"),
    ];
    let check = async |(path, fault, end): (&'static str, Fault, &str)| {
        let bench = bench();
        let gate = Gate::new();
        let turn = start_and_hold(&bench, &gate).await;
        bench.fake.fault_always("*", path, fault.clone());
        bench.fake.end_streams();
        let events = all(turn).await;
        let message = outcome(&events);
        assert!(message.starts_with(end), "{path} {fault:?}: {message}");
        assert!(message.contains("It has been so for 1 s"), "{message}");
        assert_eq!(text_of(&events), "alpha ", "{path} {fault:?}");
        assert_eq!(bench.fake.prompts().len(), 1);
        bench.stop().await;
    };
    futures_util::future::join_all(cases.into_iter().map(check)).await;
}

/// The responses of a proxy do not count as invalid while OpenCode is down for longer than the limit, and neither does no
/// response at all.
#[tokio::test]
async fn a_turn_waits_for_an_opencode_that_is_down() {
    let check = async |fault: Fault| {
        let bench = bench();
        let gate = Gate::new();
        let turn = start_and_hold(&bench, &gate).await;
        // Six pauses at least, of 6.3 s in all: many times the limit.
        bench.fake.fault_times("GET", "/session/status", fault.clone(), 6);
        bench.fake.end_streams();
        gate.open();
        let events = all(turn).await;
        assert_eq!(outcome(&events), "completed", "{fault:?}");
        assert_eq!(text_of(&events), "alpha bravo", "{fault:?}");
        bench.stop().await;
    };
    tokio::join!(check(Fault::Status(503)), check(Fault::CutBefore));
}

/// A proxy damages only the stream.
#[tokio::test]
async fn a_turn_without_a_stream_reads_its_state() {
    let bench = bench();
    let gate = Gate::new();
    let turn = start_and_hold(&bench, &gate).await;
    bench.fake.fault_always("GET", "/event", Fault::Html);
    bench.fake.end_streams();
    gate.open();
    let events = all(turn).await;
    assert_eq!(result(&events), ended("completed", "alpha bravo"));
    bench.stop().await;
}
