//! Builds the profile of a deployment: its kind, and which features are enabled. All other documents contain the profile.

use serde_json::{Map, Value, json};

use super::deployment::Deployment;
use super::environment::Environment;
use crate::methods::{self, Switch};
use crate::names;
use crate::surface::ProtocolVersion;

/// The profile of the deployment with the field `protocol_version`, for `/health` and the contract documents.
pub fn profile(deployment: &Deployment, version: ProtocolVersion) -> Value {
    let mut profile = summary(deployment, version);
    profile["protocol_version"] = json!(version.as_str());
    profile
}

/// The profile of the deployment, as the parameters of extensions contain it.
pub(crate) fn summary(deployment: &Deployment, version: ProtocolVersion) -> Value {
    let mut services = json!({
        "streaming": {"enabled": true, "availability": "always"},
        "health_endpoint": {"enabled": true, "availability": "always"},
    });
    if version == ProtocolVersion::V1 {
        let mut metrics = switched(deployment.metrics, "A2A_METRICS_ENABLED");
        metrics["path"] = json!(METRICS);
        metrics["authentication"] = json!("required");
        services["metrics_endpoint"] = metrics;
    }
    let scope =
        if deployment.directory_override { "workspace_root_or_descendant" } else { "workspace_root_only" };
    let mut profile = json!({
        "profile_id": names::PROFILE_ID,
        // Tasks, contexts and sessions belong to their callers. The files in the workspace are shared by all callers.
        "deployment": {
            "id": "single_tenant_shared_workspace",
            "single_tenant": true,
            "shared_workspace_across_consumers": true,
            "tenant_isolation": "none",
        },
        "runtime_features": {
            "directory_binding": {
                "allow_override": deployment.directory_override,
                "scope": scope,
                "metadata_field": names::DIRECTORY_FIELD,
            },
            "workspace_binding": workspace_binding(deployment),
            "session_shell": controlled(deployment, Switch::SessionShell),
            "workspace_mutations": controlled(deployment, Switch::WorkspaceMutations),
            "session_share": controlled(deployment, Switch::SessionShare),
            "session_delete": controlled(deployment, Switch::SessionDelete),
            "execution_environment": environment(&deployment.environment),
            "service_features": services,
        },
    });
    let context = context(deployment);
    if !context.is_empty() {
        profile["runtime_context"] = Value::Object(context);
    }
    profile
}

const METRICS: &str = "/metrics";

fn workspace_binding(deployment: &Deployment) -> Value {
    let mut binding = json!({"enabled": deployment.has_workspaces()});
    if deployment.surface.has_workspaces {
        binding["metadata_field"] = json!(names::WORKSPACE_FIELD);
        // The gateway resolves the id to a directory.
        binding["upstream_query_param"] = json!("directory");
        binding["precedence"] = json!("prefer_workspace_else_directory");
    }
    binding
}

fn switched(is_on: bool, toggle: &str) -> Value {
    let availability = if is_on { "enabled" } else { "disabled" };
    json!({"enabled": is_on, "availability": availability, "toggle": toggle})
}

/// The state of a switch. If no served method needs the switch, it is reported as not available.
fn controlled(deployment: &Deployment, switch: Switch) -> Value {
    if deployment.control && methods::offered(deployment).any(|method| method.switch == Some(switch)) {
        switched(switch.is_on(deployment), switch.toggle())
    } else {
        json!({"enabled": false, "availability": "not_available"})
    }
}

fn environment(environment: &Environment) -> Value {
    let mut sandbox = json!({
        "mode": environment.sandbox_mode.as_str(),
        "filesystem_scope": environment.filesystem_scope.as_str(),
    });
    if !environment.writable_roots.is_empty() {
        sandbox["writable_roots"] = json!(environment.writable_roots);
    }
    let mut network = json!({"access": environment.network_access.as_str()});
    if !environment.allowed_domains.is_empty() {
        network["allowed_domains"] = json!(environment.allowed_domains);
    }
    json!({
        "sandbox": sandbox,
        "network": network,
        "approval": {
            "policy": environment.approval_policy.as_str(),
            "escalation_behavior": environment.escalation_behavior.as_str(),
        },
        "write_access": {
            "scope": environment.write_scope.as_str(),
            "outside_workspace": environment.outside_workspace.as_str(),
        },
    })
}

fn context(deployment: &Deployment) -> Map<String, Value> {
    let facts = [
        ("project", &deployment.project),
        ("workspace_root", &deployment.workspace_root),
        ("agent", &deployment.agent),
        ("variant", &deployment.variant),
    ];
    facts.into_iter().filter_map(|(key, fact)| Some((key.to_owned(), json!(fact.as_ref()?)))).collect()
}
