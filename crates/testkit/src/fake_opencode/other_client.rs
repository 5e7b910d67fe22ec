//! Another client of the same OpenCode that works in a session: a person at its terminal, or another program.
//!
//! Its actions change the sessions and appear on the streams like those of a gateway, but not in the log of requests.

use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::Answer;
use super::ids::fresh;
use super::prompting::until_stored;
use super::request_log::LoggedRequest;
use super::routes;
use super::state::Shared;

/// Another client of OpenCode, in one session.
#[derive(Clone, Debug)]
pub struct OtherClient {
    shared: Arc<Shared>,
    session: String,
}

impl OtherClient {
    pub(super) fn new(shared: Arc<Shared>, session: &str) -> Self {
        Self { shared, session: session.to_owned() }
    }

    /// Sends a prompt, which takes the next script. Returns the id of its message, which is listed by then unless a turn is running.
    pub async fn types(&self, words: &str) -> String {
        self.prompts(json!({"parts": [{"type": "text", "text": words}]})).await
    }

    /// Sends a prompt with this body.
    pub async fn prompts(&self, mut body: Value) -> String {
        let message = body["messageID"].as_str().map_or_else(|| fresh("msg"), str::to_owned);
        body["messageID"] = message.as_str().into();
        let (status, answer) = self.posts("prompt_async", body).await;
        assert_eq!(status, 204, "the fake refused the prompt: {answer}");
        let waits = self.shared.lock().turns.get(&self.session).is_some_and(|turns| *turns > 1);
        if !waits {
            until_stored(&self.shared, &self.session, &message).await;
        }
        message
    }

    /// Adds a message that is not to be answered.
    pub async fn notes(&self, words: &str) {
        let body = json!({"noReply": true, "parts": [{"type": "text", "text": words}]});
        self.posts("prompt_async", body).await;
    }

    /// Runs a command of the project, and returns when its turn is over.
    pub async fn commands(&self, name: &str, arguments: &str) -> (u16, Value) {
        self.posts("command", json!({"command": name, "arguments": arguments})).await
    }

    /// Runs a shell command, and returns when it is over.
    pub async fn runs(&self, command: &str) -> (u16, Value) {
        self.posts("shell", json!({"agent": "build", "command": command})).await
    }

    /// Copies the session and returns the id of the copy.
    pub async fn forks(&self) -> String {
        let (_, fork) = self.posts("fork", json!({})).await;
        fork["id"].as_str().expect("a fork has an id").to_owned()
    }

    pub async fn aborts(&self) {
        self.posts("abort", json!({})).await;
    }

    /// Answers a permission request or a question with this body.
    pub async fn answers(&self, ask: &str, body: Value) -> (u16, Value) {
        let kind = if ask.starts_with("per") { "permission" } else { "question" };
        self.sends(format!("/{kind}/{ask}/reply"), body).await
    }

    /// Sends any other request to the session.
    pub async fn posts(&self, action: &str, body: Value) -> (u16, Value) {
        self.sends(format!("/session/{}/{action}", self.session), body).await
    }

    async fn sends(&self, path: String, body: Value) -> (u16, Value) {
        let directory = self.shared.lock().world.directory(&self.session).map(str::to_owned);
        let request = LoggedRequest {
            method: "POST".to_owned(),
            target: path.clone(),
            path,
            query: Vec::new(),
            body,
            directory: directory.unwrap_or_else(|| self.shared.directory.clone()),
            traceparent: None,
            while_busy: false,
            is_typed: true,
        };
        match routes::answer(&self.shared, request).await {
            Answer::Json { status, body, .. } => (status, body),
            Answer::Raw { status, body, .. } => (status, body.into()),
            other => panic!("unexpected answer to another client: {other:?}"),
        }
    }
}
