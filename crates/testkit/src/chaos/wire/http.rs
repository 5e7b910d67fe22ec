//! Requests and event streams over HTTP/1.1.

use std::collections::VecDeque;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

use super::{CallError, Next, PATIENCE, Wire, error};
use crate::chaos::record::Frame;
use crate::chaos::speaker::{ClientProtocol, ClientRequest};

pub(super) fn client() -> Client {
    let http = Client::builder().no_proxy().pool_max_idle_per_host(0).connect_timeout(PATIENCE).build();
    http.expect("the options of the client are valid")
}

pub(super) async fn call(wire: &Wire, spelled: &ClientRequest) -> Result<Value, CallError> {
    let response = request(wire, spelled, None).send().await;
    answer(wire, response.map_err(|_| CallError::Temporary)?, spelled).await
}

pub(super) async fn stream(
    wire: &Wire,
    spelled: &ClientRequest,
    cursor: Option<&str>,
) -> Result<Frames, CallError> {
    let response = request(wire, spelled, cursor).send().await.map_err(|_| CallError::Temporary)?;
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        return Ok(Frames {
            speaker: wire.speaker,
            response: Some(response),
            rest: Vec::new(),
            ready: VecDeque::new(),
            may_return: false,
        });
    }
    let answer = answer(wire, response, spelled).await?;
    Err(CallError::Malformed(format!("a single answer instead of a stream: {answer}")))
}

fn request(wire: &Wire, spelled: &ClientRequest, cursor: Option<&str>) -> RequestBuilder {
    let method = Method::from_bytes(spelled.verb.as_bytes()).unwrap_or_default();
    let mut request = wire.http.request(method, format!("{}{}", wire.base, spelled.path));
    for (name, value) in wire.headers(cursor) {
        request = request.header(name, value);
    }
    if let Some(body) = &spelled.body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    request
}

async fn answer(wire: &Wire, response: Response, spelled: &ClientRequest) -> Result<Value, CallError> {
    let status = response.status().as_u16();
    let text = response.text().await.map_err(|_| CallError::Temporary)?;
    if matches!(status, 429 | 503) {
        return Err(CallError::Temporary);
    }
    let Ok(body) = serde_json::from_str(&text) else {
        return Err(CallError::Malformed(format!("status {status} without JSON: {text}")));
    };
    // Methods of extensions are JSON-RPC for every client.
    let dialect = if spelled.is_jsonrpc() { ClientProtocol::ALL[0].dialect } else { wire.speaker.dialect };
    match (ClientProtocol { dialect, ..wire.speaker }).opened(&body) {
        Ok(result) if (200..300).contains(&status) => Ok(result),
        Ok(_) => Err(CallError::Malformed(format!("status {status} without an error: {text}"))),
        Err(reason) => Err(error(reason, &text)),
    }
}

/// A stream of server-sent events.
#[derive(Debug)]
pub(in crate::chaos) struct Frames {
    speaker: ClientProtocol,
    response: Option<Response>,
    /// Received bytes that are not a complete frame yet.
    rest: Vec<u8>,
    ready: VecDeque<Result<Frame, CallError>>,
    /// The server sent a `retry` field.
    may_return: bool,
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
            match response.chunk().await {
                Ok(Some(chunk)) => self.take(&chunk),
                Ok(None) => self.response = None,
                // An incomplete frame is dropped.
                Err(_) => return Next::Failed(CallError::Temporary),
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
