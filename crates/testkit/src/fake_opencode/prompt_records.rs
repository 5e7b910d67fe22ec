//! What became of each prompt. Tests compare the reports of a gateway with it.

use std::collections::HashMap;

use serde_json::Value;

use super::world::text;

/// How a turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnEnd {
    /// The turn has not ended.
    Runs,
    Ended,
    Aborted,
    /// OpenCode was killed.
    Killed,
}

/// A prompt that the fake received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PromptRecord {
    pub session: String,
    /// The id of its message.
    pub message: String,
    /// Its first text.
    pub words: String,
    /// How often it was received.
    pub times: usize,
    /// All text that was streamed for it, including reasoning, in order.
    pub text: String,
    /// The last message of the reply is stored and complete.
    pub is_complete: bool,
    pub turn_end: TurnEnd,
}

#[derive(Debug, Default)]
pub(super) struct PromptRecords {
    prompts: Vec<PromptRecord>,
    /// The prompt of each reply.
    parents: HashMap<String, String>,
}

impl PromptRecords {
    pub(super) fn prompted(&mut self, session: &str, message: &str, parts: &[Value]) {
        if let Some(known) = self.find(message) {
            known.times += 1;
            return;
        }
        let words = parts.iter().find_map(|part| part["text"].as_str()).unwrap_or_default();
        self.prompts.push(PromptRecord {
            session: session.to_owned(),
            message: message.to_owned(),
            words: words.to_owned(),
            times: 1,
            text: String::new(),
            is_complete: false,
            turn_end: TurnEnd::Runs,
        });
    }

    /// Takes in an event that is sent now.
    pub(super) fn note(&mut self, event: &Value) {
        let properties = &event["properties"];
        match event["type"].as_str().unwrap_or_default() {
            "message.updated" if properties["info"]["role"] == "assistant" => {
                let info = &properties["info"];
                let parent = text(info, "parentID").to_owned();
                if let Some(prompt) = self.find(&parent) {
                    let is_last = info["finish"].is_string() && info["finish"] != "tool-calls";
                    prompt.is_complete = is_last && !info["time"]["completed"].is_null();
                }
                self.parents.insert(text(info, "id").to_owned(), parent);
            }
            "message.part.delta" => {
                let parent = self.parents.get(text(properties, "messageID")).cloned().unwrap_or_default();
                if let Some(prompt) = self.find(&parent) {
                    prompt.text.push_str(text(properties, "delta"));
                }
            }
            _ => {}
        }
    }

    pub(super) fn ended(&mut self, message: &str, turn_end: TurnEnd) {
        if let Some(prompt) = self.find(message) {
            prompt.turn_end = turn_end;
        }
    }

    pub(super) fn prompts(&self) -> &[PromptRecord] {
        &self.prompts
    }

    fn find(&mut self, message: &str) -> Option<&mut PromptRecord> {
        // The newest prompts are looked up most.
        self.prompts.iter_mut().rev().find(|prompt| prompt.message == message)
    }
}
