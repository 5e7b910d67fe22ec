//! A gateway with three principals, in front of an OpenCode with additional commands.

use std::sync::Arc;

use longshore_demo_model::DemoModel;
use longshore_testkit::gateway::{Setup, TOKEN};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use super::caller::{Caller, Seen};
use crate::client::{Client, PATIENCE, message, message_in};
use crate::frames::{self, state_of};
use crate::harness::Harness;

const BOB: &str = "the-token-of-bob-for-tests-0123456789";
const EVE: &str = "the-token-of-eve-for-tests-0123456789";
pub(crate) const SESSION_BINDING: &str = "urn:opencode-a2a:extension:session-binding:v1";

/// Commands in addition to OpenCode's own. The model receives the arguments of the command.
const COMMANDS: &str = r#"{
    "review": {"template": "Look at this. $ARGUMENTS", "description": "Looks at something"},
    "survey": {"template": "$ARGUMENTS", "description": "Sends somebody", "agent": "general", "subtask": true}
}"#;

#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) harness: Harness,
    /// The model server runs in the test, so it outlives every OpenCode.
    pub(crate) model: DemoModel,
    pub(crate) seen: Seen,
    /// The protocol versions that the callers speak.
    versions: Vec<ProtocolVersion>,
}

/// A session that a caller owns.
#[derive(Clone, Debug)]
pub(crate) struct OwnedSession {
    pub(crate) session: String,
    pub(crate) context: String,
}

impl Fixture {
    /// A gateway with these flags. The callers speak these versions.
    pub(crate) async fn start(versions: &[ProtocolVersion], flags: &[&str]) -> Self {
        Self::prepared(versions, |setup| flags.iter().fold(setup, Setup::flag), |_| {}).await
    }

    /// A gateway that `prepare` sets up. `change` changes OpenCode's configuration before OpenCode reads it.
    pub(crate) async fn prepared(
        versions: &[ProtocolVersion],
        prepare: impl FnOnce(Setup) -> Setup,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let capabilities = json!([
            "session_shell",
            "workspace_mutation",
            "session_claim",
            "session_share",
            "session_delete"
        ]);
        let others = json!([
            {"scheme": "bearer", "token": BOB, "principal": "bob", "capabilities": capabilities},
            {"scheme": "bearer", "token": EVE, "principal": "eve"},
        ]);
        let prepare = |setup: Setup| prepare(setup.env("A2A_STATIC_AUTH_CREDENTIALS", others.to_string()));
        let (harness, model) = Harness::configured_with(prepare, |configuration| {
            configuration["command"] = serde_json::from_str(COMMANDS).expect("the commands are JSON");
            change(configuration);
        })
        .await;
        Self { harness, model, seen: Seen::default(), versions: versions.to_vec() }
    }

    /// The operator, who owns the sessions of most tests and has every capability.
    pub(crate) fn ada(&self) -> Vec<Caller> {
        Caller::in_versions(&self.harness.gateway, TOKEN, &self.versions, &self.seen)
    }

    /// Another caller with every capability. The outcomes of his calls are not recorded.
    pub(crate) fn bob(&self) -> Vec<Caller> {
        Caller::in_versions(&self.harness.gateway, BOB, &self.versions, &Arc::default())
    }

    /// A caller without any capability.
    pub(crate) fn eve(&self) -> Vec<Caller> {
        Caller::in_versions(&self.harness.gateway, EVE, &self.versions, &Arc::default())
    }

    pub(crate) fn client_of_bob(&self) -> Client {
        Client::with_token(&self.harness.gateway, BOB)
    }

    /// A session of the operator whose first message is this prompt.
    pub(crate) async fn session(&self, prompt: &str) -> OwnedSession {
        self.own(&self.harness.client, &message(prompt)).await
    }

    /// The same, in a directory of the workspace.
    pub(crate) async fn session_in(&self, directory: &str, prompt: &str) -> OwnedSession {
        let mut message = message(prompt);
        message["metadata"] = json!({"opencode": {"directory": directory}});
        self.own(&self.harness.client, &message).await
    }

    pub(crate) async fn session_of_bob(&self, prompt: &str) -> OwnedSession {
        self.own(&self.client_of_bob(), &message(prompt)).await
    }

    pub(crate) fn client_of_eve(&self) -> Client {
        Client::with_token(&self.harness.gateway, EVE)
    }

    pub(crate) async fn session_of_eve(&self, prompt: &str) -> OwnedSession {
        self.own(&self.client_of_eve(), &message(prompt)).await
    }

    async fn own(&self, client: &Client, message: &Value) -> OwnedSession {
        let task = client.activating(&[SESSION_BINDING]).send(message).await;
        assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
        let text = |pointer: &str| {
            let found = task.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_else(|| panic!("no {pointer} in {task:#}")).to_owned()
        };
        let own = OwnedSession { session: text("/metadata/shared/session/id"), context: text("/contextId") };
        // OpenCode sets the title of a session during its first turn. Until then the session still changes.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let session = self.upstream(&own.session).await;
            if session["title"].as_str().is_some_and(|title| title.starts_with("Demo: ")) {
                return own;
            }
            assert!(tokio::time::Instant::now() < deadline, "OpenCode gave no title: {session:#}");
        }
    }

    /// Sends a further message to a session of the operator.
    pub(crate) async fn say(&self, own: &OwnedSession, prompt: &str) -> Value {
        let task = self.harness.client.send(&message_in(&own.context, prompt)).await;
        assert_eq!(state_of(&task), "COMPLETED", "{prompt}: {task:#}");
        task
    }

    /// Starts a task of the operator that runs in a session until it is canceled.
    pub(crate) async fn running(&self, own: &OwnedSession) -> String {
        let message = message_in(&own.context, "scn:forever");
        let task = self.harness.client.submit(&message).await;
        let task = task["id"].as_str().unwrap_or_else(|| panic!("no task: {task:#}")).to_owned();
        let mut stream = self.harness.client.subscribe(&task).await;
        stream.until("the first words", |frame| frames::text(frame).is_some()).await;
        task
    }

    /// Waits until OpenCode is idle. Only OpenCode's own status shows when a turn has ended there as well.
    pub(crate) async fn idle(&self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let busy = self.harness.opencode.busy().await;
            if busy.is_empty() {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "OpenCode was left running: {busy:?}");
        }
    }

    /// The session as OpenCode reports it.
    pub(crate) async fn upstream(&self, session: &str) -> Value {
        self.harness.opencode.get(&format!("/session/{session}")).await
    }

    /// The id and the parts of every message of a session. The rest of a message changes later: OpenCode adds a diff to it.
    pub(crate) async fn content(&self, session: &str) -> Vec<(Value, Value)> {
        let messages = self.harness.opencode.messages(session).await;
        messages
            .into_iter()
            .map(|mut message| (message["info"]["id"].take(), message["parts"].take()))
            .collect()
    }

    /// The ids of the last message of a user and of the last answer in a session.
    pub(crate) async fn last_messages(&self, session: &str) -> (String, String) {
        let messages = self.harness.opencode.messages(session).await;
        let last = |role: &str| {
            let found = messages.iter().rfind(|message| message["info"]["role"] == role);
            found
                .and_then(|found| found["info"]["id"].as_str())
                .unwrap_or_else(|| panic!("no {role}"))
                .to_owned()
        };
        (last("user"), last("assistant"))
    }
}
