//! The full parameters of each extension, for the extended card.
//!
//! They contain the short parameters of the public card ([`crate::extension::declared`]) and add further ones.

use std::collections::HashSet;

use longshore_model::card::CardExtension;
use longshore_model::{Delivery, ErrorKind, Offers, PermissionReply};
use serde_json::{Map, Value, json};

use super::card::Base;
use super::compatibility::compatibility_profile;
use super::deployment::Deployment;
use super::wire_contract::wire_contract;
use super::{method, profile};
use crate::extension::{Extension, as_of_v03, declared_exposure, declared_for};
use crate::methods::item::INTERRUPT;
use crate::methods::{Answer, Item};
use crate::names;
use crate::surface::ProtocolVersion;
use crate::v03::error::snake_case;
use crate::write::iac_code;

/// The short parameters of an extension, with the names of the version. `None`: there are none.
pub(super) fn slim(deployment: &Deployment, version: ProtocolVersion, extension: Extension) -> Option<Value> {
    declaration(deployment, version, extension)?.params.map(|params| params.to_value())
}

/// The public card entry of an extension, with the names of the version. `None`: there is none.
pub(super) fn declaration(
    deployment: &Deployment,
    version: ProtocolVersion,
    extension: Extension,
) -> Option<CardExtension> {
    let entry = match extension {
        Extension::ThinkingExposure => declared_exposure(deployment.exposure)?,
        _ => declared_for(deployment.surface, extension),
    };
    Some(match version {
        ProtocolVersion::V1 => entry,
        ProtocolVersion::V03 => as_of_v03(&entry),
    })
}

/// The full parameters of an extension. `offers`: the offers of the agent, if they are known and may be shown.
pub(super) fn full(
    deployment: &Deployment,
    version: ProtocolVersion,
    base: Base,
    extension: Extension,
    offers: Option<&Offers>,
) -> Value {
    let own = match extension {
        Extension::SessionBinding => session_binding(deployment),
        Extension::ModelSelection => (deployment.surface.model_selection)(),
        Extension::StreamHints => stream_hints(deployment, version),
        Extension::InteractiveInterrupt => interactive_interrupt(deployment, version),
        Extension::SessionManagement | Extension::ProviderDiscovery | Extension::WorkspaceControl => {
            (deployment.surface.params)(deployment, version, extension, offers)
        }
        Extension::InterruptRecovery => interrupt_recovery(deployment, version),
        Extension::CompatibilityProfile => return compatibility_profile(deployment, version, base),
        Extension::WireContract => return wire_contract(deployment, version, base),
        Extension::ArtifactMetadata => artifact_metadata(version),
        Extension::ThinkingExposure => thinking_exposure(deployment, version),
    };
    let mut params = slim(deployment, version, extension).unwrap_or_else(|| json!({}));
    merge(&mut params, own);
    let has_profile = matches!(
        extension,
        Extension::SessionBinding
            | Extension::ModelSelection
            | Extension::InteractiveInterrupt
            | Extension::SessionManagement
            | Extension::ProviderDiscovery
            | Extension::WorkspaceControl
            | Extension::InterruptRecovery
    );
    if has_profile {
        params["profile"] = profile::summary(deployment, version);
    }
    params
}

/// Adds the fields of one object to another, recursively.
pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

pub(crate) fn fields(path: &str, names: &[&str]) -> Map<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), json!(format!("{path}.{name}")))).collect()
}

fn session_binding(deployment: &Deployment) -> Value {
    let takes_titles = deployment.surface.takes_titles;
    let about_titles = if takes_titles {
        "title is the title of the session, if the message opens a new one."
    } else {
        "The agent itself chooses the titles of its sessions."
    };
    let titles: &[&str] = if takes_titles { &["title"] } else { &[] };
    let mut message_fields = Value::Object(fields("metadata.shared.session", titles));
    merge(
        &mut message_fields,
        json!({"delivery": "metadata.shared.delivery", "cwd": "metadata.iac_code.cwd"}),
    );
    json!({
        "session_fields": fields("metadata.shared.session", &["title"]),
        "message_fields": message_fields,
        "delivery_values": Delivery::ALL.map(Delivery::as_str),
        "notes": [
            format!(
                "A message with metadata.shared.session.id continues that {} session; without it the context \
                 decides, and a new context has a new session.",
                deployment.agent_name
            ),
            "A session belongs to the caller for whom it was created. An unowned one can be claimed with the \
             capability session_claim.",
            (deployment.surface.location_note)(deployment),
            format!(
                "message_fields need no activation. {about_titles} delivery decides what happens to a message for a busy \
                 session; the default is queue. cwd is another name of {}.",
                names::DIRECTORY
            ),
        ],
    })
}

fn stream_hints(deployment: &Deployment, version: ProtocolVersion) -> Value {
    let mut tool_fields = vec![
        "call_id",
        "tool",
        "status",
        "title",
        "subtitle",
        "input",
        "output",
        "error",
        "child_task_id",
        "meta",
    ];
    tool_fields.extend(deployment.surface.tool_fields);
    let text = json!({"part_kind": "text", "payload": "artifact.parts[].text"});
    let mut hints = json!({
        "status_metadata_field": "metadata.shared.stream",
        "block_contracts": {
            "text": text,
            "reasoning": text,
            "tool_call": {
                "part_kind": "data",
                "payload": "artifact.parts[].data",
                "payload_fields": tool_fields,
            },
        },
        "stream_fields":
            fields("metadata.shared.stream", &["source", "message_id", "event_id", "role"]),
        "progress_fields":
            fields("metadata.shared.progress", &["part_id", "reason", "attempt", "message", "next", "todos"]),
        "usage_fields": {
            "reasoning_tokens": "metadata.shared.usage.reasoning_tokens",
            "cost": "metadata.shared.usage.cost",
            "cache_tokens": fields("metadata.shared.usage.cache_tokens", &["read_tokens", "write_tokens"]),
        },
        "parent_fields": fields("metadata.shared.parent", &["task_id", "call_id", "depth"]),
        "subagent_fields": fields("metadata.shared.subagent", &["type", "model"]),
        // Set in the task at the start of a stream if the log no longer has the last event that the reader has seen, or events
        // after it.
        "gap_metadata_field": "metadata.longshore.gap",
        "gap_fields": fields("metadata.longshore.gap", &["requested", "first", "head", "requested_epoch", "head_epoch"]),
    });
    if version == ProtocolVersion::V03 {
        // 0.3 clients expect this field at this place.
        hints["interrupt_fields"] = json!(fields("metadata.shared.interrupt", &["outcome"]));
    }
    hints
}

const INTERRUPT_FIELDS: [&str; 7] =
    ["request_id", "type", "phase", "details", "options", "resolution", "outcome"];

/// The errors of a method in addition to bad parameters: the given kinds, too many requests, a gateway that stops or whose store is
/// down, and in 1.0 an extension that was not activated.
fn errors(version: ProtocolVersion, kinds: &[ErrorKind], data_fields: &[&str]) -> Value {
    let mut kinds = kinds.to_vec();
    kinds.retain(|kind| *kind != ErrorKind::TooManyRequests);
    kinds.extend([ErrorKind::TooManyRequests, ErrorKind::Unavailable]);
    let mut fields = vec![if version == ProtocolVersion::V1 { "reason" } else { "type" }.to_owned()];
    fields.extend(data_fields.iter().map(|name| data_field(version, name)));
    if version == ProtocolVersion::V1 {
        kinds.push(ErrorKind::ExtensionNotActivated);
        let names = ["method", "requiredExtensions", "requestedExtensions"];
        fields.extend(names.map(|name| data_field(version, name)));
    }
    let mut seen = HashSet::new();
    fields.retain(|field| seen.insert(field.clone()));
    let words: Vec<&str> = kinds.iter().map(|kind| method::code(version, *kind).1).collect();
    json!({
        "business_codes": method::codes(version, &kinds),
        "error_types": words,
        "error_data_fields": fields,
        "invalid_params_data_fields": match version {
            ProtocolVersion::V1 => json!(["fieldViolations[].field", "fieldViolations[].description"]),
            ProtocolVersion::V03 => json!(["type", "field"]),
        },
    })
}

/// The path of an error detail in this version.
fn data_field(version: ProtocolVersion, name: &str) -> String {
    match version {
        ProtocolVersion::V1 => format!("metadata.{name}"),
        ProtocolVersion::V03 => snake_case(name),
    }
}

/// The error kinds of all methods of an extension, without duplicates.
fn kinds_of(deployment: &Deployment, extension: Extension) -> Vec<ErrorKind> {
    let mut kinds = Vec::new();
    for kind in method::of_extension(deployment, extension).flat_map(|method| method.errors) {
        if !kinds.contains(kind) {
            kinds.push(*kind);
        }
    }
    kinds
}

/// The errors of the methods of an extension.
pub(crate) fn errors_of(deployment: &Deployment, version: ProtocolVersion, extension: Extension) -> Value {
    let kinds = kinds_of(deployment, extension);
    let mut data_fields = vec!["method", "upstreamStatus", "detail"];
    // Only the errors of methods about one session name the session.
    if kinds.contains(&ErrorKind::SessionNotFound) {
        data_fields.insert(0, "sessionId");
    }
    if kinds.contains(&ErrorKind::AuthorizationForbidden) {
        data_fields.extend(["capability", "credentialId"]);
    }
    let mut errors = errors(version, &kinds, &data_fields);
    let mut more = Vec::new();
    if version == ProtocolVersion::V03 {
        more.push("fields");
    }
    if method::of_extension(deployment, extension).any(|method| method.paged) {
        more.extend(["max", "supported", "unsupported"]);
    }
    if let Some(fields) = errors["invalid_params_data_fields"].as_array_mut() {
        fields.extend(more.into_iter().map(|name| Value::from(data_field(version, name))));
    }
    errors
}

/// Adds the metadata fields by which a caller chooses the directory or workspace of a method.
pub(crate) fn routing(deployment: &Deployment, params: &mut Value) {
    let metadata = json!(deployment.surface.location_fields());
    params["supported_metadata"] = metadata.clone();
    params["provider_private_metadata"] = metadata;
}

pub(crate) fn routing_fields(deployment: &Deployment) -> Value {
    let mut fields = json!({"directory": names::DIRECTORY_FIELD});
    if deployment.surface.has_workspaces {
        fields["workspace_id"] = json!(names::WORKSPACE_FIELD);
    }
    fields
}

/// The fields of the items in a result: for each name its path, such as `items[].id`.
pub(crate) fn item_fields(item: Item, version: ProtocolVersion) -> Map<String, Value> {
    placed_fields("items[]", item, version)
}

pub(crate) fn placed_fields(path: &str, item: Item, version: ProtocolVersion) -> Map<String, Value> {
    let names: Vec<&str> = item.fields_of(version).map(|field| field.name).collect();
    fields(path, &names)
}

fn interactive_interrupt(deployment: &Deployment, version: ProtocolVersion) -> Value {
    let kinds = kinds_of(deployment, Extension::InteractiveInterrupt);
    let data_fields =
        ["requestId", "expectedInterruptType", "actualInterruptType", "method", "upstreamStatus", "detail"];
    let replies = PermissionReply::ALL.map(PermissionReply::as_str);
    let mut params = json!({
        "interrupt_fields": fields("metadata.shared.interrupt", &INTERRUPT_FIELDS),
        "method_contracts": method::contracts(deployment, version, Extension::InteractiveInterrupt),
        "permission_reply_values": replies,
        "question_reply_contract": {
            "answers": "One list of texts for each question, in order: the chosen labels, or a free text.",
        },
    });
    routing(deployment, &mut params);
    params["context_fields"] = routing_fields(deployment);
    merge(
        &mut params,
        json!({
            "success_result_fields": Answer::Answered.fields(),
            "errors": errors(version, &kinds, &data_fields),
            "notes": ["The metadata is accepted but ignored: the request_id identifies the ask."],
        }),
    );
    params
}

fn interrupt_recovery(deployment: &Deployment, version: ProtocolVersion) -> Value {
    let kinds = kinds_of(deployment, Extension::InterruptRecovery);
    json!({
        "methods": method::names(deployment, Extension::InterruptRecovery),
        "method_contracts": method::contracts(deployment, version, Extension::InterruptRecovery),
        "supported_metadata": [],
        "provider_private_metadata": [],
        "recovery_scope": {
            "data_source": "local_interrupt_binding_registry",
            "identity_scope": "current_authenticated_caller",
            "empty_result_when_identity_unavailable": true,
        },
        "item_fields": placed_fields("result.items[]", INTERRUPT, version),
        "errors": errors(version, &kinds, &["requestId"]),
        "notes": [
            "The lists contain the open asks of the caller's own tasks, including those of sub-agents.",
            "They survive a restart of the gateway.",
            "Answered and expired asks are not in them.",
            "expires_at is Unix time in seconds; null where there is no deadline.",
            "An approval is the answer always to a permission. It applies to the session that asked and its sub-agents, \
             for the caller who answered, until it is revoked.",
        ],
    })
}

fn artifact_metadata(version: ProtocolVersion) -> Value {
    let mut params =
        json!({"fields": fields("artifact.metadata", &["uri", "mediaType", "byteSize", "sha256"])});
    if version == ProtocolVersion::V1 {
        let tool = ["status", "toolUseId", "name", "input", "result"];
        params["tool_fields"] = fields("metadata.iac_code.tool", &tool).into();
        params["tool_status_values"] = json!(iac_code::TOOL_STATES);
        params["permission_fields"] =
            fields("metadata.iac_code.permission", &["autoApproved", "pending"]).into();
        params["usage_fields"] =
            fields("metadata.iac_code.usage", &["inputTokens", "outputTokens", "totalTokens"]).into();
        params["max_text_characters"] = json!(iac_code::MAX_CHARS);
    }
    params
}

fn thinking_exposure(deployment: &Deployment, version: ProtocolVersion) -> Value {
    if version == ProtocolVersion::V03 || !deployment.exposure.raw_thinking {
        return json!({});
    }
    json!({
        "thinking_fields": fields("metadata.iac_code.thinking", &["type", "text"]),
        "max_text_characters": iac_code::MAX_CHARS,
    })
}
