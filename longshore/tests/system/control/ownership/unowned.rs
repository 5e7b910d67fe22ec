//! Unowned sessions: visible to callers that may claim them, and claimed by the first change.

use longshore_testkit::fake_opencode::Fault;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::json;

use super::answer_every_prompt;
use crate::control::calls::{
    assert_forbidden, call_ok, client_of_cal, error_code, method_named, requests_since, session_methods,
    session_params,
};
use crate::control::fixture::{Fixture, call, error_reason};

/// Adds an unowned session with one message.
async fn add_unowned_session(fixture: &Fixture, id: &str) {
    fixture.session(id);
    let parts = [json!({"type": "text", "text": "typed elsewhere"})];
    fixture.message(id, &message_of(id), json!({"summary": {"diffs": []}}), &parts).await;
}

fn message_of(session: &str) -> String {
    session.replace("ses_", "msg_")
}

/// Fails unless OpenCode was asked only whether the session exists.
fn only_finds(asked: &[String], session: &str, about: &str) {
    assert!(asked.iter().all(|entry| *entry == format!("GET /session/{session}")), "{about}: {asked:?}");
}

#[tokio::test]
async fn callers_that_may_not_claim_neither_see_nor_change_unowned_sessions() {
    let fixture = Fixture::start().await;
    add_unowned_session(&fixture, "ses_free").await;
    let before = fixture.fake.messages("ses_free");
    let mut seen = 0;
    requests_since(&fixture, &mut seen);
    for method in session_methods() {
        for version in ProtocolVersion::ALL {
            let params = session_params(method, "ses_free", "msg_free");
            for (who, caller) in [("bob", &fixture.bob), ("eve", &fixture.eve)] {
                let about = format!("{who} {} {version:?}", method.name);
                let refused = call(caller, version, method, &params).await;
                if who == "eve" && method.needs().is_some() {
                    assert_eq!(error_code(&refused), -32007, "{about}: {}", refused.body);
                } else {
                    assert_forbidden(&refused, version, "ses_free", &about);
                    assert!(refused.body.to_string().contains("session_claim"), "{about}: {}", refused.body);
                }
                only_finds(&requests_since(&fixture, &mut seen), "ses_free", &about);
            }
        }
    }
    assert_eq!(fixture.fake.messages("ses_free"), before);
    fixture.stop().await;
}

#[tokio::test]
async fn a_read_claims_nothing_and_a_change_claims_for_good() {
    let fixture = Fixture::start().await;
    answer_every_prompt(&fixture);
    let (cal, get) = (client_of_cal(&fixture), method_named("opencode.sessions.get"));
    let mut seen = 0;
    for method in session_methods() {
        for version in ProtocolVersion::ALL {
            let id = format!("ses_{}_{version:?}", method.key);
            add_unowned_session(&fixture, &id).await;
            let (params, about) =
                (session_params(method, &id, &message_of(&id)), format!("{} {version:?}", method.name));
            call_ok(&fixture.ada, version, method, &params).await;
            fixture.fake.wait_until_idle().await;
            requests_since(&fixture, &mut seen);
            if method.effect == Effect::Read {
                // The session is unowned, as before.
                call_ok(&cal, version, method, &params).await;
                assert_forbidden(&call(&fixture.bob, version, method, &params).await, version, &id, &about);
                continue;
            }
            for other in session_methods() {
                let about = format!("{about}, then cal {}", other.name);
                let params = session_params(other, &id, &message_of(&id));
                assert_forbidden(&call(&cal, version, other, &params).await, version, &id, &about);
                assert_eq!(requests_since(&fixture, &mut seen), [""; 0], "{about}");
            }
            call_ok(&fixture.ada, version, get, &json!({"session_id": id})).await;
        }
    }
    fixture.stop().await;
}

/// The request that changes something in OpenCode: the verb, and the end of the path.
fn change(method: &Method) -> (&'static str, &'static str) {
    let upstream = method.upstream[0];
    let end = upstream.path.rfind('/').map_or("", |slash| &upstream.path[slash..]);
    (upstream.verb.as_str(), end)
}

#[tokio::test]
async fn a_failed_change_claims_nothing() {
    let fixture = Fixture::start().await;
    answer_every_prompt(&fixture);
    let (cal, get) = (client_of_cal(&fixture), method_named("opencode.sessions.get"));
    // A command is always a task; the next test covers it.
    let changing = |method: &&'static Method| method.effect != Effect::Read && method.key != "command";
    for method in session_methods().into_iter().filter(changing) {
        let (verb, end) = change(method);
        for version in ProtocolVersion::ALL {
            for (how, fault, refusal) in [
                ("status", Fault::Status(500), "UPSTREAM_HTTP_ERROR"),
                ("html", Fault::Html, "UPSTREAM_PAYLOAD_ERROR"),
                ("cut", Fault::CutBefore, "UPSTREAM_UNREACHABLE"),
            ] {
                let id = format!("ses_{}_{how}_{version:?}", method.key);
                let about = format!("{} {version:?} {how}", method.name);
                add_unowned_session(&fixture, &id).await;
                let mut params = session_params(method, &id, &message_of(&id));
                if method.key == "prompt_async" {
                    // A prompt without reply makes no task.
                    params["request"]["noReply"] = true.into();
                }
                fixture.fake.fault_once(verb, end, fault);
                let failed = call(&fixture.ada, version, method, &params).await;
                fixture.fake.clear_faults();
                assert_eq!(error_reason(&failed, version), refusal, "{about}: {}", failed.body);
                let still = call(&cal, version, get, &json!({"session_id": id})).await;
                assert!(still.body["error"].is_null(), "{about}: {}", still.body);
                call_ok(&cal, version, method, &params).await;
                fixture.fake.wait_until_idle().await;
                assert_forbidden(&call(&fixture.ada, version, method, &params).await, version, &id, &about);
            }
        }
    }
    fixture.stop().await;
}

/// The task was created before OpenCode was asked, and belongs to its caller.
#[tokio::test]
async fn a_native_prompt_claims_its_session_even_when_it_fails() {
    let fixture = Fixture::start().await;
    let (cal, get) = (client_of_cal(&fixture), method_named("opencode.sessions.get"));
    let prompt = method_named("opencode.sessions.prompt_async");
    for version in ProtocolVersion::ALL {
        let id = format!("ses_ordered_{version:?}");
        add_unowned_session(&fixture, &id).await;
        fixture.fake.fault_once("POST", "/prompt_async", Fault::Status(400));
        let failed = call(&fixture.ada, version, prompt, &session_params(prompt, &id, "msg_1")).await;
        assert_eq!(error_reason(&failed, version), "UPSTREAM_HTTP_ERROR", "{version:?}: {}", failed.body);
        let task = crate::control::calls::error_fact(&failed, version, "taskId");
        let task = fixture.ada.task(&task).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{version:?}: {task}");
        call_ok(&fixture.ada, version, get, &json!({"session_id": id})).await;
        assert_forbidden(
            &call(&cal, version, get, &json!({"session_id": id})).await,
            version,
            &id,
            "after the task",
        );
    }
    fixture.stop().await;
}
