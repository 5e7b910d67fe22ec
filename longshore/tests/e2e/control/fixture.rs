//! A gateway with three principals, and an OpenCode with commands of its own.

use std::sync::Arc;

use longshore_demo_model::DemoModel;
use longshore_testkit::gateway::{Setup, TOKEN};
use serde_json::{Value, json};

use super::caller::{Caller, Seen};
use crate::client::{Client, PATIENCE, message, message_in};
use crate::frames::{self, state_of};
use crate::harness::Harness;

const BOB: &str = "the-token-of-bob-for-tests-0123456789";
const EVE: &str = "the-token-of-eve-for-tests-0123456789";
pub(crate) const SESSION_BINDING: &str = "urn:opencode-a2a:extension:session-binding:v1";

/// The commands of OpenCode beside its own: the words behind one are what the model is told.
const COMMANDS: &str = r#"{
    "review": {"template": "Look at this. $ARGUMENTS", "description": "Looks at something"},
    "survey": {"template": "$ARGUMENTS", "description": "Sends somebody", "agent": "general", "subtask": true}
}"#;

#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) harness: Harness,
    /// It outlives whatever OpenCode calls it.
    pub(crate) model: DemoModel,
    pub(crate) seen: Seen,
}

/// A session that somebody has, with what is in it.
#[derive(Clone, Debug)]
pub(crate) struct OwnedSession {
    pub(crate) session: String,
    pub(crate) context: String,
}

impl Fixture {
    /// With these flags.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::configured(flags, |_| {}).await
    }

    /// The same with an OpenCode that may share by its configuration, but not by its environment.
    pub(crate) async fn sharing_by_configuration(flags: &[&str]) -> Self {
        Self::configured(flags, |configuration| configuration["share"] = "manual".into()).await
    }

    async fn configured(flags: &[&str], change: impl FnOnce(&mut Value)) -> Self {
        Self::prepared(|setup| flags.iter().fold(setup, Setup::flag), change).await
    }

    /// Set up by `prepare`. `change` changes OpenCode's configuration before it is read.
    pub(crate) async fn prepared(
        prepare: impl FnOnce(Setup) -> Setup,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let capabilities = json!(["session_shell", "workspace_mutation", "session_claim"]);
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
        Self { harness, model, seen: Seen::default() }
    }

    /// The operator, who made the sessions of most tests and may do everything.
    pub(crate) fn ada(&self) -> [Caller; 2] {
        Caller::on_both_lines(&self.harness.gateway, TOKEN, &self.seen)
    }

    /// Somebody else who may do everything, but not with the sessions of others. What its calls come to is not remembered.
    pub(crate) fn bob(&self) -> [Caller; 2] {
        Caller::on_both_lines(&self.harness.gateway, BOB, &Arc::default())
    }

    /// Somebody without a capability.
    pub(crate) fn eve(&self) -> [Caller; 2] {
        Caller::on_both_lines(&self.harness.gateway, EVE, &Arc::default())
    }

    pub(crate) fn client_of_bob(&self) -> Client {
        Client::with_token(&self.harness.gateway, BOB)
    }

    /// A session of the operator's in which this was said first.
    pub(crate) async fn session(&self, prompt: &str) -> OwnedSession {
        self.own(&self.harness.client, &message(prompt)).await
    }

    /// The same in a directory of the workspace.
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
        // OpenCode names a session beside its first turn, and until then it is about to change.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let session = self.upstream(&own.session).await;
            if session["title"].as_str().is_some_and(|title| title.starts_with("Demo: ")) {
                return own;
            }
            assert!(tokio::time::Instant::now() < deadline, "OpenCode gave no title: {session:#}");
        }
    }

    /// Says something more in a session of the operator's.
    pub(crate) async fn say(&self, own: &OwnedSession, prompt: &str) -> Value {
        let task = self.harness.client.send(&message_in(&own.context, prompt)).await;
        assert_eq!(state_of(&task), "COMPLETED", "{prompt}: {task:#}");
        task
    }

    /// A task of the operator's that goes on in a session until it is canceled.
    pub(crate) async fn running(&self, own: &OwnedSession) -> String {
        let message = message_in(&own.context, "scn:forever");
        let task = self.harness.client.submit(&message).await;
        let task = task["id"].as_str().unwrap_or_else(|| panic!("no task: {task:#}")).to_owned();
        let mut stream = self.harness.client.subscribe(&task).await;
        stream.until("the first words", |frame| frames::text(frame).is_some()).await;
        task
    }

    /// Waits until OpenCode does nothing: only its status tells when a turn has ended for it, too.
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

    /// OpenCode's own word on a session.
    pub(crate) async fn upstream(&self, session: &str) -> Value {
        self.harness.opencode.get(&format!("/session/{session}")).await
    }

    /// What was said in a session, by messages: OpenCode notes beside them what they changed, and takes its time.
    pub(crate) async fn content(&self, session: &str) -> Vec<(Value, Value)> {
        let messages = self.harness.opencode.messages(session).await;
        messages
            .into_iter()
            .map(|mut message| (message["info"]["id"].take(), message["parts"].take()))
            .collect()
    }

    /// The id of the last message that a user said there, and of the last answer.
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
