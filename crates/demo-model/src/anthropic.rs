//! Reads a request of Anthropic's messages API as a chat request, so that one script serves agents of both APIs.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::request::ChatRequest;

/// The fields of `POST /v1/messages` that the demo model reads.
#[derive(Debug, Deserialize)]
pub(crate) struct MessagesRequest {
    #[serde(default)]
    model: String,
    #[serde(default)]
    stream: bool,
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Tool>,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Debug, Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

#[derive(Debug, Deserialize)]
struct Tool {
    #[serde(default)]
    name: String,
}

/// Text that the agent adds to the user's own words begins so.
const REMINDER: &str = "<system-reminder>";

impl MessagesRequest {
    /// The same conversation as a chat request. A request without tools is for a title or another chore: no script answers it.
    pub(crate) fn into_chat(self) -> serde_json::Result<ChatRequest> {
        let is_chore = self.tools.is_empty();
        let messages: Vec<Value> =
            self.messages.iter().filter_map(|message| message.chat(is_chore)).collect();
        let tools: Vec<Value> =
            self.tools.iter().map(|tool| json!({"function": {"name": tool.name}})).collect();
        let request =
            json!({"model": self.model, "stream": self.stream, "messages": messages, "tools": tools});
        serde_json::from_value(request)
    }
}

impl Message {
    fn chat(&self, is_chore: bool) -> Option<Value> {
        let blocks = match &self.content {
            Content::Text(text) => return Some(json!({"role": self.role, "content": said(text, is_chore)})),
            Content::Blocks(blocks) => blocks,
        };
        let has = |kind: &str| blocks.iter().any(|block| block.kind == kind);
        let texts: Vec<&str> = blocks
            .iter()
            .filter(|block| block.kind == "text" && !block.text.trim_start().starts_with(REMINDER))
            .map(|block| block.text.as_str())
            .collect();
        if has("tool_result") {
            return Some(json!({"role": "tool", "content": ""}));
        }
        // The prompt of a failed turn comes together with the next one: the last one counts.
        let scripted = texts.iter().rfind(|text| text.contains("scn:"));
        let text = scripted.map_or_else(|| texts.join("\n"), |text| (*text).to_owned());
        if self.role == "user" && text.is_empty() {
            return None;
        }
        let mut message = json!({"role": self.role, "content": said(&text, is_chore)});
        if has("tool_use") {
            message["tool_calls"] = json!([{}]);
        }
        Some(message)
    }
}

fn said(text: &str, is_chore: bool) -> String {
    if is_chore { text.replace("scn:", "") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{ParsedRequest, Session};

    fn parsed(request: &Value) -> ParsedRequest {
        let request: MessagesRequest = serde_json::from_value(request.clone()).unwrap();
        ParsedRequest::new(&request.into_chat().unwrap(), Session::default())
    }

    #[test]
    fn a_conversation_is_read_as_a_chat() {
        let mut request = json!({
            "model": "m",
            "stream": true,
            "tools": [{"name": "Bash"}],
            "messages": [
                {"role": "user", "content": "before"},
                {"role": "assistant", "content": [{"type": "text", "text": "yes"}]},
                {"role": "user", "content": [
                    {"type": "text", "text": "<system-reminder>scn:empty</system-reminder>"},
                    {"type": "text", "text": "scn:tool name=Bash scn:text n=1"},
                ]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]},
            ],
        });
        let turn = parsed(&request);
        assert_eq!((turn.step, turn.user_messages, turn.tool_results.len()), (1, 2, 1));
        assert_eq!(turn.directive().unwrap().name, "text");
        assert_eq!((turn.tools, turn.model.as_str(), turn.stream), (vec!["Bash".to_owned()], "m", true));
        request["tools"] = json!([]);
        assert!(parsed(&request).script.is_empty(), "a chore runs no script");
    }
}
