//! The URIs of the extensions. Clients know them, so they are the same for every agent.

use super::Extension;

/// The URIs of one extension.
pub(super) struct Row {
    pub(super) extension: Extension,
    pub(super) uri: &'static str,
    /// The fragments that are appended to [`DOCUMENT`]. Each gives a URI of 0.3.
    pub(super) fragments: &'static [&'static str],
    /// The URI that was used before the document existed. `None`: there was none.
    pub(super) oldest: Option<&'static str>,
}

/// The document that describes the extensions of 0.3.
pub(super) const DOCUMENT: &str =
    "https://github.com/Intelligent-Internet/opencode-a2a/blob/main/docs/extension-specifications.md";

pub(super) const TABLE: [Row; 12] = [
    Row {
        extension: Extension::SessionBinding,
        uri: "urn:opencode-a2a:extension:session-binding:v1",
        fragments: &["#shared-session-binding-v1"],
        oldest: Some("urn:a2a:session-binding"),
    },
    Row {
        extension: Extension::ModelSelection,
        uri: "urn:opencode-a2a:extension:model-selection:v1",
        fragments: &["#shared-model-selection-v1"],
        oldest: Some("urn:a2a:model-selection"),
    },
    Row {
        extension: Extension::StreamHints,
        uri: "urn:opencode-a2a:extension:stream-hints:v1",
        fragments: &["#shared-stream-hints-v1"],
        oldest: Some("urn:a2a:stream-hints"),
    },
    Row {
        extension: Extension::InteractiveInterrupt,
        uri: "urn:opencode-a2a:extension:interactive-interrupt:v1",
        fragments: &["#shared-interactive-interrupt-v1"],
        oldest: Some("urn:a2a:interactive-interrupt"),
    },
    Row {
        extension: Extension::SessionManagement,
        uri: "urn:opencode-a2a:extension:session-management:v1",
        fragments: &["#opencode-session-management-v1", "#opencode-session-query-v1"],
        oldest: Some("urn:opencode-a2a:session-query"),
    },
    Row {
        extension: Extension::ProviderDiscovery,
        uri: "urn:opencode-a2a:extension:provider-discovery:v1",
        fragments: &["#opencode-provider-discovery-v1"],
        oldest: Some("urn:opencode-a2a:provider-discovery"),
    },
    Row {
        extension: Extension::WorkspaceControl,
        uri: "urn:opencode-a2a:extension:workspace-control:v1",
        fragments: &["#opencode-workspace-control-v1"],
        oldest: None,
    },
    Row {
        extension: Extension::InterruptRecovery,
        uri: "urn:opencode-a2a:extension:interrupt-recovery:v1",
        fragments: &["#opencode-interrupt-recovery-v1"],
        oldest: None,
    },
    Row {
        extension: Extension::CompatibilityProfile,
        uri: "urn:opencode-a2a:extension:compatibility-profile:v1",
        fragments: &["#a2a-compatibility-profile-v1"],
        oldest: Some("urn:a2a:compatibility-profile"),
    },
    Row {
        extension: Extension::WireContract,
        uri: "urn:opencode-a2a:extension:wire-contract:v1",
        fragments: &["#a2a-wire-contract-v1"],
        oldest: Some("urn:a2a:wire-contract"),
    },
    Row {
        extension: Extension::ThinkingExposure,
        uri: "urn:iac-code:a2a:thinking-exposure:v1",
        fragments: &[],
        oldest: None,
    },
    Row {
        extension: Extension::ArtifactMetadata,
        uri: "urn:iac-code:a2a:artifact-metadata:v1",
        fragments: &[],
        oldest: None,
    },
];
