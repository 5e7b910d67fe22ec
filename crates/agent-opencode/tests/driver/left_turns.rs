//! Turns that are over here, and go on in OpenCode.

use longshore_engine::port::TurnRecord;
use longshore_model::{ErrorKind, Retry};
use longshore_testkit::fake_opencode::{Fault, Gate, Tool, Turn as Script};
use serde_json::json;

use super::*;

/// A turn that waits for an answer, and that nobody follows any more.
async fn left(bench: &Bench) -> TurnRecord {
    bench.fake.queue(Script::new().text("May I? ", 1).guarded_tool(Tool::bash("make", "done\n")));
    let session = bench.session().await;
    let (prompt, mut turn) = bench.start(&session, "go").await.unwrap();
    until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
    TurnRecord { session, prompt, joined: Vec::new() }
}

fn aborts(bench: &Bench) -> usize {
    bench.fake.log().iter().filter(|request| request.path.ends_with("/abort")).count()
}

#[tokio::test]
async fn it_is_stopped_and_its_ask_is_gone() {
    let bench = Bench::new();
    let turn = left(&bench).await;
    let over = [turn.clone()];
    assert!(!bench.agent.stop_turns(&over).await.unwrap(), "it ran");
    bench.fake.quiet().await;
    assert_eq!(bench.fake.open_asks(), [] as [&str; 0]);
    assert!(bench.agent.stop_turns(&over).await.unwrap(), "it does not any more");
    assert_eq!(aborts(&bench), 1);
    // The session takes the next turn.
    bench.fake.queue(Script::new().text("Next.", 1));
    let (_, next) = bench.start(&turn.session, "more").await.unwrap();
    assert_eq!(outcome(&all(next).await), "completed");
    bench.stop().await;
}

#[tokio::test]
async fn a_message_that_joined_it_belongs_to_it() {
    let bench = Bench::new();
    let (gate, session) = (Gate::new(), bench.session().await);
    bench.fake.queue(Script::new().text("one", 1));
    bench.fake.queue(Script::new().text("two", 1).hold(&gate));
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    let (joined, sent) = joining::join(&bench, &turn, "more").await;
    sent.unwrap().unwrap();
    gate.reached().await;
    let alone = TurnRecord { session, prompt, joined: Vec::new() };
    let whole = TurnRecord { joined: vec![joined], ..alone.clone() };
    assert!(bench.agent.stop_turns(&[alone]).await.unwrap(), "somebody else's, as far as is known");
    assert_eq!(aborts(&bench), 0);
    assert!(!bench.agent.stop_turns(&[whole]).await.unwrap());
    bench.fake.quiet().await;
    bench.stop().await;
}

#[tokio::test]
async fn what_somebody_else_does_there_is_left_alone() {
    let bench = Bench::new();
    let turn = left(&bench).await;
    let id = turn.session.id.as_str();
    let over = [turn.clone()];
    let say = async |message: &str, part: serde_json::Value| {
        let info = json!({"id": message, "role": "user", "sessionID": id, "time": {"created": 4_000_000_000_000_u64}});
        bench.fake.emit("message.updated", json!({"sessionID": id, "info": info})).await;
        let mut part = part;
        (part["id"], part["messageID"]) = (format!("prt_{message}").into(), message.into());
        bench.fake.emit("message.part.updated", json!({"sessionID": id, "part": part})).await;
    };
    say("msg_theirs", json!({"type": "text", "text": "and this"})).await;
    assert!(bench.agent.stop_turns(&over).await.unwrap());
    assert_eq!(aborts(&bench), 0);
    bench.fake.emit("message.removed", json!({"sessionID": id, "messageID": "msg_theirs"})).await;
    // What OpenCode says to itself is nobody else's.
    say("msg_compaction", json!({"type": "compaction", "auto": true})).await;
    say("msg_go_on", json!({"type": "text", "text": "Continue", "synthetic": true})).await;
    assert!(!bench.agent.stop_turns(&over).await.unwrap());
    assert_eq!(aborts(&bench), 1);
    bench.stop().await;
}

#[tokio::test]
async fn trouble_with_one_directory_is_told_and_keeps_nobody_from_the_others() {
    let bench = Bench::new();
    let turn = left(&bench).await;
    let over = [turn.clone()];
    for fault in [Fault::CutBefore, Fault::Status(503), Fault::Html] {
        bench.fake.fault_once("POST", "/abort", fault);
        assert!(!bench.agent.stop_turns(&over).await.unwrap(), "to be asked again");
    }
    let elsewhere = TurnRecord {
        session: Session { id: turn.session.id.clone(), directory: "/elsewhere".to_owned() },
        ..turn.clone()
    };
    let gone = TurnRecord { prompt: bench.agent.new_prompt(), ..turn.clone() };
    assert!(!bench.agent.stop_turns(&[elsewhere, gone, turn]).await.unwrap());
    bench.fake.quiet().await;
    bench.fake.kill().await;
    let error = bench.agent.stop_turns(&over).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::AgentUnavailable, Retry::Later));
    bench.stop().await;
}
