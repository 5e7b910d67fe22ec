//! Sessions that nobody owns: for those who may take them, and taken by whoever changes them first.

use longshore_testkit::fake_opencode::Fault;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::json;

use super::answering;
use crate::control::calls::{asked, cal, code, forbidden, on_session, row, rows, works};
use crate::control::fixture::{Stage, call, word};

/// A session of nobody's with one message, which is `msg_1`.
async fn nobodys(stage: &Stage, id: &str) {
    stage.session(id);
    let parts = [json!({"type": "text", "text": "typed elsewhere"})];
    stage.message(id, &message_of(id), json!({"summary": {"diffs": []}}), &parts).await;
}

fn message_of(session: &str) -> String {
    session.replace("ses_", "msg_")
}

/// What only looks whether the session is there.
fn only_finds(asked: &[String], session: &str, about: &str) {
    assert!(asked.iter().all(|line| *line == format!("GET /session/{session}")), "{about}: {asked:?}");
}

#[tokio::test]
async fn who_may_not_take_them_neither_sees_nor_changes_them() {
    let stage = Stage::start().await;
    nobodys(&stage, "ses_free").await;
    let before = stage.fake.messages("ses_free");
    let mut seen = 0;
    asked(&stage, &mut seen);
    for method in rows() {
        for line in ProtocolVersion::ALL {
            let params = on_session(method, "ses_free", "msg_free");
            for (who, caller) in [("bob", &stage.bob), ("eve", &stage.eve)] {
                let about = format!("{who} {} {line:?}", method.name);
                let refused = call(caller, line, method, &params).await;
                if who == "eve" && method.needs().is_some() {
                    assert_eq!(code(&refused), -32007, "{about}: {}", refused.body);
                } else {
                    forbidden(&refused, line, "ses_free", &about);
                    assert!(refused.body.to_string().contains("session_claim"), "{about}: {}", refused.body);
                }
                only_finds(&asked(&stage, &mut seen), "ses_free", &about);
            }
        }
    }
    assert_eq!(stage.fake.messages("ses_free"), before);
    stage.stop().await;
}

#[tokio::test]
async fn a_look_takes_nothing_and_a_change_takes_them_for_good() {
    let stage = Stage::start().await;
    answering(&stage);
    let (cal, get) = (cal(&stage), row("opencode.sessions.get"));
    let mut seen = 0;
    for method in rows() {
        for line in ProtocolVersion::ALL {
            let id = format!("ses_{}_{line:?}", method.key);
            nobodys(&stage, &id).await;
            let (params, about) =
                (on_session(method, &id, &message_of(&id)), format!("{} {line:?}", method.name));
            works(&stage.ada, line, method, &params).await;
            stage.fake.quiet().await;
            asked(&stage, &mut seen);
            if method.effect == Effect::Read {
                // It is nobody's as before.
                works(&cal, line, method, &params).await;
                forbidden(&call(&stage.bob, line, method, &params).await, line, &id, &about);
                continue;
            }
            for other in rows() {
                let about = format!("{about}, then cal {}", other.name);
                let params = on_session(other, &id, &message_of(&id));
                forbidden(&call(&cal, line, other, &params).await, line, &id, &about);
                assert_eq!(asked(&stage, &mut seen), [""; 0], "{about}");
            }
            works(&stage.ada, line, get, &json!({"session_id": id})).await;
        }
    }
    stage.stop().await;
}

/// The end of the path of what a row changes OpenCode with.
fn change(method: &Method) -> (&'static str, &'static str) {
    let upstream = method.upstream[0];
    let end = upstream.path.rfind('/').map_or("", |slash| &upstream.path[slash..]);
    (upstream.verb.as_str(), end)
}

#[tokio::test]
async fn what_fails_upstream_takes_nothing() {
    let stage = Stage::start().await;
    answering(&stage);
    let (cal, get) = (cal(&stage), row("opencode.sessions.get"));
    // A command is always a task, as in the next test.
    let changing = |method: &&'static Method| method.effect != Effect::Read && method.key != "command";
    for method in rows().into_iter().filter(changing) {
        let (verb, end) = change(method);
        for line in ProtocolVersion::ALL {
            for (how, fault, refusal) in [
                ("status", Fault::Status(500), "UPSTREAM_HTTP_ERROR"),
                ("html", Fault::Html, "UPSTREAM_PAYLOAD_ERROR"),
                ("cut", Fault::CutBefore, "UPSTREAM_UNREACHABLE"),
            ] {
                let id = format!("ses_{}_{how}_{line:?}", method.key);
                let about = format!("{} {line:?} {how}", method.name);
                nobodys(&stage, &id).await;
                let mut params = on_session(method, &id, &message_of(&id));
                if method.key == "prompt_async" {
                    // What is only said makes no task.
                    params["request"]["noReply"] = true.into();
                }
                stage.fake.fault_once(verb, end, fault);
                let failed = call(&stage.ada, line, method, &params).await;
                stage.fake.clear_faults();
                assert_eq!(word(&failed, line), refusal, "{about}: {}", failed.body);
                let still = call(&cal, line, get, &json!({"session_id": id})).await;
                assert!(still.body["error"].is_null(), "{about}: {}", still.body);
                works(&cal, line, method, &params).await;
                stage.fake.quiet().await;
                forbidden(&call(&stage.ada, line, method, &params).await, line, &id, &about);
            }
        }
    }
    stage.stop().await;
}

/// Its task was made before OpenCode was asked, and goes on being hers.
#[tokio::test]
async fn an_order_takes_a_session_with_its_task_also_when_it_fails() {
    let stage = Stage::start().await;
    let (cal, get) = (cal(&stage), row("opencode.sessions.get"));
    let prompt = row("opencode.sessions.prompt_async");
    for line in ProtocolVersion::ALL {
        let id = format!("ses_ordered_{line:?}");
        nobodys(&stage, &id).await;
        stage.fake.fault_once("POST", "/prompt_async", Fault::Status(400));
        let failed = call(&stage.ada, line, prompt, &on_session(prompt, &id, "msg_1")).await;
        assert_eq!(word(&failed, line), "UPSTREAM_HTTP_ERROR", "{line:?}: {}", failed.body);
        let task = crate::control::calls::fact(&failed, line, "taskId");
        let task = stage.ada.task(&task).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{line:?}: {task}");
        works(&stage.ada, line, get, &json!({"session_id": id})).await;
        forbidden(&call(&cal, line, get, &json!({"session_id": id})).await, line, &id, "after the task");
    }
    stage.stop().await;
}
