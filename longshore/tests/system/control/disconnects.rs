//! Callers who hang up, who come at the same time, and who come when there is no room: what was begun is done once and noted,
//! and nothing is left hanging.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use longshore_testkit::fake_opencode::{Fault, Gate};
use longshore_testkit::gateway::until;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{cal, code, forbidden, on_session, row, rows, works};
use crate::control::fixture::{Rules, Stage, call, of_agent, of_session, word};
use crate::control::ownership::answering;

/// Nothing in these tests takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// The lines of the audit, as they are written.
#[derive(Clone, Default)]
struct Audit(Arc<Mutex<Vec<u8>>>);

impl Audit {
    /// What is logged on this thread until the guard is dropped. All of a test runs on one.
    fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        let audit = Self::default();
        let into = audit.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || Into(into.clone())).finish();
        (audit, tracing::subscriber::set_default(subscriber))
    }

    /// What was noted about this target.
    fn about(&self, target: &str) -> Vec<Value> {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = String::from_utf8_lossy(&written).into_owned();
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_audit = lines.filter(|line| line["target"] == "longshore::audit");
        of_audit.map(|line| line["fields"].clone()).filter(|fields| fields["target"] == target).collect()
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

/// What a row changes OpenCode with: the verb, and the end of the path.
fn change(method: &Method) -> (&'static str, &'static str) {
    let upstream = method.upstream[0];
    let end = match upstream.path {
        "/experimental/workspace/{id}" => "/workspace/*",
        "/experimental/worktree/reset" => "/worktree/reset",
        path => path.rfind('/').map_or("", |slash| &path[slash..]),
    };
    (upstream.verb.as_str(), end)
}

/// How often OpenCode was asked for the change.
fn changes(stage: &Stage, method: &Method, session: &str) -> usize {
    let upstream = method.upstream[0];
    let path = if of_session(method) {
        upstream.path.replace("{id}", session)
    } else {
        upstream.path.replace("{id}", "wrk_old")
    };
    let wanted = format!("{} {path}", upstream.verb.as_str());
    stage.asked(&mut 0).iter().filter(|line| **line == wanted).count()
}

async fn nobodys(stage: &Stage, id: &str) {
    stage.session(id);
    stage
        .message(id, &message_of(id), json!({}), &[json!({"type": "text", "text": "typed elsewhere"})])
        .await;
}

fn message_of(session: &str) -> String {
    session.replace("ses_", "msg_")
}

/// Parameters for a row, and what the audit calls its target.
async fn target(stage: &Stage, method: &'static Method, line: ProtocolVersion) -> (Value, String) {
    if of_session(method) {
        let id = format!("ses_{}_{line:?}", method.key);
        nobodys(stage, &id).await;
        return (on_session(method, &id, &message_of(&id)), id);
    }
    let create = row("opencode.worktrees.create");
    let name = format!("{}-{line:?}", method.key).replace('_', "-").to_lowercase();
    match method.key {
        "create_worktree" => (json!({"request": {"name": name}}), name),
        "create_workspace" => {
            let id = format!("wrk_{line:?}");
            (json!({"request": {"type": "worktree", "id": id}}), id)
        }
        "remove_worktree" | "reset_worktree" => {
            let made =
                works(&stage.ada, ProtocolVersion::V03, create, &json!({"request": {"name": name}})).await;
            let name = made.result()["item"]["name"].as_str().expect("it has a name").to_owned();
            (json!({"request": {"name": name}}), name)
        }
        "remove_workspace" => {
            let made =
                works(&stage.ada, ProtocolVersion::V03, create, &json!({"request": {"name": name}})).await;
            let directory = made.result()["item"]["directory"].as_str().expect("it is somewhere").to_owned();
            stage.fake.project(|project| project.workspaces.push(("wrk_old".to_owned(), directory)));
            (json!({"workspace_id": "wrk_old"}), "wrk_old".to_owned())
        }
        key => panic!("{key} changes something, and has no case here"),
    }
}

/// Makes the call, and hangs up when OpenCode has it.
async fn hang_up(stage: &Stage, method: &'static Method, line: ProtocolVersion, params: &Value, gate: &Gate) {
    let (verb, end) = change(method);
    stage.fake.fault_once(verb, end, Fault::Hold(gate.clone()));
    tokio::select! {
        answer = call(&stage.ada, line, method, params) => panic!("{}: it is held: {}", method.name, answer.body),
        () = gate.reached() => {}
    }
}

#[tokio::test]
async fn what_a_caller_began_is_done_once_and_noted_though_it_hung_up() {
    let (audit, _guard) = Audit::begin();
    let stage = Stage::start().await;
    stage.fake.make_repository().await;
    answering(&stage);
    let cal = cal(&stage);
    let mutating: Vec<_> = of_agent().filter(|method| method.effect != Effect::Read).collect();
    assert_eq!(mutating.len(), 14);
    for method in mutating {
        for line in ProtocolVersion::ALL {
            let about = format!("{} {line:?}", method.name);
            let (params, target) = target(&stage, method, line).await;
            let (before, noted) = (changes(&stage, method, &target), audit.about(&target).len());
            let gate = Gate::new();
            hang_up(&stage, method, line, &params, &gate).await;
            // A prompt is a task before OpenCode hears of it, and the call is not over before OpenCode has taken it.
            assert_eq!(audit.about(&target).len(), noted, "{about}");
            gate.open();
            until(PATIENCE, &format!("{about} is noted"), || audit.about(&target).len() > noted).await;
            stage.fake.clear_faults();
            stage.fake.quiet().await;
            let lines = audit.about(&target);
            assert_eq!(lines.len(), noted + 1, "{about}: {lines:?}");
            let last = &lines[noted];
            assert_eq!(
                (&last["method"], &last["outcome"]),
                (&json!(method.name), &json!("success")),
                "{about}: {last}"
            );
            assert_eq!(last["principal"], "ada", "{about}: {last}");
            assert_eq!(changes(&stage, method, &target), before + 1, "{about}");
            if of_session(method) {
                // It is hers, and no claim of hers hangs in the air: she goes on there, and others do not.
                works(&stage.ada, line, row("opencode.sessions.unrevert"), &json!({"session_id": target}))
                    .await;
                let look = json!({"session_id": target});
                forbidden(
                    &call(&cal, line, row("opencode.sessions.get"), &look).await,
                    line,
                    &target,
                    &about,
                );
            }
        }
    }
    stage.stop().await;
}

#[tokio::test]
async fn what_fails_behind_the_back_of_a_caller_leaves_no_claim() {
    let (audit, _guard) = Audit::begin();
    let stage = Stage::start().await;
    answering(&stage);
    let cal = cal(&stage);
    let orders = ["prompt_async", "command"];
    let changing = rows().into_iter().filter(|method| method.effect != Effect::Read);
    for method in changing.filter(|method| !orders.contains(&method.key)) {
        for line in ProtocolVersion::ALL {
            let about = format!("{} {line:?}", method.name);
            let (params, target) = target(&stage, method, line).await;
            let gate = Gate::new();
            hang_up(&stage, method, line, &params, &gate).await;
            // While it is under way nobody else may begin something there.
            let early =
                call(&cal, line, row("opencode.sessions.unshare"), &json!({"session_id": target})).await;
            forbidden(&early, line, &target, &about);
            stage.fake.kill().await;
            stage.fake.come_back();
            let hers = || {
                let mut lines = audit.about(&target);
                lines.retain(|line| line["principal"] == "ada");
                lines
            };
            until(PATIENCE, &format!("{about} is noted"), || !hers().is_empty()).await;
            assert_eq!(hers().len(), 1, "{about}: {:?}", hers());
            assert_eq!(hers()[0]["outcome"], "upstream_unreachable", "{about}: {:?}", hers());
            stage.fake.clear_faults();
            works(&cal, line, row("opencode.sessions.unshare"), &json!({"session_id": target})).await;
        }
    }
    stage.stop().await;
}

/// Several who may take it want the same session at the same time: one gets it, whatever they want to do.
#[tokio::test]
async fn of_several_who_take_a_session_at_once_one_wins() {
    let stage = Stage::start().await;
    answering(&stage);
    let callers = [("ada", stage.ada.clone()), ("cal", cal(&stage))];
    for method in rows().into_iter().filter(|method| method.effect != Effect::Read) {
        for line in ProtocolVersion::ALL {
            let about = format!("{} {line:?}", method.name);
            let id = format!("ses_{}_{line:?}", method.key);
            nobodys(&stage, &id).await;
            let params = on_session(method, &id, &message_of(&id));
            // Six calls at once, three of each.
            let calls = callers.iter().cycle().take(6);
            let answers = join_all(calls.map(|(who, client)| {
                let params = &params;
                async move { (*who, call(client, line, method, params).await) }
            }))
            .await;
            stage.fake.quiet().await;
            let won: std::collections::BTreeSet<&str> = answers
                .iter()
                .filter(|(_, answer)| answer.body.get("result").is_some())
                .map(|(who, _)| *who)
                .collect();
            assert_eq!(won.len(), 1, "{about}: {answers:?}");
            for (who, answer) in &answers {
                if !won.contains(who) {
                    forbidden(answer, line, &id, &about);
                } else if answer.body.get("result").is_none() {
                    // Another call of the winner's own had the session for itself.
                    assert_eq!(word(answer, line), "SESSION_BUSY", "{about}: {}", answer.body);
                }
            }
            let get = row("opencode.sessions.get");
            for (who, client) in &callers {
                let got = call(client, line, get, &json!({"session_id": id})).await;
                assert_eq!(
                    got.body.get("result").is_some(),
                    won.contains(who),
                    "{about} {who}: {}",
                    got.body
                );
            }
        }
    }
    stage.stop().await;
}

#[tokio::test]
async fn without_a_free_place_opencode_is_not_asked() {
    let stage = Stage::start_with(Rules { upstream_calls: 1, ..Rules::default() }).await;
    // Each call has its own, so that none is refused for another.
    let own = |method: &Method, line: ProtocolVersion| format!("ses_{}_{line:?}", method.key);
    for id in rows().into_iter().flat_map(|method| ProtocolVersion::ALL.map(|line| own(method, line))) {
        nobodys(&stage, &id).await;
        stage.claim(&id).await;
    }
    stage.session("ses_held");
    stage.claim("ses_held").await;
    let gate = Gate::new();
    stage.fake.fault_once("GET", "/todo", Fault::Hold(gate.clone()));
    let todo = row("opencode.sessions.todo");
    let look = json!({"session_id": "ses_held"});
    let held = call(&stage.ada, ProtocolVersion::V1, todo, &look);
    let crowd = async {
        gate.reached().await;
        let mut seen = 0;
        stage.arrived(&mut seen);
        let params = |method: &'static Method, line: ProtocolVersion| match method.key {
            _ if of_session(method) => {
                on_session(method, &own(method, line), &message_of(&own(method, line)))
            }
            "create_workspace" => json!({"request": {"type": "worktree"}}),
            "remove_workspace" => json!({"workspace_id": "wrk_old"}),
            "remove_worktree" | "reset_worktree" => json!({"request": {"name": "old"}}),
            _ => json!({}),
        };
        let all = of_agent().flat_map(|method| ProtocolVersion::ALL.map(|line| (method, line)));
        let calls = all.map(|(method, line)| {
            let params = params(method, line);
            let client = &stage.ada;
            async move { (method, line, call(client, line, method, &params).await) }
        });
        for (method, line, answer) in join_all(calls).await {
            let about = format!("{} {line:?}: {}", method.name, answer.body);
            assert_eq!(code(&answer), -32063, "{about}");
            assert_eq!(word(&answer, line), "UPSTREAM_BACKPRESSURE", "{about}");
        }
        assert_eq!(stage.arrived(&mut seen), [""; 0]);
        gate.open();
    };
    let (answer, ()) = tokio::join!(held, crowd);
    assert!(answer.result()["items"].is_array(), "{}", answer.body);
    // There is room again.
    works(&stage.ada, ProtocolVersion::V1, todo, &look).await;
    stage.stop().await;
}
