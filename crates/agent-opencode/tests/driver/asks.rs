//! Asks that are answered through the gateway, elsewhere, or never.

use longshore_model::{AskKind, AskOptions, ErrorKind, RequestId, Resolution};
use longshore_testkit::fake_opencode::{Cut, CutKind, Fault, Gate, Play, Tool, Turn as Script};
use serde_json::{Value, json};

use super::*;

/// The asks and their ends, in order.
fn reported(events: &[AgentEvent]) -> Vec<String> {
    let reported = events.iter().filter_map(|event| match event {
        AgentEvent::Asked(ask) => Some(ask.summary.clone()),
        AgentEvent::AskClosed { resolution, .. } => Some(resolution.as_str().to_owned()),
        _ => None,
    });
    reported.collect()
}

fn guarded() -> Script {
    Script::new().guarded_tool(Tool::bash("rm x", "")).text("done", 1)
}

const GUARDED: &str = "The agent asks for permission to run: rm x";

fn answers(answers: &[&[&str]]) -> Answer {
    let labels = |labels: &&[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
    Answer::Question { answers: answers.iter().map(labels).collect() }
}

#[tokio::test]
async fn answers_go_to_the_ask_in_the_directory_of_its_session() {
    let rejected = "failed: OpenCode ended the turn after the tool call";
    let cases: [(&str, Answer, &str, Value, &str); 8] = [
        (
            "permission_once",
            permission(PermissionReply::Once, None),
            "reply",
            json!({"reply": "once"}),
            "completed",
        ),
        (
            "permission_edit",
            permission(PermissionReply::Always, None),
            "reply",
            json!({"reply": "always"}),
            "completed",
        ),
        (
            "permission_reject",
            permission(PermissionReply::Reject, None),
            "reply",
            json!({"reply": "reject"}),
            rejected,
        ),
        (
            "permission_reject_message",
            permission(PermissionReply::Reject, Some("Keep it.")),
            "reply",
            json!({"reply": "reject", "message": "Keep it."}),
            "completed",
        ),
        (
            "task_permission",
            Answer::PermissionOption { option: "Allow once".to_owned(), message: None },
            "reply",
            json!({"reply": "once"}),
            "completed",
        ),
        ("question_answer", answers(&[&["Green"]]), "reply", json!({"answers": [["Green"]]}), "completed"),
        (
            "question_multi",
            answers(&[&["A", "C"], &["by hand"]]),
            "reply",
            json!({"answers": [["A", "C"], ["by hand"]]}),
            "completed",
        ),
        ("question_reject", Answer::RejectQuestion, "reject", json!({}), rejected),
    ];
    for (name, answer, action, body, end) in cases {
        let bench = Bench::new();
        bench.fake.play(&Play::new(name));
        // Not the directory where the server runs: a request without a directory would go there.
        let directory = format!("{}/inner", bench.fake.directory());
        std::fs::create_dir(&directory).unwrap();
        let session = NewSession { directory: directory.clone(), title: None };
        let session = bench.agent.open_session(session).await.unwrap();
        let (_, mut turn) = bench.start(&session, "go").await.unwrap();
        let ask = asked(&mut turn).await;
        assert_eq!(ask.session != session.id, name == "task_permission");
        bench.agent.reply(&session, &ask, &answer).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let kind = ask.kind.as_str();
        let sent =
            bench.fake.wait_for_request("POST", &format!("/{kind}/{}/{action}", ask.request_id), 1).await;
        assert_eq!((sent.body, sent.directory.as_str()), (body, directory.as_str()), "{name}");
        let events = all(turn).await;
        assert!(outcome(&events).starts_with(end), "{name}: {}", outcome(&events));
        let closed = if answer.resolution(&ask.options) == Resolution::Rejected {
            "rejected_elsewhere"
        } else {
            "elsewhere"
        };
        assert_eq!(reported(&events), [closed], "{name}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn an_answer_to_an_unknown_or_different_ask_is_refused() {
    let bench = Bench::new();
    let session = bench.session().await;
    let ask = |id: &str, kind| Ask {
        request_id: RequestId::parse(id).unwrap(),
        kind,
        session: session.id.clone(),
        summary: String::new(),
        details: longshore_model::Json::from_value(&json!({})),
        questions: Vec::new(),
        call: None,
        permission: None,
        options: AskOptions::default(),
    };
    let cases = [
        (ask("per_gone", AskKind::Permission), once(), ErrorKind::InterruptNotFound),
        (ask("que_gone", AskKind::Question), Answer::RejectQuestion, ErrorKind::InterruptNotFound),
        (ask("que_gone", AskKind::Question), answers(&[&["A"]]), ErrorKind::InterruptNotFound),
        (ask("que_1", AskKind::Question), once(), ErrorKind::InterruptTypeMismatch),
        (ask("per_1", AskKind::Permission), Answer::RejectQuestion, ErrorKind::InterruptTypeMismatch),
        (ask("..", AskKind::Permission), once(), ErrorKind::InvalidParams),
        (ask("per_1", AskKind::Permission), Answer::permission("maybe", None), ErrorKind::InvalidParams),
        (ask("ses_1", AskKind::Question), Answer::RejectQuestion, ErrorKind::InvalidParams),
    ];
    for (ask, answer, kind) in &cases {
        let before = bench.fake.log().len();
        let error = bench.agent.reply(&session, ask, answer).await.unwrap_err();
        assert_eq!(error.kind(), *kind, "{ask:?}: {error}");
        let sent = bench.fake.log().len() - before;
        assert_eq!(sent, usize::from(*kind == ErrorKind::InterruptNotFound), "{ask:?}");
    }
    bench.fake.kill().await;
    let error = bench.agent.reply(&session, &cases[0].0, &once()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentUnavailable);
    bench.stop().await;
}

#[tokio::test]
async fn an_answer_from_another_client_closes_the_ask() {
    let cases = [
        ("permission_once", "The agent asks for permission to run: rm -f gone.txt"),
        ("task_permission", "A sub-agent asks for permission to run: rm -f child.txt"),
        ("question_answer", "The agent asks: Which colour? (Red, Green)"),
    ];
    for (name, ask) in cases {
        let bench = Bench::new();
        bench.fake.play(&Play::new(name).foreign_replies());
        let events = bench.run("go").await;
        assert_eq!(reported(&events), [ask, "elsewhere"], "{name}");
        assert_eq!(outcome(&events), "completed", "{name}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn an_abort_drops_the_ask_that_opencode_still_lists() {
    let bench = Bench::new();
    bench.fake.queue(guarded());
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    asked(&mut turn).await;
    bench.agent.cancel(&session).await.unwrap();
    let events = all(turn).await;
    assert_eq!(reported(&events), ["dropped"]);
    assert_eq!(outcome(&events), "canceled: The turn was stopped.");
    // The next turn does not report it, although the list still has it.
    bench.fake.queue(Script::new().text("one two three", 3));
    bench.fake.cut_events(Cut { after: 6, how: CutKind::CleanEnd, lose: 0 });
    let (_, turn) = bench.start(&session, "go on").await.unwrap();
    let events = all(turn).await;
    assert_eq!((reported(&events).len(), text_of(&events).as_str()), (0, "one two three"));
    bench.stop().await;
}

/// Another client stops the turn. OpenCode would keep the ask, and a later answer to it would end another turn.
#[tokio::test]
async fn an_abort_by_another_client_leaves_no_ask_behind() {
    let bench = Bench::new();
    bench.fake.queue(guarded());
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    let ask = asked(&mut turn).await;
    let abort = format!("{}/session/{}/abort", bench.fake.url(), session.id);
    reqwest::Client::new().post(abort).send().await.expect("an answer");
    let end = until(&mut turn, |event| matches!(event, AgentEvent::Ended(_))).await;
    assert_eq!(bench.fake.open_asks(), Vec::<String>::new(), "before the end is reported");
    assert_eq!(reported(&end), ["dropped"]);
    assert_eq!(outcome(&end), "canceled: The turn was stopped at OpenCode itself.");
    let rejected = bench.fake.wait_for_request("POST", "/reply", 1).await;
    assert!(rejected.path.contains(ask.request_id.as_str()), "{rejected:?}");
    bench.stop().await;
}

#[tokio::test]
async fn a_kill_drops_the_ask_that_opencode_forgets() {
    let bench = Bench::new();
    bench.fake.queue(guarded());
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    asked(&mut turn).await;
    bench.fake.kill().await;
    bench.fake.restart();
    let events = all(turn).await;
    assert_eq!(reported(&events), ["dropped"]);
    assert!(outcome(&events).starts_with("failed: OpenCode stopped in the middle of the turn"));
    bench.stop().await;
}

#[tokio::test]
async fn asks_survive_a_cut_of_the_stream_at_any_event() {
    // The ask is the eighth event of the turn, its answer the ninth.
    for (after, lose) in [(3, 0), (5, 3), (7, 0), (7, 1), (8, 0), (8, 1), (8, 3), (9, 2)] {
        let bench = Bench::new();
        bench.fake.queue(guarded());
        let session = bench.session().await;
        bench.fake.cut_events(Cut { after, how: CutKind::Reset, lose });
        let (_, mut turn) = bench.start(&session, "go").await.unwrap();
        let ask = asked(&mut turn).await;
        bench.agent.reply(&session, &ask, &once()).await.unwrap();
        let events = all(turn).await;
        let what = format!("after {after}, {lose} lost");
        assert_eq!(reported(&events), ["elsewhere"], "{what}");
        assert_eq!(result(&events), ended("completed", "done"), "{what}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn an_ask_of_a_sub_agent_that_was_made_in_a_gap_is_found() {
    let bench = Bench::new();
    bench.fake.play(&Play::new("task_permission"));
    let session = bench.session().await;
    // All events of the sub-agent before its ask are lost, including its creation.
    bench.fake.cut_events(Cut { after: 11, how: CutKind::CleanEnd, lose: 17 });
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    let ask = asked(&mut turn).await;
    assert_ne!(ask.session, session.id);
    bench.agent.reply(&session, &ask, &once()).await.unwrap();
    let events = all(turn).await;
    assert_eq!((reported(&events), outcome(&events).as_str()), (vec!["elsewhere".to_owned()], "completed"));
    bench.stop().await;
}

#[tokio::test]
async fn an_ask_is_found_even_if_opencode_cannot_list_the_messages() {
    let bench = Bench::new();
    bench.fake.queue(guarded());
    let session = bench.session().await;
    bench.fake.fault_always("GET", "/message", Fault::Status(400));
    bench.fake.cut_events(Cut { after: 2, how: CutKind::CleanEnd, lose: 6 });
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    let ask = asked(&mut turn).await;
    bench.agent.reply(&session, &ask, &once()).await.unwrap();
    let events = all(turn).await;
    assert_eq!((reported(&events), text_of(&events).as_str()), (vec!["elsewhere".to_owned()], "done"));
    bench.stop().await;
}

#[tokio::test]
async fn a_sub_agent_that_stops_drops_its_ask_while_the_turn_goes_on() {
    let bench = Bench::new();
    let session = bench.session().await;
    let gate = Gate::new();
    let child = "ses_child";
    let event = |kind: &str, mut properties: Value| {
        properties["sessionID"] = child.into();
        json!({"id": "evt_1", "type": kind, "properties": properties})
    };
    let status = |kind: &str| event("session.status", json!({"status": {"type": kind}}));
    let info = json!({"id": child, "parentID": session.id.as_str(), "directory": session.directory});
    let script = Script::new()
        .raw(event("session.created", json!({"info": info})))
        .raw(status("busy"))
        .raw(event("permission.asked", json!({"id": "per_1", "permission": "bash", "patterns": ["rm x"]})))
        .raw(status("idle"))
        .raw(event("session.idle", json!({})));
    bench.fake.queue(script.hold(&gate).text("gone on", 1));
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    assert_eq!(asked(&mut turn).await.session.as_str(), child);
    let events = until(&mut turn, |event| matches!(event, AgentEvent::AskClosed { .. })).await;
    assert_eq!(reported(&events), ["dropped"]);
    gate.open();
    let events = all(turn).await;
    assert_eq!((reported(&events).len(), text_of(&events).as_str()), (0, "gone on"));
    bench.stop().await;
}

#[tokio::test]
async fn a_turn_with_an_open_ask_is_resumed() {
    // Whether the log has the ask, whether it is answered while no driver runs, and what is reported after that.
    let cases: [(bool, bool, &[&str]); 4] = [
        (true, false, &["elsewhere"]),
        (false, false, &[GUARDED, "elsewhere"]),
        (true, true, &["elsewhere"]),
        (false, true, &[]),
    ];
    for (known, answered_meanwhile, expected) in cases {
        let bench = Bench::new();
        let gate = Gate::new();
        let script = Script::new().guarded_tool(Tool::bash("rm x", "")).hold(&gate);
        bench.fake.queue(script.text("done", 1));
        let session = bench.session().await;
        let (prompt, mut turn) = bench.start(&session, "go").await.unwrap();
        let ask = asked(&mut turn).await;
        drop(turn);
        if answered_meanwhile {
            bench.agent.reply(&session, &ask, &once()).await.unwrap();
            gate.reached().await;
        }
        let open_asks = if known { vec![ask.request_id.clone()] } else { Vec::new() };
        let mut turn = bench.resume(&session, &prompt, Resume { open_asks, ..Resume::default() }).await;
        // The turn has read the lists when it reports what it found in the messages.
        let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Tool { .. })).await;
        if !answered_meanwhile {
            bench.agent.reply(&session, &ask, &once()).await.unwrap();
        }
        gate.open();
        events.extend(all(turn).await);
        let what = format!("known: {known}, answered meanwhile: {answered_meanwhile}");
        assert_eq!(reported(&events), expected, "{what}");
        assert_eq!(result(&events), ended("completed", "done"), "{what}");
        assert_eq!(bench.fake.prompts().len(), 1, "{what}");
        bench.stop().await;
    }
}
