//! Builds the compatibility profile: which versions, methods and extensions exist, and how far a client may rely on each.

use serde_json::{Map, Value, json};

use super::card::{Base, declared_extensions, uri};
use super::deployment::{Deployment, MissingVersion};
use super::method;
use super::{profile, service_behaviors};
use crate::extension::Extension;
use crate::methods::{self, Stability};
use crate::surface::{self, OPERATIONS, ProtocolVersion};

pub fn compatibility_profile(deployment: &Deployment, version: ProtocolVersion, base: Base) -> Value {
    let mut document = profile(deployment, version);
    document["default_protocol_version"] = json!(deployment.default_version(version, base).as_str());
    document["supported_protocol_versions"] = json!(versions(version, base));
    document["protocol_compatibility"] = protocol_compatibility(deployment, version, base);
    document["core"] = core(deployment, version);
    document["extension_retention"] = Value::Object(extension_retention(deployment, version));
    document["method_retention"] = Value::Object(method_retention(deployment, version));
    document["service_behaviors"] = service_behaviors(version);
    document["consumer_guidance"] = json!(guidance(version, base));
    document
}

pub(super) fn versions(version: ProtocolVersion, base: Base) -> Vec<&'static str> {
    base.versions(version).into_iter().map(ProtocolVersion::as_str).collect()
}

pub(super) fn core(deployment: &Deployment, version: ProtocolVersion) -> Value {
    let endpoints: Vec<String> = surface::endpoints(version).iter().map(ToString::to_string).collect();
    let calls = if serves_grpc(deployment) { surface::grpc_calls(version) } else { Vec::new() };
    json!({
        "jsonrpc_methods": surface::core_methods(version),
        "http_endpoints": endpoints,
        "grpc_calls": calls,
    })
}

fn serves_grpc(deployment: &Deployment) -> bool {
    deployment.grpc && !deployment.stdio
}

pub(super) fn protocol_compatibility(deployment: &Deployment, version: ProtocolVersion, base: Base) -> Value {
    let default = deployment.default_version(version, base);
    let entry = |version: ProtocolVersion| {
        let (mut features, mut gaps) = features_and_gaps(deployment, version);
        if deployment.stdio {
            gaps.push(ONLY_STDIO);
        } else if deployment.websocket.is_some() {
            features.push(WEBSOCKET);
        }
        if serves_grpc(deployment) {
            features.push(grpc(version));
        } else if !deployment.stdio {
            gaps.push(NO_GRPC);
        }
        if !deployment.push {
            gaps.push("Push notifications are switched off.");
        }
        let value = json!({
            "enabled": true,
            "default": version == default,
            "status": "supported",
            "supported_features": features,
            "known_gaps": gaps,
        });
        (version.as_str().to_owned(), value)
    };
    json!({
        "default_protocol_version": default.as_str(),
        "supported_protocol_versions": versions(version, base),
        "missing_version": match (base, deployment.missing_version) {
            (Base::Root, MissingVersion::ByRequest) => "line_of_method_or_path",
            _ => default.as_str(),
        },
        "versions": base.versions(version).into_iter().map(entry).collect::<Map<_, _>>(),
    })
}

const WEBSOCKET: &str = "All operations and the methods of extensions over WebSocket, as JSON-RPC.";
const NO_GRPC: &str = "There is no gRPC binding.";
const ONLY_STDIO: &str = "There are no bindings of HTTP.";

fn grpc(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::V1 => "All operations over gRPC, without the methods of extensions.",
        ProtocolVersion::V03 => {
            "All operations over gRPC except the list of tasks, which 0.3 does not have there; without the methods of \
             extensions."
        }
    }
}

/// The supported features of a version and its missing features, other than WebSocket, gRPC and push notifications.
fn features_and_gaps(
    deployment: &Deployment,
    version: ProtocolVersion,
) -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut features, gaps) = match version {
        ProtocolVersion::V1 => (
            vec![
                "All operations over JSON-RPC and HTTP+JSON.",
                "Streams can be resumed with Last-Event-ID, without lost or repeated events.",
                "Extensions by A2A-Extensions: methods, and fields of requests and responses.",
                "Errors with google.rpc.ErrorInfo in every binding.",
            ],
            vec!["There are no tenants."],
        ),
        ProtocolVersion::V03 => (
            vec![
                "All operations over JSON-RPC and HTTP+JSON under /v1.",
                "Resubscribing to a finished task returns the task once more.",
                "The fields of extensions without activation.",
                "Tasks are shared with version 1.0.",
            ],
            vec!["All blocks of a stream belong to one artifact."],
        ),
    };
    if deployment.stdio {
        features[0] = "All operations over JSON-RPC.";
    }
    (features, gaps)
}

fn extension_retention(deployment: &Deployment, version: ProtocolVersion) -> Map<String, Value> {
    let declared = declared_extensions(deployment);
    let rows = declared.into_iter().filter_map(|extension| {
        let (surface, retention) = match extension {
            Extension::SessionBinding | Extension::StreamHints => ("core-runtime-metadata", "required"),
            Extension::ModelSelection | Extension::ThinkingExposure | Extension::ArtifactMetadata => {
                ("core-runtime-metadata", "stable")
            }
            Extension::InteractiveInterrupt
            | Extension::InterruptRecovery
            | Extension::SessionManagement
            | Extension::ProviderDiscovery => ("jsonrpc-extension", "stable"),
            Extension::WorkspaceControl => ("jsonrpc-extension", "mixed"),
            // These two extensions describe the documents themselves, so they have no entry.
            Extension::CompatibilityProfile | Extension::WireContract => return None,
        };
        let mut row = json!({"surface": surface, "availability": "always", "retention": retention});
        add_scope(&mut row, extension);
        if extension == Extension::WorkspaceControl {
            row["upstream_stability"] = json!("mixed");
        }
        Some((uri(extension, version).into_owned(), row))
    });
    rows.collect()
}

fn method_retention(deployment: &Deployment, version: ProtocolVersion) -> Map<String, Value> {
    let core = OPERATIONS.iter().map(|operation| {
        let mut row = json!({"surface": "core", "availability": "always", "retention": "required"});
        if let Some(kind) = operation.refused(deployment) {
            row["availability"] = json!("disabled");
            row["error"] = method::error(version, kind);
        }
        (operation.jsonrpc(version).to_owned(), row)
    });
    let extensions =
        methods::offered(deployment).filter(|method| method.is_there(deployment)).map(|method| {
            let availability = match (method.switch, method.is_on(deployment)) {
                (None, _) => "always",
                (Some(_), true) => "enabled",
                (Some(_), false) => "disabled",
            };
            let retention = match (method.switch, method.stability) {
                (Some(_), _) => "deployment-conditional",
                (None, Stability::Experimental) => "experimental-upstream",
                (None, Stability::Stable) => "stable",
            };
            let mut row = json!({
                "surface": "extension",
                "availability": availability,
                "retention": retention,
                "extension_uri": uri(method.extension, version),
            });
            if let Some(switch) = method.switch {
                row["toggle"] = json!(switch.toggle());
            }
            if method.stability == Stability::Experimental {
                row["upstream_stability"] = json!("experimental");
            }
            add_scope(&mut row, method.extension);
            (method.name.to_owned(), row)
        });
    core.chain(extensions).collect()
}

fn add_scope(row: &mut Value, extension: Extension) {
    if extension == Extension::InterruptRecovery {
        row["implementation_scope"] = json!("adapter-local");
        row["identity_scope"] = json!("current_authenticated_caller");
    }
}

fn guidance(version: ProtocolVersion, base: Base) -> Vec<String> {
    let on_version = match base {
        Base::Root => {
            "Send A2A-Version with every request. Without it the method or the path decides, unless this deployment says \
             otherwise."
                .to_owned()
        }
        Base::Versioned => {
            let version = version.as_str();
            format!("Only A2A {version} is served here; a request that names another version is refused.")
        }
    };
    std::iter::once(on_version).chain(GUIDANCE.map(str::to_owned)).collect()
}

const GUIDANCE: [&str; 9] = [
    "On 1.0, name the extensions that you use in A2A-Extensions: their methods and fields are refused, and their answers \
     left out, without it. On 0.3 nothing is gated.",
    "Keep the id of a task before you do anything else: with it every stream can be resumed.",
    "After a lost connection, subscribe with the Last-Event-ID of the last event that you received.",
    "Send a message again as it was, with the same messageId, when you do not know whether it arrived: within the time of \
     turns.idempotency_window the gateway returns the existing task.",
    "A task in the state input required waits for you: answer with a message that has its taskId, or with the methods of the \
     interactive interrupt extension.",
    "Check the reason, or the type, of an error and not its code: the codes of extensions overlap those of A2A.",
    "Treat session ids, artifact ids and page tokens as opaque texts.",
    "All callers work on the same files; only tasks, contexts and sessions are kept apart.",
    "The operator declares sandbox, network, approval and write access. The gateway does not enforce them.",
];
