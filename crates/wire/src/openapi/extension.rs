//! Builds the contracts of the extensions in the `OpenAPI` document: the URI and parameters of each.

use serde_json::{Map, Value, json};

use crate::contract::{Audience, Base, Deployment, extensions};
use crate::extension::Extension;
use crate::surface::ProtocolVersion;

/// The contract of each extension, under a key that clients of the document know. Extensions of the public card have the parameters
/// of that card. All others have full parameters, and are included only for callers with a credential.
pub(super) fn contracts(deployment: &Deployment, audience: Audience) -> Map<String, Value> {
    let mut entries = extensions(deployment, ProtocolVersion::V1, Audience::Anonymous, Base::Root);
    for entry in extensions(deployment, ProtocolVersion::V1, audience, Base::Root) {
        if entries.iter().all(|known| known.uri != entry.uri) {
            entries.push(entry);
        }
    }
    let named = entries.into_iter().filter_map(|entry| {
        let extension = Extension::parse(&entry.uri)?;
        let mut contract = json!({"extension_uri": entry.uri, "required": entry.required});
        if let (Some(contract), Some(Value::Object(params))) =
            (contract.as_object_mut(), entry.params.map(|params| params.to_value()))
        {
            contract.extend(params);
        }
        Some((key(extension).to_owned(), contract))
    });
    named.collect()
}

fn key(extension: Extension) -> &'static str {
    match extension {
        Extension::SessionBinding => "session_binding",
        Extension::ModelSelection => "model_selection",
        Extension::StreamHints => "streaming",
        Extension::InteractiveInterrupt => "interrupt_callback",
        Extension::SessionManagement => "session_management",
        Extension::ProviderDiscovery => "provider_discovery",
        Extension::WorkspaceControl => "workspace_control",
        Extension::InterruptRecovery => "interrupt_recovery",
        Extension::CompatibilityProfile => "compatibility_profile",
        Extension::WireContract => "wire_contract",
        Extension::ThinkingExposure => "thinking_exposure",
        Extension::ArtifactMetadata => "artifact_metadata",
    }
}
