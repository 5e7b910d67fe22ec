//! What a client was sent out for, and what it came back with.

use longshore_model::TaskState;
use serde_json::Value;

use super::speaker::{Answering, Speaker};

/// One message, and how its client behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errand {
    /// The id of the message, the same in every repetition. No other errand has it.
    pub id: String,
    /// What the agent is told. No other errand says the same.
    pub words: String,
    pub speaker: Speaker,
    pub answering: Answering,
    /// Errands of one context wait for each other.
    pub context: Option<String>,
    /// The client does not want the task to go on from here.
    pub cancel: Option<CancelAt>,
    /// The errand whose turn runs in the same context when this one is sent.
    pub follows: Option<String>,
    /// The message is to join that turn. One that finds no turn is a task of its own.
    pub steers: bool,
    /// Decides which way the client comes back, and how long it waits before.
    pub seed: u64,
}

/// When a client cancels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelAt {
    /// It has so many frames.
    Frame(usize),
    /// The agent asks, and gets no answer.
    Ask,
}

/// How a cancel went.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Canceling {
    /// How often it was sent. Each but the last got no answer.
    pub sends: u64,
    pub answer: Option<Canceled>,
}

/// What was answered to a cancel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Canceled {
    /// The task is in this state.
    ControlResult(TaskState),
    /// It was over before.
    TooLate,
}

/// A frame as it came, out of the envelope of JSON-RPC.
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    /// An opaque cursor, but for the number in front.
    pub id: Option<String>,
    pub json: Value,
}

impl Frame {
    /// The place in the log: the digits before an optional dot.
    pub fn seq(&self) -> Option<u64> {
        let id = self.id.as_deref()?;
        id.split_once('.').map_or(id, |(seq, _)| seq).parse().ok()
    }
}

/// How often a client came back, by the way that it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Returns {
    /// The same send, with the cursor.
    pub sent_again: u64,
    /// A subscription, with the cursor.
    pub subscribed: u64,
    /// The same send, without a cursor: nothing had come.
    pub from_start: u64,
}

/// What one client saw.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    pub errand: Errand,
    pub task: Option<String>,
    pub frames: Vec<Frame>,
    /// Streams that had begun and broke before their end.
    pub cuts: u64,
    /// Calls that got no answer, or were told to come back later.
    pub refusals: u64,
    pub returns: Returns,
    pub asked: u64,
    pub canceling: Canceling,
    /// The message went to a task that another errand made. Its frames are with that one.
    pub joined: bool,
    /// The last frame says that the task is over.
    pub ended: bool,
    /// What no client should see.
    pub surprises: Vec<String>,
}

impl Record {
    pub(super) fn new(errand: Errand) -> Self {
        Self {
            errand,
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

    /// Where to go on.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.frames.iter().rev().find_map(|frame| frame.id.as_deref())
    }
}
