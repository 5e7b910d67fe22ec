//! A client of one protocol version and binding: encodes requests in its spelling and decodes responses to the model.

use longshore_model::{PartContent, Role, Task, TaskState};
use longshore_wire::surface::{OPERATIONS, ProtocolVersion};
use longshore_wire::v1::decode::{StreamEvent, TaskPage};
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use longshore_wire::{v1, v03};
use serde_json::{Value, json};

use super::grpc::Asked;
use super::{Answer, Call, Events, Frame, Gateway, HINTS, INTERRUPT, SESSION};

/// The id of every configuration of push notifications.
pub(crate) const PUSH_ID: &str = "c";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProtocolClient {
    pub(crate) version: ProtocolVersion,
    pub(crate) dialect: Dialect,
}

impl ProtocolClient {
    pub(crate) const ALL: [Self; 4] = [
        Self { version: ProtocolVersion::V1, dialect: Dialect::Rpc },
        Self { version: ProtocolVersion::V1, dialect: Dialect::Rest },
        Self { version: ProtocolVersion::V03, dialect: Dialect::Rpc },
        Self { version: ProtocolVersion::V03, dialect: Dialect::Rest },
    ];

    pub(crate) fn name(self) -> String {
        let binding = if self.dialect == Dialect::Rpc { "JSON-RPC" } else { "REST" };
        format!("{} {binding}", self.version.as_str())
    }

    pub(crate) fn message(self, id: &str, text: &str) -> Value {
        match (self.version, self.dialect) {
            (ProtocolVersion::V1, _) => {
                json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]})
            }
            (ProtocolVersion::V03, Dialect::Rpc) => json!({
                "kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": text}],
            }),
            (ProtocolVersion::V03, Dialect::Rest) => {
                json!({"messageId": id, "role": "ROLE_USER", "content": [{"text": text}]})
            }
        }
    }

    /// The reason in an error response.
    pub(crate) fn reason(self, answer: &Answer) -> String {
        let body = answer.json();
        let word = match (self.version, self.dialect) {
            (ProtocolVersion::V1, Dialect::Rpc) => &body["error"]["data"][0]["reason"],
            (ProtocolVersion::V1, Dialect::Rest) => &body["error"]["details"][0]["reason"],
            (ProtocolVersion::V03, Dialect::Rpc) => &body["error"]["data"]["type"],
            (ProtocolVersion::V03, Dialect::Rest) => &body["type"],
        };
        word.as_str().unwrap_or_else(|| panic!("{} {body}", self.name())).to_owned()
    }

    /// Adds a configuration that says, in the spelling of the version, whether to wait.
    pub(crate) fn send_body(self, message: &Value, waits: bool) -> Value {
        let configuration = match self.version {
            ProtocolVersion::V1 => json!({"returnImmediately": !waits}),
            ProtocolVersion::V03 => json!({"blocking": waits}),
        };
        json!({"message": message, "configuration": configuration})
    }

    /// A call of an operation: `params` are those of JSON-RPC and the body of a REST request that has one; `id` is in
    /// the path. The extensions are activated, so that 1.0 shows as much as 0.3 always does.
    pub(crate) fn call(self, gateway: &Gateway, method: Method, id: &str, params: &Value) -> Call {
        self.call_under("", gateway, method, id, params)
    }

    /// The same call under a base.
    pub(crate) fn call_under(
        self,
        base: &str,
        gateway: &Gateway,
        method: Method,
        id: &str,
        params: &Value,
    ) -> Call {
        let operation = OPERATIONS.iter().find(|operation| operation.method == method).unwrap();
        let call = match self.dialect {
            Dialect::Rpc => {
                let method = operation.jsonrpc(self.version);
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
                gateway.call("POST", &format!("{base}/")).json(&body)
            }
            Dialect::Rest => {
                let endpoint = operation.rest(self.version)[0];
                let path = endpoint.path.replace("{id}", id).replace("{push_id}", PUSH_ID);
                let call = gateway.call(endpoint.verb.as_str(), &format!("{base}{path}"));
                if endpoint.verb.as_str() == "POST" && !params.is_null() { call.json(params) } else { call }
            }
        };
        let call = call.asking(Asked { method, task: id.to_owned(), params: params.clone() });
        match self.version {
            ProtocolVersion::V1 => call.header("a2a-extensions", &format!("{HINTS},{INTERRUPT},{SESSION}")),
            ProtocolVersion::V03 => call,
        }
    }

    pub(crate) fn send(self, gateway: &Gateway, message: &Value, waits: bool) -> Call {
        self.call(gateway, Method::SendMessage, "", &self.send_body(message, waits))
    }

    pub(crate) fn stream(self, gateway: &Gateway, message: &Value) -> Call {
        self.call(gateway, Method::SendStreamingMessage, "", &json!({"message": message}))
    }

    /// An operation on a task.
    pub(crate) fn on(self, gateway: &Gateway, method: Method, task: &str) -> Call {
        let params = if self.dialect == Dialect::Rpc { json!({"id": task}) } else { Value::Null };
        self.call(gateway, method, task, &params)
    }

    pub(crate) fn list(self, gateway: &Gateway) -> Call {
        self.call(gateway, Method::ListTasks, "", &json!({}))
    }

    /// A configuration of push notifications with every field, in the spelling of the client's version.
    pub(crate) fn push_config(self, url: &str) -> Value {
        let scheme = match self.version {
            ProtocolVersion::V1 => json!({"scheme": "Bearer", "credentials": "planted-credentials"}),
            ProtocolVersion::V03 => json!({"schemes": ["Bearer"], "credentials": "planted-credentials"}),
        };
        json!({"id": PUSH_ID, "url": url, "token": "planted-token", "authentication": scheme})
    }

    /// The parameters of an operation on a configuration. On REST they are in the path, but for those of a creation.
    pub(crate) fn push_params(self, method: Method, task: &str, url: &str) -> Value {
        let mut config = self.push_config(url);
        match (method, self.version, self.dialect) {
            (Method::CreateTaskPushNotificationConfig, ProtocolVersion::V1, _) => {
                config["taskId"] = json!(task);
                config
            }
            (Method::CreateTaskPushNotificationConfig, _, Dialect::Rpc) => {
                json!({"taskId": task, "pushNotificationConfig": config})
            }
            (Method::CreateTaskPushNotificationConfig, _, Dialect::Rest) => {
                json!({"configId": PUSH_ID, "config": {"pushNotificationConfig": config}})
            }
            (_, _, Dialect::Rest) => Value::Null,
            (Method::ListTaskPushNotificationConfigs, ProtocolVersion::V03, _) => json!({"id": task}),
            (_, ProtocolVersion::V03, _) => json!({"id": task, "pushNotificationConfigId": PUSH_ID}),
            (_, ProtocolVersion::V1, _) => json!({"taskId": task, "id": PUSH_ID}),
        }
    }

    /// The result of a successful response, as text.
    pub(crate) fn result(self, answer: &Answer) -> String {
        let body = answer.json();
        assert_eq!(answer.status.as_u16(), 200, "{} {body}", self.name());
        // A message has no headers.
        let version = answer.header("a2a-version");
        assert!(version.is_empty() || version == self.version.as_str(), "{body}");
        match self.dialect {
            Dialect::Rpc => body.get("result").unwrap_or_else(|| panic!("{body}")).to_string(),
            Dialect::Rest => body.to_string(),
        }
    }

    pub(crate) fn task(self, answer: &Answer) -> Task {
        let text = self.result(answer);
        match self.version {
            ProtocolVersion::V1 => v1::decode::task(&text),
            ProtocolVersion::V03 => v03::decode::task(self.dialect, &text),
        }
        .unwrap_or_else(|error| panic!("{error:?}: {text}"))
    }

    pub(crate) fn sent(self, answer: &Answer) -> Task {
        match self.event_of(&self.result(answer)) {
            StreamEvent::Task(task) => task,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn page(self, answer: &Answer) -> TaskPage {
        let text = self.result(answer);
        match self.version {
            ProtocolVersion::V1 => v1::decode::task_page(&text).unwrap(),
            ProtocolVersion::V03 => v03::decode::task_page(self.dialect, &text).unwrap(),
        }
    }

    pub(crate) fn event(self, frame: &Frame) -> StreamEvent {
        let data = if self.dialect == Dialect::Rpc { &frame.data["result"] } else { &frame.data };
        self.event_of(&data.to_string())
    }

    /// The gap that a frame reports, if its reader missed events for good.
    pub(crate) fn gap(self, frame: &Frame) -> Option<Value> {
        let data = if self.dialect == Dialect::Rpc { &frame.data["result"] } else { &frame.data };
        let task = data.get("task").unwrap_or(data);
        task.pointer("/metadata/longshore/gap").cloned()
    }

    fn event_of(self, text: &str) -> StreamEvent {
        match self.version {
            ProtocolVersion::V1 => v1::decode::stream_event(text),
            ProtocolVersion::V03 => v03::decode::stream_event(self.dialect, text),
        }
        .unwrap_or_else(|error| panic!("{} {error:?}: {text}", self.name()))
    }

    /// Applies the frames to the task that the client knows. A client of 0.3 drops an addition to an artifact that it does not
    /// have.
    pub(crate) fn fold(self, known: Option<Task>, frames: &[Frame]) -> Option<Task> {
        frames.iter().fold(known, |known, frame| match (self.event(frame), known) {
            (StreamEvent::Task(task), _) => Some(task),
            (event, Some(mut task)) => {
                if let StreamEvent::Artifact { update, .. } = &event {
                    let id = &update.artifact.id;
                    let is_known = task.artifacts.iter().any(|artifact| artifact.id == *id);
                    assert!(!update.append || is_known, "{} has no {id} to add to", self.name());
                }
                task.apply(&event.into_event().unwrap());
                Some(task)
            }
            (event, None) => panic!("{event:?} before any task"),
        })
    }

    /// The frames up to a state, including that one.
    pub(crate) async fn until(self, events: &mut Events, state: TaskState) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = events.next().await.expect("the stream goes on");
            let reached = match self.event(&frame) {
                StreamEvent::Task(task) => task.status.state == state,
                StreamEvent::Status { update, .. } => update.status.state == state,
                _ => false,
            };
            frames.push(frame);
            if reached {
                return frames;
            }
        }
    }
}

/// What a client of either version can know of a task, without what 0.3 cannot express: see `versions::LOSSES`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ClientView {
    pub(crate) id: String,
    context: String,
    pub(crate) state: TaskState,
    said_at_the_end: String,
    history: Vec<(String, Role, String)>,
    /// The text of all blocks, in order.
    pub(crate) text: String,
    /// The last state of each tool call.
    tools: Vec<Value>,
    files: Vec<(String, Option<String>, Option<String>)>,
}

impl ClientView {
    pub(crate) fn of(task: &Task) -> Self {
        let (mut text, mut tools, mut files) = (String::new(), Vec::<Value>::new(), Vec::new());
        for part in task.artifacts.iter().flat_map(|artifact| &artifact.parts) {
            match &part.content {
                PartContent::Text(chunk) => text.push_str(chunk),
                PartContent::Data(data) => {
                    let state: Value = serde_json::from_str(data.get()).unwrap();
                    tools.retain(|before| before["call_id"] != state["call_id"]);
                    tools.push(state);
                }
                PartContent::Url(url) => {
                    files.push((url.clone(), part.filename.clone(), part.media_type.clone()));
                }
                PartContent::Raw(_) => panic!("no agent sends bytes"),
            }
        }
        let texts = |message: &longshore_model::Message| -> String {
            message.parts.iter().filter_map(|part| part.as_text()).collect()
        };
        Self {
            id: task.id.to_string(),
            context: task.context_id.to_string(),
            state: task.status.state,
            // In 0.3 a response, but no frame, repeats the agent's text here.
            said_at_the_end: match task.status.state {
                TaskState::Completed => String::new(),
                _ => task.status.message.as_ref().map(texts).unwrap_or_default(),
            },
            history: task
                .history
                .iter()
                .map(|message| (message.id.to_string(), message.role, texts(message)))
                .collect(),
            text,
            tools,
            files,
        }
    }
}
