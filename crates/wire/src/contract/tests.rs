//! Tests of the documents of two deployments: one with the default configuration, and one in which everything is configured.

use std::collections::HashSet;
use std::fmt::Write as _;

use a2a_pb::protojson::AgentCard;
use longshore_model::card::AuthScheme;
use longshore_model::{ErrorKind, OfferedAgent, OfferedCommand, Offers};
use serde_json::{Value, json};

use super::card::uri;
use super::*;
use crate::extension::{Activated, Exposure, Extension};
use crate::jsonrpc::{self, Id};
use crate::surface::{self, ProtocolVersion};
use crate::testing::document::{changes, elide, print, replace};
use crate::{v1, v03};

mod control;

/// A deployment in which every setting differs from the default.
pub(crate) fn full() -> Deployment {
    Deployment {
        title: "Harbour".to_owned(),
        description: "Works on the harbour.".to_owned(),
        agent_name: "OpenCode".to_owned(),
        surface: &crate::opencode::SURFACE,
        lacking: Vec::new(),
        version: "3.2.1".to_owned(),
        public_url: "https://agent.example.com/a/".to_owned(),
        grpc: true,
        grpc_url: Some("https://grpc.example.com".to_owned()),
        documentation_url: Some("https://example.com/agent".to_owned()),
        missing_version: MissingVersion::V03,
        schemes: vec![AuthScheme::ApiKey, AuthScheme::Basic, AuthScheme::Bearer, AuthScheme::Bearer],
        more_input_modes: vec!["application/x-log".to_owned(), "text/plain".to_owned()],
        exposure: Exposure { raw_thinking: false, tool_trace: true },
        required_extensions: vec![Extension::StreamHints],
        directory_override: false,
        control: true,
        session_shell: true,
        workspace_mutations: true,
        session_share: true,
        session_delete: true,
        push: false,
        websocket: Some("/ws".to_owned()),
        stdio: false,
        metrics: false,
        environment: Environment {
            sandbox_mode: SandboxMode::WorkspaceWrite,
            filesystem_scope: FilesystemScope::WorkspaceAndDeclaredRoots,
            writable_roots: vec!["/srv/cache".to_owned()],
            network_access: NetworkAccess::Restricted,
            allowed_domains: vec!["example.com".to_owned()],
            approval_policy: ApprovalPolicy::OnRequest,
            escalation_behavior: EscalationBehavior::Manual,
            write_scope: WriteScope::WorkspaceAndDeclaredRoots,
            outside_workspace: OutsideWorkspace::Disallowed,
        },
        project: Some("harbour".to_owned()),
        agent: Some("build".to_owned()),
        variant: Some("high".to_owned()),
        workspace_root: Some("/srv/harbour".to_owned()),
    }
}

/// A deployment of OpenCode with the default configuration.
pub(crate) fn plain() -> Deployment {
    Deployment { control: true, ..Deployment::of_opencode() }
}

fn both() -> [Deployment; 2] {
    [plain(), full()]
}

/// Agents and commands of OpenCode.
fn offers() -> Offers {
    let agent = |name: &str, mode: Option<&str>, description: Option<&str>| OfferedAgent {
        name: name.to_owned(),
        mode: mode.map(str::to_owned),
        description: description.map(str::to_owned),
    };
    let command = |name: &str, description: Option<&str>, agent: Option<&str>, is_subtask| OfferedCommand {
        name: name.to_owned(),
        description: description.map(str::to_owned),
        agent: agent.map(str::to_owned),
        is_subtask,
    };
    Offers {
        agents: vec![
            agent("build", Some("primary"), Some("Works on everything.")),
            agent("code \"reviewer\"", Some("subagent"), Some(" \n")),
            agent("bare", None, None),
        ],
        commands: vec![
            command("review", Some("Reviews the last change."), Some("plan"), true),
            command("init", None, None, false),
        ],
    }
}

/// Every document of a version at one base. A document that is contained in another one is replaced by its name there, so that each
/// text is in the snapshots once.
fn documents(
    deployment: &Deployment,
    version: ProtocolVersion,
    base: Base,
    facts: &HealthFacts,
) -> Vec<(&'static str, Value)> {
    let compatibility = compatibility_profile(deployment, version, base);
    let contract = wire_contract(deployment, version, base);
    let full_profile = profile(deployment, version);
    let summary = profile::summary(deployment, version);
    let value = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    let public = card(deployment, version, Audience::Anonymous, base);
    let extended = extended_card(deployment, version, base, &offers());
    let mut documents = vec![
        ("profile", full_profile.clone()),
        ("compatibility", compatibility.clone()),
        ("wire contract", contract.clone()),
        ("health", value(&health(deployment, version, facts))),
    ];
    match version {
        ProtocolVersion::V1 => {
            documents.push(("public card", value(&v1::card::encode(&public))));
            documents.push(("extended card", value(&v1::card::encode(&extended))));
            let merged = merged_card(deployment, Audience::Anonymous);
            documents.push(("merged public card", value(&v03::card::merged(&merged))));
        }
        ProtocolVersion::V03 => {
            documents.push(("public card", value(&v03::card::encode(&public, v03::Dialect::Rpc))));
            documents.push(("extended card", value(&v03::card::encode(&extended, v03::Dialect::Rpc))));
            documents.push(("REST extended card", value(&v03::card::encode(&extended, v03::Dialect::Rest))));
        }
    }
    let known = [
        ("compatibility", compatibility),
        ("wire contract", contract),
        ("profile with protocol_version", full_profile),
        ("profile", summary),
    ];
    for (name, document) in &mut documents {
        if !matches!(*name, "compatibility" | "profile") {
            let known: Vec<_> = known.iter().filter(|(other, _)| other != name).cloned().collect();
            elide(document, &known);
        }
    }
    documents
}

/// The differences between documents, each under its name.
fn all_changes(from: &[(&str, Value)], to: &[(&str, Value)]) -> String {
    let mut text = String::new();
    for ((_, from), (name, to)) in from.iter().zip(to) {
        let _ = writeln!(text, "## {name}\n\n{}", changes(from, to));
    }
    text
}

/// The documents with the names of extensions in place of their URIs, which differ between the versions.
fn without_uris(documents: &[(&'static str, Value)], version: ProtocolVersion) -> Vec<(&'static str, Value)> {
    let uris: Vec<(String, String)> = Activated::ALL
        .iter()
        .map(|extension| (uri(extension, version).into_owned(), format!("<{extension:?}>")))
        .collect();
    let mut documents = documents.to_vec();
    for (_, document) in &mut documents {
        replace(document, &uris);
    }
    documents
}

/// The snapshots contain the 1.0 documents of the default deployment in full, and all others as differences.
#[test]
fn the_documents() {
    let down = Part::Down("OpenCode does not answer; it is being started again.".to_owned());
    let unhealthy = HealthFacts { agent: down, store: Part::Up, stopping: false };
    let healthy = HealthFacts { agent: Part::Up, store: Part::Up, stopping: false };
    let [new, old] = ProtocolVersion::ALL.map(|version| documents(&plain(), version, Base::Root, &healthy));
    let [common @ .., public, extended, merged] = &new[..] else { panic!("the cards come last") };
    for (name, document) in common.iter().chain([public, extended]) {
        insta::assert_snapshot!(name.replace(' ', "_"), print(document));
    }
    insta::assert_snapshot!("merged_card_beside_public_card", changes(&public.1, &merged.1));
    let [.., rpc, rest] = &old[..] else { panic!("the cards come last") };
    insta::assert_snapshot!("0.3_rest_card_beside_rpc_card", changes(&rpc.1, &rest.1));
    let [new_names, old_names] = [(&new, ProtocolVersion::V1), (&old, ProtocolVersion::V03)]
        .map(|(all, version)| without_uris(&all[..6], version));
    insta::assert_snapshot!("0.3_beside_1.0", all_changes(&new_names, &old_names));

    for (version, default) in ProtocolVersion::ALL.into_iter().zip([new, old]) {
        let full_documents = documents(&full(), version, Base::Root, &unhealthy);
        let name = version.as_str();
        insta::assert_snapshot!(
            format!("{name}_full_beside_default"),
            all_changes(&default, &full_documents)
        );
        let below_base = documents(&full(), version, Base::Versioned, &unhealthy);
        insta::assert_snapshot!(
            format!("{name}_base_beside_root"),
            all_changes(&full_documents, &below_base)
        );
    }
}

#[test]
fn the_official_types_read_the_cards() {
    for deployment in both() {
        for audience in [Audience::Anonymous, Audience::Authenticated] {
            let card = match audience {
                Audience::Anonymous => card(&deployment, ProtocolVersion::V1, audience, Base::Root),
                Audience::Authenticated => {
                    extended_card(&deployment, ProtocolVersion::V1, Base::Root, &offers())
                }
            };
            let merged = merged_card(&deployment, audience);
            for bytes in [v1::card::encode(&card), v03::card::merged(&merged)] {
                let theirs: AgentCard = serde_json::from_slice(&bytes).unwrap();
                let capabilities = theirs.capabilities.unwrap();
                assert_eq!(capabilities.extended_agent_card, Some(true));
                let uris: HashSet<&str> =
                    capabilities.extensions.iter().map(|entry| entry.uri.as_str()).collect();
                assert_eq!(uris.len(), capabilities.extensions.len(), "each extension is listed once");
            }
        }
    }
}

#[test]
fn a_card_below_a_base_names_the_base() {
    let deployment = full();
    for (version, base, url) in [
        (ProtocolVersion::V1, Base::Root, "https://agent.example.com/a"),
        (ProtocolVersion::V1, Base::Versioned, "https://agent.example.com/a/a2a/1.0"),
        (ProtocolVersion::V03, Base::Versioned, "https://agent.example.com/a/a2a/0.3"),
    ] {
        let card = card(&deployment, version, Audience::Anonymous, base);
        let socket = format!("{}/ws", url.replacen("https", "wss", 1));
        let urls: Vec<&str> = card.interfaces.iter().map(|interface| interface.url.as_str()).collect();
        // The address of gRPC has no path.
        assert_eq!(urls, [url, url, "https://grpc.example.com", &socket]);
    }
}

/// The full deployment has a fixed default version at the root, which does not affect documents under a base.
#[test]
fn documents_below_a_base_name_one_version_only() {
    for version in ProtocolVersion::ALL {
        for deployment in [full(), Deployment::of_opencode()] {
            let card = card(&deployment, version, Audience::Authenticated, Base::Versioned);
            let version = version.as_str();
            let params = card.extensions.iter().filter_map(|entry| Some(entry.params.as_ref()?.to_value()));
            let documents: Vec<Value> =
                params.filter(|params| params.get("supported_protocol_versions").is_some()).collect();
            assert_eq!(documents.len(), 2);
            for params in documents {
                let compatibility = &params["protocol_compatibility"];
                for part in [&params, compatibility] {
                    assert_eq!(part["supported_protocol_versions"], json!([version]));
                    assert_eq!(part["default_protocol_version"], version);
                }
                assert_eq!(compatibility["missing_version"], version);
                let versions: Vec<&String> = compatibility["versions"].as_object().unwrap().keys().collect();
                assert_eq!(versions, [version]);
                assert_eq!(compatibility["versions"][version]["default"], true);
            }
        }
    }
}

#[test]
fn both_versions_declare_the_same_extensions() {
    let [one, other] = ProtocolVersion::ALL.map(|version| {
        let entries = extensions(&full(), version, Audience::Authenticated, Base::Root);
        entries.into_iter().map(|entry| Extension::parse(&entry.uri).unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(one, other);
}

#[test]
fn the_extended_card_confirms_all_parameters_of_the_public_card() {
    for deployment in both() {
        for version in ProtocolVersion::ALL {
            let extended = extensions(&deployment, version, Audience::Authenticated, Base::Root);
            for public in extensions(&deployment, version, Audience::Anonymous, Base::Root) {
                let full = extended.iter().find(|entry| entry.uri == public.uri).unwrap();
                let Some(slim) = &public.params else { continue };
                assert!(
                    contains(&full.params.as_ref().unwrap().to_value(), &slim.to_value()),
                    "{}",
                    public.uri
                );
            }
        }
    }
}

fn contains(all: &Value, some: &Value) -> bool {
    match (all, some) {
        (Value::Object(all), Value::Object(some)) => {
            some.iter().all(|(key, value)| all.get(key).is_some_and(|all| contains(all, value)))
        }
        (all, some) => all == some,
    }
}

#[test]
fn numbers_are_integers_and_a_hidden_workspace_root_is_in_no_document() {
    let hidden = Deployment { workspace_root: None, ..full() };
    for version in ProtocolVersion::ALL {
        for document in
            [compatibility_profile(&hidden, version, Base::Root), wire_contract(&hidden, version, Base::Root)]
        {
            let text = document.to_string();
            assert!(!text.contains("/srv/harbour"), "{text}");
            assert!(has_integers_only(&document), "{text}");
        }
    }
}

fn has_integers_only(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => items.iter().all(has_integers_only),
        Value::Object(fields) => fields.values().all(has_integers_only),
        _ => true,
    }
}

#[test]
fn features_that_write_are_off_in_a_read_only_environment() {
    let on = Deployment { session_shell: true, workspace_mutations: true, ..full() };
    let read_only = |environment| Deployment { environment, ..on.clone() };
    for (deployment, is_on) in [
        (on.clone(), true),
        (read_only(Environment { sandbox_mode: SandboxMode::ReadOnly, ..Environment::default() }), false),
        (read_only(Environment { write_scope: WriteScope::None, ..Environment::default() }), false),
    ] {
        assert_eq!(deployment.has_session_shell(), is_on);
        assert_eq!(deployment.has_workspace_mutations(), is_on);
        let availability = if is_on { "enabled" } else { "disabled" };
        for version in ProtocolVersion::ALL {
            let features = &profile(&deployment, version)["runtime_features"];
            for switch in [
                ("session_shell", "A2A_ENABLE_SESSION_SHELL"),
                ("workspace_mutations", "A2A_ENABLE_WORKSPACE_MUTATIONS"),
            ] {
                let expected = json!({"enabled": is_on, "availability": availability, "toggle": switch.1});
                assert_eq!(features[switch.0], expected);
            }
        }
    }
}

#[test]
fn the_error_for_an_unknown_method_lists_the_supported_ones() {
    for version in ProtocolVersion::ALL {
        let error = unsupported_method(version, "tasks/pur\nge", &plain());
        assert_eq!(error.kind(), ErrorKind::MethodNotFound);
        let detail = |name: &str| error.details().iter().find(|(key, _)| key == name).unwrap().1.clone();
        assert_eq!(detail("method"), "tasks/purge");
        assert_eq!(detail("protocolVersion"), version.as_str());
        let methods: Vec<String> = serde_json::from_str(&detail("supportedMethods")).unwrap();
        assert_eq!(methods, surface::supported_methods(version, &plain()));

        let id = Id::Number("7".to_owned());
        let bytes = match version {
            ProtocolVersion::V1 => jsonrpc::error(&id, &error),
            ProtocolVersion::V03 => v03::error::jsonrpc(&id, &error),
        };
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        insta::assert_snapshot!(format!("{}_unsupported_method", version.as_str()), print(&value));
    }
}

#[test]
fn every_method_and_extension_of_the_contract_is_recognised() {
    let contract = wire_contract(&full(), ProtocolVersion::V1, Base::Root);
    for name in contract["all_jsonrpc_methods"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        let is_core = v1::method::Method::parse(name).is_some();
        assert!(is_core != crate::opencode::method(name).is_some(), "{name}");
    }
    // Each extension can be activated by the URI under which it is declared.
    for version in ProtocolVersion::ALL {
        for entry in extensions(&full(), version, Audience::Authenticated, Base::Root) {
            assert_ne!(Activated::from_header([entry.uri.as_str()]), Activated::NONE, "{}", entry.uri);
        }
    }
}

#[test]
fn only_1_0_requires_extensions() {
    let required = |version, audience| -> Vec<Extension> {
        let entries =
            extensions(&full(), version, audience, Base::Root).into_iter().filter(|entry| entry.required);
        entries.map(|entry| Extension::parse(&entry.uri).unwrap()).collect()
    };
    for audience in [Audience::Anonymous, Audience::Authenticated] {
        assert_eq!(required(ProtocolVersion::V1, audience), [Extension::StreamHints]);
        assert_eq!(required(ProtocolVersion::V03, audience), []);
    }
    let merged: Value =
        serde_json::from_slice(&v03::card::merged(&merged_card(&full(), Audience::Anonymous))).unwrap();
    let entries = merged["capabilities"]["extensions"].as_array().unwrap();
    let required: Vec<&Value> =
        entries.iter().filter(|entry| entry["required"] == true).map(|entry| &entry["uri"]).collect();
    assert_eq!(required, [Extension::StreamHints.uri()]);
}

#[test]
fn hidden_internals_are_not_advertised() {
    for (raw_thinking, tool_trace) in [(true, true), (true, false), (false, true), (false, false)] {
        let deployment =
            Deployment { exposure: Exposure { raw_thinking, tool_trace }, ..Deployment::of_opencode() };
        for audience in [Audience::Anonymous, Audience::Authenticated] {
            let card = card(&deployment, ProtocolVersion::V1, audience, Base::Root);
            let mut texts = vec![card.description, card.skills[0].description.clone()];
            let exposure = Extension::ThinkingExposure.uri();
            texts.extend(
                card.extensions
                    .into_iter()
                    .filter(|entry| entry.uri == exposure)
                    .map(|entry| entry.description),
            );
            let text = texts.join(" ");
            assert_eq!(text.contains("reasoning"), raw_thinking, "{text}");
            assert_eq!(text.contains("tool calls"), tool_trace, "{text}");
        }
    }
}

#[test]
fn the_profile_names_grpc_and_websockets_where_they_are_served() {
    let texts = |deployment: &Deployment, version| {
        let profile = compatibility_profile(deployment, version, Base::Root);
        let own = &profile["protocol_compatibility"]["versions"][version.as_str()];
        format!("{} {} {}", own["supported_features"], own["known_gaps"], profile["core"]["grpc_calls"])
    };
    for version in ProtocolVersion::ALL {
        // gRPC is served even if the card has no address for it.
        let served = texts(&Deployment { grpc: true, grpc_url: None, ..full() }, version);
        assert!(served.contains("operations over gRPC"), "{served}");
        assert_eq!(served.contains("except the list of tasks"), version == ProtocolVersion::V03, "{served}");
        assert!(served.contains("over WebSocket"), "{served}");
        for operation in &surface::OPERATIONS {
            let Some(call) = operation.grpc(version) else { continue };
            let call = format!("\"{}/{call}\"", version.grpc_service());
            assert!(served.contains(&call), "{served}");
        }
        let off = texts(&Deployment { grpc: false, websocket: None, ..full() }, version);
        assert!(off.contains("There is no gRPC binding.") && off.ends_with("[]"), "{off}");
        assert!(!off.contains("WebSocket"), "{off}");
        let stdio = texts(&Deployment { stdio: true, ..full() }, version);
        assert!(
            !["gRPC", "A2AService", "WebSocket", "HTTP+JSON"].iter().any(|name| stdio.contains(name)),
            "{stdio}"
        );
    }
}
