//! The schemas of the cards: the card of 1.0, which may also have the fields of 0.3, and the card of 0.3.

use serde_json::{Map, Value, json};

use super::{list_of, object, reference};

pub(super) fn add(schemas: &mut Map<String, Value>) {
    let text = json!({"type": "string"});
    let texts = list_of(&text);
    object(
        schemas,
        "AgentExtension",
        "An extension of A2A that callers may activate.",
        &["uri"],
        json!({
            "uri": text,
            "description": text,
            "required": {"type": "boolean", "description": "Requests that do not activate the extension are refused."},
            "params": {"type": "object", "additionalProperties": true},
        }),
    );
    object(
        schemas,
        "AgentSkill",
        "What the agent can do.",
        &["id", "name", "description", "tags"],
        json!({
            "id": text,
            "name": text,
            "description": text,
            "tags": texts,
            "examples": texts,
            "inputModes": texts,
            "outputModes": texts,
        }),
    );
    let both = json!({
        "name": text,
        "description": text,
        "version": text,
        "documentationUrl": text,
        "capabilities": {
            "type": "object",
            "properties": {
                "streaming": {"type": "boolean"},
                "pushNotifications": {"type": "boolean"},
                "stateTransitionHistory": {"type": "boolean"},
                "extendedAgentCard": {"type": "boolean"},
                "extensions": list_of(&reference("AgentExtension")),
            },
        },
        "securitySchemes": {"type": "object", "additionalProperties": scheme()},
        "defaultInputModes": texts,
        "defaultOutputModes": texts,
        "skills": list_of(&reference("AgentSkill")),
    });
    let old = json!({
        "protocolVersion": text,
        "url": text,
        "preferredTransport": text,
        "additionalInterfaces": list_of(&json!({
            "type": "object",
            "required": ["url", "transport"],
            "properties": {"url": text, "transport": text},
        })),
        "security": list_of(&json!({"type": "object", "additionalProperties": texts})),
        "supportsAuthenticatedExtendedCard": {"type": "boolean"},
    });
    let new = json!({
        "supportedInterfaces": list_of(&json!({
            "type": "object",
            "required": ["url", "protocolBinding", "protocolVersion"],
            "properties": {"url": text, "protocolBinding": text, "protocolVersion": text},
        })),
        "securityRequirements": list_of(&json!({
            "type": "object",
            "properties": {
                "schemes": {
                    "type": "object",
                    "additionalProperties": {"type": "object", "properties": {"list": texts}},
                },
            },
        })),
    });
    let common = [
        "name",
        "description",
        "version",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
    ];
    object(
        schemas,
        "AgentCard",
        "The card of 1.0. Where both versions are served, it also has the fields of 0.3, unless the request has A2A-Version: \
         1.0.",
        &[&common[..], &["supportedInterfaces"]].concat(),
        together(&[&both, &new, &old]),
    );
    object(
        schemas,
        "V03AgentCard",
        "The card of 0.3.",
        &[&common[..], &["protocolVersion", "url", "preferredTransport"]].concat(),
        together(&[&both, &old]),
    );
}

/// The schema of a security scheme, which may have the fields of both versions at once.
fn scheme() -> Value {
    let text = json!({"type": "string"});
    json!({
        "type": "object",
        "properties": {
            "httpAuthSecurityScheme": {
                "type": "object",
                "properties": {"scheme": text, "bearerFormat": text, "description": text},
            },
            "apiKeySecurityScheme": {
                "type": "object",
                "properties": {"location": text, "name": text, "description": text},
            },
            "type": {"enum": ["http", "apiKey"]},
            "scheme": text,
            "bearerFormat": text,
            "description": text,
            "in": text,
            "name": text,
        },
    })
}

fn together(objects: &[&Value]) -> Value {
    let fields = objects.iter().filter_map(|object| object.as_object()).flatten();
    Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect())
}
