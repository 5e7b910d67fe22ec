//! A turn that a test writes in code. The fake sends it in OpenCode's events.
//!
//! ```
//! # use longshore_testkit::fake_opencode::{Tool, Turn};
//! Turn::new().text("Looking. ", 2).tool(Tool::bash("ls", "README.md\n")).text("One file.", 3).finish("stop");
//! ```

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::decision::Decision;
use super::gate::Gate;
use super::script::{Prompt, Step};
use super::writer::Writer;

/// The actions of the agent, in order. A turn without an end of its own finishes with `stop`.
#[derive(Clone, Debug, Default)]
#[must_use = "its methods return a changed copy"]
pub struct Turn {
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
pub(super) enum Item {
    Block {
        kind: &'static str,
        chunks: Vec<String>,
        /// How long the model takes for each chunk.
        pace: Duration,
    },
    /// A part of a reply that the provider cut. The part never ends, and a retry follows.
    Abandoned {
        chunks: Vec<String>,
        message: String,
    },
    Tool(Tool),
    Permission {
        tool: Tool,
    },
    Question(String),
    Then(Decision),
    Change(Value),
    Typed(String),
    Step(String),
    Finish(String),
    Error(Value),
    Silence,
    Hold(Gate),
    Pause(Duration),
    Raw(Value),
}

/// A tool call of a scripted turn.
#[derive(Clone, Debug)]
#[must_use = "its methods return a changed copy"]
pub struct Tool {
    pub(super) name: String,
    pub(super) input: Value,
    pub(super) title: String,
    pub(super) result: Result<String, String>,
    /// The files that a successful call returns beside its text, in OpenCode's shape.
    pub(super) attachments: Vec<Value>,
    /// The call runs until the test opens this gate.
    pub(super) hold: Option<Gate>,
    /// As in the real OpenCode. A call without it goes on whatever the answer is.
    pub(super) ends_when_rejected: bool,
}

impl Tool {
    pub fn new(name: &str, input: Value, output: &str) -> Self {
        let (name, title) = (name.to_owned(), name.to_owned());
        let result = Ok(output.to_owned());
        Self { name, input, title, result, attachments: Vec::new(), hold: None, ends_when_rejected: false }
    }

    pub fn bash(command: &str, output: &str) -> Self {
        let mut tool =
            Self::new("bash", json!({"command": command, "description": "Scripted command"}), output);
        command.clone_into(&mut tool.title);
        tool
    }

    /// The call returns a file too.
    pub fn handing(mut self, filename: &str, media_type: &str, bytes: &[u8]) -> Self {
        let url = format!("data:{media_type};base64,{}", STANDARD.encode(bytes));
        self.attachments.push(json!({"type": "file", "mime": media_type, "filename": filename, "url": url}));
        self
    }

    /// The call runs until the test opens the gate.
    pub fn held(mut self, gate: &Gate) -> Self {
        self.hold = Some(gate.clone());
        self
    }

    /// A rejected permission ends the call and the turn.
    pub fn ending_when_rejected(mut self) -> Self {
        self.ends_when_rejected = true;
        self
    }

    /// The call fails with this text.
    pub fn failing(mut self, error: &str) -> Self {
        self.result = Err(error.to_owned());
        self
    }
}

impl Turn {
    pub fn new() -> Self {
        Self::default()
    }

    /// Text in that many deltas.
    pub fn text(self, text: &str, chunks: usize) -> Self {
        self.paced("text", text, chunks, Duration::ZERO)
    }

    /// A block of that kind, in that many deltas, with a pause before each.
    pub fn paced(self, kind: &'static str, text: &str, chunks: usize, pace: Duration) -> Self {
        self.with(Item::Block { kind, chunks: split(text, chunks), pace })
    }

    /// Text, each delta as given.
    pub fn deltas<I: IntoIterator<Item = String>>(self, chunks: I) -> Self {
        self.with(Item::Block { kind: "text", chunks: chunks.into_iter().collect(), pace: Duration::ZERO })
    }

    pub fn reasoning(self, text: &str, chunks: usize) -> Self {
        self.paced("reasoning", text, chunks, Duration::ZERO)
    }

    /// Text of an attempt that the provider cut. The next item belongs to the retry.
    pub fn abandoned(self, text: &str, chunks: usize) -> Self {
        let message = "Connection reset by server".to_owned();
        self.with(Item::Abandoned { chunks: split(text, chunks), message })
    }

    pub fn tool(self, tool: Tool) -> Self {
        self.with(Item::Tool(tool))
    }

    /// A tool call that waits for a permission first.
    pub fn guarded_tool(self, tool: Tool) -> Self {
        self.with(Item::Permission { tool })
    }

    /// Asks a question that is answered in words, and waits for the answer.
    pub fn question(self, question: &str) -> Self {
        self.with(Item::Question(question.to_owned()))
    }

    /// Changes a file, which the summary of the prompt reports at the end. `diff` has OpenCode's shape.
    pub fn changing(self, diff: Value) -> Self {
        self.with(Item::Change(diff))
    }

    /// Another client prompts the same session: the following items answer it, and the session is not idle in between.
    pub fn typed(self, words: &str) -> Self {
        self.with(Item::Typed(words.to_owned()))
    }

    /// Decides the rest of the turn when the turn gets here. No item may follow.
    pub fn then(self, decision: Decision) -> Self {
        self.with(Item::Then(decision))
    }

    /// Ends the step with this reason. The following items belong to another message.
    pub fn step(self, reason: &str) -> Self {
        self.with(Item::Step(reason.to_owned()))
    }

    /// Ends the turn with this reason.
    pub fn finish(self, reason: &str) -> Self {
        self.with(Item::Finish(reason.to_owned()))
    }

    /// Ends the turn with an error. OpenCode sends idle before and after the final message.
    pub fn error(self, name: &str, data: &Value) -> Self {
        self.with(Item::Error(json!({"name": name, "data": data})))
    }

    /// The model stops sending: only an abort ends the turn.
    pub fn silence(self) -> Self {
        self.with(Item::Silence)
    }

    /// Waits here until the test opens the gate.
    pub fn hold(self, gate: &Gate) -> Self {
        self.with(Item::Hold(gate.clone()))
    }

    pub fn pause(self, duration: Duration) -> Self {
        self.with(Item::Pause(duration))
    }

    /// Sends this event as it is.
    pub fn raw(self, event: Value) -> Self {
        self.with(Item::Raw(event))
    }

    pub(super) fn steps(&self, prompt: &Prompt) -> Vec<Step> {
        self.write(Writer::begin(prompt))
    }

    /// The steps of a turn that continues after so many tool calls.
    pub(super) fn further_steps(&self, prompt: &Prompt, calls: usize) -> Vec<Step> {
        self.write(Writer::go_on(prompt, calls))
    }

    fn write(&self, mut writer: Writer<'_>) -> Vec<Step> {
        for item in &self.items {
            writer.item(item);
        }
        writer.end()
    }

    fn with(mut self, item: Item) -> Self {
        self.items.push(item);
        self
    }
}

/// Splits a text into that many pieces of about the same length, at character boundaries.
fn split(text: &str, pieces: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let size = characters.len().div_ceil(pieces.max(1)).max(1);
    characters.chunks(size).map(|piece| piece.iter().collect()).collect()
}
