//! The schemas of tasks, messages, artifacts and events. The three dialects of A2A differ in a few names and wrappers.

use longshore_model::{Role, TaskState};
use serde_json::{Map, Value, json};

use super::{list_of, object, reference};
use crate::spelling::Spelling;
use crate::v1;
use crate::v03;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::openapi) enum Dialect {
    V1,
    V03Rpc,
    V03Rest,
}

impl Dialect {
    pub(in crate::openapi) const ALL: [Self; 3] = [Self::V1, Self::V03Rpc, Self::V03Rest];

    /// The name that a schema has in this dialect.
    pub(in crate::openapi) fn named(self, name: &str) -> String {
        match self {
            Self::V1 => name.to_owned(),
            Self::V03Rpc => format!("V03{name}"),
            Self::V03Rest => format!("V03Rest{name}"),
        }
    }

    pub(in crate::openapi) fn reference(self, name: &str) -> Value {
        reference(&self.named(name))
    }

    fn spelling(self) -> &'static Spelling {
        match self {
            Self::V1 => &v1::SPELLING,
            Self::V03Rpc => v03::Dialect::Rpc.spelling(),
            Self::V03Rest => v03::Dialect::Rest.spelling(),
        }
    }

    fn has_final(self) -> bool {
        self != Self::V1
    }

    pub(super) fn role(self, role: Role) -> &'static str {
        (self.spelling().role_name)(role)
    }
}

/// Adds an object schema, with a `kind` in dialects that have this field.
fn tagged(
    schemas: &mut Map<String, Value>,
    dialect: Dialect,
    (name, kind, description): (&str, &str, &str),
    required: &[&str],
    fields: Value,
) {
    let mut required = required.to_vec();
    let mut all = Map::new();
    if dialect.spelling().has_kinds {
        required.insert(0, "kind");
        all.insert("kind".to_owned(), json!({"const": kind}));
    }
    if let Value::Object(fields) = fields {
        all.extend(fields);
    }
    object(schemas, &dialect.named(name), description, &required, Value::Object(all));
}

pub(super) fn add(schemas: &mut Map<String, Value>, dialect: Dialect) {
    let id = reference("Id");
    let texts = list_of(&json!({"type": "string"}));
    let metadata = reference("TaskMetadata");
    let states: Vec<&str> =
        TaskState::ALL.iter().map(|state| (dialect.spelling().state_name)(*state)).collect();
    schemas.insert(
        dialect.named("TaskState"),
        json!({"type": "string", "description": "The state of a task.", "enum": states}),
    );
    schemas.insert(
        dialect.named("Role"),
        json!({"type": "string", "enum": [dialect.role(Role::User), dialect.role(Role::Agent)]}),
    );
    add_part(schemas, dialect);
    let mut message = json!({
        "messageId": id,
        "contextId": id,
        "taskId": id,
        "role": dialect.reference("Role"),
        dialect.spelling().parts[0]: filled(&dialect.reference("Part")),
        "metadata": reference("Metadata"),
        "extensions": texts,
    });
    if dialect.spelling().has_references {
        message["referenceTaskIds"] = list_of(&id);
    }
    let head = ("Message", "message", "A message of a caller or of the agent.");
    tagged(schemas, dialect, head, &["messageId", "role", dialect.spelling().parts[0]], message);
    object(
        schemas,
        &dialect.named("TaskStatus"),
        "The state of a task, its time, and a message of the agent about it.",
        &["state", "timestamp"],
        json!({
            "state": dialect.reference("TaskState"),
            "message": dialect.reference("Message"),
            "timestamp": reference("Timestamp"),
        }),
    );
    object(
        schemas,
        &dialect.named("Artifact"),
        "A piece of the agent's output: text, reasoning, a tool call, or a file.",
        &["artifactId", "parts"],
        json!({
            "artifactId": id,
            "name": {"type": "string"},
            "description": {"type": "string"},
            "parts": list_of(&dialect.reference("Part")),
            "metadata": metadata,
            "extensions": texts,
        }),
    );
    let task = json!({
        "id": id,
        "contextId": id,
        "status": dialect.reference("TaskStatus"),
        "artifacts": list_of(&dialect.reference("Artifact")),
        "history": list_of(&dialect.reference("Message")),
        "metadata": metadata,
    });
    tagged(
        schemas,
        dialect,
        ("Task", "task", "One turn of the agent."),
        &["id", "contextId", "status"],
        task,
    );
    object(
        schemas,
        &dialect.named("TaskPage"),
        "A page of a list. `nextPageToken` is empty on the last one.",
        &["tasks", "nextPageToken", "pageSize", "totalSize"],
        json!({
            "tasks": list_of(&dialect.reference("Task")),
            "nextPageToken": {"type": "string"},
            "pageSize": {"type": "integer", "minimum": 0},
            "totalSize": {"type": "integer", "minimum": 0},
        }),
    );
    add_events(schemas, dialect);
}

fn filled(items: &Value) -> Value {
    json!({"type": "array", "items": items, "minItems": 1})
}

fn add_events(schemas: &mut Map<String, Value>, dialect: Dialect) {
    let id = reference("Id");
    let metadata = reference("TaskMetadata");
    let mut status = json!({
        "taskId": id,
        "contextId": id,
        "status": dialect.reference("TaskStatus"),
        "metadata": metadata,
    });
    let mut required = vec!["taskId", "contextId", "status"];
    if dialect.has_final() {
        status["final"] = json!({"type": "boolean", "description": "This is the last event of the stream."});
        required.push("final");
    }
    let head = ("TaskStatusUpdateEvent", "status-update", "The status of a task has changed.");
    tagged(schemas, dialect, head, &required, status);
    let artifact = json!({
        "taskId": id,
        "contextId": id,
        "artifact": dialect.reference("Artifact"),
        "append": {"type": "boolean", "description": "The parts are appended to those of the artifact; otherwise they replace them."},
        "lastChunk": {"type": "boolean"},
        "metadata": metadata,
    });
    let head = ("TaskArtifactUpdateEvent", "artifact-update", "An artifact of a task has grown or changed.");
    tagged(schemas, dialect, head, &["taskId", "contextId", "artifact"], artifact);

    let events = [
        ("task", "Task"),
        ("message", "Message"),
        ("statusUpdate", "TaskStatusUpdateEvent"),
        ("artifactUpdate", "TaskArtifactUpdateEvent"),
    ];
    let event = if dialect.spelling().has_kinds {
        let all: Vec<Value> = events.iter().map(|(_, name)| dialect.reference(name)).collect();
        json!({"oneOf": all})
    } else {
        let wrapped = |(key, name): &(&str, &str)| json!({"type": "object", "required": [key], "properties": {*key: dialect.reference(name)}});
        // The gateway always responds with a task. Dialects with a `kind` have no wrapper.
        schemas.insert(dialect.named("SendMessageResponse"), wrapped(&events[0]));
        json!({"oneOf": events.iter().map(wrapped).collect::<Vec<_>>()})
    };
    schemas.insert(dialect.named("StreamResponse"), event);
}

/// A part has exactly one kind of content.
fn add_part(schemas: &mut Map<String, Value>, dialect: Dialect) {
    let text = json!({"type": "string"});
    let bytes = json!({"type": "string", "contentEncoding": "base64"});
    let data = json!({"type": "object", "additionalProperties": true});
    let part = |kind: &str, key: &str, value: Value| {
        let mut fields = Map::new();
        let mut required = vec![key];
        if dialect.spelling().has_kinds {
            fields.insert("kind".to_owned(), json!({"const": kind}));
            required.insert(0, "kind");
        }
        fields.insert(key.to_owned(), value);
        fields.insert("metadata".to_owned(), reference("Metadata"));
        if dialect == Dialect::V1 {
            fields.insert("filename".to_owned(), text.clone());
            fields.insert("mediaType".to_owned(), text.clone());
        }
        json!({"title": format!("{kind} part"), "type": "object", "required": required, "properties": fields})
    };
    let file = |key: &str, value: &Value| {
        json!({
            "type": "object",
            "required": [key],
            "properties": {key: value, "mimeType": text, "name": text},
        })
    };
    let parts = match dialect {
        Dialect::V1 => vec![
            part("text", "text", text.clone()),
            part("raw", "raw", bytes),
            part("url", "url", text.clone()),
            part("data", "data", json!({"description": "Any JSON value."})),
        ],
        Dialect::V03Rpc => vec![
            part("text", "text", text.clone()),
            part("file", "file", json!({"oneOf": [file("bytes", &bytes), file("uri", &text)]})),
            part("data", "data", data),
        ],
        Dialect::V03Rest => {
            let files = [file("fileWithBytes", &bytes), file("fileWithUri", &text)];
            let wrapped = json!({"type": "object", "required": ["data"], "properties": {"data": data}});
            vec![
                part("text", "text", text.clone()),
                part("file", "file", json!({"oneOf": files})),
                part("data", "data", wrapped),
            ]
        }
    };
    schemas.insert(
        dialect.named("Part"),
        json!({"description": "A piece of content, of exactly one kind.", "oneOf": parts}),
    );
}
