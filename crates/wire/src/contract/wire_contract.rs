//! Builds the wire contract, which lists everything that is served, and the errors for methods that are not served.

use longshore_model::card::Binding;
use longshore_model::{Error, ErrorKind};
use serde_json::{Map, Value, json};

use super::card::{Base, declared_extensions, interfaces, uri};
use super::compatibility::{core, protocol_compatibility, versions};
use super::deployment::Deployment;
use super::{method, profile, service_behaviors};
use crate::card::binding_name;
use crate::extension::Extension;
use crate::json::text_of_list;
use crate::jsonrpc;
use crate::methods::{self, Switch};
use crate::surface::{self, ProtocolVersion};

pub fn wire_contract(deployment: &Deployment, version: ProtocolVersion, base: Base) -> Value {
    let bindings = interfaces(deployment, version, base).into_iter().map(|interface| interface.binding);
    let transports: Vec<_> = bindings.map(|binding| transport(version, binding)).collect();
    let (preferred, additional) = transports.split_first().expect("a gateway has an interface");
    let declared = declared_extensions(deployment);
    let uris: Vec<_> = declared
        .into_iter()
        .filter(|extension| !matches!(extension, Extension::CompatibilityProfile | Extension::WireContract))
        .map(|extension| uri(extension, version))
        .collect();
    json!({
        "protocol_version": version.as_str(),
        "default_protocol_version": deployment.default_version(version, base).as_str(),
        "supported_protocol_versions": versions(version, base),
        "protocol_compatibility": protocol_compatibility(deployment, version, base),
        "profile": profile::summary(deployment, version),
        "preferred_transport": preferred,
        "additional_transports": additional,
        "core": core(deployment, version),
        "extensions": {
            "jsonrpc_methods": surface::extension_methods(deployment),
            "conditionally_available_methods": conditional_methods(deployment),
            "extension_uris": uris,
        },
        "all_jsonrpc_methods": surface::supported_methods(version, deployment),
        "service_behaviors": service_behaviors(version),
        "unsupported_method_error": method_error(version, ErrorKind::MethodNotFound, &[]),
        "disabled_method_error": method_error(version, ErrorKind::MethodDisabled, &["toggle"]),
    })
}

fn transport(version: ProtocolVersion, binding: Binding) -> &'static str {
    match (binding, version) {
        (Binding::JsonRpc, ProtocolVersion::V03) => "JSON-RPC",
        _ => binding_name(binding),
    }
}

/// The disabled methods, each with the setting that enables it.
fn conditional_methods(deployment: &Deployment) -> Map<String, Value> {
    let entry = |(method, switch): (&methods::Method, Switch)| {
        let entry = json!({"reason": "disabled_by_configuration", "toggle": switch.toggle()});
        (method.name.to_owned(), entry)
    };
    methods::disabled(deployment).map(entry).collect()
}

fn method_error(version: ProtocolVersion, kind: ErrorKind, more: &[&str]) -> Value {
    let (code, word) = method::code(version, kind);
    let (word_field, facts) = match version {
        ProtocolVersion::V1 => {
            ("reason", ["metadata.method", "metadata.supportedMethods", "metadata.protocolVersion"])
        }
        ProtocolVersion::V03 => ("type", ["method", "supported_methods", "protocol_version"]),
    };
    let more = more.iter().map(|name| {
        if version == ProtocolVersion::V1 { format!("metadata.{name}") } else { (*name).to_owned() }
    });
    let fields: Vec<String> =
        std::iter::once(word_field).chain(facts).map(str::to_owned).chain(more).collect();
    json!({"code": code, "type": word, "data_fields": fields})
}

/// The error for a method that the version does not have.
pub fn unsupported_method(version: ProtocolVersion, name: &str, deployment: &Deployment) -> Error {
    jsonrpc::unknown_method(name, surface::supported_methods(version, deployment), version)
}

/// The error for a disabled method.
pub fn disabled_method(version: ProtocolVersion, method: &methods::Method, deployment: &Deployment) -> Error {
    let switch = method.switch.map(Switch::toggle);
    let text = match switch {
        Some(toggle) => format!(
            "{} is switched off here; the operator of this gateway can switch it on with {toggle}=true and a restart.",
            method.name
        ),
        None => format!("{} is not served here.", method.name),
    };
    let error = Error::new(ErrorKind::MethodDisabled, text).detail("method", method.name);
    let error = match switch {
        Some(toggle) => error.detail("toggle", toggle),
        None => error,
    };
    error
        .detail("supportedMethods", text_of_list(surface::supported_methods(version, deployment)))
        .detail("protocolVersion", version.as_str())
}
