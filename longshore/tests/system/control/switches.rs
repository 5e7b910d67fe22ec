//! Methods that are switched off are not served, and documents mention them only with the name of their switch.

use std::collections::BTreeSet;

use longshore_testkit::raw::RawClient;
use longshore_wire::methods::{Method, Switch};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::fixture::{Fixture, Settings, agent_methods, call, error_reason, notify};

fn conditional() -> Vec<&'static Method> {
    let conditional: Vec<_> = agent_methods().filter(|method| method.switch.is_some()).collect();
    assert_eq!(conditional.len(), 8, "the shell, five that change places, and two that share");
    conditional
}

/// The extended card in this version.
pub(crate) async fn card(client: &RawClient, version: ProtocolVersion) -> Value {
    let path = if version == ProtocolVersion::V1 {
        "/extendedAgentCard"
    } else {
        "/agent/authenticatedExtendedCard"
    };
    let answer = client.speaking(version.as_str()).rest("GET", path, None).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// The parameters of the extension with this URI in a card.
fn params<'a>(card: &'a Value, end: &str) -> &'a Value {
    let extensions = card["capabilities"]["extensions"].as_array().expect("a card has extensions");
    let is_it = |one: &&Value| one["uri"].as_str().is_some_and(|uri| uri.contains(end));
    &extensions.iter().find(is_it).unwrap_or_else(|| panic!("no {end} in {card}"))["params"]
}

fn names(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().into_iter().flat_map(|object| object.keys().map(String::as_str)).collect()
}

/// The methods of JSON-RPC requests in the `OpenAPI` document.
fn described(openapi: &Value, found: &mut BTreeSet<String>) {
    match openapi {
        Value::Object(members) => {
            let constant = members.get("const").and_then(Value::as_str);
            found.extend(constant.filter(|name| name.contains('.')).map(str::to_owned));
            members.values().for_each(|inner| described(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| described(inner, found)),
        _ => {}
    }
}

/// Checks that every document and the routing agree on what is on and off.
async fn check(fixture: &Fixture, on: &BTreeSet<&'static str>, off: &[(&'static Method, Switch)]) {
    let off_names: BTreeSet<&str> = off.iter().map(|(method, _)| method.name).collect();
    let mut openapi = BTreeSet::new();
    described(&fixture.ada.rest("GET", "/openapi.json", None).await.body, &mut openapi);
    for version in ProtocolVersion::ALL {
        let card = card(&fixture.ada, version).await;
        let contract = params(&card, "wire-contract");
        let all = names(&contract["all_jsonrpc_methods"]);
        let of_extensions = names(&contract["extensions"]["jsonrpc_methods"]);
        let when = &contract["extensions"]["conditionally_available_methods"];
        assert_eq!(keys(when), off_names, "{version:?}");
        for name in on {
            assert!(all.contains(name) && of_extensions.contains(name), "{version:?} {name}");
            assert!(openapi.contains(*name), "{name}");
        }
        for (method, switch) in off {
            let name = method.name;
            assert!(!all.contains(name) && !of_extensions.contains(name), "{version:?} {name}");
            assert!(!openapi.contains(name), "{name}");
            assert_eq!(when[name]["toggle"], switch.toggle(), "{version:?} {when}");
            let mut seen = 0;
            fixture.arrived(&mut seen);
            let refused = call(&fixture.ada, version, method, &json!({})).await;
            assert_eq!(refused.body["error"]["code"], -32601, "{version:?} {name} {}", refused.body);
            assert_eq!(error_reason(&refused, version), "METHOD_DISABLED", "{version:?} {}", refused.body);
            assert!(refused.body.to_string().contains(switch.toggle()), "{}", refused.body);
            notify(&fixture.ada, version, method, &json!({})).await;
            assert_eq!(fixture.arrived(&mut seen), [""; 0], "{name}");
        }
        // Methods that are on exist: only the parameters are wrong.
        for method in conditional().into_iter().filter(|method| on.contains(method.name)) {
            let reported = call(&fixture.ada, version, method, &json!({"nonsense": 1})).await;
            assert_eq!(
                reported.body["error"]["code"], -32602,
                "{version:?} {} {}",
                method.name, reported.body
            );
        }
    }
}

#[tokio::test]
async fn card_contract_openapi_and_routing_follow_the_switches_together() {
    let always: BTreeSet<&str> =
        agent_methods().filter(|method| method.switch.is_none()).map(|method| method.name).collect();
    for [session_shell, workspace_mutations, session_share] in [
        [false, false, false],
        [true, false, false],
        [false, true, false],
        [false, false, true],
        [true, true, true],
    ] {
        let settings = Settings { session_shell, workspace_mutations, session_share, ..Settings::default() };
        let fixture = Fixture::start_with(settings).await;
        let is_on = |switch| match switch {
            Switch::SessionShell => session_shell,
            Switch::WorkspaceMutations => workspace_mutations,
            Switch::SessionShare => session_share,
        };
        let (mut on, mut off) = (always.clone(), Vec::new());
        for method in conditional() {
            let switch = method.switch.expect("it is conditional");
            if is_on(switch) {
                on.insert(method.name);
            } else {
                off.push((method, switch));
            }
        }
        check(&fixture, &on, &off).await;
        fixture.stop().await;
    }
}
