//! The schemas of requests and responses.

use serde_json::{Map, Value, json};

use crate::contract::Deployment;

mod card;
mod content;
mod error;
mod metadata;
mod push;
mod request;
mod rpc;
mod service;

pub(super) use content::Dialect;
pub(super) use push::list_fields as push_list_fields;
pub(super) use request::{history_length, list_fields};

/// Every schema by its name. A document may need only some of them.
pub(super) fn all(deployment: &Deployment) -> Map<String, Value> {
    let mut schemas = Map::new();
    metadata::add(&mut schemas, deployment);
    for add in [error::add, card::add] {
        add(&mut schemas);
    }
    service::add(&mut schemas, deployment);
    rpc::add(&mut schemas, deployment);
    for dialect in Dialect::ALL {
        content::add(&mut schemas, dialect);
        request::add(&mut schemas, dialect);
        push::add(&mut schemas, dialect);
    }
    schemas
}

/// A schema by its name.
pub(crate) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn list_of(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

/// Adds an object with these fields.
fn object(schemas: &mut Map<String, Value>, name: &str, description: &str, required: &[&str], fields: Value) {
    let mut schema = json!({"type": "object", "description": description});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema["properties"] = fields;
    schemas.insert(name.to_owned(), schema);
}
