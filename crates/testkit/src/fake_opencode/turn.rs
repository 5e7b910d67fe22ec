//! A turn that a test writes down, in the events that the real one would send.
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

/// What the agent does, in order, and how it ends. A turn without an end of its own finishes with `stop`.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
pub(super) enum Item {
    Block {
        kind: &'static str,
        chunks: Vec<String>,
        /// How long the model takes for each.
        pace: Duration,
    },
    /// A part of a reply that the provider cut: it never gets an end, and a retry follows.
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
pub struct Tool {
    pub(super) name: String,
    pub(super) input: Value,
    pub(super) title: String,
    pub(super) result: Result<String, String>,
    /// What a call that succeeds hands back beside its text, as the real one shows it.
    pub(super) attachments: Vec<Value>,
}

impl Tool {
    pub fn new(name: &str, input: Value, output: &str) -> Self {
        let (name, title) = (name.to_owned(), name.to_owned());
        Self { name, input, title, result: Ok(output.to_owned()), attachments: Vec::new() }
    }

    pub fn bash(command: &str, output: &str) -> Self {
        let mut tool =
            Self::new("bash", json!({"command": command, "description": "Scripted command"}), output);
        command.clone_into(&mut tool.title);
        tool
    }

    /// The call hands back a file too.
    #[must_use]
    pub fn handing(mut self, filename: &str, media_type: &str, bytes: &[u8]) -> Self {
        let url = format!("data:{media_type};base64,{}", STANDARD.encode(bytes));
        self.attachments.push(json!({"type": "file", "mime": media_type, "filename": filename, "url": url}));
        self
    }

    /// The call fails with this text.
    #[must_use]
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
    #[must_use]
    pub fn text(self, text: &str, chunks: usize) -> Self {
        self.paced("text", text, chunks, Duration::ZERO)
    }

    /// A block of that kind, in that many deltas, with a pause before each.
    #[must_use]
    pub fn paced(self, kind: &'static str, text: &str, chunks: usize, pace: Duration) -> Self {
        self.with(Item::Block { kind, chunks: split(text, chunks), pace })
    }

    /// Text, each delta as given.
    #[must_use]
    pub fn deltas<I: IntoIterator<Item = String>>(self, chunks: I) -> Self {
        self.with(Item::Block { kind: "text", chunks: chunks.into_iter().collect(), pace: Duration::ZERO })
    }

    #[must_use]
    pub fn reasoning(self, text: &str, chunks: usize) -> Self {
        self.paced("reasoning", text, chunks, Duration::ZERO)
    }

    /// Text of an attempt that the provider cut; the next item is the retry's.
    #[must_use]
    pub fn abandoned(self, text: &str, chunks: usize) -> Self {
        let message = "Connection reset by server".to_owned();
        self.with(Item::Abandoned { chunks: split(text, chunks), message })
    }

    #[must_use]
    pub fn tool(self, tool: Tool) -> Self {
        self.with(Item::Tool(tool))
    }

    /// A tool call that waits for a permission first.
    #[must_use]
    pub fn guarded_tool(self, tool: Tool) -> Self {
        self.with(Item::Permission { tool })
    }

    /// Asks a question that is answered in words, and waits for the answer.
    #[must_use]
    pub fn question(self, question: &str) -> Self {
        self.with(Item::Question(question.to_owned()))
    }

    /// A file is changed, and the summary of the prompt says so in the end. `diff` is one of OpenCode's diffs.
    #[must_use]
    pub fn changing(self, diff: Value) -> Self {
        self.with(Item::Change(diff))
    }

    /// Somebody else types this in the same session: what follows answers it, and the session is not idle in between.
    #[must_use]
    pub fn typed(self, words: &str) -> Self {
        self.with(Item::Typed(words.to_owned()))
    }

    /// What follows is decided when the turn is here. Nothing comes behind it.
    #[must_use]
    pub fn then(self, decision: Decision) -> Self {
        self.with(Item::Then(decision))
    }

    /// Ends the step with this reason; what follows belongs to another message.
    #[must_use]
    pub fn step(self, reason: &str) -> Self {
        self.with(Item::Step(reason.to_owned()))
    }

    /// Ends the turn with this reason.
    #[must_use]
    pub fn finish(self, reason: &str) -> Self {
        self.with(Item::Finish(reason.to_owned()))
    }

    /// Ends the turn with an error: idle comes before and after the message is final.
    #[must_use]
    pub fn error(self, name: &str, data: &Value) -> Self {
        self.with(Item::Error(json!({"name": name, "data": data})))
    }

    /// The model goes silent: only an abort ends the turn.
    #[must_use]
    pub fn silence(self) -> Self {
        self.with(Item::Silence)
    }

    /// Waits here until the test opens the gate.
    #[must_use]
    pub fn hold(self, gate: &Gate) -> Self {
        self.with(Item::Hold(gate.clone()))
    }

    #[must_use]
    pub fn pause(self, duration: Duration) -> Self {
        self.with(Item::Pause(duration))
    }

    /// Sends this event as it is.
    #[must_use]
    pub fn raw(self, event: Value) -> Self {
        self.with(Item::Raw(event))
    }

    pub(super) fn steps(&self, prompt: &Prompt) -> Vec<Step> {
        self.write(Writer::begin(prompt))
    }

    /// The steps with which a turn goes on that has made so many calls already.
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

/// Cuts a text into that many pieces of about the same length, at character boundaries.
fn split(text: &str, pieces: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let size = characters.len().div_ceil(pieces.max(1)).max(1);
    characters.chunks(size).map(|piece| piece.iter().collect()).collect()
}
