//! Requests and streams over connections that break. Nothing here panics, whatever is received.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

use super::record::Frame;
use super::speaker::{Answering, ClientProtocol, ClientRequest};

/// Longer than a proxy stalls and a gateway sends nothing. A stream without data for so long is given up.
const SILENCE: Duration = Duration::from_secs(25);
/// The timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CallError {
    /// The connection broke, or the server is overloaded: the client tries again.
    Temporary,
    /// An error of the protocol, with its reason.
    Refused(String),
    /// An answer that no server may give.
    Malformed(String),
}

/// Makes each request on a new connection, so that each meets a fault of its own.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    base: String,
    token: String,
    speaker: ClientProtocol,
    answering: Answering,
    http: Client,
}

impl Wire {
    pub(super) fn new(base: &str, token: &str, speaker: ClientProtocol, answering: Answering) -> Self {
        let http = Client::builder().no_proxy().pool_max_idle_per_host(0).connect_timeout(PATIENCE).build();
        let http = http.expect("the options of the client are valid");
        Self { base: base.to_owned(), token: token.to_owned(), speaker, answering, http }
    }

    /// A call with a single answer.
    pub(super) async fn call(&self, spelled: &ClientRequest) -> Result<Value, CallError> {
        let response = self.request(spelled, None).timeout(PATIENCE).send().await;
        self.answer(response.map_err(|_| CallError::Temporary)?, spelled.path == "/").await
    }

    /// A call whose answer is a stream.
    pub(super) async fn stream(
        &self,
        spelled: &ClientRequest,
        cursor: Option<&str>,
    ) -> Result<Frames, CallError> {
        let sending = self.request(spelled, cursor).send();
        let Ok(Ok(response)) = tokio::time::timeout(PATIENCE, sending).await else {
            return Err(CallError::Temporary);
        };
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(Frames {
                speaker: self.speaker,
                response: Some(response),
                rest: Vec::new(),
                ready: VecDeque::new(),
                may_return: false,
            });
        }
        match tokio::time::timeout(PATIENCE, self.answer(response, spelled.path == "/")).await {
            Ok(Ok(answer)) => {
                Err(CallError::Malformed(format!("a single answer instead of a stream: {answer}")))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(CallError::Temporary),
        }
    }

    fn request(&self, spelled: &ClientRequest, cursor: Option<&str>) -> RequestBuilder {
        let method = Method::from_bytes(spelled.verb.as_bytes()).unwrap_or_default();
        let mut request = self.http.request(method, format!("{}{}", self.base, spelled.path));
        for (name, value) in self.speaker.headers(self.answering) {
            request = request.header(name, value);
        }
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        if let Some(body) = &spelled.body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        request.bearer_auth(&self.token)
    }

    async fn answer(&self, response: Response, is_rpc: bool) -> Result<Value, CallError> {
        let status = response.status().as_u16();
        let text = response.text().await.map_err(|_| CallError::Temporary)?;
        if matches!(status, 429 | 503) {
            return Err(CallError::Temporary);
        }
        let Ok(body) = serde_json::from_str(&text) else {
            return Err(CallError::Malformed(format!("status {status} without JSON: {text}")));
        };
        // Methods of extensions are JSON-RPC for every client.
        let dialect = if is_rpc { ClientProtocol::ALL[0].dialect } else { self.speaker.dialect };
        match (ClientProtocol { dialect, ..self.speaker }).opened(&body) {
            Ok(result) if (200..300).contains(&status) => Ok(result),
            Ok(_) => Err(CallError::Malformed(format!("status {status} without an error: {text}"))),
            Err(reason) => Err(error(reason, &text)),
        }
    }
}

fn error(reason: String, text: &str) -> CallError {
    match reason.as_str() {
        "UNAVAILABLE"
        | "TOO_MANY_REQUESTS"
        | "AGENT_UNAVAILABLE"
        | "UPSTREAM_UNREACHABLE"
        // The gateway has just died, and another world's gateway has its port. If a gateway refuses its own clients, their tasks
        // never end, and the checker finds that.
        | "UNAUTHENTICATED" => CallError::Temporary,
        "an error without a reason" => CallError::Malformed(text.to_owned()),
        _ => CallError::Refused(reason),
    }
}

/// A stream that is being read.
#[derive(Debug)]
pub(super) struct Frames {
    speaker: ClientProtocol,
    response: Option<Response>,
    /// Received bytes that are not a complete frame yet.
    rest: Vec<u8>,
    ready: VecDeque<Result<Frame, CallError>>,
    /// The server sent a `retry` field.
    may_return: bool,
}

/// The next item of a stream.
#[derive(Debug)]
pub(super) enum Next {
    Frame(Frame),
    /// The server ended the stream.
    End {
        may_return: bool,
    },
    Failed(CallError),
}

impl Frames {
    pub(super) async fn next(&mut self) -> Next {
        loop {
            match self.ready.pop_front() {
                Some(Ok(frame)) => return Next::Frame(frame),
                Some(Err(error)) => return Next::Failed(error),
                None => {}
            }
            let Some(response) = &mut self.response else {
                return Next::End { may_return: self.may_return };
            };
            match tokio::time::timeout(SILENCE, response.chunk()).await {
                Ok(Ok(Some(chunk))) => self.take(&chunk),
                Ok(Ok(None)) => self.response = None,
                // An incomplete frame is dropped.
                Ok(Err(_)) | Err(_) => return Next::Failed(CallError::Temporary),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.windows(2).position(|window| window == b"\n\n") {
            let frame: Vec<u8> = self.rest.drain(..end + 2).collect();
            match String::from_utf8(frame) {
                Ok(text) => self.frame(&text),
                Err(error) => self.malformed(&format!("a frame that is not UTF-8: {error}")),
            }
        }
    }

    fn frame(&mut self, text: &str) {
        let (mut id, mut data) = (None, String::new());
        for line in text.lines() {
            match line.split_once(':') {
                Some(("id", value)) => id = Some(value.trim().to_owned()),
                Some(("data", value)) => data.push_str(value.strip_prefix(' ').unwrap_or(value)),
                Some(("retry", _)) => self.may_return = true,
                _ => {}
            }
        }
        if data.is_empty() {
            return;
        }
        let Ok(json) = serde_json::from_str::<Value>(&data) else {
            return self.malformed(&format!("a frame that is not JSON: {data}"));
        };
        let frame = match self.speaker.opened(&json) {
            Ok(json) => Ok(Frame { id, json }),
            Err(reason) => Err(error(reason, &data)),
        };
        self.ready.push_back(frame);
    }

    fn malformed(&mut self, what: &str) {
        self.ready.push_back(Err(CallError::Malformed(what.to_owned())));
    }
}
