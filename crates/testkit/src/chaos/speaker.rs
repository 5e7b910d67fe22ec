//! The forms of A2A, as far as a client in a storm needs them. Frames stay the JSON that was received.

use longshore_model::{PartContent, Task, TaskState};
use longshore_wire::extension::Extension;
use longshore_wire::surface::{OPERATIONS, ProtocolVersion};
use longshore_wire::v1::decode::StreamEvent;
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use longshore_wire::{v1, v03};
use serde_json::{Value, json};

use super::record::PlannedMessage;

/// A protocol version and a binding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientProtocol {
    pub version: ProtocolVersion,
    /// Over gRPC, messages have the JSON of REST.
    pub dialect: Dialect,
    pub transport: Transport,
}

/// What carries the requests of a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    Http,
    /// HTTP on the gateway's unix socket.
    UnixSocket,
    WebSocket,
    Grpc,
}

/// A request in the form of one protocol version and binding.
#[derive(Clone, PartialEq, Debug)]
pub struct ClientRequest {
    pub verb: &'static str,
    pub path: String,
    pub body: Option<Value>,
}

impl ClientRequest {
    /// JSON-RPC has one path for all methods.
    pub(super) fn is_jsonrpc(&self) -> bool {
        self.path == "/"
    }
}

/// How a client answers an ask.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answering {
    /// A plain message on the task. A 1.0 stream of such a client ends when an ask opens.
    ByMessage,
    /// The method of the extension. Streams stay open.
    ByCall,
}

impl ClientProtocol {
    /// Both versions and dialects over HTTP.
    pub const ALL: [Self; 4] = [
        Self::new(ProtocolVersion::V1, Dialect::Rpc, Transport::Http),
        Self::new(ProtocolVersion::V1, Dialect::Rest, Transport::Http),
        Self::new(ProtocolVersion::V03, Dialect::Rpc, Transport::Http),
        Self::new(ProtocolVersion::V03, Dialect::Rest, Transport::Http),
    ];

    /// JSON-RPC on the unix socket.
    pub const UNIX_SOCKET: [Self; 2] = Self::both(Dialect::Rpc, Transport::UnixSocket);

    pub const WEBSOCKET: [Self; 2] = Self::both(Dialect::Rpc, Transport::WebSocket);

    pub const GRPC: [Self; 2] = Self::both(Dialect::Rest, Transport::Grpc);

    /// Both versions on every binding.
    pub const EVERY: [Self; 10] = [
        Self::ALL[0],
        Self::GRPC[0],
        Self::ALL[1],
        Self::WEBSOCKET[0],
        Self::UNIX_SOCKET[0],
        Self::ALL[2],
        Self::GRPC[1],
        Self::ALL[3],
        Self::WEBSOCKET[1],
        Self::UNIX_SOCKET[1],
    ];

    const fn new(version: ProtocolVersion, dialect: Dialect, transport: Transport) -> Self {
        Self { version, dialect, transport }
    }

    const fn both(dialect: Dialect, transport: Transport) -> [Self; 2] {
        let (new, old) = (ProtocolVersion::V1, ProtocolVersion::V03);
        [Self::new(new, dialect, transport), Self::new(old, dialect, transport)]
    }

    pub fn name(self) -> &'static str {
        match (self.version, self.transport, self.dialect) {
            (ProtocolVersion::V1, Transport::Http, Dialect::Rpc) => "1.0 JSON-RPC",
            (ProtocolVersion::V1, Transport::Http, Dialect::Rest) => "1.0 REST",
            (ProtocolVersion::V1, Transport::UnixSocket, _) => "1.0 JSON-RPC on the unix socket",
            (ProtocolVersion::V1, Transport::WebSocket, _) => "1.0 WebSocket",
            (ProtocolVersion::V1, Transport::Grpc, _) => "1.0 gRPC",
            (ProtocolVersion::V03, Transport::Http, Dialect::Rpc) => "0.3 JSON-RPC",
            (ProtocolVersion::V03, Transport::Http, Dialect::Rest) => "0.3 REST",
            (ProtocolVersion::V03, Transport::UnixSocket, _) => "0.3 JSON-RPC on the unix socket",
            (ProtocolVersion::V03, Transport::WebSocket, _) => "0.3 WebSocket",
            (ProtocolVersion::V03, Transport::Grpc, _) => "0.3 gRPC",
        }
    }

    /// The headers that name the protocol version and the extensions of the client.
    pub fn headers(self, answering: Answering) -> Vec<(&'static str, String)> {
        let mut headers = vec![("a2a-version", self.version.as_str().to_owned())];
        if self.version == ProtocolVersion::V1 {
            let mut extensions = vec![Extension::StreamHints.uri()];
            if answering == Answering::ByCall {
                extensions.push(Extension::InteractiveInterrupt.uri());
            }
            headers.push(("a2a-extensions", extensions.join(", ")));
        }
        headers
    }

    /// The planned message.
    pub(super) fn planned(self, planned: &PlannedMessage) -> Value {
        let mut message = self.message(&planned.id, &planned.words, None, planned.context.as_deref());
        if planned.steers {
            message["metadata"] = json!({"shared": {"delivery": "steer"}});
        }
        message
    }

    /// `task` and `context`: where the message belongs, if it names them.
    pub fn message(self, id: &str, text: &str, task: Option<&str>, context: Option<&str>) -> Value {
        let mut message = match (self.version, self.dialect) {
            (ProtocolVersion::V1, _) => {
                json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]})
            }
            (ProtocolVersion::V03, Dialect::Rpc) => json!({
                "kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": text}],
            }),
            (ProtocolVersion::V03, Dialect::Rest) => {
                json!({"messageId": id, "role": "ROLE_USER", "content": [{"text": text}]})
            }
        };
        for (key, value) in [("taskId", task), ("contextId", context)] {
            if let Some(value) = value {
                message[key] = value.into();
            }
        }
        message
    }

    pub fn stream(self, message: &Value) -> ClientRequest {
        self.spelled(Method::SendStreamingMessage, "", &json!({"message": message}))
    }

    /// A send that does not wait for the task.
    pub fn send(self, message: &Value) -> ClientRequest {
        let configuration = match self.version {
            ProtocolVersion::V1 => json!({"returnImmediately": true}),
            ProtocolVersion::V03 => json!({"blocking": false}),
        };
        self.spelled(Method::SendMessage, "", &json!({"message": message, "configuration": configuration}))
    }

    /// A send that is answered when the task is over.
    pub fn send_and_wait(self, message: &Value) -> ClientRequest {
        self.spelled(Method::SendMessage, "", &json!({"message": message}))
    }

    pub fn subscribe(self, task: &str) -> ClientRequest {
        self.spelled(Method::SubscribeToTask, task, &json!({"id": task}))
    }

    pub fn get(self, task: &str) -> ClientRequest {
        self.spelled(Method::GetTask, task, &json!({"id": task}))
    }

    pub fn cancel(self, task: &str) -> ClientRequest {
        self.spelled(Method::CancelTask, task, &json!({"id": task}))
    }

    /// Answers a permission request with `once`. The extension has only JSON-RPC methods, for every client. Those of gRPC call it
    /// over HTTP.
    pub(super) fn reply(request: &str) -> ClientRequest {
        let params = json!({"request_id": request, "reply": "once"});
        rpc("a2a.interrupt.permission.reply", &params)
    }

    fn spelled(self, method: Method, task: &str, params: &Value) -> ClientRequest {
        let operation = OPERATIONS.iter().find(|operation| operation.method == method);
        let operation = operation.expect("the table has every method");
        if self.transport == Transport::Grpc {
            let call = operation.grpc(self.version).expect("both packages have every call of a storm");
            let path = format!("/{}/{call}", self.version.grpc_service());
            // 0.3 names a task by a path.
            let is_of_task = self.version == ProtocolVersion::V03 && !task.is_empty();
            let body = if is_of_task { json!({"name": format!("tasks/{task}")}) } else { params.clone() };
            return ClientRequest { verb: "POST", path, body: Some(body) };
        }
        if self.dialect == Dialect::Rpc {
            return rpc(operation.jsonrpc(self.version), params);
        }
        let endpoint = operation.rest(self.version)[0];
        let verb = endpoint.verb.as_str();
        let body = (verb == "POST").then(|| params.clone());
        ClientRequest { verb, path: endpoint.path.replace("{id}", task), body }
    }

    /// A frame or an answer without its envelope. `Err`: an error, with its reason.
    pub(super) fn opened(self, body: &Value) -> Result<Value, String> {
        let reason = match (self.version, self.dialect) {
            (ProtocolVersion::V1, Dialect::Rpc) => body.pointer("/error/data/0/reason"),
            (ProtocolVersion::V1, Dialect::Rest) => body.pointer("/error/details/0/reason"),
            (ProtocolVersion::V03, Dialect::Rpc) => body.pointer("/error/data/type"),
            (ProtocolVersion::V03, Dialect::Rest) => body.get("type"),
        };
        if let Some(reason) = reason.and_then(Value::as_str) {
            return Err(reason.to_owned());
        }
        match (self.dialect, body.get("result")) {
            (Dialect::Rpc, Some(result)) => Ok(result.clone()),
            (Dialect::Rest, _) if body.get("error").is_none() => Ok(body.clone()),
            _ => Err("an error without a reason".to_owned()),
        }
    }

    pub(super) fn event(self, json: &Value) -> Result<StreamEvent, String> {
        let text = json.to_string();
        let event = match self.version {
            ProtocolVersion::V1 => v1::decode::stream_event(&text),
            ProtocolVersion::V03 => v03::decode::stream_event(self.dialect, &text),
        };
        event.map_err(|error| format!("{error:?}: {text}"))
    }

    pub(super) fn task(self, json: &Value) -> Result<Task, String> {
        let text = json.to_string();
        let task = match self.version {
            ProtocolVersion::V1 => v1::decode::task(&text),
            ProtocolVersion::V03 => v03::decode::task(self.dialect, &text),
        };
        task.map_err(|error| format!("{error:?}: {text}"))
    }

    /// Folds the frames to a task. `Err`: a frame that no client could apply.
    pub(super) fn folded<'a>(self, frames: impl IntoIterator<Item = &'a Value>) -> Result<Task, String> {
        let mut known: Option<Task> = None;
        for json in frames {
            match (self.event(json)?, &mut known) {
                (StreamEvent::Task(task), known) => *known = Some(task),
                (event, Some(task)) => {
                    let event = event.into_event().ok_or_else(|| format!("not an event of a log: {json}"))?;
                    task.apply(&event);
                }
                (_, None) => return Err(format!("a frame before any task: {json}")),
            }
        }
        known.ok_or_else(|| "no frames".to_owned())
    }
}

fn rpc(method: &str, params: &Value) -> ClientRequest {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    ClientRequest { verb: "POST", path: "/".to_owned(), body: Some(body) }
}

/// The state that a frame reports, if any.
pub(super) fn state(event: &StreamEvent) -> Option<TaskState> {
    match event {
        StreamEvent::Task(task) => Some(task.status.state),
        StreamEvent::Status { update, .. } => Some(update.status.state),
        StreamEvent::Message(_) | StreamEvent::Artifact { .. } => None,
    }
}

/// All text that the agent has written, including reasoning, in order.
pub(super) fn text(task: &Task) -> String {
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let texts = parts.filter_map(|part| match &part.content {
        PartContent::Text(text) => Some(text.as_str()),
        PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
    });
    texts.collect()
}
