//! The chunks of a streamed chat completion, and the one object of an unstreamed one.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use crate::reply::{Delta, Usage};

/// The time of every reply. Fixed, so that replies are identical byte for byte.
pub(super) const CREATED: u64 = 1_767_225_600;

/// The last event of a stream.
pub(super) const DONE: &str = "[DONE]";

/// Writes the chunks of one reply.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    pub(super) id: String,
    pub(super) model: String,
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [Choice],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct Choice {
    index: u32,
    delta: Value,
    finish_reason: Option<String>,
}

impl Chunks {
    /// The first chunk, with the role.
    pub(super) fn opening(&self) -> Bytes {
        self.choice(json!({"role": "assistant", "content": ""}), None)
    }

    pub(super) fn delta(&self, delta: Delta) -> Bytes {
        self.choice(
            match delta {
                Delta::Text(text) => json!({ "content": text }),
                Delta::Reasoning(text) => json!({ "reasoning_content": text }),
                Delta::Call { index, id, tool } => json!({"tool_calls": [{
                    "index": index, "id": id, "type": "function", "function": {"name": tool, "arguments": ""},
                }]}),
                Delta::Arguments { index, json: piece } => {
                    json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
                }
            },
            None,
        )
    }

    pub(super) fn finish(&self, reason: String) -> Bytes {
        self.choice(json!({}), Some(reason))
    }

    /// The chunk without a choice that contains the usage.
    pub(super) fn usage(&self, usage: Usage) -> Bytes {
        self.chunk(&[], Some(usage))
    }

    /// The whole reply as one object.
    pub(super) fn whole(&self, deltas: impl Iterator<Item = Delta>, reason: &str, usage: Usage) -> Value {
        let (mut text, mut reasoning) = (String::new(), String::new());
        let mut calls: Vec<(String, String, String)> = Vec::new();
        for delta in deltas {
            match delta {
                Delta::Text(piece) => text.push_str(&piece),
                Delta::Reasoning(piece) => reasoning.push_str(&piece),
                Delta::Call { id, tool, .. } => calls.push((id, tool, String::new())),
                Delta::Arguments { index, json } => {
                    if let Some((_, _, arguments)) = calls.get_mut(index) {
                        arguments.push_str(&json);
                    }
                }
            }
        }
        let mut message = json!({"role": "assistant", "content": text});
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls
                .into_iter()
                .map(|(id, tool, arguments)| {
                    json!({"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}})
                })
                .collect();
        }
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": CREATED,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": usage,
        })
    }

    fn choice(&self, delta: Value, finish_reason: Option<String>) -> Bytes {
        self.chunk(&[Choice { index: 0, delta, finish_reason }], None)
    }

    fn chunk(&self, choices: &[Choice], usage: Option<Usage>) -> Bytes {
        let chunk = Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: CREATED,
            model: &self.model,
            choices,
            usage,
        };
        event(&serde_json::to_string(&chunk).expect("a chunk of strings and numbers has a JSON form"))
    }
}

/// One server-sent event. `data` has no line break.
pub(super) fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}
