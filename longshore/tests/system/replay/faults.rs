//! OpenCode breaks, or the way to it does: each fault ends the task truthfully, or nothing of it is seen.

use std::time::Duration;

use longshore_testkit::fake_opencode::{
    Cut, CutKind, Delivery, FakeOpenCode, Fault, Gate, Setup, Tool, Turn,
};
use longshore_testkit::raw::message;
use serde_json::{Value, json};

use crate::common::{Options, TestGateway};
use crate::replay::stable_names::Names;
use crate::replay::fixture::{Seen, Stage, check};

const TEXT: &str = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima";

/// A turn with everything in it that can be lost, doubled or told in another order.
fn rich_turn() -> Turn {
    Turn::new()
        .reasoning("first this, then that", 4)
        .tool(Tool::bash("ls", "README.md\n"))
        .text(TEXT, 12)
        .tool(Tool::new("read", json!({"filePath": "nope"}), "").failing("File not found"))
        .text("mike november oscar", 3)
        .finish("stop")
}

/// What the whole turn leaves, whatever happened on the way: names and contents in order.
fn outline(seen: &Seen) -> Vec<(String, Value)> {
    let artifacts = seen.task["artifacts"].as_array().into_iter().flatten();
    artifacts
        .map(|artifact| (artifact["name"].as_str().unwrap_or_default().to_owned(), artifact["parts"].clone()))
        .collect()
}

/// `/event` breaks off at every place of a turn, in every way, with and without events that nobody hears.
#[tokio::test]
async fn a_cut_of_the_event_stream_loses_doubles_and_reorders_nothing() {
    let whole = {
        let stage = Stage::new().await;
        stage.fake.queue(rich_turn());
        outline(&stage.send("go").await)
    };
    assert_eq!(whole.len(), 5);
    for how in [CutKind::CleanEnd, CutKind::MidLine, CutKind::Reset] {
        for lose in [0, 1, 5, usize::MAX] {
            for after in [1, 4, 9, 15, 22, 30, 40, 47] {
                let stage = Stage::new().await;
                stage.fake.queue(rich_turn());
                stage.fake.cut_events(Cut { after, how, lose });
                let seen = stage.send("go").await;
                let place = format!("{how:?} after {after}, {lose} lost");
                assert_eq!(seen.state(), "COMPLETED", "{place}: {}", seen.reason());
                assert_eq!(outline(&seen), whole, "{place}");
                assert_eq!(stage.fake.prompts().len(), 1, "{place}");
                stage.fake.streams_opened(2).await;
            }
        }
    }
}

#[tokio::test]
async fn lines_that_are_no_events_are_survived() {
    let stage = Stage::new().await;
    stage.fake.deliver(Delivery::WithGarbage);
    stage.fake.queue(rich_turn());
    let seen = stage.send("go").await;
    assert_eq!(seen.state(), "COMPLETED", "{}", seen.reason());
    assert_eq!(outline(&seen).len(), 5);
}

/// The connection is alive and brings nothing but heartbeats: only the limit on turns helps.
#[tokio::test]
async fn heartbeats_without_events_end_at_the_limit_of_the_turn() {
    let fake = FakeOpenCode::start_with(Setup { heartbeat: Duration::from_millis(50), ..Setup::default() });
    let mut options = Options::default();
    options.engine.turn_timeout = Some(Duration::from_secs(1));
    let stage = Stage { gateway: TestGateway::start_with(&fake, options).await, fake };
    stage.fake.deliver(Delivery::HeartbeatsOnly);
    stage.fake.queue(Turn::new().text("unheard", 1).silence());
    let seen = stage.send("go").await;
    assert_eq!(seen.state(), "FAILED");
    assert!(seen.reason().contains("took longer"), "{}", seen.reason());
}

/// A connection on which nothing comes any more, not even heartbeats, is taken for dead and made anew.
#[tokio::test]
async fn a_stalled_event_stream_is_replaced() {
    let fake = FakeOpenCode::start();
    let options = Options { stream_silence: Duration::from_millis(300), ..Options::default() };
    let stage = Stage { gateway: TestGateway::start_with(&fake, options).await, fake };
    let gate = Gate::new();
    stage.fake.queue(Turn::new().text("alpha ", 1).hold(&gate).text("bravo", 1));
    let stream = stage.open("go").await;
    let stalling = async {
        gate.reached().await;
        stage.fake.stall_streams();
        gate.open();
    };
    let (frames, ()) = tokio::join!(stream.all(), stalling);
    let seen = check(stage.client(), frames).await;
    assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha bravo"));
}

/// The prompt arrived and the answer to it did not: the message list says so, and it is not sent twice.
#[tokio::test]
async fn a_prompt_whose_answer_is_lost_is_followed_and_not_sent_again() {
    let stage = Stage::new().await;
    stage.fake.fault_once("POST", "/prompt_async", Fault::CutAfter);
    stage.fake.queue(Turn::new().text("alpha bravo", 3));
    let seen = stage.send("go").await;
    assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha bravo"), "{}", seen.reason());
    assert_eq!(stage.fake.prompts().len(), 1);
}

/// The prompt never arrived: the task says that nothing is known of it, and it is not sent twice.
#[tokio::test]
async fn a_prompt_that_is_lost_on_the_way_fails_the_task() {
    let stage = Stage::new().await;
    stage.fake.fault_once("POST", "/prompt_async", Fault::CutBefore);
    let seen = stage.send("go").await;
    assert_eq!(seen.state(), "FAILED");
    assert_eq!(
        seen.reason(),
        "It is not known whether OpenCode took the prompt; look at the session before you send it again."
    );
    assert_eq!(stage.fake.prompts().len(), 0);
    assert_eq!(stage.send_in(Some(seen.context()), "message-2", "go").await.state(), "COMPLETED");
}

/// The session was deleted between two turns: the context goes on in a new one.
#[tokio::test]
async fn a_session_that_opencode_forgot_is_replaced() {
    let stage = Stage::new().await;
    let first = stage.send("one").await;
    stage.fake.quiet().await;
    stage.fake.forget_session(&stage.fake.sessions()[0]);
    let second = stage.send_in(Some(first.context()), "message-2", "two").await;
    assert_eq!((second.state(), second.text().as_str()), ("COMPLETED", "unscripted"), "{}", second.reason());
    assert_eq!(stage.fake.log().iter().filter(|r| r.method == "POST" && r.path == "/session").count(), 2);
}

/// OpenCode is killed and started again in the middle of a reply, or between a tool call and the reply to it.
#[tokio::test]
async fn an_opencode_that_dies_during_the_turn_fails_it_when_it_is_back() {
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
        let stage = Stage::new().await;
        stage.fake.queue(turn);
        let stream = stage.open("go").await;
        let dying = async {
            gate.reached().await;
            stage.fake.kill().await;
            stage.fake.come_back();
        };
        let (frames, ()) = tokio::join!(stream.all(), dying);
        let seen = check(stage.client(), frames).await;
        assert_eq!((seen.state(), seen.text().as_str()), ("FAILED", "alpha "), "{}", seen.reason());
        assert_eq!(stage.fake.prompts().len(), 1);
        let next = stage.send_in(Some(seen.context()), "message-2", "again").await;
        assert_eq!(next.state(), "COMPLETED", "{}", next.reason());
    }
}

/// The gateway is stopped during the turn and another takes it up from the same store: one task, one prompt, one text.
#[tokio::test]
async fn a_gateway_that_is_replaced_during_the_turn_loses_nothing() {
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

/// Control calls that fail once in the middle of a turn are asked again.
#[tokio::test]
async fn a_list_that_cannot_be_read_at_first_is_read_again() {
    for fault in [
        Fault::Status(500),
        Fault::CutBefore,
        Fault::Html,
        Fault::Body("{\"not\":\"a list\"}"),
        Fault::Status(401),
    ] {
        let stage = Stage::new().await;
        let said = format!("{fault:?}");
        stage.fake.queue(Turn::new().text("alpha bravo charlie", 6));
        stage.fake.cut_events(Cut { after: 9, how: CutKind::Reset, lose: usize::MAX });
        stage.fake.fault_once("GET", "/message", fault);
        let seen = stage.send("go").await;
        assert_eq!(
            (seen.state(), seen.text().as_str()),
            ("COMPLETED", "alpha bravo charlie"),
            "{said}: {}",
            seen.reason()
        );
    }
}

/// What both bindings answer when OpenCode cannot be used: the status, and the task or error, word by word.
async fn answers(stage: &Stage) -> Value {
    let rpc = stage.client().rpc("SendMessage", message("message-1", "go")).await;
    let rest = stage.client().rest("POST", "/message:send", Some(&message("message-2", "go"))).await;
    let stream = stage.send_in(None, "message-3", "go").await;
    assert_eq!(stream.state(), "FAILED");
    assert_eq!(stage.fake.prompts().len(), 0, "nothing was prompted");
    let mut told = Vec::new();
    for (binding, answer) in [("JSONRPC", rpc), ("HTTP+JSON", rest)] {
        let task = if binding == "JSONRPC" {
            answer.body["result"]["task"].clone()
        } else {
            answer.body["task"].clone()
        };
        let mut names = Names::default();
        names.call(task["id"].as_str().unwrap_or_default(), "<task>");
        names.call(task["contextId"].as_str().unwrap_or_default(), "<context>");
        told.push(json!({"binding": binding, "status": answer.status, "body": names.value(&answer.body)}));
    }
    told.into()
}

fn compare(name: &str, told: &Value) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_json_snapshot!(name, told);
    });
}

/// A gateway that does not wait long for OpenCode.
async fn impatient() -> Stage {
    let fake = FakeOpenCode::start();
    let mut options = Options { control_timeout: Duration::from_millis(500), ..Options::default() };
    options.engine.start_patience = Duration::from_secs(1);
    Stage { gateway: TestGateway::start_with(&fake, options).await, fake }
}

#[tokio::test]
async fn opencode_is_down() {
    let stage = impatient().await;
    stage.fake.kill().await;
    compare("opencode_down", &answers(&stage).await);
}

/// Pitfall 12: every path that does not exist is a web page with status 200.
#[tokio::test]
async fn opencode_answers_html() {
    let stage = impatient().await;
    stage.fake.fault_always("*", "", Fault::Html);
    compare("opencode_html", &answers(&stage).await);
}

#[tokio::test]
async fn opencode_answers_html_to_the_prompt_only() {
    let stage = impatient().await;
    stage.fake.fault_always("POST", "/prompt_async", Fault::Html);
    compare("opencode_html_prompt", &answers(&stage).await);
}

#[tokio::test]
async fn opencode_refuses_the_password() {
    let fake = FakeOpenCode::start_with(Setup {
        password: Some(("opencode".to_owned(), "right".to_owned())),
        ..Setup::default()
    });
    let options = Options { password: Some("wrong".to_owned()), ..Options::default() };
    let stage = Stage { gateway: TestGateway::start_with(&fake, options).await, fake };
    compare("opencode_401", &answers(&stage).await);
}

#[tokio::test]
async fn opencode_accepts_the_password() {
    let fake = FakeOpenCode::start_with(Setup {
        password: Some(("opencode".to_owned(), "right".to_owned())),
        ..Setup::default()
    });
    let options = Options { password: Some("right".to_owned()), ..Options::default() };
    let stage = Stage { gateway: TestGateway::start_with(&fake, options).await, fake };
    assert_eq!(stage.send("go").await.state(), "COMPLETED");
}

#[tokio::test]
async fn opencode_fails_at_everything() {
    let stage = impatient().await;
    stage.fake.fault_always("*", "", Fault::Status(500));
    compare("opencode_500", &answers(&stage).await);
}

#[tokio::test]
async fn opencode_takes_requests_and_never_answers() {
    let stage = impatient().await;
    stage.fake.fault_always("*", "", Fault::Hang);
    compare("opencode_hangs", &answers(&stage).await);
}

#[tokio::test]
async fn opencode_is_slow() {
    let stage = Stage::new().await;
    stage.fake.fault_always("*", "", Fault::Delay(Duration::from_millis(300)));
    stage.fake.queue(rich_turn());
    assert_eq!(stage.send("go").await.state(), "COMPLETED");
}
