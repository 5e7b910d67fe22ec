//! A session of the gateway in which another client of OpenCode prompts, and its tasks.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::{StreamExt as _, stream};
use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::gateway::TOKEN;
use longshore_testkit::raw::RawClient;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::client::{PATIENCE, within};
use crate::harness::{Harness, Played, context};
use crate::upstream::{self, Agreement};

/// No event reports a new task, so the test polls at this interval, which leaves OpenCode enough time.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How many scenarios run at the same time.
const AT_ONCE: usize = 4;

pub(super) async fn play_all(scenarios: Vec<LocalBoxFuture<'_, ()>>) {
    stream::iter(scenarios).buffer_unordered(AT_ONCE).collect::<()>().await;
}

/// Polls until the value exists.
pub(super) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "expected within {PATIENCE:?}: {what}");
        sleep(POLL_INTERVAL).await;
    }
}

/// One session with its context, and another client that prompts there.
pub(super) struct ExternalSession<'a> {
    harness: &'a Harness,
    pub(super) name: String,
    pub(super) session: String,
    pub(super) context: String,
}

impl<'a> ExternalSession<'a> {
    /// In a session that a message created.
    pub(super) async fn open(harness: &'a Harness, name: &str) -> Self {
        let played = harness.play(&format!("scn:text n=1 (the first of: {name})")).await;
        played.ended("COMPLETED", "");
        let external = Self::at(harness, name, &played.turn.session, &context(&played));
        external.wait_until_idle().await;
        external
    }

    pub(super) fn at(harness: &'a Harness, name: &str, session: &str, context: &str) -> Self {
        let (name, session, context) = (name.to_owned(), session.to_owned(), context.to_owned());
        Self { harness, name, session, context }
    }

    /// The other client sends this prompt. Returns the id of its message.
    pub(super) async fn type_prompt(&self, prompt: &str) -> String {
        self.post("prompt_async", &json!({"parts": [{"type": "text", "text": prompt}]})).await;
        eventually(&format!("{}: OpenCode has {prompt:?}", self.name), async || {
            let messages = self.harness.opencode.messages(&self.session).await;
            let is_it = |message: &&Value| {
                message["info"]["role"] == "user" && upstream::message_text(message) == prompt
            };
            Some(messages.iter().find(is_it)?["info"]["id"].as_str().expect("a message has an id").to_owned())
        })
        .await
    }

    /// The other client calls OpenCode for the session.
    pub(super) async fn post(&self, what: &str, body: &Value) -> Value {
        self.harness.opencode.post_json(&format!("/session/{}/{what}", self.session), body).await
    }

    /// Waits until the context has this many tasks, without those of sub-agents. Returns the newest.
    pub(super) async fn wait_for_newest_of(&self, count: usize) -> Value {
        let name = &self.name;
        eventually(&format!("{name}: {count} tasks"), async || {
            let mut tasks = self.tasks().await;
            assert!(tasks.len() <= count, "{name}: more tasks than there should be: {tasks:#?}");
            (tasks.len() == count).then(|| tasks.swap_remove(0))
        })
        .await
    }

    /// Waits for an ask of the task. Returns its id.
    pub(super) async fn wait_for_ask(&self, task: &str) -> String {
        eventually(&format!("{}: {task} asks", self.name), async || {
            let listed = self.harness.listed().await;
            let ask = listed.iter().find(|ask| ask["task_id"] == task)?;
            Some(ask["request_id"].as_str().expect("an ask has an id").to_owned())
        })
        .await
    }

    /// Waits until the session is idle in OpenCode, which is after the end of its task.
    pub(super) async fn wait_until_idle(&self) {
        eventually(&format!("{}: {} is idle", self.name, self.session), async || {
            (!self.harness.opencode.busy().await.contains(&self.session)).then_some(())
        })
        .await;
    }

    /// Fails unless the context has this many tasks.
    pub(super) async fn assert_task_count(&self, count: usize) {
        let tasks = self.tasks().await;
        assert_eq!(tasks.len(), count, "{}: {tasks:#?}", self.name);
    }

    /// Sends a prompt and waits for its task: earlier actions would have made their tasks by then. The context then has
    /// this many tasks.
    pub(super) async fn fence(&self, count: usize) {
        let prompt = format!("scn:text n=1 (the fence behind: {})", self.name);
        self.type_prompt(&prompt).await;
        let task = self.wait_for_newest_of(count).await;
        let id = task["id"].as_str().expect("a task has an id");
        let played = self.finished(&prompt, id, Agreement::Whole).await;
        played.ended("COMPLETED", "");
        self.assert_task_count(count).await;
    }

    /// The checked log of a task that ends by itself.
    pub(super) async fn finished(&self, prompt: &str, task: &str, agreement: Agreement) -> Played {
        let frames = self.harness.client.resume(task, 0).await.rest().await;
        let played = self.harness.check(prompt, frames, agreement).await;
        assert_eq!(played.turn.session, self.session, "{}: in another session", self.name);
        assert_eq!(context(&played), self.context, "{}: in another conversation", self.name);
        played
    }

    /// Fails unless OpenCode aborted the turn, and no ask is open.
    pub(super) async fn stopped(&self, prompt: &str, task: &str) {
        self.wait_until_idle().await;
        let played = self.finished(prompt, task, Agreement::Stopped).await;
        played.ended("CANCELED", "");
        let newest = played.turn.answers.last().expect("a turn that was stopped has an answer");
        let error = newest.pointer("/info/error/name").and_then(Value::as_str);
        assert_eq!(error, Some("MessageAbortedError"), "{}: {newest:#}", self.name);
        // Open asks are rejected after the abort.
        eventually(&format!("{}: nothing is asked any more", self.name), async || {
            let asks = self.harness.opencode.get("/permission").await;
            let mut asks = asks.as_array().expect("a list of asks").iter();
            asks.all(|ask| ask["sessionID"] != self.session.as_str()).then_some(())
        })
        .await;
    }

    /// The tasks of the context, the newest first, in the list of all tasks.
    async fn tasks(&self) -> Vec<Value> {
        self.listed_by(ClientProtocol::ALL[0]).await
    }

    pub(super) async fn listed_by(&self, speaker: ClientProtocol) -> Vec<Value> {
        let mut listed = self.list(speaker, json!({})).await;
        listed.retain(|task| task["contextId"] == self.context.as_str());
        listed
    }

    /// The tasks of this context.
    pub(super) async fn listed_for(&self, speaker: ClientProtocol, context: &str) -> Vec<Value> {
        self.list(speaker, json!({"contextId": context})).await
    }

    async fn list(&self, speaker: ClientProtocol, mut params: Value) -> Vec<Value> {
        let version = speaker.version.as_str();
        let method = if version == "1.0" { "ListTasks" } else { "tasks/list" };
        (params["pageSize"], params["historyLength"]) = (100.into(), 10.into());
        let answer = within(&self.name, speaks(self.harness, speaker).rpc(method, params)).await;
        let listed = answer.result()["tasks"].as_array().cloned();
        listed.unwrap_or_else(|| panic!("{}: no list: {answer:#?}", self.name))
    }
}

/// A client without extensions.
pub(super) fn speaks(harness: &Harness, speaker: ClientProtocol) -> RawClient {
    RawClient::new(harness.gateway.url(), TOKEN).speaking(speaker.version.as_str())
}

/// The state of a task or frame in one spelling: `COMPLETED`, `INPUT_REQUIRED`. Empty if there is none.
pub(super) fn state_in(json: &Value) -> String {
    let pointers = ["/status/state", "/task/status/state", "/statusUpdate/status/state"];
    let state = pointers.iter().find_map(|position| json.pointer(position)?.as_str()).unwrap_or_default();
    state.trim_start_matches("TASK_STATE_").to_uppercase().replace('-', "_")
}

pub(super) fn is_asking(json: &Value) -> bool {
    state_in(json) == "INPUT_REQUIRED"
}
