//! The documents as they are read, for a deployment with nothing configured and for one with everything.

use std::collections::HashSet;

use a2a_pb::protojson::AgentCard;
use longshore_model::card::AuthScheme;
use longshore_model::{ErrorKind, OfferedAgent, OfferedCommand, Offers};
use serde_json::{Value, json};

use super::*;
use crate::extension::{Activated, Exposure, Extension};
use crate::jsonrpc::{self, Id};
use crate::surface::{self, ProtocolVersion};
use crate::{v1, v03};

mod control;

/// A deployment that says everything that can be said.
pub(crate) fn full() -> Deployment {
    Deployment {
        title: "Harbour".to_owned(),
        description: "Works on the harbour.".to_owned(),
        version: "3.2.1".to_owned(),
        public_url: "https://agent.example.com/a/".to_owned(),
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

/// A deployment of OpenCode with nothing configured.
pub(crate) fn plain() -> Deployment {
    Deployment { control: true, ..Deployment::default() }
}

fn both() -> [(&'static str, Deployment); 2] {
    [("default", plain()), ("full", full())]
}

/// What an agent may have to offer.
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

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

#[test]
fn the_documents_of_every_line() {
    for (name, deployment) in both() {
        for version in ProtocolVersion::ALL {
            let version = version.version();
            let documents = [
                ("profile", profile(&deployment, version)),
                ("compatibility", compatibility_profile(&deployment, version, Base::Root)),
                ("wire_contract", wire_contract(&deployment, version, Base::Root)),
            ];
            for (document, value) in documents {
                insta::assert_snapshot!(format!("{name}_{version}_{document}"), pretty(&value));
            }
        }
    }
}

#[test]
fn the_cards() {
    for (name, deployment) in both() {
        for (audience, word) in [(Audience::Anonymous, "public"), (Audience::Authenticated, "extended")] {
            let of = |version| match audience {
                Audience::Anonymous => card(&deployment, version, audience, Base::Root),
                Audience::Authenticated => extended_card(&deployment, version, Base::Root, &offers()),
            };
            let new = v1::card::encode(&of(ProtocolVersion::V1));
            let merged = v03::card::merged(&merged_card(&deployment, audience));
            let old = |dialect| v03::card::encode(&of(ProtocolVersion::V03), dialect);
            // The public card is served in a form for both versions, the extended one by 0.3 in two spellings.
            let third = match audience {
                Audience::Anonymous => ("merged", merged.clone()),
                Audience::Authenticated => ("0.3_rest", old(v03::Dialect::Rest)),
            };
            for (versions, bytes) in [("1.0", new.clone()), ("0.3", old(v03::Dialect::Rpc)), third] {
                let value: Value = serde_json::from_slice(&bytes).unwrap();
                insta::assert_snapshot!(format!("{name}_{lines}_{word}_card"), pretty(&value));
            }
            // The official types take both, and see each extension once.
            for bytes in [&new, &merged] {
                let theirs: AgentCard = serde_json::from_slice(bytes).unwrap();
                let capabilities = theirs.capabilities.unwrap();
                assert_eq!(capabilities.extended_agent_card, Some(true));
                let uris: HashSet<&str> =
                    capabilities.extensions.iter().map(|entry| entry.uri.as_str()).collect();
                assert_eq!(uris.len(), capabilities.extensions.len());
            }
        }
    }
}

#[test]
fn health_of_every_line() {
    let down = Part::Down("OpenCode does not answer; it is being started again.".to_owned());
    let ill = HealthFacts { opencode: down, store: Part::Up, stopping: false };
    let well = HealthFacts { opencode: Part::Up, store: Part::Up, stopping: false };
    for ((name, deployment), facts) in both().into_iter().zip([well, ill]) {
        for version in ProtocolVersion::ALL {
            let value: Value = serde_json::from_slice(&health(&deployment, version, &facts)).unwrap();
            insta::assert_snapshot!(format!("{name}_{}_health", version.version()), pretty(&value));
        }
    }
}

#[test]
fn a_card_under_a_base_names_the_base() {
    let deployment = full();
    for (version, base, url) in [
        (ProtocolVersion::V1, Base::Root, "https://agent.example.com/a"),
        (ProtocolVersion::V1, Base::ProtocolVersion, "https://agent.example.com/a/a2a/1.0"),
        (ProtocolVersion::V03, Base::ProtocolVersion, "https://agent.example.com/a/a2a/0.3"),
    ] {
        let card = card(&deployment, version, Audience::Anonymous, base);
        assert!(card.interfaces.iter().all(|interface| interface.url == url), "{:?}", card.interfaces);
    }
}

/// The deployment is strict at the root, which says nothing about a base.
#[test]
fn the_contracts_under_a_base_know_one_line_only() {
    let deployment = full();
    for version in ProtocolVersion::ALL {
        let version = version.version();
        let documents = [
            ("compatibility", compatibility_profile(&deployment, version, Base::ProtocolVersion)),
            ("wire_contract", wire_contract(&deployment, version, Base::ProtocolVersion)),
        ];
        for (document, value) in documents {
            insta::assert_snapshot!(format!("full_{version}_base_{document}"), pretty(&value));
        }
        // And so do the cards that hold them.
        for deployment in [&deployment, &Deployment::default()] {
            let card = card(deployment, version, Audience::Authenticated, Base::ProtocolVersion);
            let params = card.extensions.iter().filter_map(|entry| Some(entry.params.as_ref()?.to_value()));
            let told: Vec<Value> =
                params.filter(|params| params.get("supported_protocol_versions").is_some()).collect();
            assert_eq!(told.len(), 2);
            for params in told {
                let both = [&params, &params["protocol_compatibility"]];
                for place in both {
                    assert_eq!(place["supported_protocol_versions"], serde_json::json!([version]));
                    assert_eq!(place["default_protocol_version"], version);
                }
                let compatibility = &params["protocol_compatibility"];
                assert_eq!(compatibility["missing_version"], version);
                let versions: Vec<&String> = compatibility["versions"].as_object().unwrap().keys().collect();
                assert_eq!(versions, [version]);
                assert_eq!(compatibility["versions"][version]["default"], true);
            }
        }
    }
}

#[test]
fn both_lines_declare_the_same_extensions() {
    let [one, other] = ProtocolVersion::ALL.map(|version| {
        let entries = extensions(&full(), version, Audience::Authenticated, Base::Root);
        entries.into_iter().map(|entry| Extension::parse(&entry.uri).unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(one, other);
}

#[test]
fn the_public_says_nothing_that_the_extended_takes_back() {
    for (_, deployment) in both() {
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
fn numbers_are_integers_and_nobody_learns_the_root_who_is_not_to() {
    let hidden = Deployment { workspace_root: None, ..full() };
    for version in ProtocolVersion::ALL {
        for document in
            [compatibility_profile(&hidden, version, Base::Root), wire_contract(&hidden, version, Base::Root)]
        {
            let text = document.to_string();
            assert!(!text.contains("/srv/harbour"), "{text}");
            assert!(is_whole(&document), "{text}");
        }
    }
}

fn is_whole(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => items.iter().all(is_whole),
        Value::Object(fields) => fields.values().all(is_whole),
        _ => true,
    }
}

#[test]
fn what_would_write_is_off_where_nothing_can_be_written() {
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
                let told = json!({"enabled": is_on, "availability": availability, "toggle": switch.1});
                assert_eq!(features[switch.0], told);
            }
        }
    }
}

#[test]
fn an_unknown_method_is_told_what_there_is() {
    for version in ProtocolVersion::ALL {
        let error = unsupported_method(version, "tasks/pur\nge", &plain());
        assert_eq!(error.kind(), ErrorKind::MethodNotFound);
        let detail = |name: &str| error.details().iter().find(|(key, _)| key == name).unwrap().1.clone();
        assert_eq!(detail("method"), "tasks/purge");
        assert_eq!(detail("protocolVersion"), version.version());
        let methods: Vec<String> = serde_json::from_str(&detail("supportedMethods")).unwrap();
        assert_eq!(methods, surface::supported_methods(version, &plain()));

        let id = Id::Number("7".to_owned());
        let bytes = match version {
            ProtocolVersion::V1 => jsonrpc::error(&id, &error),
            ProtocolVersion::V03 => v03::error::jsonrpc(&id, &error),
        };
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        insta::assert_snapshot!(format!("{}_unsupported_method", version.version()), pretty(&value));
    }
}

#[test]
fn every_method_of_the_contract_is_read() {
    let contract = wire_contract(&full(), ProtocolVersion::V1, Base::Root);
    for name in contract["all_jsonrpc_methods"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        let is_core = v1::method::Method::parse(name).is_some();
        assert!(is_core != crate::methods::find(name).is_some(), "{name}");
    }
    // And what an extension declares can be activated by the URI under which it is declared.
    for version in ProtocolVersion::ALL {
        for entry in extensions(&full(), version, Audience::Authenticated, Base::Root) {
            assert_ne!(Activated::of_header([entry.uri.as_str()]), Activated::NONE, "{}", entry.uri);
        }
    }
}

#[test]
fn only_callers_of_the_line_that_is_gated_must_activate_what_is_required() {
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
fn nothing_is_promised_that_callers_do_not_see() {
    for (raw_thinking, tool_trace) in [(true, true), (true, false), (false, true), (false, false)] {
        let deployment =
            Deployment { exposure: Exposure { raw_thinking, tool_trace }, ..Deployment::default() };
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
