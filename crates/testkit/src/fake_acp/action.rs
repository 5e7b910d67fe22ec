//! What the fake agent can do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One step of a turn. A turn that is not ended by a step ends with the stop reason `end_turn`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// One chunk of the message.
    Text(String),
    /// So many chunks of so many letters.
    Flood { chunks: usize, letters: usize },
    /// One chunk of a thought.
    Thought(String),
    /// Announces a tool call, and says that it runs.
    BeginTool { call: String, command: String },
    /// Ends a tool call.
    EndTool { call: String, output: String, is_failed: bool },
    /// Asks for a permission, and waits for the answer, also after a cancel, as two real agents do. If the answer is no, the call
    /// fails and the next `skip` actions are left out. If it is `cancelled`, the turn ends.
    Ask { call: String, command: String, skip: usize },
    /// Waits for so many milliseconds, or until a cancel.
    Pause(u64),
    /// Sends this update as it is.
    Update(Value),
    /// Waits until the test opens the gate with this number, or until a cancel.
    Hold(u64),
    /// Waits until this file exists, or until a cancel. For scripts in a prompt.
    HoldForFile(String),
    /// Prints this line as it is.
    Line(String),
    /// Prints a line of so many bytes that is no JSON.
    LongLine(usize),
    /// Takes no notice of cancels from here on.
    IgnoreCancel,
    /// Answers the prompt with this stop reason, and goes on with the script: a second answer breaks the rules.
    Answer(String),
    /// Ends the turn with this stop reason.
    Stop(String),
    /// Ends the turn with this error.
    Fail { code: i64, message: String },
    /// Starts a child process that outlives the agent unless its group is killed.
    Fork,
    /// The process kills itself.
    Die,
    /// The process ends by itself.
    Exit(i32),
    /// The process lives on, and never says a word again.
    CloseOutput,
}

/// What the agent says about itself, and how it behaves outside of turns.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each one is an option of its own")]
pub struct Options {
    /// Offers `session/load`, which repeats the history.
    pub load: bool,
    /// Offers `session/resume`, which does not.
    pub resume: bool,
    /// Offers `session/close`.
    pub close: bool,
    /// Offers `session/list`, `session/fork` and `session/delete`.
    pub keeps: bool,
    /// Advertises `session/resume`, which it does not have, as one real agent does.
    pub false_resume: bool,
    /// Refuses new sessions until `authenticate` names this method.
    pub auth: Option<String>,
    pub modes: Vec<String>,
    pub models: Vec<String>,
    /// Repeats each prompt as a user message, as one real agent does.
    pub echoes_prompts: bool,
    /// Sends an update before the answer that names the session, as one real agent does.
    pub early_updates: bool,
    /// The first process that gets a request with this method dies of it.
    pub dies_once_at: Option<String>,
    /// Lives on when its input is closed.
    pub ignores_end_of_input: bool,
}
