//! Somebody else at work in a session of the same OpenCode: at its own terminal, or another program.
//!
//! What a typist does is in the world and on the streams as whatever a gateway does, but not in the log of requests.

use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::Answer;
use super::ids::fresh;
use super::prompting::until_stored;
use super::request_log::LoggedRequest;
use super::routes;
use super::state::Shared;

/// Works in one session.
#[derive(Clone, Debug)]
pub struct Typist {
    shared: Arc<Shared>,
    session: String,
}

impl Typist {
    pub(super) fn new(shared: Arc<Shared>, session: &str) -> Self {
        Self { shared, session: session.to_owned() }
    }

    /// Types a prompt, which takes the next script. Returns the id of its message, which is in the list by then unless a turn runs.
    pub async fn types(&self, words: &str) -> String {
        self.prompts(json!({"parts": [{"type": "text", "text": words}]})).await
    }

    /// The same, with a body as one likes it.
    pub async fn prompts(&self, mut body: Value) -> String {
        let message = body["messageID"].as_str().map_or_else(|| fresh("msg"), str::to_owned);
        body["messageID"] = message.as_str().into();
        let (status, said) = self.posts("prompt_async", body).await;
        assert_eq!(status, 204, "the prompt is not taken: {said}");
        let waits = self.shared.lock().turns.get(&self.session).is_some_and(|turns| *turns > 1);
        if !waits {
            until_stored(&self.shared, &self.session, &message).await;
        }
        message
    }

    /// Leaves a message that nobody answers.
    pub async fn notes(&self, words: &str) {
        let body = json!({"noReply": true, "parts": [{"type": "text", "text": words}]});
        self.posts("prompt_async", body).await;
    }

    /// Types a prompt for a sub-agent. With `command` it is one that a command made.
    pub async fn sends_out(&self, agent: &str, words: &str, command: Option<&str>) -> String {
        let mut part = json!({"type": "subtask", "agent": agent, "description": words, "prompt": words});
        if let Some(command) = command {
            part["command"] = command.into();
        }
        self.prompts(json!({"parts": [part]})).await
    }

    /// Gives a command of the project, and returns when its turn is over.
    pub async fn commands(&self, name: &str, arguments: &str) -> (u16, Value) {
        self.posts("command", json!({"command": name, "arguments": arguments})).await
    }

    /// Runs a shell command, and returns when it is over.
    pub async fn runs(&self, command: &str) -> (u16, Value) {
        self.posts("shell", json!({"agent": "build", "command": command})).await
    }

    /// Has the session summarized, and returns when that is over.
    pub async fn summarizes(&self, auto: bool) -> (u16, Value) {
        let body = json!({"providerID": "scripted", "modelID": "scripted", "auto": auto});
        self.posts("summarize", body).await
    }

    /// Copies the session. Returns the id of the copy.
    pub async fn forks(&self) -> String {
        let (_, fork) = self.posts("fork", json!({})).await;
        fork["id"].as_str().expect("a session can always be copied").to_owned()
    }

    pub async fn aborts(&self) {
        self.posts("abort", json!({})).await;
    }

    /// Answers an ask with this body.
    pub async fn answers(&self, ask: &str, body: Value) -> (u16, Value) {
        let kind = if ask.starts_with("per") { "permission" } else { "question" };
        self.sends(format!("/{kind}/{ask}/reply"), body).await
    }

    /// Any other call of the session.
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
            other => panic!("nobody types this: {other:?}"),
        }
    }
}
