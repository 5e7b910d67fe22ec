//! The data that the methods are called with: sessions, worktrees, valid parameters, and one call.

use std::path::Path;
use std::time::Duration;

use longshore_testkit::fake_opencode::{LoggedRequest, Turn};
use longshore_testkit::gateway::until;
use longshore_testkit::raw::RawClient;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::fixture::{Fixture, Settings, call, is_about_session, without_directory};

/// A text of callers that must appear in no log and no foreign answer.
pub(crate) const WORDS: &str = "hush-hush";

/// The content of messages, todos and diffs.
pub(crate) const KEPT: &str = "the quay is built";

/// The session of Ada.
pub(crate) const SESSION: &str = "ses_a";

/// A gateway and an OpenCode that have everything that [`valid_params`] name.
#[derive(Debug)]
pub(crate) struct Populated {
    pub(crate) fixture: Fixture,
    /// The data directory of OpenCode, if there is a repository.
    pub(crate) data: Option<String>,
}

impl Populated {
    /// Adds a repository, a worktree `old` and a workspace `wrk_old`.
    pub(crate) async fn with_places(settings: Settings) -> Self {
        let mut populated = Self::of_sessions(settings).await;
        let fixture = &populated.fixture;
        fixture.fake.make_repository().await;
        let opencode = RawClient::new(fixture.fake.url(), "an unused token");
        let made = opencode.rest("POST", "/experimental/worktree", Some(&json!({"name": "old"}))).await.body;
        let new = json!({"type": "worktree", "id": "wrk_old"});
        let workspace = opencode.rest("POST", "/experimental/workspace", Some(&new)).await;
        assert_eq!(workspace.status, 200, "{}", workspace.body);
        let directory = made["directory"].as_str().unwrap_or_else(|| panic!("no worktree: {made}"));
        // The files appear after the answer; until then git still works there.
        let lock = fixture.fake.workspace().join(".git/worktrees/old/index.lock");
        let file = Path::new(directory).join("README.md");
        until(Duration::from_secs(20), "the files of the worktree", || file.exists() && !lock.exists()).await;
        populated.data = directory.split_once("/worktree/").map(|(data, _)| data.to_owned());
        populated
    }

    /// Has sessions only.
    pub(crate) async fn of_sessions(settings: Settings) -> Self {
        let fixture = Fixture::start_with(settings).await;
        fixture.fake.answering(|_| Turn::new().text(KEPT, 2).finish("stop"));
        fixture.fake.project(|project| project.elsewhere = vec!["/srv/elsewhere".to_owned()]);
        add_furnished_session(&fixture, SESSION).await;
        let child = json!({"parentID": SESSION, "title": "About a child"});
        fixture.session_like("ses_child", &child);
        for other in ["ses_busy", "ses_again"] {
            fixture.session(other);
            fixture.claim(other).await;
        }
        let again = json!({
            "type": "retry", "attempt": 2, "message": "the provider is away, see /var/log/provider", "next": 77_000,
        });
        for (session, status) in [("ses_busy", json!({"type": "busy"})), ("ses_again", again)] {
            fixture.fake.emit("session.status", json!({"sessionID": session, "status": status})).await;
        }
        Self { fixture, data: None }
    }

    /// Has what the method needs.
    pub(crate) async fn for_method(method: &Method, settings: Settings) -> Self {
        if method.name.contains("work") {
            Self::with_places(settings).await
        } else {
            Self::of_sessions(settings).await
        }
    }

    /// A separate instance for methods that change worktrees or workspaces, because there is only one of each, and for
    /// native prompts, because requests may follow after their turn. All other methods share one.
    pub(crate) async fn for_change(method: &Method, settings: Settings) -> Option<Self> {
        let is_order = ["prompt_async", "command"].contains(&method.key);
        if is_mutation(method) && (is_order || !is_about_session(method)) {
            Some(Self::for_method(method, settings).await)
        } else {
            None
        }
    }

    /// The session for a call: a new one if the method changes it.
    pub(crate) async fn session_for(&self, method: &Method) -> String {
        if !is_mutation(method) || !is_about_session(method) {
            return SESSION.to_owned();
        }
        let session = format!("ses_o{:03}", self.fixture.fake.sessions().len());
        add_furnished_session(&self.fixture, &session).await;
        session
    }

    /// The text with everything that differs between calls and runs replaced by placeholders.
    pub(crate) fn redacted(&self, session: &str, text: &str) -> String {
        let text = text.replace(self.fixture.root(), "<root>");
        let (own, known) = (session.trim_start_matches("ses_"), SESSION.trim_start_matches("ses_"));
        let backwards = |text: &str| text.chars().rev().collect::<String>();
        // The URL of a share contains the id backwards.
        let text = text.replace(own, known).replace(&backwards(own), &backwards(known));
        let text = match &self.data {
            Some(data) => text.replace(data, "<data>"),
            None => text,
        };
        let in_name = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(start) = rest.find(in_name) {
            let end = rest[start..].find(|c| !in_name(c)).map_or(rest.len(), |length| start + length);
            out.push_str(&rest[..start]);
            out.push_str(stable(&rest[start..end]));
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }
}

fn stable(name: &str) -> &str {
    let is_number = name.len() == 13 && name.chars().all(|character| character.is_ascii_digit());
    let is_uuid = name.len() == 36 && name.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    match name.split_once('_') {
        Some(("ses", made)) if made.len() == 26 => "<session>",
        // OpenCode's own messages, and prompts of the gateway.
        Some(("msg", made)) if [26, 49].contains(&made.len()) => "<message>",
        _ if is_number => "<milliseconds>",
        _ if is_uuid => "<task>",
        _ if name.starts_with("calm-") => "<name>",
        _ => name,
    }
}

/// Adds a session of Ada with two messages, a diff and todos. The ids of the messages contain the end of its id.
pub(crate) async fn add_furnished_session(fixture: &Fixture, session: &str) {
    fixture.session(session);
    fixture.claim(session).await;
    let name = session.trim_start_matches("ses_");
    let change = json!({
        "file": "quay.txt", "patch": format!("+{KEPT}\n"), "additions": 1, "deletions": 0, "status": "added",
    });
    let asked = json!({"summary": {"diffs": [change]}});
    let said = [
        json!({"type": "text", "text": "Build the quay, please. "}),
        json!({"type": "text", "text": "Not for callers.", "synthetic": true}),
        json!({"type": "text", "text": "In stone."}),
    ];
    fixture.message(session, &format!("msg_{name}1"), asked, &said).await;
    let answered = json!({"role": "assistant", "time": {"created": 6, "completed": 7}});
    fixture
        .message(session, &format!("msg_{name}2"), answered, &[json!({"type": "text", "text": KEPT})])
        .await;
    let todos = json!([
        {"content": KEPT, "status": "completed", "priority": "high"},
        {"content": "paint it", "status": "pending", "priority": "low"},
    ]);
    fixture.fake.emit("todo.updated", json!({"sessionID": session, "todos": todos})).await;
}

/// Valid parameters for a session of [`add_furnished_session`]. A method without a case here fails the tests.
pub(crate) fn valid_params(method: &Method, session: &str) -> Value {
    let message = |number: u8| format!("msg_{}{number}", session.trim_start_matches("ses_"));
    let mut params = match method.key {
        "status"
        | "get_session"
        | "get_session_children"
        | "get_session_todo"
        | "share"
        | "unshare"
        | "summarize"
        | "unrevert"
        | "delete"
        | "list_providers"
        | "list_projects"
        | "get_current_project"
        | "list_workspaces"
        | "list_worktrees" => json!({}),
        "list_sessions" => json!({"limit": 5, "roots": true, "start": 0, "search": "about"}),
        "get_session_messages" => json!({"limit": 1}),
        "get_session_diff" | "get_session_message" => json!({"message_id": message(1)}),
        "prompt_async" => json!({"request": {"parts": [{"type": "text", "text": WORDS}]}}),
        "command" => json!({"request": {"command": "/review", "arguments": WORDS}}),
        "fork" => json!({"request": {"messageID": message(2)}}),
        "revert" => {
            json!({"request": {"messageID": message(1), "partID": message(1).replace("msg", "prt") + "_2"}})
        }
        "shell" => json!({"request": {"agent": "build", "command": format!("echo {WORDS}")}}),
        "list_models" => json!({"provider_id": "scripted"}),
        "create_workspace" => {
            json!({"request": {"type": "worktree", "id": "wrk_new", "branch": null, "extra": {"note": WORDS}}})
        }
        "remove_workspace" => json!({"workspace_id": "wrk_old"}),
        "create_worktree" => json!({"request": {"name": "quay"}}),
        "remove_worktree" | "reset_worktree" => json!({"request": {"name": "old"}}),
        other => panic!("{} ({other}) has no case: write one", method.name),
    };
    if is_about_session(method) {
        params["session_id"] = session.into();
    }
    params
}

/// A successful call.
#[derive(Debug)]
pub(crate) struct LoggedCall {
    pub(crate) params: Value,
    pub(crate) result: Value,
    /// The requests to OpenCode, until the task ended that the call started.
    pub(crate) asked: Vec<LoggedRequest>,
}

/// Calls a method that must succeed.
pub(crate) async fn call_and_log(
    populated: &Populated,
    version: ProtocolVersion,
    method: &Method,
    params: Value,
) -> LoggedCall {
    let fixture = &populated.fixture;
    let seen = fixture.fake.log().len();
    let answer = call(&fixture.ada, version, method, &params).await;
    assert_eq!(answer.status, 200, "{} {version:?} {}", method.name, answer.body);
    assert_eq!(answer.header("a2a-version"), Some(version.as_str()), "{}", method.name);
    assert!(answer.body["error"].is_null(), "{} {version:?} {params}: {}", method.name, answer.body);
    let result = answer.body["result"].clone();
    if let Some(task) = result["task_id"].as_str() {
        wait_until_ended(&fixture.ada, task).await;
    }
    LoggedCall { params, result, asked: fixture.fake.log().split_off(seen) }
}

/// Waits until a task has ended, and returns it.
pub(crate) async fn wait_until_ended(client: &RawClient, task: &str) -> Value {
    let wait = async {
        loop {
            let now = client.task(task).await;
            let state = now["status"]["state"].as_str().unwrap_or_default();
            if ["COMPLETED", "FAILED", "CANCELED", "REJECTED"].iter().any(|end| state.ends_with(end)) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), wait).await.unwrap_or_else(|_| panic!("{task} does not end"))
}

/// The method and path of a request with placeholders for ids, as in the method table.
pub(crate) fn path_template(request: &str) -> String {
    let bare = without_directory(request);
    let bare = bare.split('?').next().unwrap_or_default();
    let braced = |segment: &str| match segment.split(['_', '-']).next() {
        Some("msg") => "{message}".to_owned(),
        Some("ses" | "wrk" | "per" | "que") if segment.len() > 3 => "{id}".to_owned(),
        _ => segment.to_owned(),
    };
    bare.split('/').map(braced).collect::<Vec<_>>().join("/")
}

/// Whether a method changes something, so that it must not be repeated blindly.
pub(crate) fn is_mutation(method: &Method) -> bool {
    method.effect != Effect::Read
}
