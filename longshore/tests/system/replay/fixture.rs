//! A gateway with a fake OpenCode, one message to it, and the rules for the stream that answers it.

use longshore_testkit::fake_opencode::FakeOpenCode;
use longshore_testkit::raw::{Frame, Frames, RawClient, fold, message, plain_text, without_answers};
use serde_json::{Value, json};

use crate::common::TestGateway;
use crate::replay::stable_names::Names;

/// The extensions that add metadata.
const EXTENSIONS: [&str; 3] = [
    "urn:opencode-a2a:extension:session-binding:v1",
    "urn:opencode-a2a:extension:stream-hints:v1",
    "urn:opencode-a2a:extension:interactive-interrupt:v1",
];

/// A gateway in front of a fake OpenCode.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) fake: FakeOpenCode,
    pub(crate) gateway: TestGateway,
}

/// A stream that was read to its end and checked.
#[derive(Debug)]
pub(crate) struct CheckedStream {
    pub(crate) frames: Vec<Frame>,
    /// The task, folded from the frames.
    pub(crate) task: Value,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let fake = FakeOpenCode::start();
        let gateway = TestGateway::start(&fake).await;
        Self { fake, gateway }
    }

    /// A client without extensions.
    pub(crate) fn client(&self) -> &RawClient {
        &self.gateway.client
    }

    /// A client with all extensions. Its streams stay open at an ask.
    pub(crate) fn client_with_extensions(&self) -> RawClient {
        self.client().activating(&EXTENSIONS)
    }

    /// Sends a message and returns the stream.
    pub(crate) async fn open(&self, text: &str) -> Frames {
        open(&self.client_with_extensions(), &message("message-1", text)).await
    }

    /// Sends a message that makes the agent ask, and returns the waiting task.
    pub(crate) async fn send_until_asked(&self, text: &str) -> Value {
        let answer = self.client().rpc("SendMessage", message("message-1", text)).await;
        let task = answer.result()["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task:#}");
        task
    }

    /// Sends a message, reads the stream until the task settles and checks it.
    pub(crate) async fn send(&self, text: &str) -> CheckedStream {
        self.send_in(None, "message-1", text).await
    }

    /// The same in an existing context.
    pub(crate) async fn send_in(&self, context: Option<&str>, id: &str, text: &str) -> CheckedStream {
        let stream = self.open_in(context, id, text).await;
        check(self.client(), until_settled(stream).await).await
    }

    pub(crate) async fn open_in(&self, context: Option<&str>, id: &str, text: &str) -> Frames {
        let mut params = message(id, text);
        if let Some(context) = context {
            params["message"]["contextId"] = context.into();
        }
        open(&self.client_with_extensions(), &params).await
    }
}

pub(crate) async fn open(client: &RawClient, params: &Value) -> Frames {
    let opened = client.rpc_stream("SendStreamingMessage", params.clone(), None).await;
    opened.unwrap_or_else(|answer| panic!("no stream but {}", answer.body))
}

/// Reads a stream until its task has ended or waits for credentials, which no test gives.
pub(crate) async fn until_settled(mut stream: Frames) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = stream.next().await {
        let waits = state(&frame).ends_with("AUTH_REQUIRED");
        frames.push(frame);
        if waits {
            break;
        }
    }
    frames
}

/// Checks the rules for every stream: the numbers of the frames grow; only the last one settles the task; a client without
/// extensions gets the same events without the metadata, and each status once; and the frames fold into the task that `GetTask`
/// returns.
pub(crate) async fn check(client: &RawClient, frames: Vec<Frame>) -> CheckedStream {
    let ids: Vec<u64> = frames.iter().filter_map(|frame| frame.id).collect();
    // An update that only repeats the status, such as one for a message that joins the turn, is not sent.
    assert!(ids.len() == frames.len() && ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    let settled: Vec<usize> = (0..frames.len()).filter(|index| is_settled(&frames[*index])).collect();
    assert_eq!(settled, [frames.len() - 1], "one frame must settle the task, the last");
    for frame in &frames {
        let sequence = extension_notes(frame).and_then(|shared| shared.pointer("/stream/sequence"));
        assert!(sequence.is_none_or(|sequence| sequence.as_u64() == frame.id), "counted wrong: {frame:#?}");
    }
    let id = frames[0].json["task"]["id"].as_str().expect("a task has an id");
    let plain = client.rpc_stream("SubscribeToTask", json!({ "id": id }), Some(0)).await;
    let plain = until_settled(plain.unwrap_or_else(|answer| panic!("no log but {}", answer.body))).await;
    let without = frames.iter().map(|frame| Frame { json: without_notes(&frame.json), ..frame.clone() });
    let is_plain = |frame: &Frame| plain.iter().any(|plain| plain.id == frame.id);
    let (without, repeated): (Vec<Frame>, Vec<Frame>) = without.partition(is_plain);
    assert_eq!(plain, without, "a reader without extensions gets other events");
    let status = |frame: &Frame| frame.json["statusUpdate"].get("status").cloned();
    let mut statuses: Vec<Value> = Vec::new();
    for status in plain.iter().filter_map(status) {
        assert!(!statuses.contains(&status), "sent twice: {status}");
        statuses.push(status);
    }
    statuses.push(plain[0].json["task"]["status"].clone());
    assert!(repeated.iter().all(|frame| status(frame).is_some_and(|status| statuses.contains(&status))));
    let task = fold(&plain);
    let stored = plain_text(&client.task(id).await);
    assert_eq!(task, without_answers(&stored), "the stream and the stored task differ");
    CheckedStream { frames, task }
}

/// The metadata of extensions in this frame.
pub(crate) fn extension_notes(frame: &Frame) -> Option<&Value> {
    let pointers = ["/statusUpdate/metadata/shared", "/artifactUpdate/artifact/metadata/shared"];
    pointers.iter().find_map(|index| frame.json.pointer(index))
}

/// The event as a client without extensions gets it.
fn without_notes(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_notes).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key, without_notes(value)))
            .filter(|(key, value)| *key != "shared" && (*key != "metadata" || *value != json!({})))
            .map(|(key, value)| (key.clone(), value))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// The state of a status update; empty for other frames.
fn state(frame: &Frame) -> &str {
    frame.json["statusUpdate"]["status"]["state"].as_str().unwrap_or_default()
}

fn is_settled(frame: &Frame) -> bool {
    ["COMPLETED", "FAILED", "CANCELED", "REJECTED", "AUTH_REQUIRED"]
        .iter()
        .any(|end| state(frame).ends_with(end))
}

impl CheckedStream {
    /// The state without its prefix.
    pub(crate) fn state(&self) -> &str {
        self.task["status"]["state"]
            .as_str()
            .and_then(|state| state.strip_prefix("TASK_STATE_"))
            .unwrap_or_default()
    }

    pub(crate) fn context(&self) -> &str {
        self.task["contextId"].as_str().unwrap_or_default()
    }

    /// The id of the session in OpenCode.
    pub(crate) fn session(&self) -> &str {
        let mut ids =
            self.frames.iter().filter_map(|frame| extension_notes(frame)?.pointer("/session/id")?.as_str());
        ids.next_back().unwrap_or_default()
    }

    /// The message of the status.
    pub(crate) fn reason(&self) -> &str {
        self.task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
    }

    /// The text of the reply, without withdrawn blocks.
    pub(crate) fn text(&self) -> String {
        self.blocks("text").into_iter().map(|(_, text)| text).collect()
    }

    /// The blocks of this name that have text, by part id.
    pub(crate) fn blocks(&self, name: &str) -> Vec<(String, String)> {
        let artifacts = self.task["artifacts"].as_array().into_iter().flatten();
        artifacts
            .filter(|artifact| artifact["name"] == name)
            .map(|artifact| {
                let text = artifact["parts"][0]["text"].as_str().unwrap_or_default();
                (artifact["artifactId"].as_str().unwrap_or_default().to_owned(), text.to_owned())
            })
            .filter(|(_, text)| !text.is_empty())
            .collect()
    }

    /// The frames in a form that is equal in every run, one per line: ids replaced by names, times and numbers left out,
    /// neighbouring chunks of a text joined.
    pub(crate) fn comparable(&self, fake: &FakeOpenCode) -> String {
        let mut names = Names::default();
        names.call(self.task["id"].as_str().unwrap_or_default(), "<task>");
        names.call(self.task["contextId"].as_str().unwrap_or_default(), "<context>");
        names.call(fake.directory(), "/workspace");
        let parent = self.frames[0].json.pointer("/task/metadata/shared/parent/task_id");
        names.call(parent.and_then(Value::as_str).unwrap_or_default(), "<parent>");
        let mut joined: Vec<Value> = Vec::new();
        for frame in &self.frames {
            let readable = without_expected(names.value(&frame.json));
            let continues = joined.last_mut().is_some_and(|last| try_join(last, &readable));
            if !continues {
                joined.push(readable);
            }
        }
        joined.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
    }
}

/// Checks and removes the fields that every update of a task has: the ids of the task and its context, the time, and the
/// number of the event.
fn without_expected(mut frame: Value) -> Value {
    for (kind, fields) in [
        (
            "statusUpdate",
            ["/status/timestamp", "/metadata/shared/stream/event_id", "/metadata/shared/stream/sequence"],
        ),
        (
            "artifactUpdate",
            ["", "/artifact/metadata/shared/stream/event_id", "/artifact/metadata/shared/stream/sequence"],
        ),
    ] {
        let Some(update) = frame.get_mut(kind) else { continue };
        let common = [("/taskId", "<task>"), ("/contextId", "<context>")];
        let others = fields.into_iter().zip(["<time>", "<event>", "<sequence>"]);
        for (pointer, expected) in common.into_iter().chain(others).filter(|(pointer, _)| !pointer.is_empty())
        {
            let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
            let found =
                update.pointer_mut(parent).and_then(|parent| parent.as_object_mut()?.shift_remove(key));
            assert_eq!(found, Some(expected.into()), "{pointer} of {update:#}");
        }
    }
    frame
}

/// Joins a chunk of text to the one before. How many deltas one event holds depends on the load.
fn try_join(last: &mut Value, next: &Value) -> bool {
    let (before, after) = (&last["artifactUpdate"], &next["artifactUpdate"]);
    let text = |update: &Value| update["artifact"]["parts"][0]["text"].as_str().map(str::to_owned);
    let same = before["artifact"]["artifactId"] == after["artifact"]["artifactId"];
    let (Some(begin), Some(more)) = (text(before), text(after)) else { return false };
    if !same || after["append"] != true || before["lastChunk"] == true {
        return false;
    }
    last["artifactUpdate"]["artifact"]["parts"][0]["text"] = (begin + &more).into();
    if after["lastChunk"] == true {
        last["artifactUpdate"]["lastChunk"] = json!(true);
    }
    true
}
