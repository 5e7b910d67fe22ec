//! Turns that ask, and the three ways in which a client answers.

use longshore_testkit::raw::Frame;
use serde_json::{Value, json};

use crate::client::{Client, PATIENCE, RpcError, message, message_on};
use crate::frames::{explanation, id, is_terminal, state, state_of, task_id};
use crate::harness::{Harness, Played};
use crate::upstream::Agreement;

pub(crate) const INTERRUPT: &str = "urn:opencode-a2a:extension:interactive-interrupt:v1";
const RECOVERY: &str = "urn:opencode-a2a:extension:interrupt-recovery:v1";

/// How a client answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// By the method of the extension.
    Method,
    /// By a plain message with a text.
    Words,
    /// By a plain message with a data part.
    Data,
}

/// The answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    Reply(&'a str),
    RejectBecause(&'a str),
    /// The choices for each question.
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

    /// The outcome of the ask in the stream.
    fn outcome(self) -> &'static str {
        match self {
            Self::Reply("once" | "always") | Self::Choose(_) => "replied",
            Self::Reply(_) | Self::RejectBecause(_) | Self::Dismiss => "rejected",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Reply(_) | Self::RejectBecause(_) => "permission",
            Self::Choose(_) | Self::Dismiss => "question",
        }
    }
}

/// A task that waits for an answer.
#[derive(Debug)]
pub(crate) struct AskingTask {
    pub(crate) task: String,
    /// The position of its log at the ask.
    cursor: u64,
}

impl AskingTask {
    /// From a stream that ended at an ask. The tool call that asks may be repeated after it.
    pub(crate) fn of(frames: &[Frame]) -> Self {
        let last = frames.last().expect("a stream has a frame");
        let reported = frames.iter().rev().find_map(state);
        assert_eq!(reported, Some("INPUT_REQUIRED"), "the stream did not end at an ask: {frames:#?}");
        Self { task: task_id(last), cursor: id(last) }
    }
}

impl Harness {
    /// Sends a prompt by a client without extensions. Its stream closes at the ask.
    pub(crate) async fn until_asked(&self, message: &Value) -> AskingTask {
        AskingTask::of(&self.client.stream(message).await.rest().await)
    }

    /// The open asks, as a client without a task id finds them.
    pub(crate) async fn listed(&self) -> Vec<Value> {
        let client = self.client.activating(&[RECOVERY]);
        let mut listed = Vec::new();
        for method in ["opencode.permissions.list", "opencode.questions.list"] {
            let items = client.call(method, json!({})).await["items"].take();
            listed.extend(items.as_array().expect("a list has items").iter().cloned());
        }
        listed
    }

    /// Waits until the task has this many open asks. Returns their ids, the oldest first.
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

    /// Answers by the method of the extension.
    pub(crate) async fn answer_by_method(&self, request: &str, answer: Answer<'_>) -> Result<(), RpcError> {
        let answered =
            with_interrupts(&self.client).try_call(answer.method(), answer.params(request)).await?;
        assert_eq!(answered, json!({"ok": true, "request_id": request}));
        Ok(())
    }

    /// Answers the ask, and returns the task when it asks again or has ended.
    pub(crate) async fn answer(
        &self,
        asking: &mut AskingTask,
        request: &str,
        by: By,
        answer: Answer<'_>,
    ) -> Value {
        let task = asking.task.as_str();
        match by {
            By::Words => self.client.send(&message_on(task, &json!({"text": answer.words()}))).await,
            By::Data => self.client.send(&message_on(task, &json!({"data": answer.data(request)}))).await,
            By::Method => {
                let answered = self.answer_by_method(request, answer).await;
                answered.unwrap_or_else(|error| panic!("{answer:?} was refused: {}", error.body));
                let mut stream = self.client.resume(task, asking.cursor).await;
                let wanted = |frame: &Frame| is_terminal(frame) || state(frame) == Some("INPUT_REQUIRED");
                let frames = stream.until("the next ask or the end", wanted).await;
                asking.cursor = id(frames.last().expect("a frame was found"));
                self.client.get(task).await
            }
        }
    }

    /// Plays a turn with these asks, all open at the same time, and answers the newest first.
    pub(crate) async fn play_asking(&self, prompt: &str, by: By, asks: &[(&str, Answer<'_>)]) -> Played {
        let task = match by {
            By::Method => self.play_by_method(prompt, asks).await,
            By::Words | By::Data => self.play_by_message(prompt, by, asks).await,
        };
        let played = self.finished(prompt, &task).await;
        let said = if by == By::Method { 0 } else { asks.len() };
        let history = played.task["history"].as_array().map_or(0, Vec::len);
        assert_eq!(history, 1 + said, "{prompt} {by:?}: the answers are not in {:#}", played.task);
        played
    }

    /// A client with the extension: its stream stays open and has all details.
    async fn play_by_method(&self, prompt: &str, asks: &[(&str, Answer<'_>)]) -> String {
        let mut stream = with_interrupts(&self.client).stream(&message(prompt)).await;
        let mut asked = Vec::new();
        while asked.len() < asks.len() {
            let frames = stream.until("an ask", |frame| phase(frame) == Some("asked")).await;
            asked.extend(frames.into_iter().next_back());
        }
        let task = task_id(&asked[0]);
        let ids: Vec<&str> = asked.iter().map(request_id).collect();
        assert_eq!(self.open_asks(&task, ids.len()).await, ids, "{prompt}: others are listed");
        for (frame, (words, answer)) in asked.iter().zip(asks).rev() {
            check_ask(prompt, &frame.json["statusUpdate"], words);
            let interrupt = interrupt(frame).expect("a frame that was found by it");
            assert_eq!(interrupt["type"], answer.kind(), "{prompt}: {interrupt:#}");
            assert!(interrupt["details"].is_object(), "{prompt}: {interrupt:#}");
            let request = request_id(frame);
            let answered = self.answer_by_method(request, *answer).await;
            answered.unwrap_or_else(|error| panic!("{prompt}: {answer:?} was refused: {}", error.body));
            let reported = stream.until("the end of the ask", |frame| phase(frame) == Some("resolved")).await;
            let reported = reported.last().expect("a frame was found");
            assert_eq!(request_id(reported), request, "{prompt}: another ask ended");
            let outcome = interrupt_field(reported, "outcome");
            assert_eq!(outcome, answer.outcome(), "{prompt}: {:#}", reported.json);
        }
        let rest = stream.rest().await;
        assert!(
            rest.last().is_some_and(is_terminal),
            "{prompt}: the stream ended before its task: {rest:#?}"
        );
        task
    }

    /// A client without extensions: its stream closes at the ask, and the message that answers it returns the rest.
    async fn play_by_message(&self, prompt: &str, by: By, asks: &[(&str, Answer<'_>)]) -> String {
        let mut asking = self.until_asked(&message(prompt)).await;
        let requests = self.open_asks(&asking.task, asks.len()).await;
        let mut task = self.client.get(&asking.task).await;
        for open in (1..=asks.len()).rev() {
            let (request, (words, answer)) = (&requests[open - 1], asks[open - 1]);
            check_ask(prompt, &task, words);
            if open > 1 {
                self.assert_ambiguous_text_refused(&asking.task, &requests[..open]).await;
            }
            // A text can answer only a single open ask.
            let by = if open > 1 { By::Data } else { by };
            task = self.answer(&mut asking, request, by, answer).await;
        }
        asking.task
    }

    /// A text does not say which of several asks it answers: it is refused with a list of them.
    async fn assert_ambiguous_text_refused(&self, task: &str, open: &[String]) {
        let unclear = message_on(task, &json!({"text": "once"}));
        let refused =
            self.client.try_send(&unclear).await.expect_err("the text does not say which ask it answers");
        assert!(matches!(refused.code, -32602 | 400), "{}", refused.body);
        for request in open {
            assert!(refused.body.to_string().contains(request), "{request} is not named in {}", refused.body);
        }
    }

    /// The checked log of a task that ends by itself. No ask is left open.
    pub(crate) async fn finished(&self, prompt: &str, task: &str) -> Played {
        let frames = self.client.resume(task, 0).await.rest().await;
        let played = self.check(prompt, frames, Agreement::Whole).await;
        self.assert_no_open_asks(prompt).await;
        played
    }

    /// Fails if an ask is open, in the gateway or in OpenCode.
    pub(crate) async fn assert_no_open_asks(&self, name: &str) {
        assert_eq!(self.listed().await, Vec::<Value>::new(), "{name}: asks are still listed");
        assert_eq!(self.opencode.asks().await, Vec::<String>::new(), "{name}: OpenCode still asks");
    }

    /// Fails unless an answer to a closed ask is refused, by the method and by a message.
    pub(crate) async fn assert_ask_not_found(
        &self,
        name: &str,
        task: &str,
        request: &str,
        answer: Answer<'_>,
    ) {
        let late = self.answer_by_method(request, answer).await.expect_err("nothing is asked any more");
        assert_eq!(late.reason(), "INTERRUPT_REQUEST_NOT_FOUND", "{name}: {}", late.body);
        let late = message_on(task, &json!({"data": answer.data(request)}));
        let late = self.client.try_send(&late).await.expect_err("the task is over");
        assert_eq!(late.reason(), "UNSUPPORTED_OPERATION", "{name}: {}", late.body);
    }
}

/// The client with the extension for asks.
pub(crate) fn with_interrupts(client: &Client) -> Client {
    client.activating(&[INTERRUPT])
}

/// The details of an ask in a frame.
pub(crate) fn interrupt(frame: &Frame) -> Option<&Value> {
    frame.json.pointer("/statusUpdate/metadata/shared/interrupt")
}

/// `asked` or `resolved`, if the frame is about an ask.
pub(crate) fn phase(frame: &Frame) -> Option<&str> {
    interrupt(frame)?["phase"].as_str()
}

pub(crate) fn interrupt_field<'a>(frame: &'a Frame, field: &str) -> &'a str {
    let value = interrupt(frame).and_then(|interrupt| interrupt[field].as_str());
    value.unwrap_or_else(|| panic!("no {field} of an ask in {:#}", frame.json))
}

pub(crate) fn request_id(frame: &Frame) -> &str {
    interrupt_field(frame, "request_id")
}

/// Fails unless the status says in plain words what is asked, and how to answer.
fn check_ask(name: &str, status: &Value, words: &str) {
    assert_eq!(state_of(status), "INPUT_REQUIRED", "{name}: {status:#}");
    let reported = explanation(status);
    assert!(reported.contains(words), "{name}: expected {words:?} in {reported:?}");
    assert!(reported.contains("Answer with a message on this task"), "{name}: {reported:?}");
}
