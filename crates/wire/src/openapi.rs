//! The `OpenAPI` 3.1 document: every path and every schema of this deployment, generated from [`crate::surface`] and the tables
//! of errors and extensions.
//!
//! Readers without a credential get the part that the public card also shows: the paths of the cards and of the liveness check, how
//! to authenticate, and the public extensions.

use std::collections::BTreeSet;

use bytes::Bytes;
use longshore_model::card::AuthScheme;
use serde_json::{Map, Value, json};

use crate::card::{scheme_fields, scheme_name};
use crate::contract::{Audience, Deployment};
use crate::surface::ProtocolVersion;

mod example;
mod extension;
mod parameter;
mod path;
mod response;
mod schema;
#[cfg(test)]
mod tests;

pub(crate) use schema::reference;

pub fn document(deployment: &Deployment, audience: Audience) -> Bytes {
    value(deployment, audience).to_string().into()
}

fn value(deployment: &Deployment, audience: Audience) -> Value {
    let mut paths = path::all(deployment, audience);
    for item in paths.values_mut().filter_map(Value::as_object_mut) {
        for answers in item.values_mut().filter_map(|operation| operation.get_mut("responses")) {
            response::add_common_headers(answers);
        }
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": info(deployment),
        "servers": [{"url": deployment.public_url.trim_end_matches('/')}],
        "tags": path::tags(audience),
        "paths": paths,
    });
    let mut components = Map::new();
    // Responses contain schemas, so references to schemas are collected from them too.
    let mut responses = response::all();
    keep_used(&mut responses, "responses", &[&document["paths"]]);
    let mut schemas = schema::all(deployment);
    let mut named = Value::Object(responses);
    response::add_common_headers(&mut named);
    keep_used(&mut schemas, "schemas", &[&document["paths"], &named]);
    components.insert("schemas".to_owned(), Value::Object(schemas));
    let mut headers = response::all_headers();
    keep_used(&mut headers, "headers", &[&document["paths"], &named]);
    components.insert("headers".to_owned(), Value::Object(headers));
    components.insert("responses".to_owned(), named);
    components.insert("securitySchemes".to_owned(), Value::Object(schemes(deployment)));
    document["security"] = json!(security(deployment));
    if audience == Audience::Anonymous {
        // The contracts are normally at the JSON-RPC path, which the public part of the document does not contain.
        let contracts = extension::contracts(deployment, audience);
        document["x-a2a-extension-contracts"] = Value::Object(contracts);
    }
    document["components"] = Value::Object(components);
    document
}

fn info(deployment: &Deployment) -> Value {
    let versions = ProtocolVersion::ALL.map(ProtocolVersion::as_str);
    let bases =
        ProtocolVersion::ALL.map(|version| format!("only {} under {}", version.as_str(), version.base()));
    let description =
        format!("{} A2A {}; {}.", deployment.description, versions.join(" and "), bases.join(", "));
    json!({"title": deployment.title, "version": deployment.version, "description": description})
}

/// The authentication schemes of the configured credentials.
fn used(deployment: &Deployment) -> BTreeSet<AuthScheme> {
    deployment.schemes.iter().copied().collect()
}

fn schemes(deployment: &Deployment) -> Map<String, Value> {
    let scheme = |scheme: AuthScheme| -> Map<String, Value> {
        scheme_fields(scheme).iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    };
    used(deployment).into_iter().map(|used| (scheme_name(used).to_owned(), json!(scheme(used)))).collect()
}

/// The alternatives for authentication. A request needs only one of them.
fn security(deployment: &Deployment) -> Vec<Value> {
    used(deployment).into_iter().map(|scheme| json!({scheme_name(scheme): []})).collect()
}

/// Removes components of a kind to which neither these documents nor other used components refer.
fn keep_used(components: &mut Map<String, Value>, kind: &str, documents: &[&Value]) {
    let prefix = format!("#/components/{kind}/");
    let mut used = BTreeSet::new();
    let mut waiting = Vec::new();
    for document in documents {
        references(document, &prefix, &mut waiting);
    }
    while let Some(name) = waiting.pop() {
        if let Some(component) = components.get(&name)
            && used.insert(name)
        {
            references(component, &prefix, &mut waiting);
        }
    }
    components.retain(|name, _| used.contains(name));
}

fn references(value: &Value, prefix: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let name = fields.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix(prefix));
            found.extend(name.map(str::to_owned));
            fields.values().for_each(|value| references(value, prefix, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, prefix, found)),
        _ => {}
    }
}
