//! The wire contract: what is answered, by name, and what is told about a method that is not.

use longshore_model::card::Binding;
use longshore_model::{Error, ErrorKind};
use serde_json::{Value, json};

use super::card::{Base, declared_extensions, uri};
use super::compatibility::{core, protocol_compatibility, versions};
use super::deployment::Deployment;
use super::{method, profile, service_behaviors};
use crate::card::bindings;
use crate::extension::Extension;
use crate::jsonrpc;
use crate::surface::{self, Line};

pub fn wire_contract(deployment: &Deployment, line: Line, base: Base) -> Value {
    let [preferred, additional @ ..] = bindings(line).map(|binding| transport(line, binding));
    let declared = declared_extensions(deployment);
    let uris: Vec<_> = declared
        .into_iter()
        .filter(|extension| !matches!(extension, Extension::CompatibilityProfile | Extension::WireContract))
        .map(|extension| uri(extension, line))
        .collect();
    json!({
        "protocol_version": line.version(),
        "default_protocol_version": deployment.default_line(line, base).version(),
        "supported_protocol_versions": versions(line, base),
        "protocol_compatibility": protocol_compatibility(deployment, line, base),
        "profile": profile::summary(deployment, line),
        "preferred_transport": preferred,
        "additional_transports": additional,
        "core": core(line),
        "extensions": {
            "jsonrpc_methods": surface::extension_methods(),
            // No method has a switch yet.
            "conditionally_available_methods": {},
            "extension_uris": uris,
        },
        "all_jsonrpc_methods": surface::supported_methods(line),
        "service_behaviors": service_behaviors(line),
        "unsupported_method_error": unsupported_method_error(line),
    })
}

fn transport(line: Line, binding: Binding) -> &'static str {
    match (binding, line) {
        (Binding::JsonRpc, Line::V1) => "JSONRPC",
        (Binding::JsonRpc, Line::V03) => "JSON-RPC",
        (Binding::Rest, _) => "HTTP+JSON",
    }
}

fn unsupported_method_error(line: Line) -> Value {
    let (code, word) = method::code(line, ErrorKind::MethodNotFound);
    let fields: &[&str] = match line {
        Line::V1 => &["reason", "metadata.method", "metadata.supportedMethods", "metadata.protocolVersion"],
        Line::V03 => &["type", "method", "supported_methods", "protocol_version"],
    };
    json!({"code": code, "type": word, "data_fields": fields})
}

/// What a caller is told who names a method that the line does not have.
pub fn unsupported_method(line: Line, name: &str) -> Error {
    jsonrpc::unknown_method(name, surface::supported_methods(line), line)
}
