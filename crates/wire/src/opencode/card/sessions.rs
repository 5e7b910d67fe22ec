//! The card parameters of the extension for sessions: its methods, and OpenCode's agents and commands that a caller can name.

use longshore_model::{OfferedAgent, OfferedCommand, Offers};
use serde_json::{Value, json};

use crate::contract::description;
use crate::contract::params::{errors_of, item_fields, merge, placed_fields, routing, routing_fields};
use crate::contract::{Deployment, method};
use crate::extension::Extension;
use crate::methods::{Effect, Kind, Method, Param};
use crate::names::CONTEXT_PREFIX;
use crate::opencode::items;
use crate::surface::ProtocolVersion;

const EXTENSION: Extension = Extension::SessionManagement;

pub(in crate::opencode) fn params(
    deployment: &Deployment,
    version: ProtocolVersion,
    offers: Option<&Offers>,
) -> Value {
    let by_effect = |effect| method::names_by_effect(deployment, EXTENSION, effect);
    let mut params = json!({
        "methods": method::names(deployment, EXTENSION),
        "read_methods": by_effect(Effect::Read),
        "mutation_methods": by_effect(Effect::Mutate),
        "control_methods": by_effect(Effect::Control),
        "control_method_flags": method::flags(deployment, EXTENSION),
        "method_capabilities": method::capabilities(deployment, EXTENSION),
        "parameter_capabilities": method::parameter_capabilities(deployment, EXTENSION),
        "pagination": pagination(deployment),
        "method_contracts": method::contracts(deployment, version, EXTENSION),
        "errors": errors_of(deployment, version, EXTENSION),
        "context_semantics": {
            "a2a_context_id_field": "contextId",
            "a2a_context_id_prefix": CONTEXT_PREFIX,
            "upstream_session_id_field": "metadata.shared.session.id",
        },
    });
    routing(deployment, &mut params);
    let fields = |item| item_fields(item, version);
    let rest = json!({
        "context_fields": routing_fields(deployment),
        "session_status_fields": fields(items::SESSION_STATUS),
        "todo_fields": fields(items::PLANNED),
        "file_diff_fields": fields(items::FILE_DIFF),
        "session_summary_fields": placed_fields("item", items::SESSION_SUMMARY, version),
        "notes": [
            "A session belongs to the caller for whom it was created. Sessions of others are refused unless the operator shares \
             them; unowned sessions are for callers with the capability session_claim.",
            "prompt_async and command start tasks, which can be streamed and canceled like any other. With noReply there is no task.",
            "A method about one session works in the directory of the session.",
            "A messageID is the id of the task's message, and makes a retry safe. It is not passed to OpenCode.",
            "request.tools can only disable tools.",
        ],
    });
    merge(&mut params, rest);
    if let Some(offers) = offers {
        params["agents"] = offers.agents.iter().map(agent).collect();
        params["commands"] = offers.commands.iter().map(command).collect();
    }
    params
}

/// Describes the paging, which is the same for all methods with pages.
fn pagination(deployment: &Deployment) -> Value {
    let paged = || method::of_extension(deployment, EXTENSION).filter(|method| method.paged);
    let names = |methods: &mut dyn Iterator<Item = &'static Method>| -> Vec<&'static str> {
        methods.map(|method| method.name).collect()
    };
    let limit = paged().flat_map(|method| method.params).find(|param| param.name == LIMIT);
    let (default, max) = match limit.map(|limit| limit.kind) {
        Some(Kind::Int { default, max, .. }) => (default, Some(max)),
        _ => (None, None),
    };
    let mut with_cursor = paged().filter(|method| cursor(method).is_some());
    let cursor = paged().find_map(cursor).map(|param| param.name);
    json!({
        "mode": "limit_and_optional_cursor",
        "default_limit": default,
        "max_limit": max,
        "behavior": "passthrough",
        "params": std::iter::once(LIMIT).chain(cursor).collect::<Vec<_>>(),
        "cursor_param": cursor,
        "result_cursor_field": "next_cursor",
        "applies_to": names(&mut paged()),
        "cursor_applies_to": names(&mut with_cursor),
    })
}

const LIMIT: &str = "limit";

fn cursor(method: &Method) -> Option<&'static Param> {
    method.params.iter().find(|param| matches!(param.kind, Kind::Cursor))
}

fn agent(agent: &OfferedAgent) -> Value {
    let mut entry = json!({"name": agent.name});
    if let Some(mode) = &agent.mode {
        entry["mode"] = json!(mode);
    }
    if let Some(description) = description(agent.description.as_deref()) {
        entry["description"] = json!(description);
    }
    entry
}

fn command(command: &OfferedCommand) -> Value {
    let mut entry = json!({"name": command.name});
    if let Some(description) = description(command.description.as_deref()) {
        entry["description"] = json!(description);
    }
    if let Some(agent) = &command.agent {
        entry["agent"] = json!(agent);
    }
    if command.is_subtask {
        entry["subtask"] = json!(true);
    }
    entry
}
