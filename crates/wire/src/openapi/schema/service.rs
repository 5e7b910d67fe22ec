//! The schema of the health document.

use serde_json::{Map, Value, json};

use super::{object, reference};
use crate::contract::Deployment;

pub(super) fn add(schemas: &mut Map<String, Value>, deployment: &Deployment) {
    let agent = deployment.surface.key;
    let text = json!({"type": "string"});
    object(
        schemas,
        "Health",
        "Which parts of the gateway work.",
        &["status", "service", "version", "live", "ready", "stopping", "parts", "profile"],
        json!({
            "status": {"enum": ["ok", "degraded", "unavailable"]},
            "service": text,
            "version": text,
            "live": {"type": "boolean"},
            "ready": {"type": "boolean", "description": "The gateway accepts new work."},
            "stopping": {"type": "boolean"},
            "parts": {
                "type": "object",
                "required": [agent, "store"],
                "properties": {agent: reference("HealthPart"), "store": reference("HealthPart")},
            },
            "profile": {
                "type": "object",
                "description": "The kind of deployment, and which features are on.",
                "required": ["profile_id", "deployment", "runtime_features", "protocol_version"],
                "properties": {
                    "profile_id": text,
                    "deployment": {"type": "object", "additionalProperties": true},
                    "runtime_features": {"type": "object", "additionalProperties": true},
                    "runtime_context": {"type": "object", "additionalProperties": true},
                    "protocol_version": text,
                },
            },
        }),
    );
    object(
        schemas,
        "HealthPart",
        "A part of the gateway.",
        &["status"],
        json!({"status": {"enum": ["up", "degraded", "down"]}, "message": text}),
    );
}
