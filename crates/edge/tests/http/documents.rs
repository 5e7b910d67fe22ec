//! Cards and the `OpenAPI` document: which form is served where, and what it shows to whom.

use std::collections::HashSet;

use longshore_wire::contract::Deployment;
use longshore_wire::surface::{self, Access, ProtocolVersion, ROUTES};
use serde_json::{Value, json};

use crate::support::{ADA, Answer, Gateway};

pub(crate) const CARD: &str = "/.well-known/agent-card.json";
pub(crate) const EXTENDED: &str = "/extendedAgentCard";

pub(crate) async fn get(
    gateway: &Gateway,
    path: &str,
    authorization: &str,
    more: &[(&'static str, &str)],
) -> Answer {
    let mut call = gateway.call("GET", path).header("authorization", authorization);
    for (name, value) in more {
        call = call.header(name, value);
    }
    call.send().await
}

/// Which clients can read the card (1.0, 0.3, or both), and the URL where it sends them.
fn form(card: &Value) -> (&'static str, String) {
    let new = card.get("supportedInterfaces").map(|interfaces| interfaces[0]["url"].clone());
    let old = card.get("url").cloned();
    let (form, url) = match (new, old) {
        (Some(new), Some(old)) => {
            assert_eq!(new, old);
            ("both", new)
        }
        (Some(url), None) => ("1.0", url),
        (None, Some(url)) => ("0.3", url),
        (None, None) => panic!("no card: {card}"),
    };
    (form, url.as_str().unwrap().replace("http://agent.test", ""))
}

#[tokio::test]
async fn each_client_gets_the_card_of_its_version() {
    let gateway = Gateway::echoing().await;
    let old = "/.well-known/agent.json";
    let cases = [
        (CARD, "", "both", ""),
        (CARD, "1.0", "1.0", ""),
        (CARD, "1.0.7", "1.0", ""),
        (CARD, "0.3", "0.3", ""),
        (CARD, "0.3.0", "0.3", ""),
        // A client of an unknown version learns here which versions exist.
        (CARD, "9.9", "both", ""),
        ("/.well-known/agent-card.json?A2A-Version=1.0", "", "1.0", ""),
        (old, "", "both", ""),
        (old, "0.3", "0.3", ""),
        ("/a2a/1.0/.well-known/agent-card.json", "", "1.0", "/a2a/1.0"),
        ("/a2a/1.0/.well-known/agent-card.json", "1.0", "1.0", "/a2a/1.0"),
        ("/a2a/0.3/.well-known/agent-card.json", "", "0.3", "/a2a/0.3"),
        ("/a2a/0.3/.well-known/agent.json", "", "0.3", "/a2a/0.3"),
        // The clients in JavaScript look there for the card of /a2a/0.3 and /a2a/1.0.
        ("/a2a/.well-known/agent-card.json", "", "both", ""),
        ("/a2a/.well-known/agent-card.json", "1.0", "1.0", ""),
    ];
    for (path, version, expected, base) in cases {
        let answer = get(&gateway, path, "", &[("a2a-version", version)]).await;
        assert_eq!(answer.status.as_u16(), 200, "{path} {version}");
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(form(&answer.json()), (expected, base.to_owned()), "{path} {version}");
    }
    for (path, expected, base) in [
        (EXTENDED, "1.0", ""),
        ("/a2a/1.0/extendedAgentCard", "1.0", "/a2a/1.0"),
        ("/v1/card", "0.3", ""),
        ("/a2a/0.3/v1/card", "0.3", "/a2a/0.3"),
        ("/agent/authenticatedExtendedCard", "0.3", ""),
        ("/a2a/0.3/agent/authenticatedExtendedCard", "0.3", "/a2a/0.3"),
    ] {
        let answer = get(&gateway, path, ADA, &[]).await;
        assert_eq!(form(&answer.json()), (expected, base.to_owned()), "{path}");
        assert_eq!(get(&gateway, path, "", &[]).await.status.as_u16(), 401, "{path}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_methods_return_the_extended_card_of_their_version() {
    let gateway = Gateway::echoing().await;
    for (method, path) in [
        ("GetExtendedAgentCard", EXTENDED),
        ("agent/getAuthenticatedExtendedCard", "/agent/authenticatedExtendedCard"),
    ] {
        let answer = gateway.rpc(method, &json!({})).send().await;
        let card = get(&gateway, path, ADA, &[]).await.json();
        let (by_method, by_path) = (&answer.json()["result"], &card);
        // The paths of 0.3 may describe the authentication in both spellings.
        for field in ["name", "skills", "capabilities", "description"] {
            assert_eq!(by_method[field], by_path[field], "{method} {field}");
        }
        assert_eq!(form(by_method), form(by_path));
        assert_eq!((answer.header("etag"), answer.header("cache-control")), ("", "no-store"));
    }
    gateway.stop().await;
}

/// All strings of a document.
fn texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                found.push(name);
                texts(value, found);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn without_a_credential_the_openapi_document_says_no_more_than_the_public_card() {
    let gateway = Gateway::manual_with(|config| {
        let deployment = &mut config.deployment;
        deployment.environment.writable_roots = vec!["/srv/secret-root".to_owned()];
        deployment.environment.allowed_domains = vec!["secret.example.com".to_owned()];
        deployment.workspace_root = Some("/srv/secret-workspace".to_owned());
        deployment.agent = Some("secret-agent".to_owned());
        deployment.variant = Some("secret-variant".to_owned());
    })
    .await;
    let anonymous = get(&gateway, "/openapi.json", "", &[]).await.json();
    let full = get(&gateway, "/openapi.json", ADA, &[]).await.json();
    let card = get(&gateway, CARD, "", &[]).await.json();

    let open: HashSet<&str> =
        ROUTES.iter().filter(|route| route.access != Access::Credential).map(|route| route.path).collect();
    let paths: HashSet<&str> = anonymous["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert!(paths.is_subset(&open), "{paths:?}");
    assert!(full["paths"].as_object().unwrap().len() > paths.len());

    let text = anonymous.to_string();
    let public = card.to_string();
    assert!(!text.contains("secret") && !public.contains("secret"), "{text}");
    for version in ProtocolVersion::ALL {
        for method in surface::supported_methods(version, &Deployment::of_opencode()) {
            assert!(!text.contains(method) || public.contains(method), "{method}");
        }
    }
    let mut words = Vec::new();
    texts(&anonymous, &mut words);
    for word in words.iter().filter(|word| word.starts_with("urn:") || word.contains("A2A_")) {
        assert!(public.contains(word), "{word}");
    }
    // A wrong credential is refused, although none is needed.
    let wrong = get(&gateway, "/openapi.json", "Bearer nonsense", &[]).await;
    assert_eq!(wrong.status.as_u16(), 401);
    gateway.stop().await;
}

#[tokio::test]
async fn every_method_of_the_contract_is_answered_and_no_other() {
    let gateway = Gateway::echoing().await;
    for version in ProtocolVersion::ALL {
        let base = version.base();
        let call = async |method: &str| {
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
            let answer = gateway.call("POST", &format!("{base}/")).json(&body).send().await;
            // Streaming methods may refuse in a stream.
            String::from_utf8(answer.body.to_vec()).unwrap()
        };
        let supported = surface::supported_methods(version, &Deployment::of_opencode());
        for method in &supported {
            let answer = call(method).await;
            let is_unknown = answer.contains(r#""error":{"code":-32601"#);
            assert!(!is_unknown, "{base} {method}: {answer}");
        }
        let other = ProtocolVersion::ALL.into_iter().find(|other| *other != version).unwrap();
        let foreign = surface::core_methods(other);
        for method in foreign.into_iter().chain(["opencode.sessions.list", "tasks/unknown", ""]) {
            let text = call(method).await;
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(answer["error"]["code"], -32601, "{base} {method}: {answer}");
            assert!(supported.iter().all(|method| text.contains(method)), "{text}");
        }
    }
    gateway.stop().await;
}
