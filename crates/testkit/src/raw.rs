//! An A2A 1.0 client that hides nothing: status, headers, JSON and frames are as received.
//!
//! The client only writes requests and reads streams, so that tests see what is on the wire.

mod fold;
mod sse;

use http::HeaderMap;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

pub use fold::{fold, plain_text, without_answers};
pub use sse::{Frame, Frames};

#[derive(Clone, Debug)]
#[must_use = "its methods return a changed copy"]
pub struct RawClient {
    base: String,
    token: Option<String>,
    version: &'static str,
    /// The value of the header. Empty: none.
    extensions: String,
    /// The `Last-Event-ID` of every stream, unless the call names one.
    cursor: Option<String>,
    http: reqwest::Client,
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// The JSON, or the text if it is not JSON.
    pub body: Value,
}

impl Answer {
    async fn read(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("the answer broke off");
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, headers, body }
    }

    /// The result of a JSON-RPC call. Panics if the call failed.
    pub fn result(&self) -> &Value {
        assert!(self.body["error"].is_null() && self.status == 200, "the call failed: {}", self.body);
        &self.body["result"]
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl RawClient {
    /// `base` without a slash at the end.
    pub fn new(base: impl Into<String>, token: impl Into<String>) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("a client without options");
        Self {
            base: base.into(),
            token: Some(token.into()),
            version: "1.0",
            extensions: String::new(),
            cursor: None,
            http,
        }
    }

    /// A copy without credentials.
    pub fn anonymous(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    /// A copy with another user's token.
    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self.clone() }
    }

    /// A copy that names another version of A2A. The caller writes methods, paths and bodies of that version.
    pub fn speaking(&self, version: &'static str) -> Self {
        Self { version, ..self.clone() }
    }

    /// A copy that activates exactly these extensions.
    pub fn activating(&self, extensions: &[&str]) -> Self {
        Self { extensions: extensions.join(", "), ..self.clone() }
    }

    /// A copy that resumes streams after the event with this `id:`.
    pub fn resuming(&self, cursor: &str) -> Self {
        Self { cursor: Some(cursor.to_owned()), ..self.clone() }
    }

    /// One JSON-RPC call.
    pub async fn rpc(&self, method: &str, params: Value) -> Answer {
        send(self.rpc_request(method, &params)).await
    }

    /// One REST call. The path begins with a slash and includes the query.
    pub async fn rest(&self, verb: &str, path: &str, body: Option<&Value>) -> Answer {
        send(self.rest_request(verb, path, body)).await
    }

    /// Sends any bytes to any path, for input that no client would send.
    pub async fn bytes(
        &self,
        verb: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Vec<u8>>,
    ) -> Answer {
        send(self.request(verb, path).header("content-type", content_type).body(body.into())).await
    }

    /// A JSON-RPC call whose answer is a stream, or an error.
    pub async fn rpc_stream(
        &self,
        method: &str,
        params: Value,
        last_event_id: Option<u64>,
    ) -> Result<Frames, Answer> {
        self.stream(self.rpc_request(method, &params), last_event_id).await
    }

    /// A REST call whose answer is a stream, or an error.
    pub async fn rest_stream(
        &self,
        verb: &str,
        path: &str,
        body: Option<&Value>,
        last_event_id: Option<u64>,
    ) -> Result<Frames, Answer> {
        self.stream(self.rest_request(verb, path, body), last_event_id).await
    }

    async fn stream(&self, request: RequestBuilder, last_event_id: Option<u64>) -> Result<Frames, Answer> {
        let request = match last_event_id.map(|id| id.to_string()).or(self.cursor.clone()) {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        let response = request.send().await.expect("the gateway answers");
        let kind =
            response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            Ok(Frames::new(response))
        } else {
            Err(Answer::read(response).await)
        }
    }

    /// Gets the task over JSON-RPC. Panics if there is none.
    pub async fn task(&self, id: &str) -> Value {
        self.rpc("GetTask", json!({"id": id})).await.result().clone()
    }

    fn rpc_request(&self, method: &str, params: &Value) -> RequestBuilder {
        let call = json!({"jsonrpc": "2.0", "id": "call", "method": method, "params": params});
        self.request("POST", "/").header("content-type", "application/json").body(call.to_string())
    }

    fn rest_request(&self, verb: &str, path: &str, body: Option<&Value>) -> RequestBuilder {
        let request = self.request(verb, path);
        match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        }
    }

    fn request(&self, verb: &str, path: &str) -> RequestBuilder {
        let verb = Method::from_bytes(verb.as_bytes()).expect("a test names a verb");
        let mut request =
            self.http.request(verb, format!("{}{path}", self.base)).header("a2a-version", self.version);
        if !self.extensions.is_empty() {
            request = request.header("a2a-extensions", &self.extensions);
        }
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }
}

/// The parameters of a send with one text.
pub fn message(id: &str, text: &str) -> Value {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}})
}

async fn send(request: RequestBuilder) -> Answer {
    Answer::read(request.send().await.expect("the gateway answers")).await
}
