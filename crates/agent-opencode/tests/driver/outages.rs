//! OpenCode ends and comes back. A process that is gone never responds, and one that is just starting accepts requests and never
//! responds to them either.

use futures_util::future::join;
use longshore_agent_opencode::Address;
use longshore_engine::port::BoxFuture;
use longshore_model::ErrorKind;
use longshore_testkit::fake_opencode::{Fault, Gate, Turn as Script};

use super::*;

/// A call that is not ended by the end of OpenCode takes [`PATIENCE`].
const AT_ONCE: Duration = Duration::from_secs(5);

/// A driver of an OpenCode whose process is supervised.
fn supervised() -> (Bench, Address) {
    let fake = FakeOpenCode::start();
    let address = Address::supervised(fake.url().parse().expect("the fake has an address"));
    let base_url = address.clone();
    (Bench::with(fake, None, PATIENCE, |config| config.endpoint.base_url = base_url), address)
}

pub(crate) async fn at_once<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(AT_ONCE, work).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

pub(crate) async fn until_down(bench: &Bench) {
    at_once("the end", async { while bench.agent.check().await.is_ok() {} }).await;
}

pub(crate) async fn until_well(bench: &Bench) {
    while bench.agent.check().await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_call_to_an_attached_opencode_that_is_just_starting_does_not_hang() {
    let bench = Bench::on(FakeOpenCode::start(), None, PATIENCE);
    let session = bench.session().await;
    bench.fake.kill().await;
    at_once("the end", async { while bench.agent.check().await.is_ok() {} }).await;
    bench.fake.fault_always("*", "", Fault::Hang);
    bench.fake.restart();
    let refused = at_once("the check", bench.agent.check()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AgentUnavailable);

    bench.fake.clear_faults();
    at_once("the return", until_well(&bench)).await;
    bench.fake.queue(Script::new().text("some words", 1));
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    assert_eq!(outcome(&all(turn).await), "completed");
    bench.stop().await;
}

#[tokio::test]
async fn the_end_of_opencode_ends_every_call_and_no_call_is_made_before_it_is_back() {
    let (bench, address) = supervised();
    let session = bench.used_session().await;
    let agent = &bench.agent;
    let calls: [(&str, &str, BoxFuture<'_, Result<()>>); 5] = [
        ("GET", "/session/status", Box::pin(async { agent.is_busy(&session).await.map(drop) })),
        ("GET", "/session/ses_used", Box::pin(async { agent.find_session(&session.id).await.map(drop) })),
        ("POST", "/session", Box::pin(async { agent.open_session(root(&bench)).await.map(drop) })),
        ("POST", "/abort", agent.cancel(&session)),
        ("GET", "/global/health", agent.check()),
    ];
    for (method, path, call) in calls {
        let gate = Gate::new();
        bench.fake.fault_once(method, path, Fault::Hold(gate.clone()));
        let ends = async {
            gate.reached().await;
            address.set_down("OpenCode ended.");
        };
        let (result, ()) = at_once(path, join(call, ends)).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::AgentUnavailable, "{method} {path}");
        gate.open();
        address.set_up();
    }
    address.set_down("OpenCode ended.");

    let before = bench.fake.log().len();
    let refused = agent.check().await.unwrap_err();
    assert_eq!(refused.message(), "OpenCode ended.");
    at_once("a call", agent.is_busy(&session)).await.unwrap_err();
    assert_eq!(bench.fake.log().len(), before, "a call was made while OpenCode was down");
    address.set_up();
    agent.check().await.unwrap();
    assert!(!agent.is_busy(&session).await.unwrap());
    bench.stop().await;
}

/// Nothing that the next process shows about the turn can change any more.
#[tokio::test]
async fn a_turn_whose_process_ended_fails_as_soon_as_the_next_process_responds() {
    let (held, begun) = (Gate::new(), Gate::new());
    for (what, script, gate, expected) in [
        (
            "an answer",
            Script::new().text("some words", 2).hold(&held),
            &held,
            "OpenCode ended in the middle of the turn",
        ),
        (
            "no answer",
            Script::new().hold(&begun),
            &begun,
            "OpenCode ended before it began to answer the prompt",
        ),
    ] {
        let (bench, address) = supervised();
        let (_, _, turn) = bench.start_held(script, gate).await;
        bench.fake.kill().await;
        address.set_down("OpenCode ended.");
        bench.fake.restart();
        address.set_up();
        let ended = outcome(&at_once(what, all(turn)).await);
        assert!(ended.contains(expected), "{what}: {ended}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_prompt_that_opencode_did_not_store_before_it_ended_is_not_sent_again() {
    let (bench, address) = supervised();
    let session = bench.session().await;
    let gate = Gate::new();
    bench.fake.fault_once("POST", "/prompt_async", Fault::Hold(gate.clone()));
    let ends = async {
        gate.reached().await;
        bench.fake.kill().await;
        address.set_down("OpenCode ended.");
        bench.fake.restart();
        address.set_up();
    };
    let (started, ()) = at_once("the start", join(bench.start(&session, "go"), ends)).await;
    let ended = outcome(&at_once("the turn", all(started.unwrap().1)).await);
    assert!(ended.contains("OpenCode ended before it had stored the prompt"), "{ended}");
    assert_eq!(bench.fake.prompts(), []);
    bench.stop().await;
}

#[tokio::test]
async fn a_turn_that_waits_to_begin_begins_when_opencode_is_back() {
    let (bench, address) = supervised();
    let session = bench.session().await;
    bench.fake.kill().await;
    address.set_down("OpenCode ended.");
    bench.fake.queue(Script::new().text("some words", 1));
    let back = bench.agent.until_back();
    let returns = async {
        bench.fake.restart();
        address.set_up();
        back.await;
    };
    // The first attempt may begin before the end of the event stream is noticed. The engine repeats such a start, too.
    let start = async {
        loop {
            match bench.start(&session, "go").await {
                Ok((_, turn)) => return turn,
                Err(error) => assert_eq!(error.kind(), ErrorKind::AgentUnavailable),
            }
            tokio::task::yield_now().await;
        }
    };
    let (turn, ()) = at_once("the start", join(start, returns)).await;
    assert_eq!(outcome(&all(turn).await), "completed");
    bench.stop().await;
}
