//! What an agent does with a prompt, in no agent's own terms.

use crate::fake_opencode::Gate;

/// The steps of a reply, in order. A reply without a failure ends by itself.
#[derive(Clone, Debug, Default)]
#[must_use = "its methods return a changed copy"]
pub struct Reply {
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// A text block, in these chunks.
    Text(Vec<String>),
    Thought(String),
    /// A call of the shell. Holds while it runs, if there is a gate.
    Tool {
        command: String,
        output: String,
        hold: Option<Gate>,
    },
    /// A call of the shell that needs a permission. If it is rejected, the agent may go on or end the turn.
    GuardedTool {
        command: String,
        output: String,
    },
    /// Waits for the gate, or for a cancel.
    Hold(Gate),
    /// Output that makes no sense.
    Garbage,
    /// Ends the turn with this error.
    Fail(String),
}

impl Reply {
    pub fn new() -> Self {
        Self::default()
    }

    /// A text in one chunk.
    pub fn text(self, text: &str) -> Self {
        self.chunks([text.to_owned()])
    }

    pub fn chunks(self, chunks: impl IntoIterator<Item = String>) -> Self {
        self.with(Step::Text(chunks.into_iter().collect()))
    }

    pub fn thought(self, text: &str) -> Self {
        self.with(Step::Thought(text.to_owned()))
    }

    pub fn tool(self, command: &str, output: &str) -> Self {
        self.with(Step::Tool { command: command.to_owned(), output: output.to_owned(), hold: None })
    }

    /// A tool that runs until the gate is open.
    pub fn held_tool(self, command: &str, gate: &Gate) -> Self {
        let (command, output) = (command.to_owned(), "held".to_owned());
        self.with(Step::Tool { command, output, hold: Some(gate.clone()) })
    }

    pub fn guarded_tool(self, command: &str, output: &str) -> Self {
        self.with(Step::GuardedTool { command: command.to_owned(), output: output.to_owned() })
    }

    pub fn hold(self, gate: &Gate) -> Self {
        self.with(Step::Hold(gate.clone()))
    }

    pub fn garbage(self) -> Self {
        self.with(Step::Garbage)
    }

    pub fn fail(self, message: &str) -> Self {
        self.with(Step::Fail(message.to_owned()))
    }

    fn with(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}
