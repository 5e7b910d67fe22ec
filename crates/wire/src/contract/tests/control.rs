//! Tests of the methods that control the agent, and of OpenCode's agents and commands, in the documents.

use super::*;
use crate::agent::AgentSurface;
use crate::sessions;

const SWITCHED: [&str; 9] = [
    "opencode.sessions.share",
    "opencode.sessions.unshare",
    "opencode.sessions.shell",
    "opencode.sessions.delete",
    "opencode.workspaces.create",
    "opencode.workspaces.remove",
    "opencode.worktrees.create",
    "opencode.worktrees.remove",
    "opencode.worktrees.reset",
];

/// The documents that describe the methods of a deployment.
fn method_documents(deployment: &Deployment, version: ProtocolVersion) -> [Value; 4] {
    let entries = extensions(deployment, version, Audience::Authenticated, Base::Root);
    let params = |extension: Extension| {
        let mut found = entries.iter().filter(|entry| Extension::parse(&entry.uri) == Some(extension));
        found.next().and_then(|entry| Some(entry.params.as_ref()?.to_value())).unwrap_or_default()
    };
    [
        wire_contract(deployment, version, Base::Root),
        compatibility_profile(deployment, version, Base::Root),
        params(Extension::SessionManagement),
        params(Extension::WorkspaceControl),
    ]
}

fn lists(names: &Value, name: &str) -> bool {
    match names {
        Value::Array(names) => names.contains(&json!(name)),
        Value::Object(fields) => fields.values().any(|value| value == name) || fields.contains_key(name),
        _ => false,
    }
}

#[test]
fn a_switch_changes_every_document() {
    for version in ProtocolVersion::ALL {
        for is_on in [false, true] {
            let deployment = Deployment {
                session_shell: is_on,
                workspace_mutations: is_on,
                session_share: is_on,
                session_delete: is_on,
                ..plain()
            };
            let [contract, profile, sessions, workspace] = method_documents(&deployment, version);
            for name in SWITCHED {
                let of_extension = if name.contains("sessions") { &sessions } else { &workspace };
                for served in [
                    &contract["all_jsonrpc_methods"],
                    &contract["extensions"]["jsonrpc_methods"],
                    &of_extension["methods"],
                    &of_extension["method_contracts"],
                ] {
                    assert_eq!(lists(served, name), is_on, "{name} {served}");
                }
                let conditional = &contract["extensions"]["conditionally_available_methods"];
                assert_eq!(conditional.get(name).is_some(), !is_on, "{name}");
                let retention = &profile["method_retention"][name];
                assert_eq!(retention["availability"], if is_on { "enabled" } else { "disabled" }, "{name}");
                assert_eq!(retention["retention"], "deployment-conditional");
                // The setting is listed whether or not it is enabled.
                let flag = &of_extension["control_method_flags"][name];
                assert_eq!(flag["config_key"], retention["toggle"], "{name}");
            }
            let skills = card(&deployment, version, Audience::Authenticated, Base::Root).skills;
            let examples: String = skills.into_iter().flat_map(|skill| skill.examples).collect();
            assert!(SWITCHED.iter().all(|name| examples.contains(name) == is_on), "{examples}");
        }
        // The start command of a new worktree needs both switches.
        let without_shell = Deployment { workspace_mutations: true, ..plain() };
        for (deployment, is_listed) in [(without_shell, false), (full(), true)] {
            let [_, _, _, workspace] = method_documents(&deployment, version);
            let optional = &workspace["method_contracts"]["opencode.worktrees.create"]["params"]["optional"];
            assert_eq!(lists(optional, "request.startCommand"), is_listed);
        }
    }
}

#[test]
fn without_control_the_documents_name_no_control_methods() {
    let deployment = Deployment { control: false, ..full() };
    for version in ProtocolVersion::ALL {
        let card = extended_card(&deployment, version, Base::Root, &offers());
        let text = format!("{card:?} {:?}", method_documents(&deployment, version));
        for word in [
            "opencode.sessions.",
            "opencode.providers",
            "opencode.worktrees",
            "session-management",
            "opencode.agent.build",
        ] {
            assert!(!text.contains(word), "{word}");
        }
        let features = &profile(&deployment, version)["runtime_features"];
        for name in ["session_shell", "workspace_mutations", "session_share", "session_delete"] {
            assert_eq!(features[name], json!({"enabled": false, "availability": "not_available"}));
        }
    }
}

#[test]
fn the_documents_of_another_agent_name_that_agent_and_not_opencode() {
    let deployment = Deployment {
        title: "Qwen Code".to_owned(),
        description: "A coding agent (Qwen Code).".to_owned(),
        agent_name: "Qwen Code".to_owned(),
        surface: &AgentSurface::PLAIN,
        control: false,
        agent: None,
        variant: None,
        directory_override: true,
        ..full()
    };
    for version in ProtocolVersion::ALL {
        for audience in [Audience::Anonymous, Audience::Authenticated] {
            let card = card(&deployment, version, audience, Base::Root);
            let text = format!("{card:?} {}", compatibility_profile(&deployment, version, Base::Root));
            for word in ["OpenCode", "metadata.opencode.agent", "opencode.sessions"] {
                assert!(!text.contains(word), "{word}: {text}");
            }
            assert!(text.contains("with the tools of Qwen Code"), "{text}");
        }
        let features = &profile(&deployment, version)["runtime_features"];
        assert_eq!(features["workspace_binding"]["enabled"], false);
    }
}

#[test]
fn the_documents_leave_out_what_the_agent_lacks() {
    let deployment = Deployment {
        surface: &AgentSurface::PLAIN,
        lacking: vec![sessions::LIST, sessions::DELETE],
        session_delete: true,
        ..full()
    };
    for version in ProtocolVersion::ALL {
        let card = extended_card(&deployment, version, Base::Root, &Offers::default());
        let text = format!("{card:?} {:?}", method_documents(&deployment, version));
        for (name, is_offered) in [
            (sessions::LIST, false),
            (sessions::FORK, true),
            (sessions::DELETE, false),
            ("a2a.sessions.get", true),
        ] {
            assert_eq!(text.contains(name), is_offered, "{name}: {text}");
        }
        let features = &profile(&deployment, version)["runtime_features"];
        assert_eq!(features["session_delete"], json!({"enabled": false, "availability": "not_available"}));
        // A call of such a method is still passed on to the agent.
        let delete = crate::methods::find(&deployment, sessions::DELETE);
        assert!(delete.is_some_and(|method| method.is_on(&deployment)));
    }
}

#[test]
fn every_row_is_in_the_documents_once() {
    for version in ProtocolVersion::ALL {
        let entries = extensions(&full(), version, Audience::Authenticated, Base::Root);
        let mut listed = HashSet::new();
        for entry in entries {
            let extension = Extension::parse(&entry.uri).unwrap();
            let params = entry.params.as_ref().unwrap().to_value();
            for (name, contract) in params["method_contracts"].as_object().into_iter().flatten() {
                let method = crate::opencode::method(name).unwrap();
                assert_eq!(method.extension, extension);
                assert!(listed.insert(method.name), "{name}");
                assert_eq!(params["methods"][method.key], *name);
                assert_eq!(contract["result"]["fields"], json!(method.result.fields()));
                let codes = &params["errors"]["business_codes"];
                for kind in method.errors {
                    let (code, word) = crate::contract::method::code(version, *kind);
                    assert_eq!(codes[word], code, "{name} {word}");
                }
                for (path, switch) in method.param_switches() {
                    let capability = &params["parameter_capabilities"][name][&path];
                    assert_eq!(*capability, switch.capability().as_str(), "{name} {path}");
                }
            }
        }
        assert_eq!(listed.len(), crate::opencode::methods().count());
    }
}

#[test]
fn agents_and_commands_are_on_the_extended_card_with_short_descriptions() {
    let mut offers = offers();
    offers.agents[0].description = Some("é".repeat(2000));
    let extended = extended_card(&plain(), ProtocolVersion::V1, Base::Root, &offers);
    let skill = extended.skills.iter().find(|skill| skill.id == "opencode.agent.build").unwrap();
    assert_eq!(skill.description, "é".repeat(512) + "…");
    let entry =
        extended.extensions.iter().find(|entry| entry.uri == Extension::SessionManagement.uri()).unwrap();
    let params = entry.params.as_ref().unwrap().to_value();
    assert_eq!(params["agents"][0]["description"], skill.description);
    // With other offers the card differs, and an agent without commands has an empty list.
    assert_ne!(extended, extended_card(&plain(), ProtocolVersion::V1, Base::Root, &super::offers()));
    let none = extended_card(&plain(), ProtocolVersion::V1, Base::Root, &Offers::default());
    let entry = none.extensions.iter().find(|entry| entry.uri == Extension::SessionManagement.uri()).unwrap();
    assert_eq!(entry.params.as_ref().unwrap().to_value()["commands"], json!([]));
    assert!(none.skills.iter().all(|skill| !skill.id.starts_with("opencode.command")));
    let public = card(&plain(), ProtocolVersion::V1, Audience::Anonymous, Base::Root);
    assert!(!format!("{public:?}").contains("opencode.agent.build"));
}

#[test]
fn the_error_for_a_disabled_method_names_its_setting() {
    for version in ProtocolVersion::ALL {
        let deployment = plain();
        let method = crate::opencode::method("opencode.sessions.shell").unwrap();
        let error = disabled_method(version, method, &deployment);
        assert_eq!(error.kind(), ErrorKind::MethodDisabled);
        let id = Id::Number("7".to_owned());
        let bytes = match version {
            ProtocolVersion::V1 => jsonrpc::error(&id, &error),
            ProtocolVersion::V03 => v03::error::jsonrpc(&id, &error),
        };
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value["error"]["code"], -32601);
        insta::assert_snapshot!(format!("{}_disabled_method", version.as_str()), print(&value));
    }
}
