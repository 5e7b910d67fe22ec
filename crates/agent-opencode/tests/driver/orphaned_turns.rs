//! Orphaned turns: they are over in the gateway and still run in OpenCode.

use longshore_engine::port::TurnRecord;
use longshore_model::{ErrorKind, Retry};
use longshore_testkit::fake_opencode::{Fault, Gate, Tool, Turn as Script};
use serde_json::{Value, json};

use super::*;

/// Later than everything that the fake wrote by itself.
const LATER: u64 = 4_000_000_000_000;

/// A turn that waits for an answer and has no driver any more.
async fn orphan(bench: &Bench) -> TurnRecord {
    bench.fake.queue(Script::new().text("May I? ", 1).guarded_tool(Tool::bash("make", "done\n")));
    let session = bench.session().await;
    let (prompt, mut turn) = bench.start(&session, "go").await.expect("the turn starts");
    until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
    TurnRecord { session, prompt, joined: Vec::new() }
}

/// Stops the turns. Returns whether nothing is left to do.
async fn stop_all(bench: &Bench, over: &[TurnRecord]) -> bool {
    bench.agent.stop_turns(over).await.expect("OpenCode answers").is_empty()
}

fn aborts(bench: &Bench) -> usize {
    bench.fake.log().iter().filter(|request| request.path.ends_with("/abort")).count()
}

#[tokio::test]
async fn an_orphaned_turn_is_stopped_and_its_ask_is_rejected() {
    let bench = Bench::new();
    let turn = orphan(&bench).await;
    let over = [turn.clone()];
    assert!(!stop_all(&bench, &over).await, "it ran");
    bench.fake.wait_until_idle().await;
    assert_eq!(bench.fake.open_asks(), [] as [&str; 0]);
    assert!(stop_all(&bench, &over).await, "it does not run any more");
    assert_eq!(aborts(&bench), 1);
    // The session takes the next turn.
    bench.fake.queue(Script::new().text("Next.", 1));
    let (_, next) = bench.start(&turn.session, "more").await.unwrap();
    assert_eq!(outcome(&all(next).await), "completed");
    bench.stop().await;
}

#[tokio::test]
async fn a_message_that_joined_a_turn_belongs_to_it() {
    let bench = Bench::new();
    let (first, gate, session) = (Gate::new(), Gate::new(), bench.session().await);
    bench.fake.queue(Script::new().text("one", 1).hold(&first));
    bench.fake.queue(Script::new().text("two", 1).hold(&gate));
    let (prompt, turn) = bench.start(&session, "go").await.expect("the turn starts");
    first.reached().await;
    let (joined, sent) = joining::join(&turn, "more").await;
    sent.unwrap().unwrap();
    first.open();
    gate.reached().await;
    let alone = TurnRecord { session, prompt, joined: Vec::new() };
    let whole = TurnRecord { joined: vec![joined], ..alone.clone() };
    assert!(stop_all(&bench, &[alone]).await, "without `joined` it is another client's prompt");
    assert_eq!(aborts(&bench), 0);
    assert!(!stop_all(&bench, &[whole]).await);
    bench.fake.wait_until_idle().await;
    bench.stop().await;
}

/// Stores a message that OpenCode wrote by itself or for another client.
async fn store(bench: &Bench, turn: &TurnRecord, mut info: Value, mut part: Value) {
    let (session, message) = (turn.session.id.as_str(), info["id"].clone());
    info["sessionID"] = session.into();
    part["id"] = format!("prt_{}", message.as_str().expect("an id")).into();
    part["messageID"] = message;
    bench.fake.emit("message.updated", json!({"sessionID": session, "info": info})).await;
    bench.fake.emit("message.part.updated", json!({"sessionID": session, "part": part})).await;
}

async fn user(bench: &Bench, turn: &TurnRecord, message: &str, part: Value) {
    store(bench, turn, json!({"id": message, "role": "user", "time": {"created": LATER}}), part).await;
}

/// The answer to a message, with its completion and its error.
async fn answer(bench: &Bench, turn: &TurnRecord, (message, parent): (&str, &str), end: Value) {
    let mut info = json!({"id": message, "role": "assistant", "parentID": parent, "mode": "compaction"});
    info["time"] = json!({"created": LATER});
    if end["error"].is_object() {
        info["error"] = end["error"].clone();
    }
    if end["completed"].is_number() {
        info["time"]["completed"] = end["completed"].clone();
    }
    store(bench, turn, info, json!({"type": "text", "text": "..."})).await;
}

/// Completes the step of the turn, which happens before anything else runs in its session.
async fn complete_step(bench: &Bench, turn: &TurnRecord) {
    let prompt = message_of(bench, &turn.prompt);
    let messages = bench.fake.messages(turn.session.id.as_str());
    let steps = messages.iter().filter(|message| message["info"]["parentID"] == prompt);
    for step in steps {
        let mut info = step["info"].clone();
        info["time"]["completed"] = LATER.into();
        bench
            .fake
            .emit("message.updated", json!({"sessionID": turn.session.id.as_str(), "info": info}))
            .await;
    }
}

#[tokio::test]
async fn a_turn_that_was_never_prompted_does_not_hide_the_one_before() {
    let bench = Bench::new();
    let turn = orphan(&bench).await;
    let idle = TurnRecord { session: bench.session().await, ..turn.clone() };
    let unsent = TurnRecord { prompt: new_prompt(), ..turn.clone() };
    let over = [idle, unsent, turn.clone()];
    assert_eq!(bench.agent.stop_turns(&over).await.unwrap(), [turn.session.id]);
    assert_eq!(aborts(&bench), 1);
    bench.stop().await;
}

#[tokio::test]
async fn a_turn_of_another_client_is_left_alone() {
    let shell =
        json!({"type": "text", "text": "The following tool was executed by the user", "synthetic": true});
    let parts =
        [json!({"type": "text", "text": "and this"}), json!({"type": "compaction", "auto": false}), shell];
    for part in parts {
        let bench = Bench::new();
        let turn = orphan(&bench).await;
        user(&bench, &turn, "msg_theirs", part.clone()).await;
        answer(&bench, &turn, ("msg_zz", "msg_theirs"), json!({})).await;
        assert!(stop_all(&bench, &[turn]).await, "{part}");
        assert_eq!(aborts(&bench), 0, "{part}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_message_that_opencode_writes_by_itself_belongs_to_the_turn() {
    let parts = [
        json!({"type": "text", "text": "Continue", "synthetic": true}),
        // Or the prompt once more.
        json!({"type": "text", "text": "go"}),
    ];
    for part in parts {
        let bench = Bench::new();
        let turn = orphan(&bench).await;
        let over = [turn.clone()];
        complete_step(&bench, &turn).await;
        user(&bench, &turn, "msg_x1", json!({"type": "compaction", "auto": true})).await;
        assert!(!stop_all(&bench, &over).await, "between two steps, so it must be checked again");
        assert_eq!(aborts(&bench), 0, "nothing of the turn is known to run");
        answer(&bench, &turn, ("msg_x2", "msg_x1"), json!({"completed": LATER})).await;
        user(&bench, &turn, "msg_x3", part.clone()).await;
        answer(&bench, &turn, ("msg_x4", "msg_x3"), json!({})).await;
        assert!(!stop_all(&bench, &over).await, "{part}");
        assert_eq!(aborts(&bench), 1, "{part}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_message_after_a_failed_compaction_belongs_to_another_client() {
    let bench = Bench::new();
    let turn = orphan(&bench).await;
    complete_step(&bench, &turn).await;
    user(&bench, &turn, "msg_x1", json!({"type": "compaction", "auto": true})).await;
    let stopped = json!({"completed": LATER, "error": {"name": "MessageAbortedError"}});
    answer(&bench, &turn, ("msg_x2", "msg_x1"), stopped).await;
    user(&bench, &turn, "msg_x3", json!({"type": "text", "text": "A shell", "synthetic": true})).await;
    answer(&bench, &turn, ("msg_x4", "msg_x3"), json!({})).await;
    assert!(stop_all(&bench, &[turn]).await);
    assert_eq!(aborts(&bench), 0);
    bench.stop().await;
}

#[tokio::test]
async fn a_failure_with_one_turn_does_not_keep_the_others_running() {
    for fault in [Fault::Status(400), Fault::Status(503)] {
        let bench = Bench::new();
        let over = [orphan(&bench).await, orphan(&bench).await];
        bench.fake.fault_once("GET", "/message", fault);
        assert!(!stop_all(&bench, &over).await);
        assert_eq!(aborts(&bench), 1, "the other turn");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_failure_in_one_directory_is_reported_and_does_not_affect_the_others() {
    let bench = Bench::new();
    let turn = orphan(&bench).await;
    let over = [turn.clone()];
    for fault in [Fault::CutBefore, Fault::Status(503), Fault::Html] {
        bench.fake.fault_once("POST", "/abort", fault);
        assert!(!stop_all(&bench, &over).await, "must be checked again");
    }
    let elsewhere = TurnRecord {
        session: Session { id: turn.session.id.clone(), directory: "/elsewhere".to_owned() },
        ..turn.clone()
    };
    let gone = TurnRecord { prompt: new_prompt(), ..turn.clone() };
    assert!(!stop_all(&bench, &[elsewhere, gone, turn]).await);
    bench.fake.wait_until_idle().await;
    bench.fake.kill().await;
    let error = bench.agent.stop_turns(&over).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::AgentUnavailable, Retry::Later));
    bench.stop().await;
}
