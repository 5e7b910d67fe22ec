//! An A2A 1.0 client over JSON-RPC that keeps every byte it is sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_testkit::gateway::{Gateway, TOKEN};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::frames::{Frame, Parser};

/// No frame and no answer takes longer, not even the first turn of an OpenCode that has just been started.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// Every request has the same id, so that the same event is the same bytes for every reader.
const RPC_ID: &str = "e2e";

#[derive(Clone, Debug)]
pub struct Client {
    url: String,
    token: String,
    http: reqwest::Client,
}

/// An error as JSON-RPC carries it.
#[derive(Debug)]
pub struct RpcError {
    pub code: i64,
    pub body: Value,
}

/// A user message with an id of its own.
pub fn message(text: &str) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = format!("message-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// The same in a conversation that exists.
pub fn message_in(context: &str, text: &str) -> Value {
    let mut message = message(text);
    message["contextId"] = context.into();
    message
}

impl Client {
    pub fn of(gateway: &Gateway) -> Self {
        Self::with_token(gateway, TOKEN)
    }

    pub fn with_token(gateway: &Gateway, token: &str) -> Self {
        // Each request has a connection of its own: a cut one must not be taken for another.
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self { url: gateway.url().to_owned(), token: token.to_owned(), http }
    }

    /// Calls a method and gives its result.
    pub async fn call(&self, method: &str, params: &Value) -> Value {
        match self.try_call(method, params).await {
            Ok(result) => result,
            Err(error) => panic!("{method} {params} was refused: {}", error.body),
        }
    }

    pub async fn try_call(&self, method: &str, params: &Value) -> Result<Value, RpcError> {
        let response = self.post(method, params, None).await;
        let status = response.status();
        let text = within(method, response.text()).await.unwrap();
        let mut answer: Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{method} answered {status}: {text}"));
        assert_eq!(answer["id"], RPC_ID, "{method} answered {answer}");
        match answer.get("error") {
            Some(error) => {
                Err(RpcError { code: error["code"].as_i64().unwrap_or_default(), body: error.clone() })
            }
            None => Ok(answer["result"].take()),
        }
    }

    /// Sends the message and waits until its task has settled.
    pub async fn send(&self, message: &Value) -> Value {
        self.call("SendMessage", &json!({ "message": message })).await["task"].take()
    }

    /// Sends the message and comes back as soon as the task exists.
    pub async fn submit(&self, message: &Value) -> Value {
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        self.call("SendMessage", &params).await["task"].take()
    }

    pub async fn get(&self, task: &str) -> Value {
        self.call("GetTask", &json!({ "id": task })).await
    }

    pub async fn cancel(&self, task: &str) -> Result<Value, RpcError> {
        self.try_call("CancelTask", &json!({ "id": task })).await
    }

    pub async fn stream(&self, message: &Value) -> Stream {
        self.open("SendStreamingMessage", &json!({ "message": message }), None).await
    }

    /// The events after `after`.
    pub async fn resume(&self, task: &str, after: u64) -> Stream {
        self.open("SubscribeToTask", &json!({ "id": task }), Some(after)).await
    }

    /// The task as it is, then its further events.
    pub async fn subscribe(&self, task: &str) -> Stream {
        self.open("SubscribeToTask", &json!({ "id": task }), None).await
    }

    /// Asks for the events after `after` and never reads a byte of them. They stay unread until it is dropped.
    pub async fn stall(&self, task: &str, after: u64) -> TcpStream {
        let host = self.url.strip_prefix("http://").unwrap();
        let body = rpc("SubscribeToTask", &json!({ "id": task }));
        let request = format!(
            "POST / HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\na2a-version: 1.0\r\n\
             last-event-id: {after}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let mut socket = TcpStream::connect(host).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    async fn open(&self, method: &str, params: &Value, after: Option<u64>) -> Stream {
        let response = self.post(method, params, after).await;
        let status = response.status();
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let kind = kind.to_owned();
            let text = response.text().await.unwrap_or_default();
            panic!("{method} {params} gave no stream but {status} {kind}: {text}");
        }
        Stream { response, parser: Parser::default() }
    }

    async fn post(&self, method: &str, params: &Value, after: Option<u64>) -> reqwest::Response {
        let mut request = self
            .http
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("a2a-version", "1.0")
            .header("content-type", "application/json")
            .body(rpc(method, params));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        within(method, request.send()).await.unwrap_or_else(|error| panic!("{method} found no gateway: {error}"))
    }
}

/// A stream that is being read. Dropping it cuts the connection.
#[derive(Debug)]
pub struct Stream {
    response: reqwest::Response,
    parser: Parser,
}

impl Stream {
    /// The next frame; `None` when the stream has ended in good order.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.parser.next() {
                return Some(frame);
            }
            let bytes = self.chunk().await?;
            self.parser.push(&bytes);
        }
    }

    /// Every frame up to the end.
    pub async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Frames until one of them is wanted, with that one.
    pub async fn until(&mut self, what: &str, mut wanted: impl FnMut(&Frame) -> bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            let found = wanted(&frame);
            frames.push(frame);
            if found {
                return frames;
            }
        }
        panic!("the stream ended before {what}: {frames:#?}");
    }

    /// What of the stream came whole within its first `bytes` bytes. Then the connection is cut.
    /// Says whether the stream had ended by itself before that.
    pub async fn cut_after(mut self, bytes: usize) -> (Vec<Frame>, bool) {
        let mut left = bytes;
        let mut ended = false;
        while left > 0 {
            let Some(chunk) = self.chunk().await else {
                ended = true;
                break;
            };
            let taken = chunk.len().min(left);
            self.parser.push(&chunk[..taken]);
            left -= taken;
        }
        (std::iter::from_fn(|| self.parser.next()).collect(), ended)
    }

    /// For a stream whose other end may die: the frames that came whole until then.
    pub async fn until_it_breaks(mut self) -> Vec<Frame> {
        while let Ok(Some(bytes)) = within("a frame", self.response.chunk()).await {
            self.parser.push(&bytes);
        }
        std::iter::from_fn(|| self.parser.next()).collect()
    }

    async fn chunk(&mut self) -> Option<Vec<u8>> {
        let chunk = within("a frame", self.response.chunk()).await;
        chunk.unwrap_or_else(|error| panic!("the stream broke: {error}")).map(|bytes| bytes.to_vec())
    }
}

/// Fails in plain words instead of hanging.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("expected within {PATIENCE:?}: {what}"),
    }
}

fn rpc(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": RPC_ID, "method": method, "params": params}).to_string()
}
