//! Reads a chat-completions request: the turn that it belongs to, and the directives in it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::script::{self, Directive};

/// The fields of `POST /v1/chat/completions` that the demo model reads.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub stream: bool,
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Tool>,
}

/// The session that OpenCode names in the headers.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub id: String,
    pub parent: Option<String>,
}

/// Why the request was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// A step of a turn: the script answers it.
    Turn,
    /// OpenCode wants a name for the session. No directive runs.
    Title,
    /// OpenCode wants a summary of the conversation (compaction). No directive runs.
    Summary,
}

/// A parsed request.
#[derive(Clone, Debug)]
pub struct ParsedRequest {
    pub purpose: Purpose,
    /// The script of the last user message.
    pub script: Vec<Directive>,
    /// How many replies of this turn had tool calls: the position in the script.
    pub step: usize,
    pub prompt: String,
    /// The user's first message ever, from which a title is made.
    pub opening: String,
    pub system: String,
    pub tool_results: Vec<String>,
    /// The pictures and other files of the last user message.
    pub media: Vec<Media>,
    pub tools: Vec<String>,
    pub messages: usize,
    pub user_messages: usize,
    pub session: Session,
    pub model: String,
    pub stream: bool,
}

/// A file that came with a message, as a data URL.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Media {
    /// The media type in the URL.
    pub media_type: String,
    /// [`digest`] of the content in base64, as received.
    pub digest: String,
}

/// OpenCode sends pictures from a tool as a user message that starts with this text. It is not a prompt.
const FROM_TOOLS: &str = "Attached media from tool result:";

impl ParsedRequest {
    pub fn new(request: &ChatRequest, session: Session) -> Self {
        let messages = &request.messages;
        let system = join(messages.iter().filter(|message| message.role == "system"));
        let is_prompt = |message: &Message| message.role == "user" && !message.text().starts_with(FROM_TOOLS);
        let last_user = messages.iter().rposition(is_prompt);
        let prompt = last_user.map_or_else(String::new, |at| messages[at].text());
        let tail = last_user.map_or(&messages[..0], |at| &messages[at + 1..]);
        let users = || messages.iter().filter(|message| is_prompt(message));
        Self {
            purpose: purpose(&system, &prompt),
            script: script::parse(&prompt),
            step: tail.iter().filter(|message| message.role == "assistant" && message.calls_tools()).count(),
            opening: users().map(Message::text).find(|text| !asks_for_title(text)).unwrap_or_default(),
            tool_results: tail.iter().filter(|m| m.role == "tool").map(Message::text).collect(),
            media: last_user.map_or_else(Vec::new, |at| messages[at].media()),
            tools: request.tools.iter().map(|tool| tool.function.name.clone()).collect(),
            messages: messages.len(),
            user_messages: users().count(),
            model: if request.model.is_empty() { "demo".to_owned() } else { request.model.clone() },
            stream: request.stream,
            prompt,
            system,
            session,
        }
    }

    /// The directive for this step, if the script has one.
    pub fn directive(&self) -> Option<&Directive> {
        match self.purpose {
            Purpose::Turn => self.script.get(self.step),
            Purpose::Title | Purpose::Summary => None,
        }
    }

    /// A short hash of this point of this conversation. The same request always has the same one.
    pub fn fingerprint(&self) -> String {
        let text = format!("{}\n{}\n{}", self.session.id, self.messages, self.prompt);
        digest(&text)
    }
}

/// A short hash of a text.
pub fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let head = hash.first_chunk().copied().expect("SHA-256 has 32 bytes");
    format!("{:016x}", u64::from_be_bytes(head))
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Option<Vec<Box<RawValue>>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
    /// Content that the demo model cannot read. It counts as empty.
    Other(serde::de::IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct ContentPart {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    image_url: Option<ImageUrl>,
}

#[derive(Debug, Deserialize)]
struct ImageUrl {
    #[serde(default)]
    url: String,
}

#[derive(Debug, Deserialize)]
struct Tool {
    #[serde(default)]
    function: Function,
}

#[derive(Debug, Default, Deserialize)]
struct Function {
    #[serde(default)]
    name: String,
}

impl Message {
    fn text(&self) -> String {
        match &self.content {
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                parts.iter().filter_map(|part| part.text.as_deref()).collect::<Vec<_>>().join("\n")
            }
            Some(Content::Other(_)) | None => String::new(),
        }
    }

    fn media(&self) -> Vec<Media> {
        let Some(Content::Parts(parts)) = &self.content else { return Vec::new() };
        parts.iter().filter_map(|part| media(&part.image_url.as_ref()?.url)).collect()
    }

    fn calls_tools(&self) -> bool {
        self.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
    }
}

/// The content of a data URL in base64; `None` for any other URL.
fn media(url: &str) -> Option<Media> {
    let (media_type, content) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some(Media { media_type: media_type.to_owned(), digest: digest(content) })
}

fn join<'a>(messages: impl Iterator<Item = &'a Message>) -> String {
    messages.map(Message::text).collect::<Vec<_>>().join("\n")
}

/// OpenCode's requests for titles and summaries differ from a turn only by their fixed prompts.
fn purpose(system: &str, prompt: &str) -> Purpose {
    let head = system.chars().take(400).collect::<String>().to_lowercase();
    if head.contains("title generator") || asks_for_title(prompt) {
        Purpose::Title
    } else if head.contains("context summarization") {
        Purpose::Summary
    } else {
        Purpose::Turn
    }
}

fn asks_for_title(prompt: &str) -> bool {
    prompt.to_lowercase().contains("generate a title for this conversation")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ask(messages: &Value) -> ParsedRequest {
        let request = serde_json::from_value(json!({"model": "m", "messages": messages})).unwrap();
        ParsedRequest::new(&request, Session::default())
    }

    #[test]
    fn the_position_in_the_script_is_the_number_of_tool_rounds_since_the_last_prompt() {
        let call = json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]});
        let result = json!({"role": "tool", "content": "out", "tool_call_id": "c"});
        let prompt = json!({"role": "user", "content": "scn:bash scn:read scn:text"});
        let check = |messages: Value, step: usize, directive: Option<&str>, results: usize| {
            let asked = ask(&messages);
            assert_eq!(asked.step, step, "{messages}");
            assert_eq!(asked.directive().map(|d| d.name.as_str()), directive, "{messages}");
            assert_eq!(asked.tool_results.len(), results, "{messages}");
        };
        check(json!([]), 0, None, 0);
        check(json!([prompt]), 0, Some("bash"), 0);
        check(json!([prompt, call, result]), 1, Some("read"), 1);
        check(json!([prompt, call, result, call, result]), 2, Some("text"), 2);
        check(json!([prompt, call, result, call, result, call, result]), 3, None, 3);
        // Rounds of an earlier turn do not count.
        check(
            json!([prompt, call, result, {"role": "assistant", "content": "x"}, prompt]),
            0,
            Some("bash"),
            0,
        );
        // Nor does a reply without calls.
        check(json!([prompt, {"role": "assistant", "content": "x", "tool_calls": []}]), 0, Some("bash"), 0);
    }

    #[test]
    fn content_is_text_or_parts_or_nothing() {
        let check = |content: Value, expected: &str| {
            assert_eq!(ask(&json!([{"role": "user", "content": content}])).prompt, expected);
        };
        check(json!("hello"), "hello");
        check(
            json!([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]),
            "a\nb",
        );
        check(json!(null), "");
        check(json!({"odd": 1}), "");
    }

    #[test]
    fn pictures_are_logged_and_pictures_from_a_tool_are_no_prompt() {
        let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}});
        let remote = json!({"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}});
        let prompt = json!([{"type": "text", "text": "scn:read scn:text"}, picture, remote]);
        let prompt = json!({"role": "user", "content": prompt});
        let seen = [Media { media_type: "image/png".to_owned(), digest: digest("AAEC") }];
        assert_eq!(ask(&json!([prompt])).media, seen);

        let call = json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]});
        let result = json!({"role": "tool", "content": "Image read successfully", "tool_call_id": "c"});
        let brought = json!({"role": "user", "content": [{"type": "text", "text": FROM_TOOLS}, picture]});
        let asked = ask(&json!([prompt, call, result, brought]));
        assert_eq!(asked.directive().map(|directive| directive.name.as_str()), Some("text"));
        assert_eq!((asked.prompt.as_str(), asked.user_messages), ("scn:read scn:text", 1));
    }

    #[test]
    fn requests_for_titles_and_summaries_run_no_directive() {
        let check = |system: &str, prompt: &str, expected: Purpose| {
            let asked = ask(&json!([
                {"role": "system", "content": system},
                {"role": "user", "content": "scn:http status=500"},
                {"role": "user", "content": prompt},
            ]));
            assert_eq!(asked.purpose, expected, "{system:?} {prompt:?}");
            if expected != Purpose::Turn {
                assert_eq!(asked.directive(), None);
            }
        };
        check("You are a coding agent.", "scn:text", Purpose::Turn);
        check("You are a title generator. You output ONLY a title.", "scn:text", Purpose::Title);
        check("", "Generate a title for this conversation:\n", Purpose::Title);
        check("You are a context summarization agent.", "scn:text", Purpose::Summary);
        check("You are a coding agent. Summarize what you did.", "scn:text", Purpose::Turn);
    }

    #[test]
    fn a_title_is_made_from_the_first_message_of_the_user() {
        let asked = ask(&json!([
            {"role": "user", "content": "Generate a title for this conversation:\n"},
            {"role": "user", "content": "mend the net"},
        ]));
        assert_eq!(asked.opening, "mend the net");
    }

    #[test]
    fn the_fingerprint_depends_on_session_position_and_prompt() {
        let first = ask(&json!([{"role": "user", "content": "a"}]));
        assert_eq!(first.fingerprint(), ask(&json!([{"role": "user", "content": "a"}])).fingerprint());
        assert_ne!(first.fingerprint(), ask(&json!([{"role": "user", "content": "b"}])).fingerprint());
        let other = ParsedRequest { session: Session { id: "s".to_owned(), parent: None }, ..first.clone() };
        assert_ne!(first.fingerprint(), other.fingerprint());
    }
}
