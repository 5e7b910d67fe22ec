//! Every session method in both versions: it works, it distinguishes an unknown session and the session of another caller, and it
//! reports an OpenCode that is not running. A method without a row here fails the test.

use longshore_testkit::gateway::{is_alive, kill, until};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::client::PATIENCE;
use crate::control::caller::{Caller, Kind};
use crate::control::fixture::Fixture;

/// How often OpenCode is killed until every method has found it dead.
const KILLS: usize = 5;

/// An id that no session has.
const NOBODY: &str = "ses_00000000000000nobody";

/// The valid parameters of each method.
pub(in crate::control) fn rows(session: &str, user: &str) -> Vec<(&'static str, Value)> {
    let with = |more: Value| {
        let mut params = json!({ "session_id": session });
        for (name, value) in more.as_object().expect("an object") {
            params[name] = value.clone();
        }
        params
    };
    let model = json!({"providerID": "demo", "modelID": "demo-small"});
    let rows = vec![
        ("status", json!({})),
        ("list", json!({})),
        ("get", with(json!({}))),
        ("children", with(json!({}))),
        ("todo", with(json!({}))),
        ("diff", with(json!({}))),
        ("messages.list", with(json!({}))),
        ("messages.get", with(json!({ "message_id": user }))),
        ("fork", with(json!({}))),
        ("unshare", with(json!({}))),
        ("prompt_async", with(json!({"request": {"parts": [{"type": "text", "text": "scn:text n=1"}]}}))),
        ("command", with(json!({"request": {"command": "review", "arguments": "scn:text n=1"}}))),
        ("shell", with(json!({"request": {"agent": "build", "command": "true", "model": model}}))),
        ("revert", with(json!({"request": {"messageID": user}}))),
        ("unrevert", with(json!({}))),
        ("summarize", with(json!({}))),
        ("share", with(json!({}))),
    ];
    let name = |name: &str| -> &'static str { format!("opencode.sessions.{name}").leak() };
    rows.into_iter().map(|(method, params)| (name(method), params)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn long_every_session_method_works_and_has_its_errors_in_both_versions() {
    let mut fixture = Fixture::start(&ProtocolVersion::ALL, &["--session-shell"]).await;
    let own = fixture.session("scn:text n=1 (everything)").await;
    let (user, _) = fixture.last_messages(&own.session).await;
    let rows = rows(&own.session, &user);

    // The rows are exactly the methods that the gateway serves.
    for ada in fixture.ada() {
        let mut served = ada.served("opencode.sessions.").await;
        let mut called: Vec<&str> = rows.iter().map(|(method, _)| *method).collect();
        served.sort_unstable();
        called.sort_unstable();
        assert_eq!(served, called, "{}", ada.version.version());
    }

    for (ada, (bob, eve)) in fixture.ada().into_iter().zip(fixture.bob().into_iter().zip(fixture.eve())) {
        for (method, params) in &rows {
            let (method, params) = (*method, params.clone());
            // Sharing is disabled in this OpenCode, and its call fails.
            if method == "opencode.sessions.share" {
                let refused = ada.refused(method, params.clone(), Kind::HTTP).await;
                assert_eq!(number(&refused.detail("upstream_status")), Some(500), "{:#}", refused.body);
            } else {
                finished(&fixture, &ada.result(method, params.clone()).await).await;
            }
            if params.get("session_id").is_none() {
                // The list is empty: the sessions belong to another caller.
                let reported = bob.result(method, params).await;
                assert_eq!(reported, json!({"items": []}), "{method}: bob sees {reported:#}");
                continue;
            }
            let mut unknown = params.clone();
            unknown["session_id"] = NOBODY.into();
            let not_found = ada.refused(method, unknown, Kind::NOT_FOUND).await;
            assert_eq!(not_found.detail("session_id"), NOBODY, "{:#}", not_found.body);
            let forbidden = bob.refused(method, params.clone(), Kind::FORBIDDEN).await;
            assert_eq!(forbidden.detail("session_id"), own.session.as_str(), "{:#}", forbidden.body);
            let without =
                if method == "opencode.sessions.shell" { Kind::UNAUTHORIZED } else { Kind::FORBIDDEN };
            eve.refused(method, params, without).await;
        }
    }
    without_opencode(&mut fixture, &rows).await;
}

/// A detail that is a number. In 1.0 every detail is a string.
pub(in crate::control) fn number(fact: &Value) -> Option<u64> {
    fact.as_u64().or_else(|| fact.as_str()?.parse().ok())
}

/// Waits for the task that a call started, if it started one, so that the session is free again.
async fn finished(fixture: &Fixture, result: &Value) {
    if let Some(task) = result["task_id"].as_str() {
        fixture.harness.client.resume(task, 0).await.rest().await;
    }
    fixture.idle().await;
}

/// The gateway starts another OpenCode at once. A method that finds it running again is called once more after the next kill.
async fn without_opencode(fixture: &mut Fixture, rows: &[(&'static str, Value)]) {
    let mut left: Vec<(Caller, &'static str, Value)> = Vec::new();
    for ada in fixture.ada() {
        left.extend(rows.iter().map(|(method, params)| (ada.clone(), *method, params.clone())));
    }
    for _ in 0..KILLS {
        let pid = fixture.harness.opencode.pid();
        kill(pid);
        until(PATIENCE, "OpenCode is gone", || !is_alive(pid)).await;
        let mut found = Vec::new();
        for (ada, method, params) in left {
            match ada.call(method, params.clone()).await {
                // OpenCode is back already, or busy with the call before.
                Ok(_) => found.push((ada, method, params)),
                Err(refusal) if refusal.word == "SESSION_BUSY" => found.push((ada, method, params)),
                Err(refusal) => {
                    refusal.assert_kind(Kind::UNREACHABLE);
                    let again = number(&refusal.detail("retry_after_seconds"));
                    assert!(again.is_some(), "it is not said when to come again: {:#}", refusal.body);
                }
            }
        }
        fixture.harness.until_opencode_is_back(pid).await;
        left = found;
        if left.is_empty() {
            break;
        }
    }
    let left: Vec<&str> = left.iter().map(|(_, method, _)| *method).collect();
    assert_eq!(left, Vec::<&str>::new(), "these were never without OpenCode");

    // The new OpenCode knows all sessions.
    for ada in fixture.ada() {
        for (method, params) in rows.iter().filter(|(method, _)| method.ends_with("list")) {
            ada.result(method, params.clone()).await;
        }
    }
    let seen = fixture.seen.lock().expect("nobody panics while it is locked");
    for version in ProtocolVersion::ALL {
        for (method, _) in rows {
            let unreachable = ((*method).to_owned(), version, "UPSTREAM_UNREACHABLE".to_owned());
            assert!(seen.contains(&unreachable), "{method} {version:?}: {seen:#?}");
        }
    }
}
