//! The history that an agent repeats when it loads a session.
//!
//! The gateway has its own log, so the history only shows how the last turn ended. An agent may continue a turn that was
//! interrupted, even before its response to the load request.

use std::collections::BTreeMap;

use crate::schema::Update;

/// How many bytes of the last turn's text are kept. The rest is dropped.
const MAX_TEXT: usize = 256 * 1024;

/// How many tool calls of the last turn are kept.
const MAX_CALLS: usize = 512;

/// The updates of a session that is being loaded, reduced to its last turn.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replay {
    /// How many updates have arrived.
    pub updates: usize,
    /// How many prompts the history contains.
    pub prompts: usize,
    pub last: LastTurn,
    /// Whether the last update belongs to a prompt, so that the next chunk of a user message continues this prompt.
    in_prompt: bool,
    prompt_message: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LastTurn {
    pub prompt: String,
    /// The agent's text.
    pub reply: String,
    /// The last status of each tool call.
    pub calls: BTreeMap<String, String>,
}

impl LastTurn {
    /// Whether the agent did more for this prompt than the gateway received. `heard`: the text that the gateway had received before
    /// the turn broke off. An agent may drop white space at the end of a text that it keeps.
    pub fn went_on(&self, heard: &str) -> bool {
        self.reply.trim_end().strip_prefix(heard.trim_end()).is_some_and(|more| !more.is_empty())
    }
}

impl Replay {
    pub fn update(&mut self, update: &Update) {
        self.updates += 1;
        match update {
            Update::UserMessage(chunk) => {
                let continues = self.in_prompt && self.prompt_message == chunk.message_id;
                if !continues {
                    self.prompts += 1;
                    self.last = LastTurn::default();
                }
                self.in_prompt = true;
                self.prompt_message.clone_from(&chunk.message_id);
                push(&mut self.last.prompt, &chunk.content.text);
            }
            Update::AgentMessage(chunk) => {
                self.in_prompt = false;
                push(&mut self.last.reply, &chunk.content.text);
            }
            Update::ToolCall(call) | Update::ToolCallUpdate(call) => {
                self.in_prompt = false;
                let calls = &mut self.last.calls;
                if calls.len() < MAX_CALLS || calls.contains_key(&call.id) {
                    let status = calls.entry(call.id.clone()).or_insert_with(|| "pending".to_owned());
                    if let Some(next) = &call.status {
                        status.clone_from(next);
                    }
                }
            }
            Update::AgentThought(_) | Update::Plan(_) => self.in_prompt = false,
            Update::Commands(_)
            | Update::Mode(_)
            | Update::ConfigOptions(_)
            | Update::Title(_)
            | Update::Usage(_)
            | Update::Unknown(_) => {}
        }
    }
}

fn push(text: &mut String, more: &str) {
    let room = MAX_TEXT - text.len();
    text.push_str(&more[..more.floor_char_boundary(room)]);
}
