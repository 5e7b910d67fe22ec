//! Builds the card entry of an extension: a description, and the paths of its fields in a message.

use longshore_model::Json;
use longshore_model::card::CardExtension;

use super::{Exposure, Extension};
use crate::agent::AgentSurface;
use crate::json::ObjectWriter;
use crate::methods;
use crate::v1::method::Method;
use crate::v03;
use crate::write::merge::write_over;

/// The card entry of an extension. Only the entries of public extensions have parameters.
pub(crate) fn declared_for(surface: &AgentSurface, extension: Extension) -> CardExtension {
    let described = (surface.description)(extension).unwrap_or_else(|| description(extension));
    CardExtension {
        uri: extension.uri().to_owned(),
        description: described.to_owned(),
        required: false,
        params: params(surface, extension),
    }
}

/// Sets `required` on the entries of these extensions.
pub fn mark_required(entries: &mut [CardExtension], required: &[Extension]) {
    for entry in entries {
        entry.required |= required.iter().any(|extension| extension.uri() == entry.uri);
    }
}

/// The card entry for the internals of an agent that clients can see. `None`: clients can see none.
pub fn declared_exposure(exposure: Exposure) -> Option<CardExtension> {
    let types = [(exposure.raw_thinking, "raw_thinking"), (exposure.tool_trace, "tool_trace")];
    let enabled: Vec<&str> = types.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name).collect();
    if enabled.is_empty() {
        return None;
    }
    let mut entry = declared_for(&AgentSurface::PLAIN, Extension::ThinkingExposure);
    entry.params = written(|params| params.texts("enabledTypes", &enabled));
    entry.description = match (exposure.raw_thinking, exposure.tool_trace) {
        (true, false) => "Shows the agent's reasoning.".to_owned(),
        (false, true) => "Shows the agent's tool calls.".to_owned(),
        _ => entry.description,
    };
    Some(entry)
}

/// Converts an entry to 0.3: sets the URI of 0.3, and the parameters that differ in 0.3.
pub(crate) fn as_of_v03(entry: &CardExtension) -> CardExtension {
    let mut entry = entry.clone();
    let Some(extension) = Extension::parse(&entry.uri) else { return entry };
    // In 0.3 all extensions count as activated.
    entry.required = false;
    if extension == Extension::ArtifactMetadata {
        "Adds the size, type and hash of the files that a task created.".clone_into(&mut entry.description);
    }
    if entry.uri == extension.uri_v03() {
        return entry;
    }
    entry.uri = extension.uri_v03().into_owned();
    let write: fn(&mut ObjectWriter<'_>) = match extension {
        Extension::ModelSelection => old_model_selection,
        Extension::StreamHints => old_stream_hints,
        _ => return entry,
    };
    if let (Some(params), Some(changes)) = (&entry.params, written(write)) {
        entry.params = written(|object| write_over(object, params.get(), changes.get()));
    }
    entry
}

fn description(extension: Extension) -> &'static str {
    match extension {
        Extension::SessionBinding => {
            "Continues a session of the agent by its id, and returns the id of the session."
        }
        Extension::ModelSelection => "Chooses the model of one message.",
        Extension::StreamHints => "Adds the kind of each block, the progress of the turn and its usage.",
        Extension::InteractiveInterrupt => {
            "Shows the asks of the agent, and answers them by JSON-RPC methods."
        }
        Extension::SessionManagement => "Reads and controls sessions of the agent.",
        Extension::ProviderDiscovery => "Lists the providers and models of the agent.",
        Extension::WorkspaceControl => "Reads and changes projects, workspaces and worktrees.",
        Extension::InterruptRecovery => "Lists the open asks of the agent.",
        Extension::CompatibilityProfile => "Describes what is served, and how far a client may rely on it.",
        Extension::WireContract => "Lists the methods and endpoints that are served.",
        Extension::ThinkingExposure => "Shows the agent's reasoning and its tool calls.",
        Extension::ArtifactMetadata => {
            "Adds details of tool calls, permissions and usage, and the size, type and hash of the files that a task created."
        }
    }
}

fn params(surface: &AgentSurface, extension: Extension) -> Option<Json> {
    let write: fn(&mut ObjectWriter<'_>) = match extension {
        Extension::SessionBinding => {
            return written(|params| session_binding(params, surface.location_fields()));
        }
        Extension::ModelSelection => model_selection,
        Extension::StreamHints => stream_hints,
        Extension::InteractiveInterrupt => interactive_interrupt,
        _ => return None,
    };
    written(write)
}

fn written(write: impl FnOnce(&mut ObjectWriter<'_>)) -> Option<Json> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::begin(&mut out);
    write(&mut object);
    object.end();
    str::from_utf8(&out).ok().and_then(Json::parse)
}

/// Writes the parameters of the session binding. `private`: the fields that not every gateway has.
fn session_binding(params: &mut ObjectWriter<'_>, private: &[&str]) {
    params.text("metadata_field", "metadata.shared.session.id");
    params.text("session_metadata_field", "metadata.shared.session");
    params.text("behavior", "prefer_metadata_binding_else_create_session");
    params.texts("supported_metadata", ["shared.session.id"].iter().chain(private));
    write_fields(params, "session_fields", "metadata.shared.session", &["id"]);
    params.texts("provider_private_metadata", private);
}

fn model_selection(params: &mut ObjectWriter<'_>) {
    params.text("metadata_field", "metadata.shared.model");
    params.text("behavior", "prefer_metadata_model_else_upstream_default");
    params.texts("applies_to_methods", ["SendMessage", "SendStreamingMessage"]);
    params.texts("supported_metadata", ["shared.model.providerID", "shared.model.modelID"]);
    params.texts("provider_private_metadata", [""; 0]);
    write_fields(params, "fields", "metadata.shared.model", &["providerID", "modelID"]);
}

fn stream_hints(params: &mut ObjectWriter<'_>) {
    params.text("artifact_metadata_field", "metadata.shared.stream");
    params.text("progress_metadata_field", "metadata.shared.progress");
    params.text("usage_metadata_field", "metadata.shared.usage");
    params.text("parent_metadata_field", "metadata.shared.parent");
    params.texts("block_types", ["text", "reasoning", "tool_call"]);
    write_fields(params, "stream_fields", "metadata.shared.stream", &["block_type", "sequence"]);
    write_fields(params, "progress_fields", "metadata.shared.progress", &["type"]);
    let tokens = ["input_tokens", "output_tokens", "total_tokens"];
    write_fields(params, "usage_fields", "metadata.shared.usage", &tokens);
}

fn old_model_selection(params: &mut ObjectWriter<'_>) {
    let methods = [Method::SendMessage, Method::SendStreamingMessage];
    params.texts("applies_to_methods", methods.map(v03::method::name));
}

/// Writes the parameters of the stream hints. A 0.3 client gets all of these fields without requesting them, so this entry declares
/// all of them.
fn old_stream_hints(params: &mut ObjectWriter<'_>) {
    params.text("interrupt_metadata_field", "metadata.shared.interrupt");
    params.text("session_metadata_field", "metadata.shared.session");
    let stream = ["block_type", "source", "message_id", "event_id", "sequence", "role"];
    write_fields(params, "stream_fields", "metadata.shared.stream", &stream);
    params.object("usage_fields", |usage| {
        for field in ["input_tokens", "output_tokens", "total_tokens", "reasoning_tokens", "cost"] {
            usage.text(field, &format!("metadata.shared.usage.{field}"));
        }
        let path = "metadata.shared.usage.cache_tokens";
        write_fields(usage, "cache_tokens", path, &["read_tokens", "write_tokens"]);
    });
    let interrupt = ["request_id", "type", "phase", "details", "resolution"];
    write_fields(params, "interrupt_fields", "metadata.shared.interrupt", &interrupt);
    write_fields(params, "session_fields", "metadata.shared.session", &["id", "title"]);
}

fn interactive_interrupt(params: &mut ObjectWriter<'_>) {
    params.object("methods", |object| {
        for method in methods::answers() {
            object.text(method.key, method.name);
        }
    });
    params.texts("supported_interrupt_events", ["permission.asked", "question.asked"]);
    params.text("request_id_field", "metadata.shared.interrupt.request_id");
    params.text("interrupt_metadata_field", "metadata.shared.interrupt");
    let fields = ["request_id", "type", "phase"];
    write_fields(params, "interrupt_fields", "metadata.shared.interrupt", &fields);
}

/// The names of fields, each with its path.
fn write_fields(params: &mut ObjectWriter<'_>, key: &str, path: &str, fields: &[&str]) {
    params.object(key, |object| {
        for field in fields {
            object.text(field, &format!("{path}.{field}"));
        }
    });
}
