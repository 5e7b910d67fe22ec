//! The model's reply to a request. Pure: the same request and attempt always give the same reply.

mod greeting;
mod tool_calls;
mod words;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::request::{ParsedRequest, Purpose};
use crate::script::Directive;

/// The longest pause: a typing error must not keep a connection for days.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// The largest number of chunks.
const MAX_CHUNKS: u64 = 10_000_000;

/// The largest size of a chunk.
const MAX_CHUNK_SIZE: usize = 1 << 20;

/// A reply, before it is written to the connection.
#[derive(Debug)]
pub enum Reply {
    Refusal(Refusal),
    Streamed(StreamedReply),
}

/// An HTTP error instead of an answer.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// Silence before the first byte.
    pub wait: Duration,
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Value,
}

/// A streamed answer.
pub struct StreamedReply {
    /// Silence before the first byte.
    pub wait: Duration,
    /// Silence after each delta.
    pub pace: Duration,
    /// Computed one by one while they are sent: the reply may be endless.
    pub deltas: Box<dyn Iterator<Item = Delta> + Send>,
    pub end: End,
    pub usage: Usage,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delta {
    Text(String),
    Reasoning(String),
    /// A tool call begins.
    Call {
        index: usize,
        id: String,
        tool: String,
    },
    /// A piece of the arguments of a started call.
    Arguments {
        index: usize,
        json: String,
    },
}

/// How a reply ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Properly, with this reason.
    Finish(String),
    /// The body ends cleanly, but without a finish reason.
    Unfinished,
    /// The connection is closed in the middle of the body.
    Close,
    /// The connection is reset in the middle of the body.
    Reset,
    /// One last event with this data, where a delta is expected.
    Event(String),
    /// Nothing more is sent, until the client leaves.
    Silence,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CompletionDetails {
    pub reasoning_tokens: u64,
}

impl std::fmt::Debug for StreamedReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamedReply")
            .field("end", &self.end)
            .field("usage", &self.usage)
            .finish_non_exhaustive()
    }
}

/// The directives, as the greeting and the answer to an unknown directive list them.
pub const DIRECTIVES: [&str; 26] = [
    "text",
    "long",
    "reason",
    "bash",
    "read",
    "write",
    "edit",
    "glob",
    "grep",
    "webfetch",
    "question",
    "task",
    "todo",
    "tool",
    "pair",
    "plan_exit",
    "http",
    "auth",
    "overflow",
    "cut",
    "sseerror",
    "badjson",
    "stall",
    "forever",
    "finish",
    "empty",
];

/// Chooses the reply. `attempt` is 1 for the first request with this directive, 2 for the next.
pub fn choose(asked: &ParsedRequest, attempt: u64) -> Reply {
    let fixed = |text: &str, chunks: u64| {
        Reply::Streamed(StreamedReply::new(
            asked,
            &Directive::new("text"),
            words::split(text, chunks),
            End::stop(),
        ))
    };
    match asked.purpose {
        Purpose::Title => return fixed(&greeting::title(asked), 1),
        Purpose::Summary => return fixed(greeting::SUMMARY, 4),
        Purpose::Turn => {}
    }
    let Some(directive) = asked.directive() else {
        if asked.script.is_empty() {
            return Reply::Streamed(greeting::speech(asked));
        }
        return fixed(
            &format!("The script ends here, after {} tool result(s).", asked.tool_results.len()),
            3,
        );
    };
    if fails_only(directive).is_some_and(|times| attempt > times) {
        return Reply::Streamed(StreamedReply::new(
            asked,
            directive,
            words::split("This attempt went well.", 3),
            End::stop(),
        ));
    }
    match directive.name.as_str() {
        "http" | "auth" | "overflow" => Reply::Refusal(refusal(directive)),
        _ => Reply::Streamed(speech(asked, directive)),
    }
}

/// How many attempts at a directive fail. `None` for a directive that does not count its attempts.
pub fn fails_only(directive: &Directive) -> Option<u64> {
    match directive.name.as_str() {
        "overflow" => Some(directive.number("times", 1)),
        "http" | "auth" | "cut" | "sseerror" => Some(directive.number("times", u64::MAX)),
        _ => None,
    }
}

impl End {
    fn stop() -> Self {
        Self::Finish("stop".to_owned())
    }
}

impl StreamedReply {
    fn new<D>(asked: &ParsedRequest, directive: &Directive, deltas: D, end: End) -> Self
    where
        D: IntoIterator<Item = Delta>,
        D::IntoIter: Send + 'static,
    {
        let prompt_tokens = directive.number("in", 100 + asked.messages as u64);
        let completion_tokens = directive.number("out", 10);
        Self {
            wait: pause(directive, "ttft", 0),
            pace: pause(directive, "delay", 0),
            deltas: Box::new(deltas.into_iter()),
            end,
            usage: Usage {
                prompt_tokens,
                completion_tokens,
                total_tokens: u64::saturating_add(prompt_tokens, completion_tokens),
                completion_tokens_details: None,
            },
        }
    }

    #[must_use]
    fn paced(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }
}

fn speech(asked: &ParsedRequest, directive: &Directive) -> StreamedReply {
    let say = |deltas, end| StreamedReply::new(asked, directive, deltas, end);
    match directive.name.as_str() {
        "text" => say(text(directive, 5, 8), End::stop()),
        "long" => say(text(directive, 2_000, 16), End::stop()).paced(pause(directive, "delay", 2)),
        "finish" => say(text(directive, 3, 8), End::Finish(directive.text("reason", "length").to_owned())),
        "empty" => say(Box::new(std::iter::empty()), End::stop()),
        "reason" => reasoned(asked, directive),
        "forever" => {
            say(words::filler(u64::MAX, size(directive, 8)), End::stop()).paced(pause(directive, "delay", 20))
        }
        "stall" => say(words::filler(count(directive, "after", 3), 8), End::Silence),
        "cut" => {
            let end = match directive.text("mode", "fin") {
                "noend" => End::Unfinished,
                "rst" => End::Reset,
                _ => End::Close,
            };
            say(words::filler(count(directive, "after", 3), size(directive, 8)), end)
        }
        "sseerror" => {
            let error = json!({"error": {
                "message": directive.text("body", "the provider broke down in mid-stream"),
                "type": directive.text("etype", "server_error"),
                "code": directive.text("code", "server_error"),
            }});
            say(words::filler(count(directive, "after", 2), 8), End::Event(error.to_string()))
        }
        "badjson" => say(
            words::filler(count(directive, "after", 2), 8),
            End::Event(r#"{"choices": [ here the JSON breaks off"#.to_owned()),
        ),
        name => match tool_calls::calls(directive) {
            Some(calls) => calling(asked, directive, calls),
            None => say(
                words::split(
                    &format!("The demo model does not know scn:{name}. It knows: {}.", DIRECTIVES.join(", ")),
                    3,
                ),
                End::stop(),
            ),
        },
    }
}

/// The given text in `n` pieces, or `n` chunks of filler of `size` characters.
fn text(directive: &Directive, chunks: u64, chunk_size: usize) -> Box<dyn Iterator<Item = Delta> + Send> {
    let chunks = count(directive, "n", chunks);
    match directive.get("text") {
        Some(text) => words::split(text, chunks),
        None => words::filler(chunks, size(directive, chunk_size)),
    }
}

fn reasoned(asked: &ParsedRequest, directive: &Directive) -> StreamedReply {
    let thoughts = count(directive, "rn", 4);
    let thinking =
        (1..=thoughts).map(move |step| Delta::Reasoning(format!("Thought {step} of {thoughts}. ")));
    let answer = words::split(
        directive.text("text", "After some thought: the tide turns at six."),
        count(directive, "n", 3),
    );
    let mut speech = StreamedReply::new(asked, directive, thinking.chain(answer), End::stop());
    speech.usage.completion_tokens_details = Some(CompletionDetails { reasoning_tokens: thoughts * 4 });
    speech
}

/// Tool calls, after some text if the directive has `pre`.
fn calling(asked: &ParsedRequest, directive: &Directive, calls: Vec<tool_calls::Call>) -> StreamedReply {
    let pieces = count(directive, "argchunks", 4);
    let fingerprint = asked.fingerprint();
    let before = directive.get("pre").map(|text| words::split(text, 3)).into_iter().flatten();
    let calls = calls.into_iter().enumerate().flat_map(move |(index, call)| {
        let begin = Delta::Call { index, id: format!("call_{fingerprint}_{index}"), tool: call.tool };
        let arguments = words::pieces(&call.arguments, pieces)
            .into_iter()
            .map(move |json| Delta::Arguments { index, json });
        std::iter::once(begin).chain(arguments)
    });
    StreamedReply::new(asked, directive, before.chain(calls), End::Finish("tool_calls".to_owned()))
}

fn refusal(directive: &Directive) -> Refusal {
    let (status, kind, code, message): (u16, _, _, _) = match directive.name.as_str() {
        "auth" => (401, "authentication_error", None, "The API key is not accepted."),
        "overflow" => (
            400,
            "invalid_request_error",
            Some("context_length_exceeded"),
            "This model's maximum context length is 8192 tokens, and the messages have more.",
        ),
        _ => {
            // Only these numbers are HTTP errors.
            let status =
                Some(directive.number("status", 500)).filter(|s| (400..600).contains(s)).unwrap_or(500);
            let message = match status {
                401 => "The API key is not accepted.",
                429 => "Too many requests: slow down.",
                500.. => "The provider has a fault.",
                _ => "The provider does not accept this request.",
            };
            (status, "scripted_error", None, message)
        }
    };
    let header = |name: &'static str, key: &str| directive.get(key).map(|value| (name, value.to_owned()));
    Refusal {
        wait: pause(directive, "ttft", 0),
        status,
        headers: [header("retry-after", "retry_after"), header("retry-after-ms", "retry_after_ms")]
            .into_iter()
            .flatten()
            .collect(),
        body: json!({"error": {
            "message": directive.text("body", message),
            "type": kind,
            "param": null,
            "code": code.map_or_else(|| status.to_string(), str::to_owned),
        }}),
    }
}

fn pause(directive: &Directive, key: &str, otherwise: u64) -> Duration {
    directive.millis(key, otherwise).min(LONGEST_PAUSE)
}

fn count(directive: &Directive, key: &str, otherwise: u64) -> u64 {
    directive.number(key, otherwise).min(MAX_CHUNKS)
}

fn size(directive: &Directive, otherwise: usize) -> usize {
    directive.number("size", otherwise).clamp(1, MAX_CHUNK_SIZE)
}

#[cfg(test)]
mod tests;
