//! The methods that list and answer asks: each in both versions, with each of its errors.

use std::time::Duration;

use longshore_engine::{AskConfig, DeadlinePolicy};
use longshore_model::ErrorKind;
use longshore_testkit::fake_opencode::{Fault, Tool, Turn};
use longshore_testkit::gateway::until;
use longshore_testkit::raw::{RawClient, message};
use longshore_wire::methods::{Effect, Method};
use longshore_wire::opencode;
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::{v1, v03};
use serde_json::{Value, json};

use crate::control::calls::error_fact;
use crate::control::errors::{Facts, Seen, check, path_end};
use crate::control::fixture::{Fixture, Settings, agent_methods, call, error_reason, notify};
use crate::control::populated::wait_until_ended;

const PATIENCE: Duration = Duration::from_secs(20);

fn of_asks() -> Vec<&'static Method> {
    let of_agent: Vec<_> = agent_methods().map(|method| method.name).collect();
    opencode::methods().filter(|method| !of_agent.contains(&method.name) && !of_approvals(method)).collect()
}

/// Whether a method is about the approvals that the gateway keeps.
fn of_approvals(method: &Method) -> bool {
    method.name.contains("approvals")
}

/// Whether a method is about permissions and not about questions.
fn of_permissions(method: &Method) -> bool {
    method.name.contains("permission")
}

/// A turn that asks, and continues whatever the answer is.
fn asking(is_permission: bool) -> Turn {
    let turn = Turn::new();
    let turn = if is_permission {
        turn.guarded_tool(Tool::bash("git push", "pushed\n"))
    } else {
        turn.question("Stone or wood?")
    };
    turn.text("Done.", 1).finish("stop")
}

/// Makes the agent ask. Returns the task and the id of the ask.
async fn ask(fixture: &Fixture, client: &RawClient, is_permission: bool, number: usize) -> (String, String) {
    let before = fixture.fake.open_asks();
    fixture.fake.queue(asking(is_permission));
    let mut params = message(&format!("m{number}"), "Build the quay.");
    params["configuration"] = json!({"returnImmediately": true});
    let sent = client.rpc("SendMessage", params).await.result()["task"]["id"].clone();
    let task = sent.as_str().expect("a task has an id").to_owned();
    until(PATIENCE, "an open ask", || fixture.fake.open_asks().len() > before.len()).await;
    let ask = fixture.fake.open_asks().into_iter().find(|ask| !before.contains(ask));
    let reported = async {
        while client.task(&task).await["status"]["state"] != "TASK_STATE_INPUT_REQUIRED" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reported).await.expect("the task shows the ask");
    (task, ask.expect("it was there a moment ago"))
}

/// Waits until the gateway has answered an ask itself at its deadline. Returns the id of the ask.
async fn answered_by_gateway(fixture: &Fixture, is_permission: bool) -> String {
    let begin = if is_permission { "/permission/per_" } else { "/question/que_" };
    let answered = || {
        let log = fixture.fake.log();
        let found =
            log.into_iter().find(|request| request.method == "POST" && request.path.starts_with(begin));
        found.and_then(|request| Some(request.path.split('/').nth(2)?.to_owned()))
    };
    until(PATIENCE, "the end of an ask", || answered().is_some()).await;
    answered().expect("it was there a moment ago")
}

/// Valid parameters for an ask. A method without a case here fails the tests.
fn valid_params(method: &Method, ask: &str) -> Value {
    match method.key {
        "reply_permission" => json!({"request_id": ask, "reply": "once"}),
        "reply_question" => json!({"request_id": ask, "answers": [["Stone"]]}),
        "reject_question" => json!({"request_id": ask}),
        "list_permissions" | "list_questions" => json!({}),
        other => panic!("{} ({other}) has no case: write one", method.name),
    }
}

#[tokio::test]
async fn every_method_about_asks_returns_its_result_in_both_versions() {
    let fixture = Fixture::start().await;
    let mut number = 0;
    for method in of_asks() {
        for version in ProtocolVersion::ALL {
            for is_notification in [false, true] {
                number += 1;
                let (task, ask) = ask(&fixture, &fixture.ada, of_permissions(method), number).await;
                let kind = if of_permissions(method) { "permission" } else { "question" };
                let what = format!("{} {version:?}", method.name);
                let params = valid_params(method, &ask);
                if is_notification {
                    notify(&fixture.ada, version, method, &params).await;
                } else {
                    let result = call(&fixture.ada, version, method, &params).await.result().clone();
                    if method.effect == Effect::Read {
                        let [item] = result["items"].as_array().expect("items").as_slice() else {
                            panic!("one ask is open: {what} {result}")
                        };
                        let facts =
                            ["request_id", "interrupt_type", "task_id"].map(|name| item[name].clone());
                        assert_eq!(facts, [json!(ask), json!(kind), json!(task)], "{what} {item}");
                        let others = call(&fixture.bob, version, method, &params).await.result().clone();
                        assert_eq!(others, json!({"items": []}), "{what}");
                    } else {
                        assert_eq!(result, json!({"ok": true, "request_id": ask}), "{what}");
                    }
                }
                if method.effect == Effect::Read {
                    assert_eq!(
                        fixture.fake.open_asks(),
                        [ask.as_str()],
                        "a read must not answer the ask: {what}"
                    );
                    let answer = of_asks().into_iter().find(|answer| {
                        answer.effect != Effect::Read && of_permissions(answer) == of_permissions(method)
                    });
                    let answer = answer.expect("what can be listed can be answered");
                    call(&fixture.ada, version, answer, &valid_params(answer, &ask)).await.result();
                }
                let ended = wait_until_ended(&fixture.ada, &task).await["status"]["state"].clone();
                assert_eq!(ended, "TASK_STATE_COMPLETED", "{what}");
                let how = if method.key == "reject_question" { "reject" } else { "reply" };
                let answered = format!("/{kind}/{ask}/{how}");
                let times = fixture.fake.log().iter().filter(|request| request.path == answered).count();
                assert_eq!(times, 1, "{what}");
            }
        }
    }
    fixture.stop().await;
}

/// The failures of an answer on its way to OpenCode, and the error that the caller gets. The ask stays open, so the
/// caller can answer again.
fn faults() -> Vec<(Fault, ErrorKind, Facts)> {
    let http = |status, again| (ErrorKind::UpstreamHttpError, Facts { status: Some(status), again });
    let away = (ErrorKind::UpstreamUnreachable, Facts { status: None, again: true });
    let faults = [
        (Fault::CutBefore, away),
        (Fault::Hang, away),
        (Fault::Status(401), http(401, false)),
        (Fault::Status(418), http(418, false)),
        (Fault::Status(409), http(409, true)),
        (Fault::Status(429), http(429, true)),
        (Fault::Status(500), http(500, true)),
        (Fault::Status(503), http(503, true)),
        (Fault::Html, (ErrorKind::UpstreamPayloadError, Facts::default())),
    ];
    faults.into_iter().map(|(fault, (kind, facts))| (fault, kind, facts)).collect()
}

/// The error for an answer that does not reach OpenCode names the ask and the method, like the errors of all methods
/// that call OpenCode.
async fn answers_that_go_wrong(seen: &mut Seen) {
    let settings = Settings { control_timeout: Duration::from_secs(3), ..Settings::default() };
    let fixture = Fixture::start_with(settings).await;
    let mut number = 0;
    for method in of_asks().into_iter().filter(|method| method.effect != Effect::Read) {
        for version in ProtocolVersion::ALL {
            number += 1;
            let (task, ask) = ask(&fixture, &fixture.ada, of_permissions(method), number).await;
            for (fault, kind, facts) in faults() {
                // A hanging call takes seconds; the error of 0.3 is the same as that of a cut connection.
                if matches!(fault, Fault::Hang) && version == ProtocolVersion::V03 {
                    continue;
                }
                let [upstream] = method.upstream else { panic!("{} asks one thing", method.name) };
                fixture.fake.fault_always(upstream.verb.as_str(), path_end(upstream), fault);
                let answer = call(&fixture.ada, version, method, &valid_params(method, &ask)).await;
                check(seen, &answer, version, method, kind, facts);
                assert_eq!(error_fact(&answer, version, "requestId"), ask, "{}", answer.body);
                assert!(!answer.body.to_string().contains("127.0.0.1"), "{}", answer.body);
                fixture.fake.clear_faults();
                assert_eq!(fixture.fake.open_asks(), [ask.as_str()], "{}", method.name);
            }
            call(&fixture.ada, version, method, &valid_params(method, &ask)).await.result();
            wait_until_ended(&fixture.ada, &task).await;
        }
    }
    // OpenCode is not running.
    let (permission, question) =
        (ask(&fixture, &fixture.ada, true, 100).await.1, ask(&fixture, &fixture.ada, false, 101).await.1);
    fixture.fake.kill().await;
    for method in of_asks().into_iter().filter(|method| method.effect != Effect::Read) {
        for version in ProtocolVersion::ALL {
            let ask = if of_permissions(method) { &permission } else { &question };
            let answer = call(&fixture.ada, version, method, &valid_params(method, ask)).await;
            let facts = Facts { status: None, again: true };
            check(seen, &answer, version, method, ErrorKind::UpstreamUnreachable, facts);
            assert_eq!(error_fact(&answer, version, "requestId"), *ask, "{}", answer.body);
        }
    }
    fixture.stop().await;
}

/// The error of a message that answers an ask has an A2A code. The codes of the methods mean something else there.
#[tokio::test]
async fn a_message_that_answers_an_ask_fails_with_an_a2a_error() {
    let fixture = Fixture::start().await;
    let (task, ask) = ask(&fixture, &fixture.ada, true, 1).await;
    for (number, (fault, expected)) in
        [(Fault::CutBefore, "AGENT_UNAVAILABLE"), (Fault::Status(418), "INVALID_AGENT_RESPONSE")]
            .into_iter()
            .enumerate()
    {
        fixture.fake.fault_always("POST", "/reply", fault);
        let mut params = message(&format!("answer{number}"), "once");
        params["message"]["taskId"] = json!(task);
        let refused = fixture.ada.rpc("SendMessage", params).await;
        assert_eq!(error_reason(&refused, ProtocolVersion::V1), expected, "{}", refused.body);
        fixture.fake.clear_faults();
        assert_eq!(fixture.fake.open_asks(), [ask.as_str()]);
    }
    fixture.stop().await;
}

#[tokio::test]
async fn every_error_of_methods_about_asks_has_the_format_of_its_version() {
    let short = AskConfig {
        time_to_live: Some(Duration::from_millis(50)),
        tombstone: Duration::from_mins(10),
        at_deadline: DeadlinePolicy::Reject,
        ..AskConfig::default()
    };
    let (fixture, hasty) =
        (Fixture::start().await, Fixture::start_with(Settings { asks: short, ..Settings::default() }).await);
    let mut seen = Seen::new();
    answers_that_go_wrong(&mut seen).await;
    let answers: Vec<&Method> =
        of_asks().into_iter().filter(|method| method.effect != Effect::Read).collect();
    for is_permission in [true, false] {
        let (_, open) = ask(&fixture, &fixture.ada, is_permission, usize::from(is_permission)).await;
        hasty.fake.queue(asking(is_permission));
        hasty.ada.rpc("SendMessage", message(&format!("m{is_permission}"), "Build.")).await.result();
        let late = answered_by_gateway(&hasty, is_permission).await;
        for method in &answers {
            for version in ProtocolVersion::ALL {
                let unknown = if is_permission { "per_none" } else { "que_none" };
                let is_own_kind = of_permissions(method) == is_permission;
                let cases = [
                    (&fixture, &fixture.ada, unknown, ErrorKind::InterruptNotFound),
                    (&fixture, &fixture.bob, open.as_str(), ErrorKind::InterruptNotFound),
                    (&fixture, &fixture.ada, open.as_str(), ErrorKind::InterruptTypeMismatch),
                    (&hasty, &hasty.ada, late.as_str(), ErrorKind::InterruptExpired),
                ];
                for (fixture, client, ask, kind) in cases {
                    // A mismatch needs an ask of the other kind; an unknown ask has no kind.
                    let fits = match kind {
                        ErrorKind::InterruptTypeMismatch => !is_own_kind,
                        _ => is_own_kind,
                    };
                    if !fits {
                        continue;
                    }
                    let before = fixture.fake.log().len();
                    let answer = call(client, version, method, &valid_params(method, ask)).await;
                    let code = match version {
                        ProtocolVersion::V1 => v1::error::row(kind).code,
                        ProtocolVersion::V03 => v03::error::row(kind).code,
                    };
                    let what = format!("{} {version:?} {kind:?} {}", method.name, answer.body);
                    assert_eq!(answer.body["error"]["code"].as_i64(), Some(code.into()), "{what}");
                    assert_eq!(error_reason(&answer, version), v1::error::row(kind).reason, "{what}");
                    assert_eq!(fixture.fake.log().len(), before, "OpenCode hears nothing of it: {what}");
                    seen.insert((method.name, version, kind.label()));
                }
            }
        }
    }
    for method in of_asks() {
        for version in ProtocolVersion::ALL {
            for kind in method.errors {
                assert!(
                    seen.contains(&(method.name, version, kind.label())),
                    "{} {version:?} {kind:?}",
                    method.name
                );
            }
        }
    }
    fixture.stop().await;
    hasty.stop().await;
}

/// A turn in the context of another task that runs a guarded command.
async fn command(
    fixture: &Fixture,
    client: &RawClient,
    id: &str,
    context: Option<&Value>,
    is_asked: bool,
) -> Value {
    let asked = fixture.fake.log().len();
    fixture.fake.queue(asking(true));
    let mut params = message(id, "Push.");
    if let Some(context) = context {
        params["message"]["contextId"] = context.clone();
    }
    let task = client.rpc("SendMessage", params).await.result()["task"].clone();
    let state = if is_asked { "TASK_STATE_INPUT_REQUIRED" } else { "TASK_STATE_COMPLETED" };
    assert_eq!(task["status"]["state"], state, "{id}: {task:#}");
    let replies =
        fixture.fake.log()[asked..].iter().filter(|request| request.path.ends_with("/reply")).count();
    assert_eq!(replies, usize::from(!is_asked), "{id}");
    task
}

#[tokio::test]
async fn an_approval_is_kept_for_its_caller_listed_and_revoked_in_both_versions() {
    let fixture = Fixture::start().await;
    let [list, revoke] = ["list_approvals", "revoke_approval"]
        .map(|key| opencode::methods().find(|method| method.key == key).expect("a method"));
    let first = command(&fixture, &fixture.ada, "m1", None, true).await;
    let words = first["status"]["message"]["parts"][0]["text"].as_str().expect("words");
    assert!(words.contains("always: for this session and its sub-agents, until revoked."), "{words}");
    let mut answer = message("a1", "always");
    answer["message"]["taskId"] = first["id"].clone();
    let answered = fixture.ada.rpc("SendMessage", answer).await.result()["task"].clone();
    assert_eq!(answered["status"]["state"], "TASK_STATE_COMPLETED", "{answered:#}");
    let reply = fixture.fake.log().into_iter().rfind(|request| request.path.ends_with("/reply"));
    let reply = reply.expect("OpenCode has an answer").body.to_string();
    assert!(reply.contains("once") && !reply.contains("always"), "{reply}");

    let context = &first["contextId"];
    command(&fixture, &fixture.ada, "m2", Some(context), false).await;
    command(&fixture, &fixture.bob, "m3", None, true).await;
    for version in ProtocolVersion::ALL {
        let items = call(&fixture.ada, version, list, &json!({})).await.result()["items"].clone();
        let [item] = items.as_array().expect("items").as_slice() else { panic!("one is kept: {items:#}") };
        let facts = ["context_id", "permission", "patterns"].map(|name| item[name].clone());
        assert_eq!(facts, [context.clone(), json!("bash"), json!(["*"])], "{item:#}");
        let theirs = call(&fixture.bob, version, list, &json!({})).await.result().clone();
        assert_eq!(theirs, json!({"items": []}));
        let request = json!({"request_id": item["request_id"]});
        let refused = call(&fixture.bob, version, revoke, &request).await;
        assert_eq!(error_reason(&refused, version), "INTERRUPT_REQUEST_NOT_FOUND", "{}", refused.body);
        if version == ProtocolVersion::V03 {
            let revoked = call(&fixture.ada, version, revoke, &request).await.result().clone();
            assert_eq!(revoked, json!({"ok": true, "request_id": item["request_id"]}));
        }
    }
    command(&fixture, &fixture.ada, "m4", Some(context), true).await;
    fixture.stop().await;
}
