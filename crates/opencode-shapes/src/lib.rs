//! The JSON of OpenCode that both fakes write: `testkit::fake_opencode`, which does all that the recordings show, and
//! `bench::stand_in`, which is fast. For tests and measurements only.
//!
//! A shape is a struct of borrowed values. The stand-in serializes it straight into the buffer of an event stream; the other
//! fake makes a `serde_json::Value` of it, because its scripts change single fields. The tests of both fakes compare what they
//! write with the recordings of the real OpenCode.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Serialize, Serializer};
use serde_json::Value;

/// The version of OpenCode that has these shapes, and that the fakes report.
pub const VERSION: &str = "1.18.33";

/// OpenCode answers every unknown path with this page and status 200.
pub const WEB_PAGE: &str =
    "<!doctype html>\n<html lang=\"en\"><head><title>OpenCode</title></head><body></body></html>";

/// The time in an id has 48 bits and wraps.
pub const ID_TIME_MASK: u64 = (1 << 48) - 1;

/// The git tree before and after a step. Its value has no meaning in a fake.
const SNAPSHOT: &str = "d1b5e5c44450514180c4d1a7957abb4b3015b7f1";

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A new id in OpenCode's form: a prefix, twelve hexadecimal digits of time, and fourteen characters. Ids sort by time, and
/// OpenCode sorts messages by id.
pub fn new_id(prefix: &str, wall_ms: u64) -> String {
    let count = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let time = (wall_ms * 0x1000 + (count & 0xfff)) & ID_TIME_MASK;
    format!("{prefix}_{time:012x}{count:014}")
}

/// The shape as a value that can be changed.
pub fn to_value(shape: &impl Serialize) -> Value {
    serde_json::to_value(shape).expect("a shape is JSON")
}

/// Writes one event of an event stream.
pub fn write_frame(mut to: impl Write, event: &impl Serialize) -> io::Result<()> {
    to.write_all(b"data: ")?;
    serde_json::to_writer(&mut to, event)?;
    to.write_all(b"\n\n")
}

/// Writes a `message.part.delta` event, with the same bytes as [`write_frame`] and twice as fast. The texts must not contain
/// characters that JSON escapes.
pub fn write_delta_frame(to: &mut Vec<u8>, id: &str, [session, message, part, delta]: [&str; 4]) {
    for text in [
        r#"data: {"id":""#,
        id,
        r#"","type":"message.part.delta","properties":{"sessionID":""#,
        session,
        r#"","messageID":""#,
        message,
        r#"","partID":""#,
        part,
        r#"","field":"text","delta":""#,
        delta,
        "\"}}\n\n",
    ] {
        to.extend_from_slice(text.as_bytes());
    }
}

/// OpenCode stores the changes that these events report, and repeats them on `/global/event` as a [`SyncCopy`].
pub fn is_stored(kind: &str) -> bool {
    matches!(
        kind,
        "session.created"
            | "session.updated"
            | "session.deleted"
            | "message.updated"
            | "message.removed"
            | "message.part.updated"
            | "message.part.removed"
    )
}

/// An event, as `/event` sends it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Event<'a, P> {
    pub id: &'a str,
    #[serde(rename = "type")]
    pub kind: &'a str,
    pub properties: P,
}

/// The properties of the events that both fakes send.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Properties<'a, T = Value> {
    /// Of `server.connected` and `server.heartbeat`.
    None {},
    /// Of `session.idle`.
    Session {
        #[serde(rename = "sessionID")]
        session: &'a str,
    },
    /// Of `session.created`, `session.updated`, `session.deleted` and `message.updated`.
    Info {
        #[serde(rename = "sessionID")]
        session: &'a str,
        info: T,
    },
    /// Of `message.part.updated`.
    Part {
        #[serde(rename = "sessionID")]
        session: &'a str,
        part: T,
        time: u64,
    },
    /// Of `message.part.delta`.
    Delta {
        #[serde(rename = "sessionID")]
        session: &'a str,
        #[serde(rename = "messageID")]
        message: &'a str,
        #[serde(rename = "partID")]
        part: &'a str,
        field: &'a str,
        delta: &'a str,
    },
    /// Of `session.status`.
    Status {
        #[serde(rename = "sessionID")]
        session: &'a str,
        status: Status<'a>,
    },
    /// Of `session.diff`.
    Diff {
        #[serde(rename = "sessionID")]
        session: &'a str,
        diff: &'a [Value],
    },
    /// Of `session.error`.
    Error {
        #[serde(rename = "sessionID")]
        session: &'a str,
        error: NamedError<'a>,
    },
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Status<'a> {
    #[serde(rename = "type")]
    pub kind: &'a str,
}

/// An event of `/global/event`, with the directory in which it happened.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GlobalEvent<'a, P> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<&'a str>,
    pub payload: P,
}

/// The second report of a stored change, for programs that keep a copy of OpenCode's store.
#[derive(Clone, Debug, Serialize)]
pub struct SyncCopy<'a, P> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "syncEvent")]
    event: SyncEvent<'a, P>,
    id: &'a str,
}

#[derive(Clone, Debug, Serialize)]
struct SyncEvent<'a, P> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: String,
    seq: u64,
    #[serde(rename = "aggregateID")]
    session: &'a str,
    data: P,
}

impl<'a, P> SyncCopy<'a, P> {
    /// `number` counts the stored events of the session.
    pub fn new(event: Event<'a, P>, session: &'a str, number: u64) -> Self {
        let Event { id, kind, properties } = event;
        let event = SyncEvent { id, kind: format!("{kind}.1"), seq: number, session, data: properties };
        Self { kind: "sync", event, id }
    }
}

/// An error of a turn, and the body of a refusal.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NamedError<'a> {
    name: &'a str,
    data: ErrorData<'a>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ErrorData<'a> {
    message: &'a str,
}

impl<'a> NamedError<'a> {
    /// The error of a turn that was aborted.
    pub const ABORTED: NamedError<'static> = NamedError::new("MessageAbortedError", "Aborted");

    pub const fn new(name: &'a str, message: &'a str) -> Self {
        Self { name, data: ErrorData { message } }
    }
}

/// A session, as `GET /session/{id}` shows it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Session<'a> {
    pub id: &'a str,
    pub slug: &'a str,
    #[serde(rename = "projectID")]
    pub project: &'a str,
    pub directory: &'a str,
    pub path: &'a str,
    pub title: &'a str,
    /// The agent and the model of the last prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<SessionModel<'a>>,
    pub version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<FileSummary>,
    pub cost: Cost,
    pub tokens: Tokens,
    pub time: SessionTime,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct SessionModel<'a> {
    pub id: &'a str,
    #[serde(rename = "providerID")]
    pub provider: &'a str,
    pub variant: &'a str,
}

/// How many lines and files the turns of a session changed: none in a fake.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FileSummary {
    additions: u32,
    deletions: u32,
    files: u32,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct SessionTime {
    pub created: u64,
    pub updated: u64,
}

/// A message, as the message list and `message.updated` show it.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message<'a> {
    User {
        id: &'a str,
        #[serde(rename = "sessionID")]
        session: &'a str,
        time: MessageTime,
        agent: &'a str,
        model: Model<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        summary: Option<DiffSummary<'a>>,
    },
    Assistant {
        id: &'a str,
        #[serde(rename = "parentID")]
        parent: &'a str,
        mode: &'a str,
        agent: &'a str,
        path: WorkingPath<'a>,
        cost: Cost,
        tokens: Tokens,
        #[serde(rename = "modelID")]
        model: &'a str,
        #[serde(rename = "providerID")]
        provider: &'a str,
        time: MessageTime,
        #[serde(rename = "sessionID")]
        session: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        finish: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<NamedError<'a>>,
    },
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct MessageTime {
    pub created: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Model<'a> {
    #[serde(rename = "providerID")]
    pub provider: &'a str,
    #[serde(rename = "modelID")]
    pub model: &'a str,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct DiffSummary<'a> {
    pub diffs: &'a [Value],
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct WorkingPath<'a> {
    cwd: &'a str,
    root: &'a str,
}

impl<'a> WorkingPath<'a> {
    pub fn new(directory: &'a str) -> Self {
        Self { cwd: directory, root: directory }
    }
}

/// A part of a message. Each kind has some of the optional fields.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Part<'a> {
    id: &'a str,
    #[serde(rename = "messageID")]
    message: &'a str,
    #[serde(rename = "sessionID")]
    session: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<PartTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Tokens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PartTime {
    start: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
}

/// The ids of a part, of its message and of its session.
#[derive(Clone, Copy, Debug)]
pub struct PartIds<'a> {
    pub id: &'a str,
    pub message: &'a str,
    pub session: &'a str,
}

impl<'a> PartIds<'a> {
    /// The text of a prompt, which has no time.
    pub fn prompt(self, text: &'a str) -> Part<'a> {
        Part { text: Some(text), ..self.part("text") }
    }

    /// A block of a reply: `kind` is `text` or `reasoning`. OpenCode does not store deltas: the text is empty until the block
    /// has ended.
    pub fn block(self, kind: &'a str, text: &'a str, start: u64, end: Option<u64>) -> Part<'a> {
        Part { text: Some(text), time: Some(PartTime { start, end }), ..self.part(kind) }
    }

    pub fn step_start(self) -> Part<'a> {
        Part { snapshot: Some(SNAPSHOT), ..self.part("step-start") }
    }

    pub fn step_finish(self, reason: &'a str) -> Part<'a> {
        Part {
            reason: Some(reason),
            snapshot: Some(SNAPSHOT),
            tokens: Some(Tokens::STEP),
            cost: Some(Cost::Step),
            ..self.part("step-finish")
        }
    }

    fn part(self, kind: &'a str) -> Part<'a> {
        let Self { id, message, session } = self;
        Part {
            id,
            message,
            session,
            kind,
            text: None,
            time: None,
            reason: None,
            snapshot: None,
            tokens: None,
            cost: None,
        }
    }
}

/// What a session or a message has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    Nothing,
    /// One step of a fake.
    Step,
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // OpenCode writes an integer before anything was used.
            Self::Nothing => serializer.serialize_u64(0),
            Self::Step => serializer.serialize_f64(0.000_122),
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tokens {
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u32>,
    input: u32,
    output: u32,
    reasoning: u32,
    cache: CachedTokens,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct CachedTokens {
    read: u32,
    write: u32,
}

impl Tokens {
    pub const NONE: Self = Self::new(None, 0, 0);
    /// One step of a fake, as a session shows it.
    pub const STEP_OF_SESSION: Self = Self::new(None, 102, 10);
    /// The same step, as a message shows it.
    pub const STEP: Self = Self::new(Some(112), 102, 10);

    const fn new(total: Option<u32>, input: u32, output: u32) -> Self {
        Self { total, input, output, reasoning: 0, cache: CachedTokens { read: 0, write: 0 } }
    }
}

/// A message and its parts, as the message list has it.
#[derive(Clone, Debug, Serialize)]
pub struct MessageWithParts<I, P> {
    pub info: I,
    pub parts: Vec<P>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_written_alike_on_both_ways() {
        let [session, message, part, delta] = ["ses_1", "msg_1", "prt_1", "~00a"];
        let properties: Properties<'_> = Properties::Delta { session, message, part, field: "text", delta };
        let (mut slow, mut fast) = (Vec::new(), Vec::new());
        write_frame(&mut slow, &Event { id: "evt_1", kind: "message.part.delta", properties }).unwrap();
        write_delta_frame(&mut fast, "evt_1", [session, message, part, delta]);
        assert_eq!(String::from_utf8(fast), String::from_utf8(slow));
    }
}
