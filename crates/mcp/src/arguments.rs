//! Reads the arguments of a tool call. An error tells the model which argument is wrong and what the tool takes.

use std::time::Duration;

use longshore_peers::{AnswerRequest, CallHandle, ToolError, one_line};
use serde_json::{Map, Value};

use crate::catalog::ToolName;

/// How long a tool call waits if its arguments name no wait. It is shorter than 60 s, the usual time limit of MCP clients.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(45);

/// The longest wait of one tool call. A client that wants to wait longer calls again.
pub(crate) const MAX_WAIT: Duration = Duration::from_mins(10);

/// The longest message to an agent, in bytes. A longer one is refused.
pub(crate) const MAX_MESSAGE: usize = 256 * 1024;

/// The longest answer to an ask, in bytes. A longer one is refused.
pub(crate) const MAX_ANSWER: usize = 64 * 1024;

/// The longest name or URL of an agent, in bytes. A longer one is refused.
pub(crate) const MAX_PEER: usize = 2048;

/// The longest handle of a call and the longest id of an ask, in bytes. A longer one is refused.
pub(crate) const MAX_HANDLE: usize = 256;

/// A tool with its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ToolCall {
    Discover,
    Call { peer: String, message: String, wait: Duration },
    Continue { call: CallHandle, message: String, wait: Duration },
    Answer { call: CallHandle, request: AnswerRequest },
    Status { call: CallHandle, wait: Duration },
    Cancel { call: CallHandle },
}

impl ToolCall {
    pub(crate) fn parse(tool: ToolName, arguments: &Map<String, Value>) -> Result<Self, ToolError> {
        let read = Arguments { tool, given: arguments };
        read.refuse_unknown()?;
        Ok(match tool {
            ToolName::Discover => Self::Discover,
            ToolName::Call => Self::Call {
                peer: read.text("agent", MAX_PEER)?,
                message: read.text("message", MAX_MESSAGE)?,
                wait: read.wait()?,
            },
            ToolName::Continue => Self::Continue {
                call: read.call()?,
                message: read.text("message", MAX_MESSAGE)?,
                wait: read.wait()?,
            },
            ToolName::Answer => Self::Answer {
                call: read.call()?,
                request: AnswerRequest {
                    ask: read.optional_text("ask", MAX_HANDLE)?,
                    text: read.text("answer", MAX_ANSWER)?,
                    wait: read.wait()?,
                },
            },
            ToolName::Status => Self::Status { call: read.call()?, wait: read.wait()? },
            ToolName::Cancel => Self::Cancel { call: read.call()? },
        })
    }
}

struct Arguments<'a> {
    tool: ToolName,
    given: &'a Map<String, Value>,
}

impl Arguments<'_> {
    fn refuse_unknown(&self) -> Result<(), ToolError> {
        let known = self.tool.arguments();
        let is_known = |name: &str| known.iter().any(|(own, ..)| *own == name);
        match self.given.keys().find(|name| !is_known(name)) {
            Some(unknown) => Err(self.error(&format!("there is no argument `{}`", one_line(unknown)))),
            None => Ok(()),
        }
    }

    fn text(&self, name: &str, most: usize) -> Result<String, ToolError> {
        match self.given.get(name) {
            Some(Value::String(text)) if text.trim().is_empty() => {
                Err(self.error(&format!("`{name}` is empty")))
            }
            Some(Value::String(text)) if text.len() > most => {
                Err(self.error(&format!("`{name}` has {} bytes, and at most {most} are allowed", text.len())))
            }
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(self.error(&format!("`{name}` must be a text"))),
            None => Err(self.error(&format!("`{name}` is missing"))),
        }
    }

    fn optional_text(&self, name: &str, most: usize) -> Result<Option<String>, ToolError> {
        match self.given.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.text(name, most).map(Some),
        }
    }

    fn call(&self) -> Result<CallHandle, ToolError> {
        self.text("call", MAX_HANDLE).map(CallHandle)
    }

    fn wait(&self) -> Result<Duration, ToolError> {
        let most = MAX_WAIT.as_secs();
        let seconds = match self.given.get("wait_seconds") {
            None | Some(Value::Null) => return Ok(DEFAULT_WAIT),
            Some(number) => number.as_u64().filter(|seconds| *seconds <= most),
        };
        let seconds = seconds
            .ok_or_else(|| self.error(&format!("`wait_seconds` must be a whole number of at most {most}")))?;
        Ok(Duration::from_secs(seconds))
    }

    fn error(&self, problem: &str) -> ToolError {
        let names: Vec<String> = self
            .tool
            .arguments()
            .into_iter()
            .map(|(name, required, _)| if required { name.to_owned() } else { format!("{name} (optional)") })
            .collect();
        let takes = if names.is_empty() { "no arguments".to_owned() } else { names.join(", ") };
        ToolError(format!("The call was not made: {problem}. {} takes {takes}.", self.tool.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(tool: &str, arguments: Value) -> Result<ToolCall, String> {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        ToolCall::parse(ToolName::parse(tool).unwrap(), &arguments).map_err(|error| error.0)
    }

    #[test]
    fn arguments_that_fit_the_schema_are_read() {
        let call = parse("a2a_call", json!({"agent": "b", "message": "hi"})).unwrap();
        assert_eq!(
            call,
            ToolCall::Call { peer: "b".to_owned(), message: "hi".to_owned(), wait: DEFAULT_WAIT }
        );
        let status = parse("a2a_status", json!({"call": "c1", "wait_seconds": 0})).unwrap();
        assert_eq!(status, ToolCall::Status { call: CallHandle("c1".to_owned()), wait: Duration::ZERO });
        assert_eq!(parse("a2a_discover", json!({})).unwrap(), ToolCall::Discover);
    }

    #[test]
    fn wrong_arguments_are_refused_with_words_for_the_model() {
        let long = "x".repeat(MAX_MESSAGE + 1);
        let cases = [
            (
                "a2a_call",
                json!({}),
                "`agent` is missing. a2a_call takes agent, message, wait_seconds (optional).",
            ),
            ("a2a_call", json!({"agent": 7, "message": "x"}), "`agent` must be a text"),
            ("a2a_call", json!({"agent": "b", "message": " "}), "`message` is empty"),
            (
                "a2a_call",
                json!({"agent": "b", "message": long}),
                "`message` has 262145 bytes, and at most 262144",
            ),
            ("a2a_call", json!({"agent": "b", "message": "x", "url\nx": 1}), "there is no argument `url x`"),
            ("a2a_status", json!({"call": ["c"]}), "`call` must be a text"),
            ("a2a_status", json!({"call": "c", "wait_seconds": -1}), "`wait_seconds` must be a whole number"),
            (
                "a2a_status",
                json!({"call": "c", "wait_seconds": 1e9}),
                "`wait_seconds` must be a whole number",
            ),
            ("a2a_cancel", json!({"call": "c", "wait_seconds": 1}), "there is no argument `wait_seconds`"),
            ("a2a_discover", json!({"all": true}), "a2a_discover takes no arguments."),
        ];
        for (tool, arguments, expected) in cases {
            let error = parse(tool, arguments.clone()).unwrap_err();
            assert!(error.contains(expected), "{tool} {arguments}: {error}");
        }
    }
}
