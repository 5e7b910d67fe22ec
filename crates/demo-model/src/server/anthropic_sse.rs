//! The events of a streamed reply in Anthropic's messages API, and the one object of an unstreamed one.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::reply::{Delta, Usage};

/// Writes the events of one reply: a list of blocks, each of which begins, grows and ends.
#[derive(Clone, Debug)]
pub(super) struct Events {
    pub(super) id: String,
    pub(super) model: String,
    /// The kind of the block that is open.
    open: Option<Block>,
    blocks: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    Text,
    Thinking,
    Call,
}

impl Events {
    pub(super) fn new(id: String, model: String) -> Self {
        Self { id, model, open: None, blocks: 0 }
    }

    pub(super) fn opening(&self) -> Bytes {
        event("message_start", json!({"message": self.message(&json!([]), None, 0)}))
    }

    pub(super) fn delta(&mut self, delta: Delta) -> Bytes {
        match delta {
            Delta::Text(text) => self.piece(Block::Text, &json!({"type": "text_delta", "text": text})),
            Delta::Reasoning(text) => {
                self.piece(Block::Thinking, &json!({"type": "thinking_delta", "thinking": text}))
            }
            Delta::Call { id, tool, .. } => {
                let block = json!({"type": "tool_use", "id": id, "name": tool, "input": {}});
                self.begin(Block::Call, &block)
            }
            // Calls come one after the other, so these are the arguments of the open one.
            Delta::Arguments { json: piece, .. } => {
                self.piece(Block::Call, &json!({"type": "input_json_delta", "partial_json": piece}))
            }
        }
    }

    /// The end of the reply, with the reason of a chat completion.
    pub(super) fn finish(&mut self, reason: &str, usage: Usage) -> Bytes {
        let mut out = self.end_block();
        let delta = json!({"stop_reason": stop_reason(reason), "stop_sequence": null});
        let usage = json!({"output_tokens": usage.completion_tokens});
        out.extend_from_slice(&event("message_delta", json!({"delta": delta, "usage": usage})));
        out.extend_from_slice(&event("message_stop", json!({})));
        out.into()
    }

    /// The whole reply as one object. Tool calls are left out: agents stream the requests that may lead to one.
    pub(super) fn whole(&self, deltas: impl Iterator<Item = Delta>, reason: &str, usage: Usage) -> Value {
        let text: String = deltas
            .filter_map(|delta| match delta {
                Delta::Text(text) => Some(text),
                _ => None,
            })
            .collect();
        let content = json!([{"type": "text", "text": text}]);
        self.message(&content, Some(stop_reason(reason)), usage.completion_tokens)
    }

    fn message(&self, content: &Value, reason: Option<&str>, output_tokens: u64) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": null,
            "usage": {
                "input_tokens": 100,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": output_tokens,
            },
        })
    }

    /// A piece of a block, which it begins if another one is open.
    fn piece(&mut self, kind: Block, delta: &Value) -> Bytes {
        let mut out = Vec::new();
        if self.open != Some(kind) {
            let block = match kind {
                Block::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
                Block::Text | Block::Call => json!({"type": "text", "text": ""}),
            };
            out.extend_from_slice(&self.begin(kind, &block));
        }
        let index = self.blocks - 1;
        out.extend_from_slice(&event("content_block_delta", json!({"index": index, "delta": delta})));
        out.into()
    }

    fn begin(&mut self, kind: Block, block: &Value) -> Bytes {
        let mut out = self.end_block();
        let start = json!({"index": self.blocks, "content_block": block});
        out.extend_from_slice(&event("content_block_start", start));
        (self.open, self.blocks) = (Some(kind), self.blocks + 1);
        out.into()
    }

    fn end_block(&mut self) -> Vec<u8> {
        match self.open.take() {
            Some(_) => event("content_block_stop", json!({"index": self.blocks - 1})).into(),
            None => Vec::new(),
        }
    }
}

fn stop_reason(reason: &str) -> &'static str {
    match reason {
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        _ => "end_turn",
    }
}

/// One server-sent event. Its type is in its name and in its data.
fn event(kind: &str, mut data: Value) -> Bytes {
    data["type"] = kind.into();
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_begins_and_ends_once() {
        let mut events = Events::new("msg_1".to_owned(), "demo".to_owned());
        let mut out = vec![events.opening()];
        out.extend(
            [
                Delta::Reasoning("Hm.".to_owned()),
                Delta::Text("One ".to_owned()),
                Delta::Text("two.".to_owned()),
                Delta::Call { index: 0, id: "call_1".to_owned(), tool: "Bash".to_owned() },
                Delta::Arguments { index: 0, json: "{}".to_owned() },
                Delta::Call { index: 1, id: "call_2".to_owned(), tool: "Bash".to_owned() },
            ]
            .map(|delta| events.delta(delta)),
        );
        let usage = Usage {
            prompt_tokens: 1,
            completion_tokens: 2,
            total_tokens: 3,
            completion_tokens_details: None,
        };
        out.push(events.finish("tool_calls", usage));
        let text = String::from_utf8(out.concat()).unwrap();
        let facts: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| {
                let data: Value = serde_json::from_str(data).unwrap();
                let kind = data["type"].as_str().unwrap();
                let block =
                    data.pointer("/content_block/type").or_else(|| data.pointer("/delta/stop_reason"));
                format!("{kind} {} {}", data["index"], block.and_then(Value::as_str).unwrap_or_default())
            })
            .collect();
        let expected = [
            "message_start null ",
            "content_block_start 0 thinking",
            "content_block_delta 0 ",
            "content_block_stop 0 ",
            "content_block_start 1 text",
            "content_block_delta 1 ",
            "content_block_delta 1 ",
            "content_block_stop 1 ",
            "content_block_start 2 tool_use",
            "content_block_delta 2 ",
            "content_block_stop 2 ",
            "content_block_start 3 tool_use",
            "content_block_stop 3 ",
            "message_delta null tool_use",
            "message_stop null ",
        ];
        assert_eq!(facts, expected);
    }
}
