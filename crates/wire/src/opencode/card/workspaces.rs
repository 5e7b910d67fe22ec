//! The card parameters of the extension for projects, workspaces and worktrees.

use serde_json::{Map, Value, json};

use crate::contract::params::{errors_of, item_fields, merge, routing, routing_fields};
use crate::contract::{Deployment, method};
use crate::extension::Extension;
use crate::methods::Stability;
use crate::opencode::{items, workspaces};
use crate::surface::ProtocolVersion;

const EXTENSION: Extension = Extension::WorkspaceControl;

pub(in crate::opencode) fn params(deployment: &Deployment, version: ProtocolVersion) -> Value {
    let mut params = json!({
        "methods": method::names(deployment, EXTENSION),
        "control_method_flags": method::flags(deployment, EXTENSION),
        "method_capabilities": method::capabilities(deployment, EXTENSION),
        "parameter_capabilities": method::parameter_capabilities(deployment, EXTENSION),
        "method_contracts": method::contracts(deployment, version, EXTENSION),
        "upstream_stability": stability(),
    });
    routing(deployment, &mut params);
    let paths = match version {
        ProtocolVersion::V1 => "Workspaces and worktrees are shown by name, without their directories.",
        ProtocolVersion::V03 => "Directories are shown for the gateway's own project only.",
    };
    let rest = json!({
        "routing_fields": routing_fields(deployment),
        "project_item_fields": item_fields(items::PROJECT, version),
        "workspace_item_fields": item_fields(items::WORKSPACE, version),
        "worktree_item_fields": item_fields(items::WORKTREE, version),
        "errors": errors_of(deployment, version, EXTENSION),
        "notes": [
            "These methods concern the gateway's own project; the metadata is checked but ignored.",
            "A worktree is removed or reset only if OpenCode lists it for that project, and never the root of the workspace.",
            "A new workspace or worktree is ready when the response arrives.",
            paths,
        ],
    });
    merge(&mut params, rest);
    params
}

/// The stability of all methods, including methods that are not served.
fn stability() -> Map<String, Value> {
    let words = workspaces::METHODS.iter().map(|method| {
        let word = match method.stability {
            Stability::Stable => "stable",
            Stability::Experimental => "experimental",
        };
        (method.name.to_owned(), json!(word))
    });
    words.collect()
}
