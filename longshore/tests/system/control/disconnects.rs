//! Callers that disconnect, that call at the same time, and that exceed the limit of calls: a change that was started
//! is made once and logged once, and no claim of a session is left behind.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use longshore_testkit::fake_opencode::{Fault, Gate};
use longshore_testkit::gateway::until;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{
    assert_forbidden, call_ok, client_of_cal, method_named, session_methods, session_params,
};
use crate::control::fixture::{Fixture, agent_methods, call, error_reason, is_about_session};
use crate::control::ownership::answer_every_prompt;

/// No call in these tests takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Collects the audit log.
#[derive(Clone, Default)]
struct Audit(Arc<Mutex<Vec<u8>>>);

impl Audit {
    /// Collects what this thread logs until the guard is dropped. The whole test runs on one thread.
    fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        let audit = Self::default();
        let into = audit.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || Into(into.clone())).finish();
        (audit, tracing::subscriber::set_default(subscriber))
    }

    /// The audit entries about this target.
    fn about(&self, target: &str) -> Vec<Value> {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = String::from_utf8_lossy(&written).into_owned();
        let lines = lines.lines().filter_map(|entry| serde_json::from_str::<Value>(entry).ok());
        let of_audit = lines.filter(|entry| entry["target"] == "longshore::audit");
        of_audit.map(|entry| entry["fields"].clone()).filter(|fields| fields["target"] == target).collect()
    }
}

struct Into(Audit);

impl std::io::Write for Into {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The request that changes something in OpenCode: the verb, and the end of the path.
fn change(method: &Method) -> (&'static str, &'static str) {
    let upstream = method.upstream[0];
    let end = match upstream.path {
        "/experimental/workspace/{id}" => "/workspace/*",
        "/experimental/worktree/reset" => "/worktree/reset",
        path => path.rfind('/').map_or("", |slash| &path[slash..]),
    };
    (upstream.verb.as_str(), end)
}

/// How often OpenCode received the request for the change.
fn change_count(fixture: &Fixture, method: &Method, session: &str) -> usize {
    let upstream = method.upstream[0];
    let path = if is_about_session(method) {
        upstream.path.replace("{id}", session)
    } else {
        upstream.path.replace("{id}", "wrk_old")
    };
    let wanted = format!("{} {path}", upstream.verb.as_str());
    fixture.requests_since(&mut 0).iter().filter(|entry| **entry == wanted).count()
}

async fn add_unowned_session(fixture: &Fixture, id: &str) {
    fixture.session(id);
    fixture
        .message(id, &message_of(id), json!({}), &[json!({"type": "text", "text": "typed elsewhere"})])
        .await;
}

fn message_of(session: &str) -> String {
    session.replace("ses_", "msg_")
}

/// Parameters for a method, and its target in the audit log.
async fn target(fixture: &Fixture, method: &'static Method, version: ProtocolVersion) -> (Value, String) {
    if is_about_session(method) {
        let id = format!("ses_{}_{version:?}", method.key);
        add_unowned_session(fixture, &id).await;
        return (session_params(method, &id, &message_of(&id)), id);
    }
    let create = method_named("opencode.worktrees.create");
    let name = format!("{}-{version:?}", method.key).replace('_', "-").to_lowercase();
    match method.key {
        "create_worktree" => (json!({"request": {"name": name}}), name),
        "create_workspace" => {
            let id = format!("wrk_{version:?}");
            (json!({"request": {"type": "worktree", "id": id}}), id)
        }
        "remove_worktree" | "reset_worktree" => {
            let made =
                call_ok(&fixture.ada, ProtocolVersion::V03, create, &json!({"request": {"name": name}}))
                    .await;
            let name = made.result()["item"]["name"].as_str().expect("it has a name").to_owned();
            (json!({"request": {"name": name}}), name)
        }
        "remove_workspace" => {
            let made =
                call_ok(&fixture.ada, ProtocolVersion::V03, create, &json!({"request": {"name": name}}))
                    .await;
            let directory = made.result()["item"]["directory"].as_str().expect("it is somewhere").to_owned();
            fixture.fake.project(|project| project.workspaces.push(("wrk_old".to_owned(), directory)));
            (json!({"workspace_id": "wrk_old"}), "wrk_old".to_owned())
        }
        key => panic!("{key} changes something, and has no case here"),
    }
}

/// Makes the call, and disconnects when OpenCode has received it.
async fn hang_up(
    fixture: &Fixture,
    method: &'static Method,
    version: ProtocolVersion,
    params: &Value,
    gate: &Gate,
) {
    let (verb, end) = change(method);
    fixture.fake.fault_once(verb, end, Fault::Hold(gate.clone()));
    tokio::select! {
        answer = call(&fixture.ada, version, method, params) => panic!("{}: it is held: {}", method.name, answer.body),
        () = gate.reached() => {}
    }
}

#[tokio::test]
async fn a_change_is_made_and_logged_once_when_its_caller_disconnects() {
    let (audit, _guard) = Audit::begin();
    let fixture = Fixture::start().await;
    fixture.fake.make_repository().await;
    answer_every_prompt(&fixture);
    let cal = client_of_cal(&fixture);
    let mutating: Vec<_> = agent_methods().filter(|method| method.effect != Effect::Read).collect();
    assert_eq!(mutating.len(), 14);
    for method in mutating {
        for version in ProtocolVersion::ALL {
            let about = format!("{} {version:?}", method.name);
            let (params, target) = target(&fixture, method, version).await;
            let (before, noted) = (change_count(&fixture, method, &target), audit.about(&target).len());
            let gate = Gate::new();
            hang_up(&fixture, method, version, &params, &gate).await;
            // The call ends only when OpenCode has accepted it, so nothing is logged yet.
            assert_eq!(audit.about(&target).len(), noted, "{about}");
            gate.open();
            until(PATIENCE, &format!("{about} is noted"), || audit.about(&target).len() > noted).await;
            fixture.fake.clear_faults();
            fixture.fake.wait_until_idle().await;
            let lines = audit.about(&target);
            assert_eq!(lines.len(), noted + 1, "{about}: {lines:?}");
            let last = &lines[noted];
            assert_eq!(
                (&last["method"], &last["outcome"]),
                (&json!(method.name), &json!("success")),
                "{about}: {last}"
            );
            assert_eq!(last["principal"], "ada", "{about}: {last}");
            assert_eq!(change_count(&fixture, method, &target), before + 1, "{about}");
            if is_about_session(method) {
                // The session belongs to Ada, and no pending claim blocks her. Others cannot use it.
                call_ok(
                    &fixture.ada,
                    version,
                    method_named("opencode.sessions.unrevert"),
                    &json!({"session_id": target}),
                )
                .await;
                let look = json!({"session_id": target});
                assert_forbidden(
                    &call(&cal, version, method_named("opencode.sessions.get"), &look).await,
                    version,
                    &target,
                    &about,
                );
            }
        }
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_change_that_fails_after_a_disconnect_leaves_no_claim() {
    let (audit, _guard) = Audit::begin();
    let fixture = Fixture::start().await;
    answer_every_prompt(&fixture);
    let cal = client_of_cal(&fixture);
    let orders = ["prompt_async", "command"];
    let changing = session_methods().into_iter().filter(|method| method.effect != Effect::Read);
    for method in changing.filter(|method| !orders.contains(&method.key)) {
        for version in ProtocolVersion::ALL {
            let about = format!("{} {version:?}", method.name);
            let (params, target) = target(&fixture, method, version).await;
            let gate = Gate::new();
            hang_up(&fixture, method, version, &params, &gate).await;
            // No other caller may change the session while the call is in flight.
            let early = call(
                &cal,
                version,
                method_named("opencode.sessions.unshare"),
                &json!({"session_id": target}),
            )
            .await;
            assert_forbidden(&early, version, &target, &about);
            fixture.fake.kill().await;
            fixture.fake.restart();
            let hers = || {
                let mut lines = audit.about(&target);
                lines.retain(|entry| entry["principal"] == "ada");
                lines
            };
            until(PATIENCE, &format!("{about} is noted"), || !hers().is_empty()).await;
            assert_eq!(hers().len(), 1, "{about}: {:?}", hers());
            assert_eq!(hers()[0]["outcome"], "upstream_unreachable", "{about}: {:?}", hers());
            fixture.fake.clear_faults();
            call_ok(&cal, version, method_named("opencode.sessions.unshare"), &json!({"session_id": target}))
                .await;
        }
    }
    fixture.stop().await;
}

/// Several callers claim the same session at the same time: exactly one of them gets it, whatever they do there.
#[tokio::test]
async fn of_several_callers_that_claim_a_session_at_once_one_wins() {
    let fixture = Fixture::start().await;
    answer_every_prompt(&fixture);
    let callers = [("ada", fixture.ada.clone()), ("cal", client_of_cal(&fixture))];
    for method in session_methods().into_iter().filter(|method| method.effect != Effect::Read) {
        for version in ProtocolVersion::ALL {
            let about = format!("{} {version:?}", method.name);
            let id = format!("ses_{}_{version:?}", method.key);
            add_unowned_session(&fixture, &id).await;
            let params = session_params(method, &id, &message_of(&id));
            // Six calls at once, three of each caller.
            let calls = callers.iter().cycle().take(6);
            let answers = join_all(calls.map(|(who, client)| {
                let params = &params;
                async move { (*who, call(client, version, method, params).await) }
            }))
            .await;
            fixture.fake.wait_until_idle().await;
            let won: std::collections::BTreeSet<&str> = answers
                .iter()
                .filter(|(_, answer)| answer.body.get("result").is_some())
                .map(|(who, _)| *who)
                .collect();
            assert_eq!(won.len(), 1, "{about}: {answers:?}");
            for (who, answer) in &answers {
                if !won.contains(who) {
                    assert_forbidden(answer, version, &id, &about);
                } else if answer.body.get("result").is_none() {
                    // Another call of the winner used the session at that moment.
                    assert_eq!(error_reason(answer, version), "SESSION_BUSY", "{about}: {}", answer.body);
                }
            }
            let get = method_named("opencode.sessions.get");
            for (who, client) in &callers {
                let got = call(client, version, get, &json!({"session_id": id})).await;
                assert_eq!(
                    got.body.get("result").is_some(),
                    won.contains(who),
                    "{about} {who}: {}",
                    got.body
                );
            }
        }
    }
    fixture.stop().await;
}
