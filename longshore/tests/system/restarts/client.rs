//! A client that records everything that it received over all its connections.

use std::time::Duration;

use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::chaos::client::request;
use longshore_testkit::raw::{Frame, Frames, RawClient};
use serde_json::Value;

use crate::restarts::installation::PATIENCE;
use crate::restarts::protocol::{self, Payload, payload, state};

/// How a client reconnects after the restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Return {
    /// Sends the same message again, with the id of the last event.
    SendAgain,
    /// Subscribes with the id of the last event.
    Subscribe,
    /// Subscribes without an id: the stream begins with the current task.
    SubscribeFromSnapshot,
}

pub(crate) struct Client {
    pub(crate) speaker: ClientProtocol,
    pub(crate) message: String,
    raw: RawClient,
    stream: Option<Frames>,
    pub(crate) frames: Vec<Frame>,
    /// How many frames arrived before the client was disconnected.
    pub(crate) before: usize,
    /// The reconnect delay (`retry`) that the last stream sent at its end.
    pub(crate) retry_after: Option<Duration>,
}

impl Client {
    pub(crate) fn new(speaker: ClientProtocol, url: &str, message: &str) -> Self {
        let raw = protocol::client(speaker, url);
        let message = message.to_owned();
        Self { speaker, message, raw, stream: None, frames: Vec::new(), before: 0, retry_after: None }
    }

    /// Sends the message. Its text is its name.
    pub(crate) async fn send(&mut self) {
        self.stream = Some(self.stream_of_message(&self.raw).await);
    }

    async fn stream_of_message(&self, client: &RawClient) -> Frames {
        let id = self.message.replace(' ', "-");
        let message = self.speaker.message(&id, &self.message, None, None);
        protocol::stream(client, &self.speaker.stream(&message)).await
    }

    pub(crate) async fn come_back(&mut self, by: Return) {
        self.before = self.frames.len();
        let last = self.frames.iter().rev().find_map(|frame| frame.cursor.as_deref());
        let resuming = self.raw.resuming(last.expect("events have ids"));
        let subscription = self.speaker.subscribe(&self.task());
        self.stream = Some(match by {
            Return::SendAgain => self.stream_of_message(&resuming).await,
            Return::Subscribe => protocol::stream(&resuming, &subscription).await,
            Return::SubscribeFromSnapshot => protocol::stream(&self.raw, &subscription).await,
        });
    }

    /// Reads until the condition holds.
    pub(crate) async fn read_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            assert!(self.read().await, "{} ended before {what}: {:#?}", self.message, self.frames);
        }
    }

    /// Reads until the stream ends.
    pub(crate) async fn read_to_end(&mut self) {
        while self.read().await {}
    }

    /// Reads one more frame. Returns false at the end of the stream.
    async fn read(&mut self) -> bool {
        let stream = self.stream.as_mut().expect("the client has a stream");
        let next = tokio::time::timeout(PATIENCE, stream.next()).await;
        let next = next.unwrap_or_else(|_| panic!("nothing comes for {}: {:#?}", self.message, self.frames));
        if let Some(frame) = next {
            self.frames.push(frame);
            return true;
        }
        self.retry_after = stream.retry();
        self.stream = None;
        false
    }

    /// Answers the ask of the agent with `once`.
    pub(crate) async fn permit(&self) {
        let asks = self.frames.iter().rev().find_map(|frame| request(&frame.json));
        protocol::permit(self.speaker, &self.raw, &self.task(), &asks.unwrap_or_default()).await;
    }

    /// The stored task.
    pub(crate) async fn stored(&self) -> Value {
        protocol::call(&self.raw, &self.speaker.get(&self.task())).await
    }

    /// The whole log, as an uninterrupted client sees it.
    pub(crate) async fn uncut(&self) -> Vec<Frame> {
        let stream = protocol::stream(&self.raw.resuming("0"), &self.speaker.subscribe(&self.task())).await;
        tokio::time::timeout(PATIENCE, stream.all()).await.expect("the task is over")
    }

    fn task(&self) -> String {
        let Some(Payload::Task(task)) = self.frames.first().map(payload) else {
            panic!("the stream of {} does not begin with its task: {:?}", self.message, self.frames)
        };
        task["id"].as_str().expect("a task has an id").to_owned()
    }

    /// The last state that the client received.
    pub(crate) fn state(&self) -> String {
        let signaled = self.frames.iter().rev().find_map(|frame| match payload(frame) {
            Payload::Task(signaled) | Payload::Status(signaled) => Some(state(signaled)),
            Payload::Artifact(_) => None,
        });
        signaled.unwrap_or_default()
    }

    /// Whether the newest frame contains these words.
    pub(crate) fn newest_says(&self, words: &str) -> bool {
        self.frames.last().is_some_and(|frame| frame.json.to_string().contains(words))
    }

    pub(crate) fn text(&self) -> String {
        text(&self.frames)
    }
}

/// The text of the agent, in the order in which its blocks began.
pub(crate) fn text(frames: &[Frame]) -> String {
    let mut artifacts: Vec<(String, String)> = Vec::new();
    for frame in frames {
        match payload(frame) {
            Payload::Status(_) => {}
            Payload::Task(task) => {
                let known = task["artifacts"].as_array().into_iter().flatten();
                artifacts = known.map(|artifact| (name(artifact), words(artifact))).collect();
            }
            Payload::Artifact(update) => {
                let (name, words) = (name(&update["artifact"]), words(&update["artifact"]));
                match artifacts.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, known)) if update["append"] == true => known.push_str(&words),
                    Some((_, known)) => *known = words,
                    None => artifacts.push((name, words)),
                }
            }
        }
    }
    artifacts.into_iter().map(|(_, words)| words).collect()
}

fn name(artifact: &Value) -> String {
    artifact["artifactId"].as_str().expect("an artifact has an id").to_owned()
}

fn words(artifact: &Value) -> String {
    let parts = artifact["parts"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}
