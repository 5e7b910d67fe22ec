//! The audit of extension calls: all are counted, and each command has one log line.

use std::time::Duration;

use longshore_model::{Error, ErrorKind};
use longshore_testkit::scripted_control::Call as Asked;
use longshore_wire::methods::Effect;
use longshore_wire::opencode;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::{WORDS, agent, all_on, call, claim, good, notification, of_agent};
use crate::metrics::value;
use crate::support::log_lines::LogLines;
use crate::support::{ADA, ADA_ABLE, BOB, BOB_ABLE, Gateway, redacted};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The audit lines since the last call, and all other lines.
fn audit(lines: &LogLines) -> (Vec<String>, Vec<String>) {
    lines.take().into_iter().partition(|line| line.contains("longshore::audit"))
}

async fn counted(gateway: &Gateway, method: &str, outcome: &str) -> f64 {
    let page = gateway.call("GET", "/metrics").send().await.body;
    let series = format!("longshore_control_calls_total{{method=\"{method}\",outcome=\"{outcome}\"}}");
    value(str::from_utf8(&page).unwrap(), &series)
}

#[tokio::test]
async fn one_audit_line_for_each_command_and_none_for_a_query() {
    let lines = LogLines::begin();
    let control = agent();
    let gateway = Gateway::controlled(&control, all_on).await;
    let mut found = Vec::new();
    for method in of_agent() {
        lines.take();
        let called = call(&gateway, ProtocolVersion::V1, ADA_ABLE, method, &good(method));
        called.header("traceparent", PARENT).send().await;
        let (audited, others) = audit(&lines);
        assert_eq!(audited.len(), usize::from(method.effect != Effect::Read), "{audited:#?}");
        for line in audited.iter().chain(&others) {
            assert!(!line.contains(WORDS), "{line}");
        }
        for line in audited {
            assert!(line.starts_with("INFO longshore::audit "), "{line}");
            assert!(line.contains("[longshore_edge::dispatch request trace_id=4bf92f3577b34da6"), "{line}");
            let fields = line.split(" in [").next().unwrap_or_default();
            let fields = fields.split_once(" method=").unwrap_or_default().1.to_owned();
            found.push(redacted(Value::String(format!("method={fields}"))).as_str().unwrap().to_owned());
        }
        assert!((counted(&gateway, method.name, "success").await - 1.0).abs() < f64::EPSILON);
    }
    insta::assert_snapshot!(found.join("\n"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_refused_or_failed_call_is_audited_with_its_reason() {
    let lines = LogLines::begin();
    let control = agent();
    let gateway = Gateway::controlled(&control, |config| config.deployment.session_shell = true).await;
    claim(&gateway).await;
    let find = |name: &str| opencode::method(name).unwrap();
    let (unrevert, shell) = (find("opencode.sessions.unrevert"), find("opencode.sessions.shell"));
    let remove = find("opencode.worktrees.remove");
    let upstream = |kind| Error::new(kind, WORDS).detail("upstreamStatus", "418").detail("detail", WORDS);
    let unknown = json!({"session_id": "ses_gone"});
    let secret = json!({"session_id": "ses_a", WORDS: WORDS});
    for (method, by, params, refusal, outcome) in [
        (unrevert, ADA, secret, None, "invalid_params"),
        (remove, ADA_ABLE, good(remove), None, "disabled"),
        (shell, ADA, good(shell), None, "authorization_forbidden"),
        (unrevert, BOB_ABLE, good(unrevert), None, "forbidden"),
        (unrevert, ADA_ABLE, unknown, None, "upstream_404"),
        (unrevert, ADA, good(unrevert), Some(ErrorKind::SessionBusy), "busy"),
        (unrevert, ADA, good(unrevert), Some(ErrorKind::UpstreamHttpError), "upstream_http_error"),
        (unrevert, ADA, good(unrevert), Some(ErrorKind::UpstreamUnreachable), "upstream_unreachable"),
        (unrevert, ADA, good(unrevert), Some(ErrorKind::UpstreamBackpressure), "upstream_backpressure"),
        (unrevert, ADA, good(unrevert), Some(ErrorKind::UpstreamPayloadError), "upstream_payload_error"),
        (unrevert, ADA, good(unrevert), Some(ErrorKind::Internal), "internal_error"),
    ] {
        for is_notification in [false, true] {
            if let Some(kind) = refusal {
                control.refuse_next_command(upstream(kind));
            }
            lines.take();
            let called = if is_notification {
                notification(&gateway, ProtocolVersion::V1, by, method, &params)
            } else {
                call(&gateway, ProtocolVersion::V1, by, method, &params)
            };
            called.send().await;
            let (audited, _) = audit(&lines);
            let [line] = audited.as_slice() else { panic!("{outcome}: {audited:#?}") };
            assert!(line.contains(&format!(" outcome={outcome}")), "{line}");
            assert!(line.contains(&format!(" method={} ", method.name)), "{line}");
            assert_eq!(line.contains(" status=418"), refusal.is_some(), "{line}");
            assert!(!line.contains(WORDS), "{line}");
            // Both calls are counted.
            let times = counted(&gateway, method.name, outcome).await;
            assert!((times - if is_notification { 2.0 } else { 1.0 }).abs() < f64::EPSILON, "{outcome}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn answers_to_asks_are_audited() {
    let mut gateway = Gateway::manual().await;
    let (_task, turn) = gateway.working_task("m1").await;
    turn.ask("per_1").await;
    let lines = LogLines::begin();
    let reply = opencode::method("a2a.interrupt.permission.reply").unwrap();
    let list = opencode::method("opencode.permissions.list").unwrap();
    let is_open = async || {
        let open = call(&gateway, ProtocolVersion::V1, ADA, list, &json!({})).send().await.json();
        open["result"]["items"].as_array().is_some_and(|items| !items.is_empty())
    };
    while !is_open().await {}
    assert_eq!(audit(&lines).0, [""; 0], "a query");
    let params = json!({"request_id": "per_1", "reply": "once", "message": WORDS});
    for (by, outcome) in [(BOB, "invalid_params"), (ADA, "success"), (ADA, "invalid_params")] {
        call(&gateway, ProtocolVersion::V1, by, reply, &params).send().await;
        let (audited, others) = audit(&lines);
        let [line] = audited.as_slice() else { panic!("{audited:#?}") };
        let principal = if by == ADA { "ada" } else { "bob" };
        let expected = format!(" principal={principal} target=per_1 outcome={outcome}");
        assert!(line.contains(&expected), "{line}");
        assert!(!audited.iter().chain(&others).any(|line| line.contains(WORDS)), "{others:#?}");
    }
    assert_eq!(gateway.agent.log().replied.len(), 1);
    drop(turn);
    gateway.stop().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_slow_calls() {
    let lines = LogLines::begin();
    let control = agent();
    let gateway = Gateway::controlled(&control, |config| {
        config.shutdown_grace = Duration::from_millis(200);
    })
    .await;
    control.acts.hold();
    let unrevert = opencode::method("opencode.sessions.unrevert").unwrap();
    let ending = async {
        while !control.take_calls().iter().any(|asked| matches!(asked, Asked::ControlCommand(..))) {
            tokio::task::yield_now().await;
        }
        gateway.shutdown.cancel();
    };
    let called = call(&gateway, ProtocolVersion::V1, ADA_ABLE, unrevert, &good(unrevert)).send();
    let (answer, ()) = tokio::join!(called, ending);
    let error = answer.json()["error"].to_string();
    assert!(error.contains("UNAVAILABLE") && error.contains("shutting down"), "{error}");
    assert_eq!(audit(&lines).0, [""; 0], "it is not over yet");
    control.acts.release(1);
    let mut written = Vec::new();
    while written.is_empty() {
        tokio::task::yield_now().await;
        written = audit(&lines).0;
    }
    assert!(written[0].contains(" target=ses_a outcome=success"), "{written:?}");
    gateway.stop().await;
}

/// A caller who waits for a command learns which task continues.
#[tokio::test]
async fn a_command_that_outlives_the_shutdown_is_named_by_its_task() {
    for version in [ProtocolVersion::V1, ProtocolVersion::V03] {
        let control = agent();
        let mut gateway = Gateway::controlled_by_hand(&control, |config| {
            config.shutdown_grace = Duration::from_millis(200);
        })
        .await;
        let command = opencode::method("opencode.sessions.command").unwrap();
        let called = call(&gateway, version, ADA_ABLE, command, &good(command)).send();
        let ending = async {
            let turn = gateway.turns.recv().await.expect("the command starts a turn");
            gateway.shutdown.cancel();
            turn
        };
        let (answer, turn) = tokio::join!(called, ending);
        let error = answer.json()["error"].to_string();
        assert!(error.contains("shutting down"), "{error}");
        assert!(error.contains(turn.request.task.as_str()), "{error}");
        drop(turn);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_command_is_completed_and_audited_after_its_caller_disconnects() {
    let lines = LogLines::begin();
    let control = agent();
    let gateway = Gateway::controlled(&control, all_on).await;
    control.acts.hold();
    let unrevert = opencode::method("opencode.sessions.unrevert").unwrap();
    {
        let asked = async {
            while !control.take_calls().iter().any(|asked| matches!(asked, Asked::ControlCommand(..))) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = call(&gateway, ProtocolVersion::V1, ADA_ABLE, unrevert, &good(unrevert)).send() => panic!("it is held"),
            () = asked => {}
        }
    }
    assert_eq!(audit(&lines).0, [""; 0]);
    control.acts.release(1);
    let mut written = Vec::new();
    while written.is_empty() {
        tokio::task::yield_now().await;
        written = audit(&lines).0;
    }
    assert!(written[0].contains(" target=ses_a outcome=success"), "{written:?}");
    // The session belongs to ada.
    let get = opencode::method("opencode.sessions.get").unwrap();
    let got = call(&gateway, ProtocolVersion::V1, ADA, get, &good(get)).send().await.json();
    assert_eq!(got["result"]["item"]["id"], "ses_a", "{got}");
    let refused = call(&gateway, ProtocolVersion::V1, BOB, get, &good(get)).send().await.json();
    assert_eq!(refused["error"]["code"], -32006, "{refused}");
    gateway.stop().await;
}

/// Waits for audit lines.
async fn audited(lines: &LogLines) -> Vec<String> {
    loop {
        let written = audit(lines).0;
        if !written.is_empty() {
            return written;
        }
        tokio::task::yield_now().await;
    }
}

/// A notification does not wait for its slow call, whose outcome is audited at its end.
#[tokio::test]
async fn a_slow_notification_is_answered_at_once_and_audited_at_its_end() {
    let lines = LogLines::begin();
    for version in ProtocolVersion::ALL {
        for name in ["shell", "summarize", "command"] {
            let control = agent();
            let mut gateway = Gateway::controlled_by_hand(&control, all_on).await;
            control.acts.hold();
            let method = opencode::method(&format!("opencode.sessions.{name}")).unwrap();
            let silent = notification(&gateway, version, ADA_ABLE, method, &good(method)).send().await;
            assert_eq!((silent.status.as_u16(), silent.body.len()), (204, 0), "{name}");
            assert_eq!(audit(&lines).0, [""; 0], "{name}: it is not over yet");
            if name == "command" {
                gateway.turns.recv().await.expect("the command starts a turn").complete().await;
            }
            control.acts.release(1);
            let [written] = audited(&lines).await.try_into().unwrap_or_else(|lines| panic!("{lines:#?}"));
            let expected = format!(" method={} ", method.name);
            assert!(written.contains(&expected) && written.contains(" outcome=success"), "{written}");
            assert!(written.contains("[longshore_edge::dispatch request "), "{written}");
            gateway.stop().await;
        }
    }
}

/// A slow notification does not delay the shutdown, and is audited then.
#[tokio::test]
async fn slow_notifications_end_with_the_gateway() {
    let lines = LogLines::begin();
    for name in ["shell", "summarize", "command"] {
        let control = agent();
        let mut gateway = Gateway::controlled_by_hand(&control, all_on).await;
        control.acts.hold();
        let method = opencode::method(&format!("opencode.sessions.{name}")).unwrap();
        notification(&gateway, ProtocolVersion::V1, ADA_ABLE, method, &good(method)).send().await;
        let _turn = if name == "command" {
            Some(gateway.turns.recv().await.expect("the command starts a turn"))
        } else {
            while !control.take_calls().iter().any(|asked| matches!(asked, Asked::ControlCommand(..))) {
                tokio::task::yield_now().await;
            }
            None
        };
        assert_eq!(audit(&lines).0, [""; 0], "{name}: it is not over yet");
        let tasks = gateway.tasks.clone();
        gateway.stop().await;
        tokio::time::timeout(Duration::from_secs(20), tasks.stop()).await.expect("nothing is waited for");
        let (written, _) = audit(&lines);
        let [written] = written.as_slice() else { panic!("{name}: {written:#?}") };
        assert!(written.contains(" target=ses_a outcome=internal_error"), "{written}");
    }
}
