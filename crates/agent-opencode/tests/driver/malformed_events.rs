//! Events that cannot be parsed: their content is read from OpenCode.

use longshore_testkit::fake_opencode::{Garble, GarbleKind, Gate, Tool, Turn as Script};
use serde_json::json;

use super::*;

const WORDS: &str = "alpha bravo charlie delta echo";
const ALL: [GarbleKind; 3] = [GarbleKind::Torn, GarbleKind::Misshapen, GarbleKind::Unnamed];

fn garble(bench: &Bench, kind: &'static str, how: GarbleKind, times: usize) {
    bench.fake.garble(Garble { kind, how, times });
}

#[tokio::test]
async fn an_ask_whose_event_cannot_be_parsed_is_reported() {
    for how in ALL {
        let bench = Bench::new();
        bench.fake.queue(Script::new().guarded_tool(Tool::bash("ls", "x\n")).text(WORDS, 3));
        let session = bench.session().await;
        garble(&bench, "permission.asked", how, 1);
        let (_, mut turn) = bench.start(&session, "go").await.expect("the turn starts");
        let ask = asked(&mut turn).await;
        bench.agent.reply(&session, &ask, &once()).await.expect("the ask can be answered");
        let events = all(turn).await;
        assert_eq!(result(&events), ended("completed", WORDS), "{how:?}");
        bench.stop().await;
    }
}

/// Every event of a kind is malformed for the whole turn: nothing is missed, and no text has a hole.
#[tokio::test]
async fn a_turn_is_complete_even_if_no_event_of_a_kind_can_be_parsed() {
    let kinds = [
        "session.idle",
        "session.status",
        "message.updated",
        "message.part.updated",
        "message.part.delta",
        "session.error",
        "*",
    ];
    let check = async |(kind, how): (&'static str, GarbleKind)| {
        let bench = Bench::new();
        let script = Script::new().reasoning("thinking", 2).tool(Tool::bash("ls", "a\nb\n"));
        bench.fake.queue(script.text(WORDS, 10));
        let session = bench.session().await;
        garble(&bench, kind, how, usize::MAX);
        if kind == "session.idle" {
            // The status reports the same.
            garble(&bench, "session.status", how, usize::MAX);
        }
        let (_, turn) = bench.start(&session, "go").await.expect("the turn starts");
        let events = all(turn).await;
        let what = format!("{kind}, {how:?}");
        assert_eq!(outcome(&events), "completed", "{what}");
        assert_eq!(text_of(&events), format!("thinking{WORDS}"), "{what}");
        assert_eq!(bench.fake.prompts().len(), 1, "{what}");
        bench.stop().await;
    };
    for how in ALL {
        futures_util::future::join_all(kinds.map(|kind| check((kind, how)))).await;
    }
}

#[tokio::test]
async fn a_delta_that_cannot_be_parsed_leaves_no_hole() {
    for how in ALL {
        let bench = Bench::new();
        let gate = Gate::new();
        let (_, _, turn) = bench
            .start_held(Script::new().text("alpha ", 1).hold(&gate).text("bravo charlie delta", 5), &gate)
            .await;
        garble(&bench, "message.part.delta", how, 2);
        gate.open();
        let events = all(turn).await;
        assert_eq!(text_of(&events), "alpha bravo charlie delta", "{how:?}");
        let replaced = events.iter().any(|event| matches!(event, AgentEvent::TextReplaced { .. }));
        assert!(!replaced, "{how:?}: another text was reported first: {events:?}");
        bench.stop().await;
    }
}

/// However many events cannot be parsed, the messages are read at most once a second.
#[tokio::test]
async fn a_flood_of_malformed_events_does_not_flood_opencode_with_requests() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn) =
        bench.start_held(Script::new().text("alpha ", 1).hold(&gate).text("bravo", 1), &gate).await;
    let reads = || bench.fake.log().iter().filter(|request| request.path.ends_with("/message")).count();
    let (before, since) = (reads(), tokio::time::Instant::now());
    garble(&bench, "*", GarbleKind::Torn, 2_000);
    let words = json!({"sessionID": session.id.as_str(), "partID": "p", "messageID": "m", "field": "text"});
    for _ in 0..2_000 {
        bench.fake.emit("message.part.delta", words.clone()).await;
    }
    // The flood lasts for as long as this takes.
    bench.fake.wait_for_request("GET", "/message", before + 2).await;
    gate.open();
    let events = all(turn).await;
    assert_eq!(result(&events), ended("completed", "alpha bravo"));
    let most = before + 2 + usize::try_from(since.elapsed().as_secs()).expect("a few");
    assert!(reads() <= most, "{} times in {:?}", reads() - before, since.elapsed());
    bench.stop().await;
}
