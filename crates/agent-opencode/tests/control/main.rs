//! Queries and commands of callers besides turns, over HTTP, against a fake OpenCode with the weaknesses of the real one.

mod catalog;
mod commands;
mod failures;
mod lookup;
mod queries;
mod workspaces;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_agent_opencode::{
    DirectoryLimits, Endpoint, OpenCode, OpenCodeConfig, PromptRules, UPSTREAM_CALLS, WATCH_DIRECTORIES,
    Watchdog,
};
use longshore_engine::port::{Control, NativePrompts, Session, SystemClock};
use longshore_engine::{ProtectedPaths, Tasks};
use longshore_model::{
    AgentMessageId, ControlCommand, ControlQuery, ControlResult, Error, ErrorKind, PromptOptions, Result,
    SessionId, WorkspaceId,
};
use longshore_testkit::fake_opencode::{FakeOpenCode, PRIVATE_PROMPT, PROVIDER_KEY};
use serde_json::{Value, json};

/// A fake OpenCode and a driver that uses it.
struct Fixture {
    fake: FakeOpenCode,
    agent: OpenCode,
    tasks: Tasks,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut OpenCodeConfig)) -> Self {
        let (fake, tasks) = (FakeOpenCode::start(), Tasks::new());
        let mut config = OpenCodeConfig {
            endpoint: Endpoint {
                base_url: fake.url().parse().expect("the fake has an address"),
                username: "opencode".to_owned(),
                password: None,
            },
            directory: PathBuf::from(fake.directory()),
            control_timeout: Duration::from_secs(5),
            long_timeout: None,
            stream_silence: Duration::from_secs(30),
            rules: PromptRules::default(),
            allow_directory_override: true,
            protected: Arc::new(ProtectedPaths::new([fake.workspace().join("secrets")])),
            watchdog: Watchdog::default(),
            written_files: false,
            upstream_calls: UPSTREAM_CALLS,
            watch_directories: WATCH_DIRECTORIES,
            directories: DirectoryLimits::default(),
            metrics: Arc::default(),
        };
        change(&mut config);
        let agent =
            OpenCode::new(config, Arc::new(SystemClock), tasks.clone()).expect("a good configuration");
        Self { fake, agent, tasks }
    }

    fn root(&self) -> &str {
        self.fake.directory()
    }

    /// A session in the root.
    fn session(&self, id: &str) -> Session {
        self.session_like(id, &json!({}))
    }

    /// A session with additional fields.
    fn session_like(&self, id: &str, more: &Value) -> Session {
        let mut info = json!({
            "id": id, "slug": "calm-bay", "projectID": "9b4c0d", "directory": self.root(), "path": "", "title": id,
            "version": "1.18.33", "time": {"created": 1000, "updated": 2000},
        });
        for (key, value) in more.as_object().expect("an object") {
            info[key] = value.clone();
        }
        let directory = info["directory"].as_str().expect("a text").to_owned();
        self.fake.add_session_info(info);
        Session { id: SessionId::parse(id).expect("an id"), directory }
    }

    /// Adds a message to a session.
    async fn message(&self, session: &Session, id: &str, info: Value, parts: &[Value]) {
        let mut whole =
            json!({"id": id, "sessionID": session.id.as_str(), "role": "user", "time": {"created": 5}});
        for (key, value) in info.as_object().expect("an object") {
            whole[key] = value.clone();
        }
        let sid = session.id.as_str();
        self.fake.emit("message.updated", json!({"sessionID": sid, "info": whole})).await;
        for (position, part) in parts.iter().enumerate() {
            let mut part = part.clone();
            part["id"] = format!("prt_{id}_{position}").into();
            part["messageID"] = id.into();
            part["sessionID"] = sid.into();
            self.fake.emit("message.part.updated", json!({"sessionID": sid, "part": part})).await;
        }
    }

    async fn query(&self, session: Option<&Session>, query: &ControlQuery) -> Result<ControlResult> {
        let result = self.agent.query(self.root(), session, query).await;
        check_shown(&format!("{result:?}"));
        result
    }

    async fn run(&self, session: Option<&Session>, command: &ControlCommand) -> Result<ControlResult> {
        let result = self.agent.run_command(self.root(), session, command).await;
        check_shown(&format!("{result:?}"));
        result
    }

    /// Method, path and query of the requests since the last call, without the directory.
    fn asked(&self, seen: &mut usize) -> Vec<String> {
        let log = self.fake.log();
        let line = |request: &longshore_testkit::fake_opencode::LoggedRequest| {
            let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
            let rest: Vec<&str> = query.split('&').filter(|one| !one.starts_with("directory=")).collect();
            format!("{} {path} {}", request.method, rest.join("&")).trim_end().to_owned()
        };
        let new = log[*seen..].iter().map(line).collect();
        *seen = log.len();
        new
    }

    async fn stop(self) {
        tokio::time::timeout(Duration::from_mins(1), self.tasks.stop()).await.expect("all tasks stop");
    }
}

/// Keys of providers and the prompts of agents and commands are never returned.
fn check_shown(shown: &str) {
    for secret in [PROVIDER_KEY, PRIVATE_PROMPT] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// The one field that a refusal names.
fn refused_field<T: std::fmt::Debug>(refused: Result<T>) -> String {
    let error = refused.expect_err("this is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error:?}");
    let [violation] = error.violations() else { panic!("one field: {error:?}") };
    violation.field.clone()
}

fn fact<'a>(error: &'a Error, name: &str) -> Option<&'a str> {
    error.details().iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn message_ref(id: &str) -> AgentMessageId {
    AgentMessageId::parse(id).expect("an id")
}
