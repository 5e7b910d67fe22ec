//! Requests and streams over connections that break. Nothing here panics, whatever comes.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

use super::record::Frame;
use super::speaker::{Answering, Speaker, Spelled};

/// Longer than a proxy stalls and than a gateway keeps silent. A stream that says nothing for so long is given up.
const SILENCE: Duration = Duration::from_secs(25);
/// An answer that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(15);

/// What may be tried again, and what may not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// The connection broke, or the server has no time.
    Passing,
    /// An error of the protocol, with its reason.
    Refused(String),
    /// Something that no server may say.
    Nonsense(String),
}

/// Makes each request on a connection of its own, so that each meets a fate of its own.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    base: String,
    token: String,
    speaker: Speaker,
    answering: Answering,
    http: Client,
}

impl Wire {
    pub(super) fn new(base: &str, token: &str, speaker: Speaker, answering: Answering) -> Self {
        let http = Client::builder().no_proxy().pool_max_idle_per_host(0).connect_timeout(PATIENCE).build();
        let http = http.expect("a client with these options");
        Self { base: base.to_owned(), token: token.to_owned(), speaker, answering, http }
    }

    /// A call with one answer.
    pub(super) async fn call(&self, spelled: &Spelled) -> Result<Value, Trouble> {
        let response = self.request(spelled, None).timeout(PATIENCE).send().await;
        self.answer(response.map_err(|_| Trouble::Passing)?, spelled.path == "/").await
    }

    /// A call that is answered by a stream.
    pub(super) async fn stream(&self, spelled: &Spelled, cursor: Option<&str>) -> Result<Frames, Trouble> {
        let sending = self.request(spelled, cursor).send();
        let Ok(Ok(response)) = tokio::time::timeout(PATIENCE, sending).await else {
            return Err(Trouble::Passing);
        };
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(Frames {
                speaker: self.speaker,
                response: Some(response),
                rest: Vec::new(),
                ready: VecDeque::new(),
                told_to_return: false,
            });
        }
        match tokio::time::timeout(PATIENCE, self.answer(response, spelled.path == "/")).await {
            Ok(Ok(answer)) => Err(Trouble::Nonsense(format!("an answer in place of a stream: {answer}"))),
            Ok(Err(trouble)) => Err(trouble),
            Err(_) => Err(Trouble::Passing),
        }
    }

    fn request(&self, spelled: &Spelled, cursor: Option<&str>) -> RequestBuilder {
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

    async fn answer(&self, response: Response, is_rpc: bool) -> Result<Value, Trouble> {
        let status = response.status().as_u16();
        let text = response.text().await.map_err(|_| Trouble::Passing)?;
        if matches!(status, 429 | 503) {
            return Err(Trouble::Passing);
        }
        let Ok(body) = serde_json::from_str(&text) else {
            return Err(Trouble::Nonsense(format!("status {status} and no JSON: {text}")));
        };
        // Methods of extensions are JSON-RPC for everybody.
        let dialect = if is_rpc { Speaker::ALL[0].dialect } else { self.speaker.dialect };
        match (Speaker { dialect, ..self.speaker }).opened(&body) {
            Ok(result) if (200..300).contains(&status) => Ok(result),
            Ok(_) => Err(Trouble::Nonsense(format!("status {status} without an error: {text}"))),
            Err(reason) => Err(trouble(reason, &text)),
        }
    }
}

fn trouble(reason: String, text: &str) -> Trouble {
    match reason.as_str() {
        "UNAVAILABLE"
        | "TOO_MANY_REQUESTS"
        | "AGENT_UNAVAILABLE"
        | "UPSTREAM_UNREACHABLE"
        // The gateway has just died, and another one has its port. One that refuses its own clients is found by tasks that
        // never end.
        | "UNAUTHENTICATED" => Trouble::Passing,
        "an error without a reason" => Trouble::Nonsense(text.to_owned()),
        _ => Trouble::Refused(reason),
    }
}

/// A stream that is being read.
#[derive(Debug)]
pub(super) struct Frames {
    speaker: Speaker,
    response: Option<Response>,
    /// What came and is no whole frame yet.
    rest: Vec<u8>,
    ready: VecDeque<Result<Frame, Trouble>>,
    /// The server said when to come back.
    told_to_return: bool,
}

/// What comes next on a stream.
#[derive(Debug)]
pub(super) enum Next {
    Frame(Frame),
    /// The server is done with it.
    End {
        told_to_return: bool,
    },
    Trouble(Trouble),
}

impl Frames {
    pub(super) async fn next(&mut self) -> Next {
        loop {
            match self.ready.pop_front() {
                Some(Ok(frame)) => return Next::Frame(frame),
                Some(Err(trouble)) => return Next::Trouble(trouble),
                None => {}
            }
            let Some(response) = &mut self.response else {
                return Next::End { told_to_return: self.told_to_return };
            };
            match tokio::time::timeout(SILENCE, response.chunk()).await {
                Ok(Ok(Some(chunk))) => self.take(&chunk),
                Ok(Ok(None)) => self.response = None,
                // What came of a frame that is not whole is nothing.
                Ok(Err(_)) | Err(_) => return Next::Trouble(Trouble::Passing),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.windows(2).position(|window| window == b"\n\n") {
            let frame: Vec<u8> = self.rest.drain(..end + 2).collect();
            match String::from_utf8(frame) {
                Ok(text) => self.frame(&text),
                Err(error) => self.nonsense(&format!("a frame that is no UTF-8: {error}")),
            }
        }
    }

    fn frame(&mut self, text: &str) {
        let (mut id, mut data) = (None, String::new());
        for line in text.lines() {
            match line.split_once(':') {
                Some(("id", value)) => id = Some(value.trim().to_owned()),
                Some(("data", value)) => data.push_str(value.strip_prefix(' ').unwrap_or(value)),
                Some(("retry", _)) => self.told_to_return = true,
                _ => {}
            }
        }
        if data.is_empty() {
            return;
        }
        let Ok(json) = serde_json::from_str::<Value>(&data) else {
            return self.nonsense(&format!("a frame that is no JSON: {data}"));
        };
        let frame = match self.speaker.opened(&json) {
            Ok(json) => Ok(Frame { id, json }),
            Err(reason) => Err(trouble(reason, &data)),
        };
        self.ready.push_back(frame);
    }

    fn nonsense(&mut self, what: &str) {
        self.ready.push_back(Err(Trouble::Nonsense(what.to_owned())));
    }
}
