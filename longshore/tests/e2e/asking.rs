//! Turns that ask: how a client hears of an ask, and the three ways in which it answers.

use longshore_testkit::raw::Frame;
use serde_json::{Value, json};

use crate::client::{Client, PATIENCE, message, message_on};
use crate::frames::{explanation, id, is_terminal, state, state_of, task_id};
use crate::harness::{Harness, Played};
use crate::upstream::Agreement;

const INTERRUPT: &str = "urn:opencode-a2a:extension:interactive-interrupt:v1";
const RECOVERY: &str = "urn:opencode-a2a:extension:interrupt-recovery:v1";

/// How an answer is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// The method of the extension.
    Method,
    /// A plain message with a text, over JSON-RPC.
    Words,
    /// A plain message with a data part, over REST.
    Data,
}

impl By {
    pub(crate) const ALL: [Self; 3] = [Self::Method, Self::Words, Self::Data];
}

/// What is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    Reply(&'a str),
    RejectBecause(&'a str),
    /// For each question what is chosen.
    Choose(&'a [&'a [&'a str]]),
    Dismiss,
}

impl Answer<'_> {
    fn method(self) -> &'static str {
        match self {
            Self::Reply(_) | Self::RejectBecause(_) => "a2a.interrupt.permission.reply",
            Self::Choose(_) => "a2a.interrupt.question.reply",
            Self::Dismiss => "a2a.interrupt.question.reject",
        }
    }

    fn params(self, request: &str) -> Value {
        match self {
            Self::Reply(word) => json!({"request_id": request, "reply": word}),
            Self::RejectBecause(why) => json!({"request_id": request, "reply": "reject", "message": why}),
            Self::Choose(answers) => json!({"request_id": request, "answers": answers}),
            Self::Dismiss => json!({"request_id": request}),
        }
    }

    fn data(self, request: &str) -> Value {
        match self {
            Self::Dismiss => json!({"request_id": request, "reply": "reject"}),
            other => other.params(request),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Reply(word) => word.to_owned(),
            Self::RejectBecause(why) => format!("reject: {why}"),
            Self::Choose(answers) => {
                answers.iter().map(|chosen| chosen.join(", ")).collect::<Vec<_>>().join("\n")
            }
            Self::Dismiss => "reject".to_owned(),
        }
    }
}

/// A task that waits for an answer.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) task: String,
    /// Where its log stood when it asked.
    cursor: u64,
}

impl Asking {
    /// Of a stream that ended, or was left, at an ask. The tool call that asks may be shown once more behind it.
    pub(crate) fn of(frames: &[Frame]) -> Self {
        let last = frames.last().expect("a stream has a frame");
        let told = frames.iter().rev().find_map(state);
        assert_eq!(told, Some("INPUT_REQUIRED"), "the stream did not end at an ask: {frames:#?}");
        Self { task: task_id(last), cursor: id(last) }
    }
}

impl Harness {
    /// Sends a prompt by a client that knows no extension. Its stream closes at the ask.
    pub(crate) async fn until_asked(&self, message: &Value) -> Asking {
        Asking::of(&self.client.stream(message).await.rest().await)
    }

    /// The open asks, as a client finds them that knows no task.
    pub(crate) async fn listed(&self) -> Vec<Value> {
        let client = self.client.activating(&[RECOVERY]);
        let mut listed = Vec::new();
        for method in ["opencode.permissions.list", "opencode.questions.list"] {
            let items = client.call(method, json!({})).await["items"].take();
            listed.extend(items.as_array().expect("a list has items").iter().cloned());
        }
        listed
    }

    /// The ids of the task's open asks, the oldest first, once there are that many.
    pub(crate) async fn open_asks(&self, task: &str, count: usize) -> Vec<String> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let listed = self.listed().await;
            let of_task = listed.iter().filter(|ask| ask["task_id"] == task);
            let ids: Vec<String> =
                of_task.filter_map(|ask| Some(ask["request_id"].as_str()?.to_owned())).collect();
            if ids.len() == count {
                return ids;
            }
            assert!(tokio::time::Instant::now() < deadline, "expected {count} asks of {task}: {listed:#?}");
        }
    }

    /// Answers the ask and gives the task when it asks again or has ended.
    pub(crate) async fn answer(
        &self,
        asking: &mut Asking,
        request: &str,
        by: By,
        answer: Answer<'_>,
    ) -> Value {
        let task = asking.task.as_str();
        match by {
            By::Words => self.client.send(&message_on(task, &json!({"text": answer.words()}))).await,
            By::Data => {
                self.client.send_rest(&message_on(task, &json!({"data": answer.data(request)}))).await
            }
            By::Method => {
                let answered = knowing(&self.client).call(answer.method(), answer.params(request)).await;
                assert_eq!(answered, json!({"ok": true, "request_id": request}));
                let mut stream = self.client.resume(task, asking.cursor).await;
                let wanted = |frame: &Frame| is_terminal(frame) || state(frame) == Some("INPUT_REQUIRED");
                let frames = stream.until("the next ask or the end", wanted).await;
                asking.cursor = id(frames.last().expect("a frame was found"));
                self.client.get(task).await
            }
        }
    }

    /// Plays a turn that asks so often: each time in these words, and each time it is answered so.
    pub(crate) async fn play_asking(&self, prompt: &str, by: By, asks: &[(&str, Answer<'_>)]) -> Played {
        let mut asking = self.until_asked(&message(prompt)).await;
        let mut task = self.client.get(&asking.task).await;
        for (words, answer) in asks {
            assert_eq!(state_of(&task), "INPUT_REQUIRED", "{prompt} {by:?}: {task:#}");
            let told = explanation(&task);
            assert!(told.contains(words), "{prompt} {by:?}: expected {words:?} in {told:?}");
            assert!(told.contains("Answer with a message on this task"), "{prompt} {by:?}: {told:?}");
            let request = self.open_asks(&asking.task, 1).await.remove(0);
            task = self.answer(&mut asking, &request, by, *answer).await;
        }
        let played = self.finished(prompt, &asking.task).await;
        let said = if by == By::Method { 0 } else { asks.len() };
        let history = played.task["history"].as_array().map_or(0, Vec::len);
        assert_eq!(history, 1 + said, "{prompt} {by:?}: the answers are not in {:#}", played.task);
        played
    }

    /// The whole log of a task that ends by itself, held against every rule. Nothing is asked any more.
    pub(crate) async fn finished(&self, prompt: &str, task: &str) -> Played {
        let frames = self.client.resume(task, 0).await.rest().await;
        let played = self.check(prompt, frames, Agreement::Whole).await;
        self.nothing_is_asked(prompt).await;
        played
    }

    /// Fails when anybody still asks, here or at OpenCode.
    pub(crate) async fn nothing_is_asked(&self, name: &str) {
        assert_eq!(self.listed().await, Vec::<Value>::new(), "{name}: asks are still listed");
        assert_eq!(self.opencode.asks().await, Vec::<String>::new(), "{name}: OpenCode still asks");
    }
}

/// The client, as one that knows asks.
pub(crate) fn knowing(client: &Client) -> Client {
    client.activating(&[INTERRUPT])
}
