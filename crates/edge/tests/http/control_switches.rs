//! What is switched off is in no document but by the name of its switch, and is not served.

use longshore_edge::contract::SandboxMode;
use longshore_wire::methods::{self, Method};
use longshore_wire::surface::Line;
use serde_json::{Value, json};

use crate::control::{agent, all_on, call, good, of_agent};
use crate::documents::{EXTENDED, get};
use crate::support::{ADA, ADA_ABLE, Gateway};

/// Whether a document has this text as a value or a name of a member, anywhere but under `without`.
fn has(document: &Value, text: &str, without: &str) -> bool {
    match document {
        Value::String(found) => found == text,
        Value::Array(items) => items.iter().any(|item| has(item, text, without)),
        Value::Object(members) => members
            .iter()
            .any(|(name, member)| name != without && (name == text || has(member, text, without))),
        _ => false,
    }
}

/// The extended card of a line.
async fn card(gateway: &Gateway, line: Line) -> Value {
    let path = if line == Line::V1 { EXTENDED } else { "/agent/authenticatedExtendedCard" };
    get(gateway, path, ADA, &[]).await.json()
}

/// The list of a document that is said to hold all methods.
fn all_methods(document: &Value) -> Option<&Vec<Value>> {
    match document {
        Value::Object(members) => members
            .get("all_jsonrpc_methods")
            .and_then(Value::as_array)
            .or_else(|| members.values().find_map(all_methods)),
        Value::Array(items) => items.iter().find_map(all_methods),
        _ => None,
    }
}

/// What the documents say of a method, and what its callers are told, all the same.
async fn is_served(gateway: &Gateway, line: Line, method: &'static Method) -> bool {
    let answer = call(gateway, line, ADA_ABLE, method, &good(method)).send().await.json();
    let is_served = answer.get("result").is_some();
    let card = card(gateway, line).await;
    let listed = all_methods(&card).unwrap_or_else(|| panic!("{card}"));
    assert_eq!(listed.contains(&json!(method.name)), is_served, "{} {answer}", method.name);
    let openapi = gateway.call("GET", "/openapi.json").send().await.json();
    assert_eq!(
        has(&openapi, method.name, "conditionally_available_methods"),
        is_served,
        "{} {answer}",
        method.name
    );
    let conditional = card.to_string().contains("conditionally_available_methods");
    if !is_served {
        let error = &answer["error"];
        assert_eq!(error["code"], -32601, "{error}");
        assert!(error.to_string().contains("METHOD_DISABLED"), "{error}");
        assert!(error.to_string().contains(method.switch.unwrap().toggle()), "{error}");
        assert!(conditional, "{card}");
    }
    is_served
}

#[tokio::test]
async fn documents_and_routing_follow_the_switches_together() {
    for (name, configure, shell, mutations) in [
        ("off", (|_| {}) as fn(&mut longshore_edge::EdgeConfig), false, false),
        ("shell", |config| config.deployment.session_shell = true, true, false),
        ("mutations", |config| config.deployment.workspace_mutations = true, false, true),
        ("on", all_on, true, true),
        (
            "on, but read-only",
            |config| {
                all_on(config);
                config.deployment.environment.sandbox_mode = SandboxMode::ReadOnly;
            },
            false,
            false,
        ),
    ] {
        let gateway = Gateway::controlled(&agent(), configure).await;
        let conditional: Vec<_> = of_agent().filter(|method| method.switch.is_some()).collect();
        assert_eq!(conditional.len(), 6);
        for method in conditional {
            let expected = if method.key == "shell" { shell } else { mutations };
            for line in Line::ALL {
                assert_eq!(is_served(&gateway, line, method).await, expected, "{name} {}", method.name);
            }
        }
        gateway.stop().await;
    }
}

/// A command that runs when a worktree is made is a shell.
#[tokio::test]
async fn a_start_command_needs_what_a_shell_needs() {
    let create = methods::find("opencode.worktrees.create").unwrap();
    let params = json!({"request": {"name": "new", "startCommand": "make"}});
    let only_mutations = |config: &mut longshore_edge::EdgeConfig| {
        config.deployment.workspace_mutations = true;
    };
    let gateway = Gateway::controlled(&agent(), only_mutations).await;
    for line in Line::ALL {
        let refused = call(&gateway, line, ADA_ABLE, create, &params).send().await.json();
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused.to_string().contains("request.startCommand"), "{refused}");
        assert!(refused.to_string().contains("A2A_ENABLE_SESSION_SHELL"), "{refused}");
    }
    gateway.stop().await;
    let gateway = Gateway::controlled(&agent(), all_on).await;
    let made = call(&gateway, Line::V1, ADA_ABLE, create, &params).send().await.json();
    assert!(made.get("result").is_some(), "{made}");
    gateway.stop().await;
}

#[tokio::test]
async fn an_agent_that_cannot_be_looked_at_has_no_such_methods() {
    let gateway = Gateway::echoing_with(|config| {
        all_on(config);
        config.deployment.control = true;
    })
    .await;
    for method in of_agent() {
        for line in Line::ALL {
            let answer = call(&gateway, line, ADA_ABLE, method, &good(method)).send().await.json();
            assert_eq!(answer["error"]["code"], -32601, "{answer}");
            assert!(!answer.to_string().contains("METHOD_DISABLED"), "{answer}");
            assert!(!has(&card(&gateway, line).await, method.name, ""), "{}", method.name);
        }
    }
    gateway.stop().await;
}
