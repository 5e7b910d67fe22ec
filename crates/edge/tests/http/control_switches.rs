//! A method that is switched off is not served, and the documents name only its switch.

use longshore_edge::contract::SandboxMode;
use longshore_wire::methods::{Method, Switch};
use longshore_wire::opencode;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::{agent, all_on, call, good, of_agent};
use crate::documents::{EXTENDED, get};
use crate::support::{ADA, ADA_ABLE, Gateway};

/// The extended card of a version.
async fn card(gateway: &Gateway, version: ProtocolVersion) -> Value {
    let path = if version == ProtocolVersion::V1 { EXTENDED } else { "/agent/authenticatedExtendedCard" };
    get(gateway, path, ADA, &[]).await.json()
}

/// The first member with this name, at any depth.
fn member<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    match document {
        Value::Object(members) => {
            members.get(name).or_else(|| members.values().find_map(|inner| member(inner, name)))
        }
        Value::Array(items) => items.iter().find_map(|item| member(item, name)),
        _ => None,
    }
}

/// Whether a method is served. Fails if the documents and the response of a call disagree.
async fn is_served(gateway: &Gateway, version: ProtocolVersion, method: &'static Method) -> bool {
    let answer = call(gateway, version, ADA_ABLE, method, &good(method)).send().await.json();
    let is_served = answer.get("result").is_some();
    let card = card(gateway, version).await;
    let all = member(&card, "all_jsonrpc_methods").and_then(Value::as_array).unwrap();
    assert_eq!(all.contains(&json!(method.name)), is_served, "{} {answer}", method.name);
    let conditional = member(&card, "conditionally_available_methods").unwrap();
    assert_eq!(conditional.to_string().contains(method.name), !is_served, "{}", method.name);
    let openapi = gateway.call("GET", "/openapi.json").send().await.json().to_string();
    let called = format!("\"const\":\"{}\"", method.name);
    assert_eq!(openapi.contains(&called), is_served, "{} {answer}", method.name);
    if !is_served {
        let error = &answer["error"];
        assert_eq!(error["code"], -32601, "{error}");
        assert!(error.to_string().contains("METHOD_DISABLED"), "{error}");
        assert!(error.to_string().contains(method.switch.unwrap().toggle()), "{error}");
    }
    is_served
}

#[tokio::test]
async fn documents_and_routing_follow_the_switches_together() {
    for (name, configure, shell, mutations, sharing, deletion) in [
        ("off", (|_| {}) as fn(&mut longshore_edge::EdgeConfig), false, false, false, false),
        ("shell", |config| config.deployment.session_shell = true, true, false, false, false),
        ("mutations", |config| config.deployment.workspace_mutations = true, false, true, false, false),
        ("sharing", |config| config.deployment.session_share = true, false, false, true, false),
        ("deletion", |config| config.deployment.session_delete = true, false, false, false, true),
        ("on", all_on, true, true, true, true),
        (
            "on, but read-only",
            |config| {
                all_on(config);
                config.deployment.environment.sandbox_mode = SandboxMode::ReadOnly;
            },
            false,
            false,
            true,
            true,
        ),
    ] {
        let control = agent();
        let gateway = Gateway::controlled(&control, configure).await;
        let conditional: Vec<_> = of_agent().filter(|method| method.switch.is_some()).collect();
        assert_eq!(conditional.len(), 9);
        for method in conditional {
            let expected = match method.switch {
                Some(Switch::SessionShell) => shell,
                Some(Switch::SessionShare) => sharing,
                Some(Switch::SessionDelete) => deletion,
                _ => mutations,
            };
            for version in ProtocolVersion::ALL {
                // An earlier call may have deleted it.
                control.add("ses_a");
                assert_eq!(is_served(&gateway, version, method).await, expected, "{name} {}", method.name);
            }
        }
        gateway.stop().await;
    }
}

/// A command that runs when a worktree is created is a shell command.
#[tokio::test]
async fn a_start_command_needs_the_shell_capability() {
    let create = opencode::method("opencode.worktrees.create").unwrap();
    let params = json!({"request": {"name": "new", "startCommand": "make"}});
    let only_mutations = |config: &mut longshore_edge::EdgeConfig| {
        config.deployment.workspace_mutations = true;
    };
    let gateway = Gateway::controlled(&agent(), only_mutations).await;
    for version in ProtocolVersion::ALL {
        let refused = call(&gateway, version, ADA_ABLE, create, &params).send().await.json();
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused.to_string().contains("request.startCommand"), "{refused}");
        assert!(refused.to_string().contains("A2A_ENABLE_SESSION_SHELL"), "{refused}");
    }
    gateway.stop().await;
    let gateway = Gateway::controlled(&agent(), all_on).await;
    let made = call(&gateway, ProtocolVersion::V1, ADA_ABLE, create, &params).send().await.json();
    assert!(made.get("result").is_some(), "{made}");
    gateway.stop().await;
}

/// OpenCode runs arguments of a command that have this form.
#[tokio::test]
async fn command_arguments_that_opencode_would_run_need_the_shell_capability() {
    let command = opencode::method("opencode.sessions.command").unwrap();
    let params = json!({"session_id": "ses_ada", "request": {"command": "review", "arguments": "see !`id`"}});
    let agent = agent();
    let gateway = Gateway::controlled(&agent, |_| ()).await;
    for version in ProtocolVersion::ALL {
        let refused = call(&gateway, version, ADA_ABLE, command, &params).send().await.json();
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused.to_string().contains("request.arguments"), "{refused}");
    }
    gateway.stop().await;
    let gateway = Gateway::controlled(&agent, all_on).await;
    for version in ProtocolVersion::ALL {
        let refused = call(&gateway, version, ADA, command, &params).send().await.json();
        assert_eq!(refused["error"]["code"], -32007, "{refused}");
        assert!(refused.to_string().contains("session_shell"), "{refused}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_agent_without_control_has_no_control_methods() {
    let gateway = Gateway::echoing_with(|config| {
        all_on(config);
        config.deployment.control = true;
    })
    .await;
    for method in of_agent() {
        for version in ProtocolVersion::ALL {
            let answer = call(&gateway, version, ADA_ABLE, method, &good(method)).send().await.json();
            assert_eq!(answer["error"]["code"], -32601, "{answer}");
            assert!(!answer.to_string().contains("METHOD_DISABLED"), "{answer}");
            let card = card(&gateway, version).await.to_string();
            assert!(!card.contains(&format!("\"{}\"", method.name)), "{}", method.name);
        }
    }
    gateway.stop().await;
}
