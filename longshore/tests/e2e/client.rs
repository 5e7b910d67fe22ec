//! An A2A 1.0 client for both bindings. Its timeouts fail with a description.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_testkit::gateway::{Gateway, TOKEN};
use longshore_testkit::raw::{Frame, Frames, RawClient};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// No frame and no answer takes longer, not even in the first turn of a new OpenCode.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    raw: RawClient,
    binding: Binding,
    address: String,
    token: String,
}

/// The binding of A2A operations. Methods of extensions exist in JSON-RPC only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binding {
    JsonRpc,
    Rest,
}

/// An error with the code of JSON-RPC, or the status of HTTP.
#[derive(Debug)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) body: Value,
}

impl RpcError {
    /// The reason of the error.
    pub(crate) fn reason(&self) -> &str {
        let details = self.body.get("data").or_else(|| self.body.get("details"));
        details.and_then(|details| details[0]["reason"].as_str()).unwrap_or_default()
    }
}

/// A user message with a new id.
pub(crate) fn message(text: &str) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = format!("message-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// The same in an existing context.
pub(crate) fn message_in(context: &str, text: &str) -> Value {
    let mut message = message(text);
    message["contextId"] = context.into();
    message
}

/// A message on an existing task.
pub(crate) fn message_on(task: &str, part: &Value) -> Value {
    let mut message = message("");
    message["taskId"] = task.into();
    message["parts"] = json!([part]);
    message
}

impl Client {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self::with_token(gateway, TOKEN)
    }

    pub(crate) fn with_token(gateway: &Gateway, token: &str) -> Self {
        let address =
            gateway.url().strip_prefix("http://").expect("a gateway of a test has no TLS").to_owned();
        let raw = RawClient::new(gateway.url(), token);
        Self { raw, binding: Binding::JsonRpc, address, token: token.to_owned() }
    }

    /// The same client, over this binding.
    pub(crate) fn over(&self, binding: Binding) -> Self {
        Self { binding, ..self.clone() }
    }

    /// The same client, with these extensions activated.
    pub(crate) fn activating(&self, extensions: &[&str]) -> Self {
        Self { raw: self.raw.activating(extensions), ..self.clone() }
    }

    /// Calls a method and returns its result.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        match self.try_call(method, params).await {
            Ok(result) => result,
            Err(error) => panic!("{method} was refused: {}", error.body),
        }
    }

    pub(crate) async fn try_call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let mut answer = within(method, self.raw.rpc(method, params)).await;
        assert_eq!(answer.status, 200, "{method} answered {answer:#?}");
        match answer.body.get("error") {
            Some(error) => {
                Err(RpcError { code: error["code"].as_i64().unwrap_or_default(), body: error.clone() })
            }
            None => Ok(answer.body["result"].take()),
        }
    }

    /// Sends the message and waits until its task has settled.
    pub(crate) async fn send(&self, message: &Value) -> Value {
        match self.try_send(message).await {
            Ok(task) => task,
            Err(error) => panic!("the message was refused: {}", error.body),
        }
    }

    pub(crate) async fn try_send(&self, message: &Value) -> Result<Value, RpcError> {
        let params = json!({ "message": message });
        let answer = match self.binding {
            Binding::JsonRpc => self.try_call("SendMessage", params).await,
            Binding::Rest => self.try_rest("POST", "/message:send", Some(&params)).await,
        };
        answer.map(|mut answer| answer["task"].take())
    }

    /// Sends the message and returns as soon as the task exists.
    pub(crate) async fn submit(&self, message: &Value) -> Value {
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        self.call("SendMessage", params).await["task"].take()
    }

    pub(crate) async fn get(&self, task: &str) -> Value {
        let found = match self.binding {
            Binding::JsonRpc => self.try_call("GetTask", json!({ "id": task })).await,
            Binding::Rest => self.try_rest("GET", &format!("/tasks/{task}"), None).await,
        };
        found.unwrap_or_else(|error| panic!("{task} was not given: {}", error.body))
    }

    pub(crate) async fn cancel(&self, task: &str) -> Result<Value, RpcError> {
        match self.binding {
            Binding::JsonRpc => self.try_call("CancelTask", json!({ "id": task })).await,
            Binding::Rest => self.try_rest("POST", &format!("/tasks/{task}:cancel"), Some(&json!({}))).await,
        }
    }

    pub(crate) async fn stream(&self, message: &Value) -> Stream {
        let params = json!({ "message": message });
        match self.binding {
            Binding::JsonRpc => self.open("SendStreamingMessage", params, None).await,
            Binding::Rest => self.open_rest("POST", "/message:stream", Some(&params), None).await,
        }
    }

    /// The events after `after`.
    pub(crate) async fn resume(&self, task: &str, after: u64) -> Stream {
        self.follow(task, Some(after)).await
    }

    /// The current task, then its further events.
    pub(crate) async fn subscribe(&self, task: &str) -> Stream {
        self.follow(task, None).await
    }

    async fn follow(&self, task: &str, after: Option<u64>) -> Stream {
        match self.binding {
            Binding::JsonRpc => self.open("SubscribeToTask", json!({ "id": task }), after).await,
            Binding::Rest => self.open_rest("GET", &format!("/tasks/{task}:subscribe"), None, after).await,
        }
    }

    /// Requests the whole log and never reads it. It stays unread until the socket is dropped.
    pub(crate) async fn stall(&self, task: &str) -> TcpStream {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}})
            .to_string();
        let (host, token) = (&self.address, &self.token);
        let request = format!(
            "POST / HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\na2a-version: 1.0\r\n\
             last-event-id: 0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{call}",
            call.len()
        );
        let mut socket = TcpStream::connect(host).await.expect("the gateway listens");
        socket.write_all(request.as_bytes()).await.expect("the gateway takes a request");
        socket
    }

    async fn open(&self, method: &str, params: Value, after: Option<u64>) -> Stream {
        match within(method, self.raw.rpc_stream(method, params, after)).await {
            Ok(frames) => Stream(frames),
            Err(answer) => panic!("{method} gave no stream but {answer:#?}"),
        }
    }

    async fn open_rest(&self, verb: &str, path: &str, body: Option<&Value>, after: Option<u64>) -> Stream {
        match within(path, self.raw.rest_stream(verb, path, body, after)).await {
            Ok(frames) => Stream(frames),
            Err(answer) => panic!("{path} gave no stream but {answer:#?}"),
        }
    }

    async fn try_rest(&self, verb: &str, path: &str, body: Option<&Value>) -> Result<Value, RpcError> {
        let answer = within(path, self.raw.rest(verb, path, body)).await;
        if answer.status == 200 {
            return Ok(answer.body);
        }
        Err(RpcError { code: answer.status.into(), body: answer.body["error"].clone() })
    }
}

/// A stream. Dropping it cuts the connection.
#[derive(Debug)]
pub(crate) struct Stream(Frames);

impl Stream {
    /// The next frame; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        within("a frame", self.0.next()).await
    }

    /// All frames up to the end.
    pub(crate) async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// The frames up to and including the wanted one.
    pub(crate) async fn until(&mut self, what: &str, mut wanted: impl FnMut(&Frame) -> bool) -> Vec<Frame> {
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

    /// The complete frames within the first `bytes` bytes. Then the connection is cut.
    pub(crate) async fn cut_after(self, bytes: usize) -> Vec<Frame> {
        Self(self.0.cut_after(bytes)).rest().await
    }
}

/// Fails with a description instead of hanging.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("expected within {PATIENCE:?}: {what}"))
}
