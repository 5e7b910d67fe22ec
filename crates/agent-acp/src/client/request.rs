//! The requests of an agent to the gateway, and their refusals.

use serde::Deserialize;

/// The most bytes of file content that one request of the agent may write or read.
pub(super) const MAX_CONTENT: usize = 4 * 1024 * 1024;

/// A request of the agent.
#[derive(PartialEq, Eq, Debug)]
pub struct Request {
    pub session: String,
    pub kind: Kind,
}

/// The kind of a request, with its parameters.
#[derive(PartialEq, Eq, Debug)]
pub enum Kind {
    File(FileRequest),
    Terminal(TerminalRequest),
}

/// A request for a file (`fs/*`).
#[derive(PartialEq, Eq, Debug)]
pub enum FileRequest {
    Read {
        path: String,
        /// The number of the first line to read, counted from 1. 0 means the same as 1.
        line: Option<u64>,
        /// The number of lines to read.
        limit: Option<u64>,
    },
    Write {
        path: String,
        content: String,
    },
}

/// A request for a terminal (`terminal/*`). The text in all variants but the first is the id of the terminal.
#[derive(PartialEq, Eq, Debug)]
pub enum TerminalRequest {
    Create(NewTerminal),
    Output(String),
    WaitForExit(String),
    Kill(String),
    Release(String),
}

/// The parameters of `terminal/create`.
#[derive(PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewTerminal {
    /// The program. If there are no arguments, a command line for a shell.
    pub command: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: Vec<Variable>,
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub output_byte_limit: Option<u64>,
}

/// An environment variable.
#[derive(PartialEq, Eq, Debug, Deserialize)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

/// The reason why a request is refused. The text contains no path, because callers may see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub code: i64,
    pub text: &'static str,
}

impl Refusal {
    pub const NO_SESSION: Self = Self::invalid("The session is not known.");
    pub const NO_TURN: Self =
        Self::invalid("Files are written and commands are run only while a turn of the session runs.");
    pub const TOO_MANY: Self =
        Self::failed("Too many requests are open at once. Wait for the answers of earlier ones.");

    /// The error for a request that is itself invalid.
    pub const fn invalid(text: &'static str) -> Self {
        Self { code: -32_602, text }
    }

    /// The error for a file that does not exist. One agent depends on the code of this error.
    pub const fn not_found(text: &'static str) -> Self {
        Self { code: -32_002, text }
    }

    pub const fn failed(text: &'static str) -> Self {
        Self { code: -32_603, text }
    }
}

impl Request {
    /// Parses a request. `None`: there is no such method.
    pub fn read(method: &str, params: &str) -> Option<Result<Self, Refusal>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Common {
            session_id: String,
        }
        #[derive(Deserialize)]
        struct Read {
            path: String,
            #[serde(default)]
            line: Option<u64>,
            #[serde(default)]
            limit: Option<u64>,
        }
        #[derive(Deserialize)]
        struct Write {
            path: String,
            content: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Id {
            terminal_id: String,
        }
        let of_terminal = |make: fn(String) -> TerminalRequest| {
            read(params).map(|Id { terminal_id }| Kind::Terminal(make(terminal_id)))
        };
        let kind = match method {
            "fs/read_text_file" => read(params)
                .map(|Read { path, line, limit }| Kind::File(FileRequest::Read { path, line, limit })),
            "fs/write_text_file" => read(params).and_then(|Write { path, content }| {
                if content.len() > MAX_CONTENT {
                    return Err(Refusal::invalid("The content is longer than 4 MiB, which is the limit."));
                }
                Ok(Kind::File(FileRequest::Write { path, content }))
            }),
            "terminal/create" => read(params).map(|new| Kind::Terminal(TerminalRequest::Create(new))),
            "terminal/output" => of_terminal(TerminalRequest::Output),
            "terminal/wait_for_exit" => of_terminal(TerminalRequest::WaitForExit),
            "terminal/kill" => of_terminal(TerminalRequest::Kill),
            "terminal/release" => of_terminal(TerminalRequest::Release),
            _ => return None,
        };
        Some(kind.and_then(|kind| {
            let Common { session_id } = read(params)?;
            Ok(Self { session: session_id, kind })
        }))
    }
}

fn read<'a, T: Deserialize<'a>>(params: &'a str) -> Result<T, Refusal> {
    serde_json::from_str(params).map_err(|_| Refusal::invalid("The parameters cannot be read."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_are_read_and_wrong_ones_refused() {
        let read = |method: &str, params: serde_json::Value| {
            Request::read(method, &params.to_string()).map(|read| read.map(|request| request.kind))
        };
        // Qwen Code sends the request in this form.
        let written = read(
            "fs/write_text_file",
            json!({"path": "/w/a", "content": "x", "_meta": {"bom": false}, "sessionId": "s"}),
        );
        let expected = FileRequest::Write { path: "/w/a".to_owned(), content: "x".to_owned() };
        assert_eq!(written, Some(Ok(Kind::File(expected))));
        let line =
            read("fs/read_text_file", json!({"path": "/w/a", "line": null, "limit": 9, "sessionId": "s"}));
        let expected = FileRequest::Read { path: "/w/a".to_owned(), line: None, limit: Some(9) };
        assert_eq!(line, Some(Ok(Kind::File(expected))));
        let killed = read("terminal/kill", json!({"terminalId": "t", "sessionId": "s"}));
        assert_eq!(killed, Some(Ok(Kind::Terminal(TerminalRequest::Kill("t".to_owned())))));
        assert_eq!(read("terminal/resize", json!({"sessionId": "s"})), None);
        for (method, params) in [
            ("fs/read_text_file", json!({"path": "/w/a"})),
            ("fs/read_text_file", json!({"path": 7, "sessionId": "s"})),
            ("fs/read_text_file", json!({"path": "/w/a", "line": -1, "sessionId": "s"})),
            (
                "fs/write_text_file",
                json!({"path": "/w/a", "content": "x".repeat(MAX_CONTENT + 1), "sessionId": "s"}),
            ),
            ("terminal/create", json!({"command": "ls", "args": "-l", "sessionId": "s"})),
            ("terminal/output", json!([])),
        ] {
            let code = read(method, params).unwrap().unwrap_err().code;
            assert_eq!(code, -32_602, "{method}");
        }
    }
}
