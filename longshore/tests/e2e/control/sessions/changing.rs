//! Methods that change sessions: fork, share, summarize, revert, unrevert, shell and delete.

use std::path::PathBuf;

use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::client::{message, message_in};
use crate::control::caller::{Caller, Kind, message_text};
use crate::control::fixture::{Fixture, OwnedSession, SESSION_BINDING};
use crate::frames::state_of;
use crate::model_log;

const DELETE: &str = "opencode.sessions.delete";
const FORK: &str = "opencode.sessions.fork";
const MESSAGES: &str = "opencode.sessions.messages.list";
const REVERT: &str = "opencode.sessions.revert";
const SHARE: &str = "opencode.sessions.share";
const SHELL: &str = "opencode.sessions.shell";
const SUMMARIZE: &str = "opencode.sessions.summarize";
const UNREVERT: &str = "opencode.sessions.unrevert";
const UNSHARE: &str = "opencode.sessions.unshare";

const NO_MESSAGE: &str = "msg_000000000000000000000000";

#[tokio::test(flavor = "multi_thread")]
async fn sessions_change_as_opencode_changes_them() {
    change_sessions(ProtocolVersion::V1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_sessions_change_as_opencode_changes_them_over_0_3() {
    change_sessions(ProtocolVersion::V03).await;
}

async fn change_sessions(version: ProtocolVersion) {
    // The configuration of this OpenCode allows sharing, its environment does not.
    let allow_sharing = |configuration: &mut Value| configuration["share"] = "manual".into();
    let fixture = Fixture::prepared(
        &[version],
        |setup| setup.flag("--session-shell").flag("--session-share").flag("--session-delete"),
        allow_sharing,
    )
    .await;
    let other = fixture.session("scn:text n=1 (somewhere else)").await;
    for ada in fixture.ada() {
        a_fork_is_the_callers_own(&fixture, &ada, &other).await;
        o10_failed_sharing_is_a_typed_error(&fixture, &ada, &other).await;
        o06_a_summary_needs_no_request(&fixture, &ada).await;
        files_are_reverted_and_restored(&fixture, &ada, &other).await;
        a_shell_runs_in_the_directory_of_its_session(&fixture, &ada, &other).await;
        a_running_turn_is_not_disturbed(&fixture, &ada).await;
        a_deleted_session_is_gone_and_its_context_goes_on(&fixture, &ada).await;
    }
}

fn with(session: &str, request: Value) -> Value {
    let mut params = json!({ "session_id": session });
    params["request"] = request;
    params
}

/// The summary of a session that the gateway returns.
fn summary(upstream: &Value) -> Value {
    let mut reported = json!({
        "id": upstream["id"],
        "title": upstream["title"],
        "project_id": upstream["projectID"],
        "directory": upstream["directory"],
        "version": upstream["version"],
    });
    if let Some(revert) = upstream.get("revert") {
        reported["revert"] = json!({"message_id": revert["messageID"]});
        for (name, key) in [("part_id", "partID"), ("snapshot", "snapshot"), ("diff", "diff")] {
            if let Some(value) = revert.get(key) {
                reported["revert"][name] = value.clone();
            }
        }
    }
    reported
}

/// How many tasks the operator sees, without those of sub-agents.
async fn tasks(fixture: &Fixture) -> usize {
    let listed = fixture.harness.client.call("ListTasks", json!({"pageSize": 100})).await;
    listed["tasks"].as_array().map_or(0, Vec::len)
}

async fn a_fork_is_the_callers_own(fixture: &Fixture, ada: &Caller, other: &OwnedSession) {
    let version = ada.version.as_str();
    let opencode = &fixture.harness.opencode;
    let own = fixture.session(&format!("scn:text text=\"One.\" (forks {version})")).await;
    fixture.say(&own, &format!("scn:text text=\"Two.\" (forks {version} again)")).await;
    let messages = opencode.messages(&own.session).await;
    let content = fixture.content(&own.session).await;
    let ids: Vec<&Value> = messages.iter().map(|message| &message["info"]["id"]).collect();
    for (request, kept) in [(Value::Null, 4), (json!({ "messageID": ids[2] }), 2)] {
        let name = format!("a fork {request} on {version}");
        let made = ada.result(FORK, with(&own.session, request)).await;
        let fork = made["item"]["id"].as_str().unwrap_or_else(|| panic!("{name}: {made:#}")).to_owned();
        assert_ne!(fork, own.session, "{name}");
        let upstream = fixture.upstream(&fork).await;
        assert_eq!(made["item"], summary(&upstream), "{name}");
        let copied = opencode.messages(&fork).await;
        let texts = |messages: &[Value]| messages.iter().map(message_text).collect::<Vec<String>>();
        assert_eq!(texts(&copied), texts(&messages[..kept]), "{name}");
        let listed = ada.result(MESSAGES, json!({ "session_id": fork })).await;
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(kept), "{name}: {listed:#}");
        for bob in fixture.bob() {
            bob.refused(MESSAGES, json!({ "session_id": fork }), Kind::FORBIDDEN).await;
        }
    }
    // The fork can be prompted.
    let made = ada.result(FORK, json!({"session_id": own.session})).await;
    let fork = made["item"]["id"].as_str().expect("it has an id");
    let request =
        json!({"parts": [{"type": "text", "text": format!("scn:text n=1 (in the fork {version})")}]});
    let begun = ada.result("opencode.sessions.prompt_async", with(fork, request)).await;
    let task = begun["task_id"].as_str().expect("it is a task");
    fixture.harness.client.resume(task, 0).await.rest().await;
    assert_eq!(opencode.messages(fork).await.len(), 6, "{version}: the fork");
    assert_eq!(fixture.content(&own.session).await, content, "{version}: what was forked is something else");

    // OpenCode would copy everything for an unknown message.
    let before = opencode.sessions().await.len();
    let (foreign, _) = fixture.last_messages(&other.session).await;
    for unknown in [NO_MESSAGE, foreign.as_str()] {
        ada.invalid(FORK, with(&own.session, json!({"messageID": unknown})), "request.messageID").await;
    }
    assert_eq!(opencode.sessions().await.len(), before, "{version}: something was copied");
}

/// OpenCode answers 200 and shares nothing. (The Python peer returns an internal error for unexpected answers.)
async fn o10_failed_sharing_is_a_typed_error(fixture: &Fixture, ada: &Caller, other: &OwnedSession) {
    let refused = ada.refused(SHARE, json!({"session_id": other.session}), Kind::PAYLOAD).await;
    refused.assert_says("sharing is switched off");
    let reported = ada.result(UNSHARE, json!({"session_id": other.session})).await;
    assert_eq!(reported, json!({"item": summary(&fixture.upstream(&other.session).await)}));
}

/// OpenCode requires a model. (The Python peer sends none.)
async fn o06_a_summary_needs_no_request(fixture: &Fixture, ada: &Caller) {
    let version = ada.version.as_str();
    let own = fixture.session(&format!("scn:text n=1 (summaries {version})")).await;
    let before = tasks(fixture).await;
    for (request, model) in
        [(None, "demo"), (Some(json!({"providerID": "demo", "modelID": "demo-small"})), "demo-small")]
    {
        let name = format!("o06 {request:?} {version}");
        let known = fixture.harness.opencode.messages(&own.session).await.len();
        let mut params = json!({"session_id": own.session});
        if let Some(request) = request {
            params["request"] = request;
        }
        let reported = ada.result(SUMMARIZE, params).await;
        assert_eq!(reported, json!({"ok": true, "session_id": own.session}), "{name}");
        let messages = fixture.harness.opencode.messages(&own.session).await;
        let new = &messages[known..];
        assert_eq!(new.len(), 2, "{name}: {new:#?}");
        assert_eq!(new[0]["parts"][0]["type"], "compaction", "{name}: {new:#?}");
        assert_eq!(
            (&new[1]["info"]["modelID"], &new[1]["info"]["summary"]),
            (&json!(model), &json!(true)),
            "{name}"
        );
    }
    // The agent continues afterwards. No client prompted it, so this does not become a task.
    let turns = model_log::turns(&fixture.harness.opencode).await.len();
    let request = json!({"providerID": "demo", "modelID": "demo", "auto": true});
    let reported = ada.result(SUMMARIZE, with(&own.session, request)).await;
    assert_eq!(reported, json!({"ok": true, "session_id": own.session}), "o06 auto {version}");
    assert_eq!(
        model_log::turns(&fixture.harness.opencode).await.len(),
        turns + 1,
        "o06 auto {version}: it goes on"
    );
    fixture.idle().await;

    assert_eq!(tasks(fixture).await, before, "o06 {version}: a summary became a task");
}

async fn files_are_reverted_and_restored(fixture: &Fixture, ada: &Caller, other: &OwnedSession) {
    let version = ada.version.as_str();
    let file: PathBuf = fixture.harness.gateway.workspace().join(format!("cargo-{version}.txt"));
    let content = || std::fs::read_to_string(&file).ok();
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let own =
        fixture.session(&format!("scn:write path={name} content=\"tea\\n\" scn:text n=1 (reverts)")).await;
    let (first, _) = fixture.last_messages(&own.session).await;
    fixture.say(&own, &format!("scn:edit path={name} old=tea new=silk scn:text n=1 (reverts again)")).await;
    let (second, _) = fixture.last_messages(&own.session).await;
    assert_eq!(content().as_deref(), Some("silk\n"));
    let upstream = fixture.harness.opencode.messages(&own.session).await;
    let edits = upstream.iter().rfind(|message| message["parts"].to_string().contains("\"edit\""));
    let edits = edits.expect("there is an edit");
    let part = edits["parts"].as_array().and_then(|parts| parts.iter().find(|part| part["tool"] == "edit"));
    let part = part.expect("there is an edit")["id"].clone();

    for (request, left) in [
        (json!({ "messageID": second }), Some("tea\n")),
        (json!({ "messageID": first }), None),
        (json!({"messageID": edits["info"]["id"], "partID": part}), Some("tea\n")),
    ] {
        let name = format!("a revert {request} on {version}");
        let reported = ada.result(REVERT, with(&own.session, request.clone())).await;
        assert_eq!(content().as_deref(), left, "{name}");
        let upstream = fixture.upstream(&own.session).await;
        assert!(upstream.get("revert").is_some(), "{name}: {upstream:#}");
        assert_eq!(reported, json!({"item": summary(&upstream)}), "{name}");
        let reported = ada.result(UNREVERT, json!({"session_id": own.session})).await;
        assert_eq!(content().as_deref(), Some("silk\n"), "{name}: and back again");
        assert_eq!(reported, json!({"item": summary(&fixture.upstream(&own.session).await)}), "{name}");
        assert!(reported["item"].get("revert").is_none(), "{name}: {reported:#}");
    }
    // OpenCode answers 200 and does nothing.
    let (foreign, _) = fixture.last_messages(&other.session).await;
    for (request, field) in [
        (json!({"messageID": NO_MESSAGE}), "request.messageID"),
        (json!({ "messageID": foreign }), "request.messageID"),
        (json!({"messageID": first, "partID": part}), "request.partID"),
        (json!({"messageID": first, "partID": "prt_000000000000000000000000"}), "request.partID"),
    ] {
        ada.invalid(REVERT, with(&own.session, request), field).await;
    }
    assert_eq!(content().as_deref(), Some("silk\n"), "{version}: something was taken back");
}

async fn a_shell_runs_in_the_directory_of_its_session(fixture: &Fixture, ada: &Caller, other: &OwnedSession) {
    let version = ada.version.as_str();
    let root = fixture.harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let ships = root.join("ships").display().to_string();
    let own = fixture.session_in(&ships, &format!("scn:text n=1 (a shell {version})")).await;
    let before = tasks(fixture).await;
    let run = async |session: &str, request: Value| {
        let reported = ada.result(SHELL, with(session, request.clone())).await;
        let messages = fixture.harness.opencode.messages(session).await;
        let last = messages.last().expect("it ran");
        assert_eq!(reported["item"]["messageId"], last["info"]["id"], "{request}: {reported:#}");
        let output = &last["parts"][0]["state"]["output"];
        assert_eq!(reported["item"]["parts"][0]["text"], *output, "{request}: {reported:#}");
        output.as_str().unwrap_or_else(|| panic!("{request}: {last:#}")).to_owned()
    };
    let shell = |command: &str| json!({"agent": "build", "command": command});
    assert_eq!(run(&own.session, shell("pwd")).await.trim_end(), ships, "{version}: it ran elsewhere");
    assert_eq!(
        run(&other.session, shell("echo one; echo \"two  three\"; echo $((40 + 2)) | cat")).await.trim_end(),
        "one\ntwo  three\n42"
    );
    let failed = run(&other.session, shell("echo on stderr >&2; ls no-such-file; exit 3")).await;
    assert!(failed.contains("on stderr") && failed.contains("no-such-file"), "{version}: {failed:?}");
    let request =
        json!({"agent": "plan", "command": "true", "model": {"providerID": "demo", "modelID": "demo"}});
    run(&other.session, request).await;

    assert_eq!(tasks(fixture).await, before, "{version}: a shell became a task");
}

async fn a_running_turn_is_not_disturbed(fixture: &Fixture, ada: &Caller) {
    let own = fixture.session(&format!("scn:text n=1 (busy {})", ada.version.as_str())).await;
    let (user, _) = fixture.last_messages(&own.session).await;
    let running = fixture.running(&own).await;
    for (method, request) in [
        (SUMMARIZE, json!({})),
        (REVERT, json!({ "messageID": user })),
        (UNREVERT, Value::Null),
        (SHELL, json!({"agent": "build", "command": "true"})),
        (DELETE, Value::Null),
    ] {
        let mut params = json!({"session_id": own.session});
        if !request.is_null() {
            params["request"] = request;
        }
        let busy = ada.refused(method, params, Kind::BUSY).await;
        assert!(!busy.detail("retry_after_seconds").is_null(), "{:#}", busy.body);
        assert_eq!(busy.detail("session_id"), own.session.as_str(), "{:#}", busy.body);
    }
    // A fork and reads work during a turn.
    ada.result(FORK, json!({"session_id": own.session})).await;
    ada.result(UNSHARE, json!({"session_id": own.session})).await;
    ada.result(MESSAGES, json!({"session_id": own.session})).await;
    assert_eq!(fixture.harness.opencode.busy().await, [own.session.as_str()], "the turn was disturbed");
    fixture.harness.client.cancel(&running).await.unwrap_or_else(|error| panic!("{}", error.body));
    fixture.idle().await;
    ada.result(SHELL, with(&own.session, json!({"agent": "build", "command": "true"}))).await;
}

async fn a_deleted_session_is_gone_and_its_context_goes_on(fixture: &Fixture, ada: &Caller) {
    let client = fixture.harness.client.activating(&[SESSION_BINDING]);
    let mut first = message(&format!("scn:text n=1 (to be deleted {})", ada.version.as_str()));
    first["metadata"] = json!({"shared": {"session": {"title": "The west quay"}}});
    let session_of = |task: &Value| task["metadata"]["shared"]["session"]["id"].as_str().map(str::to_owned);
    let task = client.send(&first).await;
    let session = session_of(&task).unwrap_or_else(|| panic!("no session: {task:#}"));
    assert_eq!(fixture.upstream(&session).await["title"], "The west quay");
    fixture.idle().await;
    let params = json!({ "session_id": session });
    for bob in fixture.bob() {
        bob.refused(DELETE, params.clone(), Kind::FORBIDDEN).await;
    }
    let before = tasks(fixture).await;
    let done = ada.result(DELETE, params.clone()).await;
    assert_eq!(done, json!({"ok": true, "session_id": session}));
    ada.refused(DELETE, params.clone(), Kind::NOT_FOUND).await;
    ada.refused(MESSAGES, params, Kind::NOT_FOUND).await;
    assert_eq!(tasks(fixture).await, before, "the tasks of the session stay");
    let context = task["contextId"].as_str().unwrap_or_else(|| panic!("no context: {task:#}"));
    let next = client.send(&message_in(context, "scn:text n=1")).await;
    assert_eq!(state_of(&next), "COMPLETED", "{next:#}");
    assert_ne!(session_of(&next), Some(session), "{next:#}");
}
