//! Passes MCP messages between a program that speaks MCP over standard input and output, and a gateway that serves MCP over HTTP.
//!
//! Messages pass unchanged, except that each tool call gets an idempotency key. With the key, the gateway recognizes a call that is
//! sent again because the connection broke or the gateway restarted.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, BoxFuture, abortable};
use futures_util::stream::FuturesUnordered;
use rand::distr::{Alphanumeric, SampleString as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use crate::error::{Error, ErrorKind, Retry};
use crate::settings::Settings;
use crate::sse::{Broken, Decoder};
use crate::{Result, http, refusal};

/// The longest line of the client, in bytes. A longer one ends the connection.
const MAX_LINE: u64 = 16 * 1024 * 1024;

/// The most messages that the gateway may be handling at once. Further ones wait unread in the pipe.
const MAX_OPEN: usize = 64;

/// The most messages of the gateway that may wait for the client to read them.
const WAITING: usize = 64;

/// How long a message is sent again while the gateway cannot be reached. Then the client gets an error.
const RETRY_FOR: Duration = Duration::from_mins(1);

/// The pause between two attempts to send a message.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// How long the gateway waits in a tool call if the arguments name no wait, and the longest wait that they can name.
const DEFAULT_WAIT: Duration = Duration::from_secs(45);
const MAX_WAIT: Duration = Duration::from_mins(10);

/// The longest silence of the gateway while a call waits. The gateway sends progress more often than this.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// How long the bridge still waits for answers after the input has ended.
const DRAIN: Duration = Duration::from_secs(5);

/// The field of `_meta` that holds the key of a tool call.
const CALL_KEY: &str = "longshore/call-key";

/// The field of `_meta` that holds the version of MCP, in the versions without a handshake.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// The JSON-RPC error code for a message that did not reach the gateway.
const NOT_DELIVERED: i64 = -32000;

/// Passes messages on until the input ends. Returns an error only if the input or the output fails; if a single message fails, the
/// client gets the error as the answer to it.
pub async fn carry_mcp(
    url: &Url,
    settings: &Settings,
    input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> Result<()> {
    let client = http::client(url, settings)?;
    let credential = settings.credential.as_ref().map(|own| http::authorization(own, None)).transpose()?;
    let gateway = Gateway { client, url, settings, credential: credential.unwrap_or_default() };
    let carried = Bridge::new(&gateway).carry(input, output).await;
    carried.map_err(|error| {
        Error::new(ErrorKind::Input, format!("The connection to the MCP client broke: {error}."))
    })
}

struct Gateway<'a> {
    client: reqwest::Client,
    url: &'a Url,
    settings: &'a Settings,
    credential: HeaderMap,
}

/// The state of one connection between client and gateway.
struct Bridge<'a> {
    gateway: &'a Gateway<'a>,
    /// The deliveries that are running. Each future returns the id of its request.
    open: FuturesUnordered<BoxFuture<'a, Option<String>>>,
    aborts: HashMap<String, AbortHandle>,
    /// The version of MCP that the handshake chose.
    version: Option<String>,
    /// The id of the `initialize` request until it is answered.
    handshake: Option<String>,
    answers: mpsc::Sender<Value>,
    answered: mpsc::Receiver<Value>,
}

impl<'a> Bridge<'a> {
    fn new(gateway: &'a Gateway<'a>) -> Self {
        let (answers, answered) = mpsc::channel(WAITING);
        let (open, aborts) = (FuturesUnordered::new(), HashMap::new());
        Self { gateway, open, aborts, version: None, handshake: None, answers, answered }
    }

    async fn carry(
        mut self,
        mut input: impl AsyncBufRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        let mut line = Vec::new();
        loop {
            tokio::select! {
                // Cancel safe: if another branch is taken, `line` keeps the bytes that were read.
                read = read_line(&mut input, &mut line), if self.open.len() < MAX_OPEN => {
                    read?;
                    if line.len() as u64 > MAX_LINE {
                        return Err(std::io::Error::other(format!("a message has more than {MAX_LINE} bytes")));
                    }
                    let is_last = line.pop_if(|last| *last == b'\n').is_none();
                    self.begin(&std::mem::take(&mut line));
                    if is_last {
                        break;
                    }
                }
                Some(ended) = self.open.next() => self.ended(ended),
                Some(answer) = self.answered.recv() => self.write(answer, &mut output).await?,
            }
        }
        // The input has ended. Wait for answers to the messages that are still being handled.
        let end = Instant::now() + DRAIN;
        while !self.open.is_empty() || !self.answered.is_empty() {
            tokio::select! {
                Some(ended) = self.open.next() => self.ended(ended),
                Some(answer) = self.answered.recv() => self.write(answer, &mut output).await?,
                () = tokio::time::sleep_until(end) => break,
            }
        }
        Ok(())
    }

    fn begin(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let Ok(Value::Object(mut message)) = serde_json::from_slice(line) else {
            let error = json!({"code": -32700, "message": "The line is no JSON object."});
            let answer = json!({"jsonrpc": "2.0", "id": null, "error": error});
            // If the queue is full, this answer is dropped: the client sends invalid messages and does not read.
            let _ = self.answers.try_send(answer);
            return;
        };
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        if method == "notifications/cancelled" {
            // Drop the HTTP request, which cancels the call at the gateway.
            let id = message.get("params").and_then(|params| params.get("requestId")).map(Value::to_string);
            if let Some(abort) = id.and_then(|id| self.aborts.remove(&id)) {
                abort.abort();
            }
            return;
        }
        let id = message.get("id").filter(|id| !id.is_null()).map(Value::to_string);
        if method == "initialize" {
            self.handshake.clone_from(&id);
        }
        if method == "tools/call" {
            add_key(&mut message);
        }
        let meta = |name: &str| message.get("params")?.get("_meta")?.get(name)?.as_str().map(str::to_owned);
        let version = meta(VERSION).or_else(|| self.version.clone());
        let name = message.get("params").and_then(|params| params.get("name")).and_then(Value::as_str);
        let name = name.map(str::to_owned);
        let wait = wait_of(&method, &message);
        let sent = Message { body: Value::Object(message), method, name, version, id: id.clone(), wait };
        let (sending, abort) = abortable(sent.deliver(self.gateway, self.answers.clone()));
        if let Some(id) = &id {
            self.aborts.insert(id.clone(), abort);
        }
        self.open.push(Box::pin(async move {
            // The result does not matter: the delivery has ended or was aborted.
            let _ = sending.await;
            id
        }));
    }

    fn ended(&mut self, id: Option<String>) {
        if let Some(id) = id {
            self.aborts.remove(&id);
        }
    }

    async fn write(&mut self, answer: Value, output: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        if self.handshake.is_some() && answer.get("id").map(Value::to_string) == self.handshake {
            self.handshake = None;
            let version = answer.get("result").and_then(|result| result.get("protocolVersion"));
            self.version = version.and_then(Value::as_str).map(str::to_owned);
        }
        output.write_all(format!("{answer}\n").as_bytes()).await?;
        output.flush().await
    }
}

/// Reads the rest of a line. Cancel safe, because the bytes that were read stay in `line`.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> std::io::Result<usize> {
    input.take(MAX_LINE + 1 - line.len() as u64).read_until(b'\n', line).await
}

/// Adds an idempotency key to a tool call that has none.
fn add_key(message: &mut serde_json::Map<String, Value>) {
    let params = message.get_mut("params").and_then(Value::as_object_mut);
    let Some(params) = params else { return };
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        meta.entry(CALL_KEY)
            .or_insert_with(|| format!("mcp-{}", Alphanumeric.sample_string(&mut rand::rng(), 24)).into());
    }
}

/// How long the gateway may wait before it answers this message.
fn wait_of(method: &str, message: &serde_json::Map<String, Value>) -> Duration {
    if method != "tools/call" {
        return Duration::ZERO;
    }
    let arguments = message.get("params").and_then(|params| params.get("arguments"));
    let seconds = arguments.and_then(|arguments| arguments.get("wait_seconds")).and_then(Value::as_u64);
    seconds.map_or(DEFAULT_WAIT, Duration::from_secs).min(MAX_WAIT)
}

/// A message to deliver to the gateway.
struct Message {
    body: Value,
    method: String,
    name: Option<String>,
    version: Option<String>,
    /// The id of the request. `None`: the message is a notification.
    id: Option<String>,
    /// How long the gateway may wait before it answers.
    wait: Duration,
}

/// The state of the connection to the gateway during the delivery of one message.
#[derive(Default)]
struct Heard {
    /// When the gateway was lost. `None`: it is reachable.
    lost_since: Option<Instant>,
    /// The last progress number that the client got. The gateway counts from the start again when it gets the message again.
    progress: f64,
}

impl Heard {
    fn something(&mut self) {
        self.lost_since = None;
    }

    /// The pause before the message is sent again. `None`: do not send it again.
    fn pause_after(&mut self, error: &Error) -> Option<Duration> {
        let lost_for = self.lost_since.get_or_insert_with(Instant::now).elapsed();
        let wanted = match error.retry() {
            Retry::Later(Some(wanted)) => wanted,
            _ => Duration::ZERO,
        };
        let pause = wanted.max(RETRY_EVERY);
        (is_passing(error.kind()) && lost_for + pause <= RETRY_FOR).then_some(pause)
    }

    /// Raises the number of a progress notification if it is not greater than the last one, because MCP requires that it increases.
    fn number(&mut self, message: &mut Value) {
        if message["method"] != "notifications/progress" {
            return;
        }
        if let Some(progress) = message.pointer_mut("/params/progress")
            && let Some(number) = progress.as_f64()
        {
            if number <= self.progress {
                *progress = json!(self.progress + 1.0);
            }
            self.progress = number.max(self.progress + 1.0);
        }
    }
}

impl Message {
    /// Sends the message until it is delivered, and passes on the answers.
    async fn deliver(self, gateway: &Gateway<'_>, answers: mpsc::Sender<Value>) {
        let mut heard = Heard::default();
        let error = loop {
            let Err(error) = self.attempt(gateway, &answers, &mut heard).await else { return };
            match heard.pause_after(&error) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => break error,
            }
        };
        if self.id.is_some() {
            let error = json!({"code": NOT_DELIVERED, "message": error.message()});
            let answer = json!({"jsonrpc": "2.0", "id": self.body["id"], "error": error});
            let _ = answers.send(answer).await;
        }
    }

    async fn attempt(
        &self,
        gateway: &Gateway<'_>,
        answers: &mpsc::Sender<Value>,
        heard: &mut Heard,
    ) -> Result<()> {
        let Gateway { client, url, settings, credential } = gateway;
        settings.check_guard()?;
        let mut request = client
            .post((*url).clone())
            .headers(credential.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(self.body.to_string());
        let version = self.version.as_deref().unwrap_or_default();
        let name = self.name.as_deref().unwrap_or_default();
        // From MCP version 2026-07-28 on, headers must repeat some fields of the body.
        for (header, text) in
            [("mcp-protocol-version", version), ("mcp-method", &self.method), ("mcp-name", name)]
        {
            if let Some(value) = HeaderValue::from_str(text).ok().filter(|value| !value.is_empty()) {
                request = request.header(header, value);
            }
        }
        // From MCP version 2026-07-28 on, the response head may come only with the first message, which may take the whole wait.
        let patience = settings.timeout + self.wait;
        let mut response = http::send(request, patience).await?;
        if self.id.is_none() && response.status().is_success() {
            return Ok(());
        }
        if !http::is_type(&response, "text/event-stream") {
            let status = response.status().as_u16();
            let length = response.content_length();
            let later =
                response.headers().get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
            let later = later.map(Duration::from_secs);
            let body = http::body(response, settings.limits.event, settings.timeout).await?;
            return match serde_json::from_slice::<Value>(&body) {
                // Pass on the answer even with an error status: some MCP errors have one.
                Ok(mut answer) if answer.get("jsonrpc").is_some() => {
                    // A server that could not parse the message does not know its id, so fill the id in.
                    if answer["id"].is_null() {
                        answer["id"] = self.body["id"].clone();
                    }
                    let _ = answers.send(answer).await;
                    Ok(())
                }
                read if status >= 400 => {
                    let error = read.ok().and_then(|json| refusal::of_body(status, &json));
                    let error = error.unwrap_or_else(|| failed(status));
                    let named = matches!(error.retry(), Retry::Later(Some(_)));
                    Err(if named { error } else { error.after(later) })
                }
                _ => Err(Error::invalid_response(format!(
                    "The gateway answered with {} bytes that are no message of MCP. Check the URL.",
                    length.unwrap_or(body.len() as u64)
                ))),
            };
        }
        let (mut decoder, mut frames) = (Decoder::new(settings.limits.event), VecDeque::new());
        let lost = || Error::new(ErrorKind::Lost, "The connection to the gateway broke.");
        loop {
            let chunk = tokio::time::timeout(patience.max(MAX_SILENCE), response.chunk()).await;
            let chunk = chunk.map_err(|_| lost())?.map_err(|_| lost())?.ok_or_else(lost)?;
            heard.something();
            decoder.push(&chunk, &mut frames).map_err(|broken| match broken {
                Broken::TooLong => Error::new(ErrorKind::TooLarge, "An answer of the gateway is too long."),
                Broken::NotText => Error::invalid_response("An answer of the gateway is not UTF-8 text."),
            })?;
            while let Some(frame) = frames.pop_front() {
                if frame.data.is_empty() {
                    continue;
                }
                let mut message: Value = serde_json::from_str(&frame.data)
                    .map_err(|_| Error::invalid_response("An answer of the gateway is no JSON."))?;
                heard.number(&mut message);
                let is_answer =
                    message.get("id").map(Value::to_string) == self.id && message.get("method").is_none();
                let _ = answers.send(message).await;
                if is_answer {
                    return Ok(());
                }
            }
        }
    }
}

fn failed(status: u16) -> Error {
    Error::new(
        refusal::kind_of_status(status),
        format!(
            "The gateway answered with HTTP status {status}. Check the URL, and that the gateway serves MCP."
        ),
    )
}

/// Whether the same message may succeed later.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Lost | ErrorKind::Unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_is_sent_again_for_a_minute_after_the_gateway_was_lost() {
        let lost = Error::new(ErrorKind::Lost, "The connection broke.");
        let mut heard = Heard::default();
        // The call waited for a long time before the gateway was lost.
        tokio::time::advance(RETRY_FOR * 2).await;
        assert_eq!(heard.pause_after(&lost), Some(RETRY_EVERY));
        tokio::time::advance(RETRY_FOR).await;
        assert_eq!(heard.pause_after(&lost), None);
        heard.something();
        assert_eq!(heard.pause_after(&lost), Some(RETRY_EVERY));
        let busy = |seconds| failed(429).after(Some(Duration::from_secs(seconds)));
        assert_eq!(heard.pause_after(&busy(7)), Some(Duration::from_secs(7)));
        assert_eq!(heard.pause_after(&busy(61)), None);
        assert_eq!(heard.pause_after(&failed(401)), None);
    }
}
