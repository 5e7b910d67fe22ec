//! The planned message of a client, and the record of what happened to it.

use longshore_model::TaskState;
use serde_json::Value;

use super::speaker::{Answering, ClientProtocol};

/// One message, and how its client behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedMessage {
    /// The id of the message, the same in every repetition. No other planned message has it.
    pub id: String,
    /// The text for the agent. No other planned message has it.
    pub words: String,
    pub speaker: ClientProtocol,
    pub answering: Answering,
    /// Messages of one context wait for each other.
    pub context: Option<String>,
    /// When the client cancels the task.
    pub cancel: Option<CancelAt>,
    /// The message whose turn runs in the same context when this one is sent.
    pub follows: Option<String>,
    /// The message is to join that turn. Without a running turn it becomes a task of its own.
    pub steers: bool,
    /// Decides how the client reconnects, and how long it waits before.
    pub seed: u64,
}

/// When a client cancels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelAt {
    /// The client has received so many frames.
    Frame(usize),
    /// The agent asks, and gets no answer.
    Ask,
}

/// The course of a cancel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Canceling {
    /// How often it was sent. Only the last request got an answer.
    pub sends: u64,
    pub answer: Option<CancelAnswer>,
}

/// The answer to a cancel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CancelAnswer {
    /// The task is in this state.
    State(TaskState),
    /// The task was over before.
    TooLate,
}

/// A received frame, without the envelope of JSON-RPC.
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    /// An opaque cursor, except for the number in front.
    pub id: Option<String>,
    pub json: Value,
}

impl Frame {
    /// The sequence number in the log: the digits before an optional dot.
    pub fn seq(&self) -> Option<u64> {
        let id = self.id.as_deref()?;
        id.split_once('.').map_or(id, |(seq, _)| seq).parse().ok()
    }
}

/// How often a client reconnected, by method.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Returns {
    /// The same send, with the cursor.
    pub sent_again: u64,
    /// A subscription, with the cursor.
    pub subscribed: u64,
    /// The same send, without a cursor: nothing had been received.
    pub from_start: u64,
}

/// What one client received.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    pub planned: PlannedMessage,
    pub task: Option<String>,
    pub frames: Vec<Frame>,
    /// Streams that had begun and broke before their end.
    pub cuts: u64,
    /// Calls without an answer, or with the answer to come back later.
    pub refusals: u64,
    pub returns: Returns,
    pub asked: u64,
    pub canceling: Canceling,
    /// The message joined the task of another message. Its frames are in that record.
    pub joined: bool,
    /// The last frame reports the end of the task.
    pub ended: bool,
    /// Answers that no client should get.
    pub surprises: Vec<String>,
}

impl Record {
    pub(super) fn new(planned: PlannedMessage) -> Self {
        Self {
            planned,
            task: None,
            frames: Vec::new(),
            cuts: 0,
            refusals: 0,
            returns: Returns::default(),
            asked: 0,
            canceling: Canceling::default(),
            joined: false,
            ended: false,
            surprises: Vec::new(),
        }
    }

    /// The cursor for the next connection.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.frames.iter().rev().find_map(|frame| frame.id.as_deref())
    }
}
