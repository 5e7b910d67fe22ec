//! Events that cannot be read: what they told is found out by asking.

use longshore_testkit::fake_opencode::{Garble, GarbleKind, Gate, Tool, Turn as Script};
use serde_json::json;

use super::*;

const WORDS: &str = "alpha bravo charlie delta echo";
const ALL: [GarbleKind; 3] = [GarbleKind::Torn, GarbleKind::Misshapen, GarbleKind::Unnamed];

fn spoil(bench: &Bench, kind: &'static str, how: GarbleKind, times: usize) {
    bench.fake.garble(Garble { kind, how, times });
}

#[tokio::test]
async fn an_ask_that_cannot_be_read_is_asked_all_the_same() {
    for how in ALL {
        let bench = Bench::new();
        bench.fake.queue(Script::new().guarded_tool(Tool::bash("ls", "x\n")).text(WORDS, 3));
        let session = bench.session().await;
        spoil(&bench, "permission.asked", how, 1);
        let (_, mut turn) = bench.start(&session, "go").await.expect("the turn starts");
        let asked = until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
        let Some(AgentEvent::Asked(ask)) = asked.last() else { panic!("{how:?}: {asked:?}") };
        let once = longshore_model::Answer::Permission {
            reply: longshore_model::PermissionReply::Once,
            message: None,
        };
        bench.agent.reply(&session, ask, &once).await.expect("it can be answered");
        let events = all(turn).await;
        assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", WORDS), "{how:?}");
        bench.stop().await;
    }
}

/// Every event of a kind, for the whole turn: nothing is missed, and no text is told with a hole in it.
#[tokio::test]
async fn a_turn_of_which_no_such_event_can_be_read_is_whole() {
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
        spoil(&bench, kind, how, usize::MAX);
        if kind == "session.idle" {
            // The status says the same.
            spoil(&bench, "session.status", how, usize::MAX);
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
async fn a_piece_of_text_that_cannot_be_read_leaves_no_hole() {
    for how in ALL {
        let bench = Bench::new();
        let gate = Gate::new();
        bench.fake.queue(Script::new().text("alpha ", 1).hold(&gate).text("bravo charlie delta", 5));
        let session = bench.session().await;
        let (_, turn) = bench.start(&session, "go").await.expect("the turn starts");
        gate.reached().await;
        spoil(&bench, "message.part.delta", how, 2);
        gate.open();
        let events = all(turn).await;
        assert_eq!(text_of(&events), "alpha bravo charlie delta", "{how:?}");
        let replaced = events.iter().any(|event| matches!(event, AgentEvent::TextReplaced { .. }));
        assert!(!replaced, "{how:?}: something else was told first: {events:?}");
        bench.stop().await;
    }
}

/// However many lines cannot be read, OpenCode is asked once a second at most.
#[tokio::test]
async fn a_flood_of_unreadable_events_is_no_flood_of_questions() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("alpha ", 1).hold(&gate).text("bravo", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.expect("the turn starts");
    gate.reached().await;
    let asked = || bench.fake.log().iter().filter(|request| request.path.ends_with("/message")).count();
    let (before, since) = (asked(), tokio::time::Instant::now());
    spoil(&bench, "*", GarbleKind::Torn, 2_000);
    let words = json!({"sessionID": session.id.as_str(), "partID": "p", "messageID": "m", "field": "text"});
    for _ in 0..2_000 {
        bench.fake.emit("message.part.delta", words.clone()).await;
    }
    // The flood lasts for as long as this takes.
    bench.fake.requested("GET", "/message", before + 2).await;
    gate.open();
    let events = all(turn).await;
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", "alpha bravo"));
    let most = before + 2 + usize::try_from(since.elapsed().as_secs()).expect("a few");
    assert!(asked() <= most, "{} times in {:?}", asked() - before, since.elapsed());
    bench.stop().await;
}
