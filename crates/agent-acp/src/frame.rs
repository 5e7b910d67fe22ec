//! JSON-RPC 2.0 messages, one JSON object per line.
//!
//! The envelope is parsed separately, so that an unreadable content does not affect whether a line is a request, a notification or
//! a response.

mod head;

use std::borrow::Cow;
use std::io;

use bytes::BytesMut;
use longshore_model::Json;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _};

pub use self::head::Head;

/// The default limit for a line. An agent that edits a file may repeat the whole file several times in one line.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// How many bytes of an overlong line are kept: enough to recognize which message it was.
const HEAD_BYTES: usize = 4096;

/// How many bytes are read at once.
const READ_BYTES: usize = 64 * 1024;

/// Reads lines of limited length.
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    buffer: BytesMut,
    /// How many bytes at the start of `buffer` are known to contain no line break.
    searched: usize,
    max_bytes: usize,
    bytes_read: u64,
}

#[derive(Debug)]
pub enum Line {
    /// A complete line without its line break.
    Whole(BytesMut),
    /// A line longer than allowed. All of it was read, and only its first bytes were kept.
    TooLong { head: Vec<u8>, bytes: u64 },
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(source: R, max_bytes: usize) -> Self {
        Self { source, buffer: BytesMut::new(), searched: 0, max_bytes, bytes_read: 0 }
    }

    /// The number of bytes read from the source so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next line. `None`: the source has ended. A last line without a line break is returned too.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                line.truncate(line.len() - 1);
                return Ok(Some(if line.len() > self.max_bytes {
                    too_long(&line, 0)
                } else {
                    Line::Whole(line)
                }));
            }
            self.searched = self.buffer.len();
            if self.searched > self.max_bytes {
                return self.drop_line().await.map(Some);
            }
            if self.read().await? == 0 {
                let rest = self.buffer.split();
                self.searched = 0;
                return Ok((!rest.is_empty()).then_some(Line::Whole(rest)));
            }
        }
    }

    /// Reads up to the next line break, and keeps only the head of the line.
    async fn drop_line(&mut self) -> io::Result<Line> {
        let mut line = too_long(&self.buffer, 0);
        self.buffer = BytesMut::new();
        self.searched = 0;
        let Line::TooLong { bytes, .. } = &mut line else { unreachable!("the line is too long") };
        loop {
            if self.read().await? == 0 {
                return Ok(line);
            }
            if let Some(at) = memchr::memchr(b'\n', &self.buffer) {
                *bytes += at as u64;
                let _ = self.buffer.split_to(at + 1);
                return Ok(line);
            }
            *bytes += self.buffer.len() as u64;
            self.buffer.clear();
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ_BYTES);
        let read = self.source.read_buf(&mut self.buffer).await?;
        self.bytes_read += read as u64;
        Ok(read)
    }
}

fn too_long(line: &[u8], more: u64) -> Line {
    Line::TooLong { head: line[..line.len().min(HEAD_BYTES)].to_vec(), bytes: line.len() as u64 + more }
}

/// A message of the agent.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// The agent waits for a response. Any id is possible, even 0.
    Request {
        id: AgentRequestId,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// The response to a request of the gateway. `id`: `None` if the gateway does not use such ids.
    Answer {
        id: Option<u64>,
        outcome: Result<&'a RawValue, RpcError>,
    },
    /// Valid JSON, but no JSON-RPC message.
    Invalid,
    /// Text that is not JSON, which the agent or one of its programs printed.
    Noise,
    /// An empty line.
    Blank,
}

/// The id of a request of the agent, as the agent wrote it: a number or a string.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AgentRequestId(Box<str>);

impl AgentRequestId {
    /// Parses an id. `None`: it is neither a number nor a string.
    pub fn parse(raw: &str) -> Option<Self> {
        let first = raw.bytes().next()?;
        (first == b'"' || first == b'-' || first.is_ascii_digit()).then(|| Self(raw.into()))
    }
}

/// The error in a response.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct RpcError {
    #[serde(default)]
    pub code: i64,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub data: Option<Json>,
}

impl RpcError {
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The ACP error code for "authenticate first".
    pub const AUTH_REQUIRED: i64 = -32000;
    /// The ACP error code for a resource that does not exist. Agents also use it for sessions.
    pub const NOT_FOUND: i64 = -32002;

    /// The message, with the details that some agents send in addition.
    pub fn text(&self) -> String {
        #[derive(Deserialize)]
        struct Data {
            details: String,
        }
        let details = self.data.as_ref().and_then(|data| serde_json::from_str::<Data>(data.get()).ok());
        match details {
            Some(Data { details }) if self.message.is_empty() => details,
            Some(Data { details }) => format!("{}: {details}", self.message),
            None => self.message.clone(),
        }
    }

    /// Whether the agent is still opening the session for an earlier request, which the gateway has abandoned.
    pub fn is_session_loading(&self) -> bool {
        self.text().to_ascii_lowercase().contains("session is already loading")
    }

    /// Whether the agent does not know the session. Each agent uses another code, so the text is checked too.
    pub fn is_session_gone(&self) -> bool {
        self.code == Self::NOT_FOUND || self.text().to_ascii_lowercase().contains("session not found")
    }

    /// Whether the agent works on another prompt of the session. ACP has no code for this, so the text is checked.
    pub fn is_session_busy(&self) -> bool {
        self.text().to_ascii_lowercase().contains("turn is already running")
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    /// The result of a response. `null` is a valid result.
    #[serde(default, borrow, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses the envelope of a line.
pub fn parse(line: &[u8]) -> Incoming<'_> {
    let line = line.trim_ascii();
    let Ok(Envelope { id, method, params, result, error }) = serde_json::from_slice(line) else {
        return match line.first() {
            None => Incoming::Blank,
            Some(b'{' | b'[') => Incoming::Invalid,
            Some(_) => Incoming::Noise,
        };
    };
    match (method, id) {
        (Some(method), None) => Incoming::Notification { method, params },
        (Some(method), Some(id)) => match AgentRequestId::parse(id.get()) {
            Some(id) => Incoming::Request { id, method, params },
            None => Incoming::Invalid,
        },
        (None, Some(id)) => {
            let outcome = match (error, result) {
                (Some(error), _) => Err(rpc_error(error)),
                (None, Some(result)) => Ok(result),
                (None, None) => return Incoming::Invalid,
            };
            Incoming::Answer { id: id.get().parse().ok(), outcome }
        }
        (None, None) => Incoming::Invalid,
    }
}

fn rpc_error(raw: &RawValue) -> RpcError {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| RpcError {
        code: 0,
        message: raw.get().to_owned(),
        data: None,
    })
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<T>,
}

impl<T: Serialize> Outgoing<'_, T> {
    fn empty() -> Self {
        Self { jsonrpc: "2.0", id: None, method: None, params: None, result: None, error: None }
    }

    fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("messages serialize to JSON");
        line.push(b'\n');
        line
    }
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("an id is JSON")
}

pub fn request(id: u64, method: &str, params: &impl Serialize) -> Vec<u8> {
    let id = raw(id.to_string());
    Outgoing { id: Some(&id), method: Some(method), params: Some(params), ..Outgoing::empty() }.line()
}

pub fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    Outgoing { method: Some(method), params: Some(params), ..Outgoing::empty() }.line()
}

pub fn result(id: &AgentRequestId, result: &impl Serialize) -> Vec<u8> {
    let id = raw(id.0.clone().into());
    Outgoing { id: Some(&id), result: Some(result), ..Outgoing::empty() }.line()
}

pub fn error(id: &AgentRequestId, code: i64, message: &str) -> Vec<u8> {
    let id = raw(id.0.clone().into());
    let error = serde_json::json!({"code": code, "message": message});
    Outgoing { id: Some(&id), error: Some(error), ..Outgoing::empty() }.line()
}

#[cfg(test)]
mod tests;
