//! The schemas of errors, in the format of each version.

use longshore_model::ErrorKind;
use serde_json::{Map, Value, json};

use super::{list_of, object, reference};
use crate::{v1, v03};

pub(super) fn add(schemas: &mut Map<String, Value>) {
    let text = json!({"type": "string"});
    let rows = ErrorKind::ALL.map(v1::error::row);
    let reasons: Vec<&str> = rows.iter().map(|row| row.reason).collect();
    let mut statuses: Vec<&str> = rows.iter().map(|row| row.status).collect();
    statuses.sort_unstable();
    statuses.dedup();
    schemas.insert(
        "ErrorDetail".to_owned(),
        json!({
            "oneOf": [
                {
                    "title": "What a program should check",
                    "type": "object",
                    "required": ["@type", "reason", "domain"],
                    "properties": {
                        "@type": {"const": "type.googleapis.com/google.rpc.ErrorInfo"},
                        "reason": {"enum": reasons},
                        "domain": {"const": v1::error::DOMAIN},
                        "metadata": {"type": "object", "additionalProperties": text},
                    },
                },
                {
                    "title": "Which fields are wrong",
                    "type": "object",
                    "required": ["@type", "fieldViolations"],
                    "properties": {
                        "@type": {"const": "type.googleapis.com/google.rpc.BadRequest"},
                        "fieldViolations": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["field", "description"],
                                "properties": {"field": text, "description": text},
                            },
                        },
                    },
                },
            ],
        }),
    );
    object(
        schemas,
        "RestError",
        "Why a request of 1.0 failed, in the format of AIP-193.",
        &["error"],
        json!({
            "error": {
                "type": "object",
                "required": ["code", "status", "message", "details"],
                "properties": {
                    "code": {"type": "integer", "description": "The HTTP status."},
                    "status": {"enum": statuses},
                    "message": text,
                    "details": list_of(&reference("ErrorDetail")),
                },
            },
        }),
    );
    let mut words: Vec<&str> = ErrorKind::ALL.iter().map(|kind| v03::error::row(*kind).word).collect();
    words.extend(["MISSING_FIELD", "INVALID_FIELD", "INVALID_PAGINATION_MODE"]);
    words.sort_unstable();
    words.dedup();
    let facts = json!({
        "type": {"enum": words},
        "field": text,
        "fields": list_of(&text),
    });
    object(schemas, "V03ErrorFacts", "What a program should check, and further details.", &["type"], facts);
    schemas["V03ErrorFacts"]["additionalProperties"] = json!(true);
    schemas.insert(
        "V03RestError".to_owned(),
        json!({
            "description": "Why a request of 0.3 failed. The text is in two fields, because clients read one or the other.",
            "allOf": [
                reference("V03ErrorFacts"),
                {"type": "object", "required": ["message", "error", "code"], "properties": {"message": text, "error": text, "code": {"type": "integer"}}},
            ],
        }),
    );
}
