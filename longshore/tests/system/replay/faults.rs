//! OpenCode or the connection to it fails: the fault is invisible, or the task fails with the true reason.

use std::time::Duration;

use longshore_testkit::fake_opencode::{
    Cut, CutKind, Delivery, FakeOpenCode, Fault, Gate, Setup, Tool, Turn,
};
use longshore_testkit::raw::message;
use serde_json::{Value, json};

use crate::common::{Options, TestGateway};
use crate::replay::fixture::{CheckedStream, Fixture, check};
use crate::replay::stable_names::Names;

const TEXT: &str = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima";

/// A turn with everything that can be lost, duplicated or reordered.
fn rich_turn() -> Turn {
    Turn::new()
        .reasoning("first this, then that", 4)
        .tool(Tool::bash("ls", "README.md\n"))
        .text(TEXT, 12)
        .tool(Tool::new("read", json!({"filePath": "nope"}), "").failing("File not found"))
        .text("mike november oscar", 3)
        .finish("stop")
}

/// The names and contents of the artifacts of a turn.
fn outline(seen: &CheckedStream) -> Vec<(String, Value)> {
    let artifacts = seen.task["artifacts"].as_array().into_iter().flatten();
    artifacts
        .map(|artifact| (artifact["name"].as_str().unwrap_or_default().to_owned(), artifact["parts"].clone()))
        .collect()
}

#[tokio::test]
async fn a_cut_of_the_event_stream_loses_doubles_and_reorders_nothing() {
    cut_event_stream(&[0, usize::MAX], &[4, 22, 47]).await;
}

#[tokio::test]
async fn long_cuts_of_the_event_stream_lose_double_and_reorder_nothing() {
    cut_event_stream(&[0, 1, 5, usize::MAX], &[1, 4, 9, 15, 22, 30, 40, 47]).await;
}

/// `/event` breaks off in every way, after these numbers of events. These numbers of further events are lost.
async fn cut_event_stream(losses: &[usize], positions: &[usize]) {
    let whole = {
        let fixture = Fixture::new().await;
        fixture.fake.queue(rich_turn());
        outline(&fixture.send("go").await)
    };
    assert_eq!(whole.len(), 5);
    for how in [CutKind::CleanEnd, CutKind::MidLine, CutKind::Reset] {
        for &lose in losses {
            for &after in positions {
                let fixture = Fixture::new().await;
                fixture.fake.queue(rich_turn());
                fixture.fake.cut_events(Cut { after, how, lose });
                let seen = fixture.send("go").await;
                let about = format!("{how:?} after {after}, {lose} lost");
                assert_eq!(seen.state(), "COMPLETED", "{about}: {}", seen.reason());
                assert_eq!(outline(&seen), whole, "{about}");
                assert_eq!(fixture.fake.prompts().len(), 1, "{about}");
                fixture.fake.wait_for_streams(2).await;
            }
        }
    }
}

#[tokio::test]
async fn invalid_event_lines_are_ignored() {
    let fixture = Fixture::new().await;
    fixture.fake.deliver(Delivery::WithGarbage);
    fixture.fake.queue(rich_turn());
    let seen = fixture.send("go").await;
    assert_eq!(seen.state(), "COMPLETED", "{}", seen.reason());
    assert_eq!(outline(&seen).len(), 5);
}

/// The connection brings only heartbeats: only the turn timeout ends the turn.
#[tokio::test]
async fn heartbeats_without_events_end_at_the_turn_timeout() {
    let fake = FakeOpenCode::start_with(Setup { heartbeat: Duration::from_millis(50), ..Setup::default() });
    let mut options = Options::default();
    options.engine.turn_timeout = Some(Duration::from_secs(1));
    let fixture = Fixture { gateway: TestGateway::start_with(&fake, options).await, fake };
    fixture.fake.deliver(Delivery::HeartbeatsOnly);
    fixture.fake.queue(Turn::new().text("unheard", 1).silence());
    let seen = fixture.send("go").await;
    assert_eq!(seen.state(), "FAILED");
    assert!(seen.reason().contains("took longer"), "{}", seen.reason());
}

/// A connection without events and heartbeats counts as dead and is replaced.
#[tokio::test]
async fn a_stalled_event_stream_is_replaced() {
    let fake = FakeOpenCode::start();
    let options = Options { stream_silence: Duration::from_millis(300), ..Options::default() };
    let fixture = Fixture { gateway: TestGateway::start_with(&fake, options).await, fake };
    let gate = Gate::new();
    fixture.fake.queue(Turn::new().text("alpha ", 1).hold(&gate).text("bravo", 1));
    let stream = fixture.open("go").await;
    let stalling = async {
        gate.reached().await;
        fixture.fake.stall_streams();
        gate.open();
    };
    let (frames, ()) = tokio::join!(stream.all(), stalling);
    let seen = check(fixture.client(), frames).await;
    assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha bravo"));
}

/// OpenCode received the prompt and its answer was lost: the message list shows the prompt, so it is not sent twice.
#[tokio::test]
async fn a_prompt_whose_answer_is_lost_is_not_sent_again() {
    let fixture = Fixture::new().await;
    fixture.fake.fault_once("POST", "/prompt_async", Fault::CutAfter);
    fixture.fake.queue(Turn::new().text("alpha bravo", 3));
    let seen = fixture.send("go").await;
    assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha bravo"), "{}", seen.reason());
    assert_eq!(fixture.fake.prompts().len(), 1);
}

/// The prompt never arrived: the task says that its outcome is unknown, and the prompt is not sent twice.
#[tokio::test]
async fn a_lost_prompt_fails_the_task() {
    let fixture = Fixture::new().await;
    fixture.fake.fault_once("POST", "/prompt_async", Fault::CutBefore);
    let seen = fixture.send("go").await;
    assert_eq!(seen.state(), "FAILED");
    assert_eq!(
        seen.reason(),
        "It is not known whether OpenCode took the prompt; look at the session before you send it again."
    );
    assert_eq!(fixture.fake.prompts().len(), 0);
    assert_eq!(fixture.send_in(Some(seen.context()), "message-2", "go").await.state(), "COMPLETED");
}

/// OpenCode is killed and restarted during a reply, or between a tool call and the reply to it.
#[tokio::test]
async fn an_opencode_that_dies_during_a_turn_fails_the_turn_after_its_restart() {
    let gate = Gate::new;
    let (in_reply, after_tool) = (gate(), gate());
    let cases = [
        (
            Turn::new().tool(Tool::bash("ls", "x\n")).text("alpha ", 1).hold(&in_reply).text("lost", 1),
            in_reply,
        ),
        (
            Turn::new().text("alpha ", 1).tool(Tool::bash("ls", "x\n")).hold(&after_tool).text("lost", 1),
            after_tool,
        ),
    ];
    for (turn, gate) in cases {
        let fixture = Fixture::new().await;
        fixture.fake.queue(turn);
        let stream = fixture.open("go").await;
        let dying = async {
            gate.reached().await;
            fixture.fake.kill().await;
            fixture.fake.restart();
        };
        let (frames, ()) = tokio::join!(stream.all(), dying);
        let seen = check(fixture.client(), frames).await;
        assert_eq!((seen.state(), seen.text().as_str()), ("FAILED", "alpha "), "{}", seen.reason());
        assert_eq!(fixture.fake.prompts().len(), 1);
        let next = fixture.send_in(Some(seen.context()), "message-2", "again").await;
        assert_eq!(next.state(), "COMPLETED", "{}", next.reason());
    }
}

/// The gateway stops during the turn, and another one on the same store resumes it: one task, one prompt, one text.
#[tokio::test]
async fn a_gateway_that_is_replaced_during_a_turn_loses_nothing() {
    let fake = FakeOpenCode::start();
    let store: std::sync::Arc<dyn longshore_engine::port::Store> =
        std::sync::Arc::new(longshore_store::memory());
    let options = || Options { store: store.clone(), ..Options::default() };
    let gate = Gate::new();
    fake.queue(
        Turn::new().text("alpha bravo ", 4).hold(&gate).tool(Tool::bash("ls", "x\n")).text("charlie", 2),
    );
    let first = TestGateway::start_with(&fake, options()).await;
    let mut stream = crate::replay::fixture::open(&first.client, &message("message-1", "go")).await;
    gate.reached().await;
    let mut frames = vec![stream.next().await.expect("the task")];
    first.stop().await;
    while let Some(frame) = stream.next().await {
        frames.push(frame);
    }
    let second = TestGateway::start_with(&fake, options()).await;
    let id = json!({"id": frames[0].json["task"]["id"]});
    let last = frames.last().and_then(|frame| frame.id);
    let resumed = second.client.rpc_stream("SubscribeToTask", id, last).await.expect("the missed tail");
    gate.open();
    frames.extend(resumed.all().await);
    let seen = check(&second.client, frames).await;
    assert_eq!(
        (seen.state(), seen.text().as_str()),
        ("COMPLETED", "alpha bravo charlie"),
        "{}",
        seen.reason()
    );
    assert_eq!(fake.prompts().len(), 1);
}

/// Control calls that fail once during a turn are repeated.
#[tokio::test]
async fn a_failed_read_of_the_message_list_is_retried() {
    for fault in [
        Fault::Status(500),
        Fault::CutBefore,
        Fault::Html,
        Fault::Body("{\"not\":\"a list\"}"),
        Fault::Status(401),
    ] {
        let fixture = Fixture::new().await;
        let said = format!("{fault:?}");
        fixture.fake.queue(Turn::new().text("alpha bravo charlie", 6));
        fixture.fake.cut_events(Cut { after: 9, how: CutKind::Reset, lose: usize::MAX });
        fixture.fake.fault_once("GET", "/message", fault);
        let seen = fixture.send("go").await;
        assert_eq!(
            (seen.state(), seen.text().as_str()),
            ("COMPLETED", "alpha bravo charlie"),
            "{said}: {}",
            seen.reason()
        );
    }
}

/// The answers of both bindings when OpenCode cannot be used: the status, and the task or error.
async fn answers(fixture: &Fixture) -> Value {
    let rpc = fixture.client().rpc("SendMessage", message("message-1", "go")).await;
    let rest = fixture.client().rest("POST", "/message:send", Some(&message("message-2", "go"))).await;
    let stream = fixture.send_in(None, "message-3", "go").await;
    assert_eq!(stream.state(), "FAILED");
    assert_eq!(fixture.fake.prompts().len(), 0, "nothing was prompted");
    let mut reported = Vec::new();
    for (binding, answer) in [("JSONRPC", rpc), ("HTTP+JSON", rest)] {
        let task = if binding == "JSONRPC" {
            answer.body["result"]["task"].clone()
        } else {
            answer.body["task"].clone()
        };
        let mut names = Names::default();
        names.call(task["id"].as_str().unwrap_or_default(), "<task>");
        names.call(task["contextId"].as_str().unwrap_or_default(), "<context>");
        reported
            .push(json!({"binding": binding, "status": answer.status, "body": names.value(&answer.body)}));
    }
    reported.into()
}

fn assert_snapshot(name: &str, reported: &Value) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_json_snapshot!(name, reported);
    });
}

/// A gateway with short timeouts.
async fn impatient_fixture() -> Fixture {
    let fake = FakeOpenCode::start();
    let mut options = Options { control_timeout: Duration::from_millis(500), ..Options::default() };
    options.engine.start_patience = Duration::from_secs(1);
    Fixture { gateway: TestGateway::start_with(&fake, options).await, fake }
}

#[tokio::test]
async fn opencode_is_down() {
    let fixture = impatient_fixture().await;
    fixture.fake.kill().await;
    assert_snapshot("opencode_down", &answers(&fixture).await);
}

/// Pitfall 12: OpenCode answers every unknown path with a web page and status 200.
#[tokio::test]
async fn opencode_answers_html() {
    let fixture = impatient_fixture().await;
    fixture.fake.fault_always("*", "", Fault::Html);
    assert_snapshot("opencode_html", &answers(&fixture).await);
}

#[tokio::test]
async fn opencode_answers_html_to_the_prompt_only() {
    let fixture = impatient_fixture().await;
    fixture.fake.fault_always("POST", "/prompt_async", Fault::Html);
    assert_snapshot("opencode_html_prompt", &answers(&fixture).await);
}

#[tokio::test]
async fn opencode_refuses_the_password() {
    let fake = FakeOpenCode::start_with(Setup {
        password: Some(("opencode".to_owned(), "right".to_owned())),
        ..Setup::default()
    });
    let options = Options { password: Some("wrong".to_owned()), ..Options::default() };
    let fixture = Fixture { gateway: TestGateway::start_with(&fake, options).await, fake };
    assert_snapshot("opencode_401", &answers(&fixture).await);
}

#[tokio::test]
async fn opencode_accepts_the_password() {
    let fake = FakeOpenCode::start_with(Setup {
        password: Some(("opencode".to_owned(), "right".to_owned())),
        ..Setup::default()
    });
    let options = Options { password: Some("right".to_owned()), ..Options::default() };
    let fixture = Fixture { gateway: TestGateway::start_with(&fake, options).await, fake };
    assert_eq!(fixture.send("go").await.state(), "COMPLETED");
}

#[tokio::test]
async fn opencode_fails_at_everything() {
    let fixture = impatient_fixture().await;
    fixture.fake.fault_always("*", "", Fault::Status(500));
    assert_snapshot("opencode_500", &answers(&fixture).await);
}

#[tokio::test]
async fn opencode_accepts_requests_and_never_answers() {
    let fixture = impatient_fixture().await;
    fixture.fake.fault_always("*", "", Fault::Hang);
    assert_snapshot("opencode_hangs", &answers(&fixture).await);
}

#[tokio::test]
async fn opencode_is_slow() {
    let fixture = Fixture::new().await;
    fixture.fake.fault_always("*", "", Fault::Delay(Duration::from_millis(300)));
    fixture.fake.queue(rich_turn());
    assert_eq!(fixture.send("go").await.state(), "COMPLETED");
}
