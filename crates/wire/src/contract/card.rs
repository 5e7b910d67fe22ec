//! Builds the cards from the facts of a deployment: the public card, and the extended card for callers with a credential.

use std::borrow::Cow;
use std::fmt::Write as _;

use longshore_model::card::{Binding, Card, CardExtension, Interface, OUTPUT_MODES};
use longshore_model::{Json, Offers};

use super::deployment::Deployment;
use super::{params, skill};
use crate::card::{binding_name, bindings, supported, v1_url};
use crate::extension::{Activated, Exposure, Extension};
use crate::methods;
use crate::surface::ProtocolVersion;

/// The readers for whom a document is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    Anonymous,
    Authenticated,
}

/// The path under which a document is served. It decides which URL and which versions the document names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// The root, which serves all versions.
    Root,
    /// A path that serves only the version of the document.
    Versioned,
}

impl Base {
    /// The versions that are served under this path, for a document of `version`.
    pub(super) fn versions(self, version: ProtocolVersion) -> Vec<ProtocolVersion> {
        match self {
            Self::Root => ProtocolVersion::ALL.to_vec(),
            Self::Versioned => vec![version],
        }
    }
}

/// The card of one version as a model value, which `v1::card` encodes.
pub fn card(deployment: &Deployment, version: ProtocolVersion, audience: Audience, base: Base) -> Card {
    card_of(deployment, version, audience, base, None)
}

/// The extended card of one version, with the agents and commands that the served agent offers.
pub fn extended_card(deployment: &Deployment, version: ProtocolVersion, base: Base, offers: &Offers) -> Card {
    // Without control methods, a caller cannot use the offered agents and commands.
    let offers = Some(offers).filter(|_| deployment.control);
    card_of(deployment, version, Audience::Authenticated, base, offers)
}

fn card_of(
    deployment: &Deployment,
    version: ProtocolVersion,
    audience: Audience,
    base: Base,
    offers: Option<&Offers>,
) -> Card {
    Card {
        name: deployment.title.clone(),
        description: description(deployment, audience),
        version: deployment.version.clone(),
        documentation_url: deployment.documentation_url.clone(),
        interfaces: interfaces(deployment, version, base),
        streaming: true,
        push: deployment.push,
        extended: true,
        extensions: extensions_with(deployment, version, audience, base, offers),
        schemes: deployment.schemes.clone(),
        input_modes: deployment.input_modes(),
        output_modes: OUTPUT_MODES.map(str::to_owned).to_vec(),
        skills: skill::skills(deployment, audience, offers),
    }
}

/// The interfaces of a version under a path, the preferred one first.
pub fn interfaces(deployment: &Deployment, version: ProtocolVersion, base: Base) -> Vec<Interface> {
    if deployment.stdio {
        return vec![Interface { url: "stdio:".to_owned(), binding: Binding::Stdio }];
    }
    let path = match base {
        Base::Root => "",
        Base::Versioned => version.base(),
    };
    let url = format!("{}{path}", deployment.url());
    // The scheme `ws` corresponds to `http`, and `wss` to `https`.
    let socket = |path| format!("{}{path}", url.replacen("http", "ws", 1));
    let url_of = |binding| match binding {
        Binding::JsonRpc | Binding::Rest => Some(url.clone()),
        // The address of gRPC has no path.
        Binding::Grpc => deployment.grpc_url.clone(),
        Binding::WebSocket => deployment.websocket.as_ref().map(socket),
        Binding::Stdio => None,
    };
    let listed = bindings(version).into_iter().chain([Binding::WebSocket]);
    listed.filter_map(|binding| Some(Interface { url: url_of(binding)?, binding })).collect()
}

/// An interface in the form in which the card of the root lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedInterface {
    pub url: String,
    pub binding: &'static str,
    pub versions: Vec<ProtocolVersion>,
}

/// The interfaces in the order of the card of the root. An interface that serves both versions is listed once, at its first
/// position.
pub fn listed_interfaces(deployment: &Deployment) -> Vec<ListedInterface> {
    let card = merged_card(deployment, Audience::Anonymous);
    let mut listed: Vec<ListedInterface> = Vec::new();
    for (interface, version) in supported(&card, true) {
        let (url, binding) = (v1_url(interface).into_owned(), binding_name(interface.binding));
        match listed.iter_mut().find(|known| (&known.url, known.binding) == (&url, binding)) {
            Some(known) => known.versions.push(version),
            None => listed.push(ListedInterface { url, binding, versions: vec![version] }),
        }
    }
    listed
}

/// The card of the root, for clients of both versions. It lists each extension with the URIs and parameters of both versions. See
/// `v03::card::merged`.
pub fn merged_card(deployment: &Deployment, audience: Audience) -> Card {
    let mut merged = card(deployment, ProtocolVersion::V1, audience, Base::Root);
    for entry in extensions(deployment, ProtocolVersion::V03, audience, Base::Root) {
        // An extension with one URI for both versions is listed once.
        if merged.extensions.iter().all(|known| known.uri != entry.uri) {
            merged.extensions.push(entry);
        }
    }
    merged
}

fn description(deployment: &Deployment, audience: Audience) -> String {
    let mut text = deployment.description.clone();
    if audience == Audience::Authenticated {
        let _ = write!(
            text,
            " Messages are turns of {} sessions. They are streamed with {}, can be resumed after a lost connection and canceled, and \
             ask for permissions and answers, which callers give by a message or a method. All callers share one workspace; \
             tasks, contexts and sessions belong to the caller that created them.",
            deployment.agent_name,
            deployment.streamed(),
        );
        if deployment.control {
            text.push_str(deployment.surface.control_note);
        }
    }
    if let Some(project) = &deployment.project {
        text.push_str(" Deployment project: ");
        text.push_str(project);
        text.push('.');
    }
    text
}

/// The served extensions in the order of the card, with the URIs and names of a version. Anonymous readers get the public
/// extensions with short parameters. Callers with a credential get all extensions with full parameters.
pub fn extensions(
    deployment: &Deployment,
    version: ProtocolVersion,
    audience: Audience,
    base: Base,
) -> Vec<CardExtension> {
    extensions_with(deployment, version, audience, base, None)
}

fn extensions_with(
    deployment: &Deployment,
    version: ProtocolVersion,
    audience: Audience,
    base: Base,
    offers: Option<&Offers>,
) -> Vec<CardExtension> {
    let required = &deployment.required_extensions;
    let is_seen = |extension: &Extension| audience == Audience::Authenticated || is_public(*extension);
    let entry = |extension| {
        let mut entry = params::declaration(deployment, version, extension)?;
        // In 0.3 all extensions count as activated, so no client can be required to activate one.
        entry.required = version == ProtocolVersion::V1 && required.contains(&extension);
        if audience == Audience::Authenticated {
            let params = params::full(deployment, version, base, extension, offers);
            entry.params = Some(Json::from_value(&params));
        }
        Some(entry)
    };
    declared_extensions(deployment).into_iter().filter(is_seen).filter_map(entry).collect()
}

/// The extensions of the public card.
pub fn public_extensions(deployment: &Deployment) -> Activated {
    declared_extensions(deployment).into_iter().filter(|extension| is_public(*extension)).collect()
}

fn is_public(extension: Extension) -> bool {
    Extension::PUBLIC.contains(&extension)
        || matches!(extension, Extension::ThinkingExposure | Extension::ArtifactMetadata)
}

/// The URI of an extension in a version.
pub(super) fn uri(extension: Extension, version: ProtocolVersion) -> Cow<'static, str> {
    match version {
        ProtocolVersion::V1 => Cow::Borrowed(extension.uri()),
        ProtocolVersion::V03 => extension.uri_v03(),
    }
}

/// The served extensions in the order of the card. The configuration cannot require any other extension.
pub(super) fn declared_extensions(deployment: &Deployment) -> Vec<Extension> {
    let nothing = Exposure { raw_thinking: false, tool_trace: false };
    let is_served = |extension: Extension| match extension {
        Extension::SessionBinding
        | Extension::ModelSelection
        | Extension::StreamHints
        | Extension::InteractiveInterrupt
        | Extension::InterruptRecovery
        | Extension::CompatibilityProfile
        | Extension::WireContract
        | Extension::ArtifactMetadata => true,
        Extension::ThinkingExposure => deployment.exposure != nothing,
        Extension::SessionManagement | Extension::ProviderDiscovery | Extension::WorkspaceControl => {
            deployment.control && methods::all(deployment).any(|method| method.extension == extension)
        }
    };
    Activated::ALL.iter().filter(|extension| is_served(*extension)).collect()
}
