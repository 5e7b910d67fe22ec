//! The schemas of ids, timestamps, and the metadata of requests and responses.

use longshore_model::id::MAX_ID_LENGTH;
use longshore_model::{AskKind, BlockKind, Delivery, OptionKind, PermissionReply, PushEvents, PushWord};
use serde_json::{Map, Value, json};

use super::{object, reference};
use crate::contract::Deployment;
use crate::names::AGENT_OBJECT;

pub(super) fn add(schemas: &mut Map<String, Value>, deployment: &Deployment) {
    let text = json!({"type": "string"});
    let count = json!({"type": "integer", "minimum": 0});
    schemas.insert(
        "Id".to_owned(),
        json!({
            "type": "string",
            "description": "An identifier.",
            "minLength": 1,
            "maxLength": MAX_ID_LENGTH,
            "pattern": "^[A-Za-z0-9_.:-]+$",
        }),
    );
    schemas.insert(
        "Timestamp".to_owned(),
        json!({"type": "string", "format": "date-time", "description": "UTC, with milliseconds."}),
    );
    schemas.insert(
        "Metadata".to_owned(),
        json!({
            "type": "object",
            "description": "Any data of the sender. The gateway passes it on unchanged.",
            "additionalProperties": true,
        }),
    );
    schemas.insert("RequestMetadata".to_owned(), request(deployment));
    object(
        schemas,
        "TaskMetadata",
        "Notes about a task, an artifact or an event. On 1.0 the notes under `shared` are present for callers that \
         activated their extensions.",
        &[],
        json!({"shared": reference("SharedMetadata")}),
    );
    schemas["TaskMetadata"]["additionalProperties"] = json!(true);
    object(
        schemas,
        "SharedMetadata",
        "The notes of the extensions.",
        &[],
        json!({
            "session": {
                "type": "object",
                "required": ["id"],
                "properties": {"id": reference("Id"), "title": text},
            },
            "usage": {
                "type": "object",
                "properties": {
                    "input_tokens": count,
                    "output_tokens": count,
                    "total_tokens": count,
                    "reasoning_tokens": count,
                    "cache_tokens": {
                        "type": "object",
                        "properties": {"read_tokens": count, "write_tokens": count},
                    },
                    "cost": {"type": "number", "minimum": 0},
                },
            },
            "progress": {
                "type": "object",
                "required": ["type"],
                "properties": {"type": text},
                "additionalProperties": true,
            },
            "interrupt": reference("InterruptNote"),
            "parent": {
                "type": "object",
                "description": "The task that a sub-agent works for.",
                "required": ["task_id", "depth"],
                "properties": {"task_id": reference("Id"), "call_id": text, "depth": count},
            },
            "subagent": {
                "type": "object",
                "description": "The sub-agent that works on the task: its type, and its model as `provider/model`.",
                "properties": {"type": text, "model": text},
            },
            "stream": {
                "type": "object",
                "properties": {
                    "block_type": {"enum": block_types()},
                    "source": text,
                    "message_id": reference("Id"),
                    "event_id": text,
                    "sequence": count,
                    "role": {"const": "agent"},
                },
            },
        }),
    );
    object(
        schemas,
        "InterruptNote",
        "An ask of the agent, or its outcome.",
        &["request_id", "type", "phase"],
        json!({
            "request_id": reference("Id"),
            "type": {"enum": [AskKind::Permission.as_str(), AskKind::Question.as_str()]},
            "phase": {"enum": ["asked", "resolved"]},
            "details": {"type": "object", "additionalProperties": true},
            "options": {
                "type": "array",
                "description": "The answers that the agent offers. Left out if these are just once, always and reject.",
                "items": {
                    "type": "object",
                    "required": ["id", "name", "kind"],
                    "properties": {
                        "id": text,
                        "name": text,
                        "kind": {"enum": OptionKind::ALL.map(OptionKind::as_str)},
                    },
                },
            },
            "resolution": {"enum": ["replied", "rejected"]},
            "outcome": text,
            "expires_at": {
                "type": "number",
                "description": "The deadline in seconds since 1970. Set when nobody answered in time.",
            },
            "answer": {
                "enum": [PermissionReply::Once.as_str(), PermissionReply::Reject.as_str()],
                "description": "What the gateway answered at the deadline.",
            },
        }),
    );
}

fn block_types() -> [&'static str; 4] {
    [BlockKind::Text, BlockKind::Reasoning, BlockKind::ToolCall, BlockKind::File].map(BlockKind::as_str)
}

/// The schema of the options in the metadata of a send.
fn request(deployment: &Deployment) -> Value {
    let line = json!({"type": "string", "maxLength": 1024});
    let open = |fields: Value| json!({"type": "object", "properties": fields, "additionalProperties": true});
    let mut metadata = open(json!({
        "shared": open(json!({
            "session": open(json!({"id": reference("Id")})),
            "model": open(json!({"providerID": line, "modelID": line})),
            "mode": line,
            "delivery": {"enum": Delivery::ALL.map(Delivery::as_str)},
            "push": {
                "type": "object",
                "description": "Which events the push notifications of this send are about.",
                "properties": {
                    "events": {
                        "oneOf": [
                            {"const": "all"},
                            {
                                "type": "array",
                                "items": {"enum": PushEvents::ALL.words().map(PushWord::as_str).collect::<Vec<_>>()},
                                "minItems": 1,
                            },
                        ],
                    },
                },
            },
        })),
        AGENT_OBJECT: open((deployment.surface.message_fields)()),
        "iac_code": open(json!({"cwd": line})),
    }));
    if deployment.surface.has_options {
        metadata["properties"]["shared"]["properties"]["config"] = json!({
            "type": "object",
            "description": "Values for other options that the agent offers, by the id of the option.",
            "maxProperties": 32,
            "additionalProperties": line,
        });
    }
    let gated = if deployment.surface.has_workspaces {
        "a session, a directory, a workspace and a model"
    } else {
        "a session, a directory and a model"
    };
    metadata["description"] = json!(format!(
        "Options for the gateway. All other metadata is passed on. On 1.0 {gated} belong to extensions, which have to be activated."
    ));
    metadata
}
