//! Titles and usage, with broken streams.

use longshore_model::Usage;
use longshore_testkit::fake_opencode::{Cut, CutKind, Play, Tool, Turn as Script};
use serde_json::Value;

use super::*;

fn usage(events: &[AgentEvent]) -> Option<Usage> {
    events.iter().rev().find_map(|event| match event {
        AgentEvent::Usage(usage) => Some(*usage),
        _ => None,
    })
}

/// The input and output tokens of all messages that the fake has, of the session and of its sub-agents.
fn stored(fake: &FakeOpenCode) -> (u64, u64) {
    let sum = |key: &str| {
        let messages = fake.sessions().into_iter().flat_map(|session| fake.messages(&session));
        messages.filter_map(|message| message["info"]["tokens"].get(key).and_then(Value::as_u64)).sum()
    };
    (sum("input"), sum("output"))
}

#[tokio::test]
async fn usage_is_complete_wherever_the_stream_is_cut() {
    for play in ["task", "auto_compact"] {
        let never = usize::MAX;
        for (after, lose) in [(never, 0), (0, 0), (5, 40), (20, 30), (30, 5), (12, never), (40, never)] {
            let bench = Bench::new();
            bench.fake.play(&Play::new(play));
            let session = bench.session().await;
            bench.fake.cut_events(Cut { after, how: CutKind::CleanEnd, lose });
            let (prompt, turn) = bench.start(&session, "go").await.unwrap();
            let events = all(turn).await;
            let what = format!("{play}, after {after}, {lose} lost");
            assert_eq!(outcome(&events), "completed", "{what}");
            let whole = usage(&events).expect("usage");
            assert_eq!((whole.input, whole.output), stored(&bench.fake), "{what}");
            // Resumed after its end.
            let turn = bench.resume(&session, &prompt, Resume::default()).await;
            assert_eq!(usage(&all(turn).await), Some(whole), "{what}");
            bench.stop().await;
        }
    }
}

#[tokio::test]
async fn usage_covers_the_turn_and_not_the_session() {
    let bench = Bench::new();
    let session = bench.session().await;
    for _ in 0..2 {
        bench.fake.queue(Script::new().tool(Tool::bash("ls", "a")).text("done", 1));
        let (_, turn) = bench.start(&session, "go").await.unwrap();
        let events = all(turn).await;
        let reports = events.iter().filter(|event| matches!(event, AgentEvent::Usage(_))).count();
        let whole = usage(&events).unwrap();
        assert_eq!((whole.input, whole.output, whole.total, reports), (204, 20, 224, 2));
        assert_eq!(whole.cost.to_float().to_string(), "0.000244");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_title_that_was_set_in_a_gap_is_reported() {
    let bench = Bench::new();
    bench.fake.play(&Play::new("title_generation"));
    let session = bench.session().await;
    bench.fake.cut_events(Cut { after: 1, how: CutKind::CleanEnd, lose: 12 });
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    let titles: Vec<Option<String>> = all(turn)
        .await
        .into_iter()
        .filter_map(|event| match event {
            AgentEvent::Session(note) => Some(note.title),
            _ => None,
        })
        .collect();
    assert_eq!(titles, [Some("Title: text".to_owned())]);
    bench.stop().await;
}
