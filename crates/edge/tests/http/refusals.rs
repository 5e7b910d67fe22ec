//! Refusals before the operation is known, and the exact response in each binding.

use serde_json::json;

use crate::support::{ADA, Gateway, case, message, transcript};

#[tokio::test]
async fn credentials() {
    let gateway = Gateway::echoing().await;
    let get = json!({"id": "nope"});
    let both = |name, authorization: &str| {
        case(
            name,
            gateway.rpc("GetTask", &get).header("authorization", authorization),
            gateway.call("GET", "/tasks/nope").header("authorization", authorization),
        )
    };
    let key = |name, key: &str| {
        case(
            name,
            gateway.rpc("GetTask", &get).header("authorization", "").header("x-api-key", key),
            gateway.call("GET", "/tasks/nope").header("authorization", "").header("x-api-key", key),
        )
    };
    let cases = vec![
        both("none", ""),
        both("unknown token", "Bearer tok-eve"),
        both("malformed", "Bearer"),
        both("unknown scheme", "Digest tok-ada"),
        both("malformed basic", "Basic %%%"),
        both("good bearer", ADA),
        both("good basic", "basic Y2FybDpwdw=="),
        key("unknown key", "key-eve"),
        key("good key", "key-dora"),
        case(
            "unknown path without a credential",
            None,
            gateway.call("GET", "/nope").header("authorization", ""),
        ),
        case(
            "in a2a+json",
            None,
            gateway
                .call("GET", "/tasks")
                .header("authorization", "")
                .header("accept", "application/a2a+json"),
        ),
    ];
    insta::assert_snapshot!(transcript(cases).await);
    gateway.stop().await;
}

#[tokio::test]
async fn paths_and_versions() {
    let gateway = Gateway::echoing().await;
    let rest = |name, verb: &str, path: &str| case(name, None, gateway.call(verb, path));
    let version = |name, header: &str, query: &str| {
        let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "nope"}});
        case(
            name,
            gateway.call("POST", &format!("/{query}")).json(&rpc).header("a2a-version", header),
            gateway.call("GET", &format!("/tasks/nope{query}")).header("a2a-version", header),
        )
    };
    let cases = vec![
        rest("unknown path", "GET", "/nope"),
        rest("unknown tenant", "POST", "/acme/message:send"),
        rest("v1 is no tenant", "POST", "/v1/extendedAgentCard"),
        rest("v1 is reserved", "GET", "/v1/x"),
        rest("a2a is reserved", "GET", "/a2a/tasks"),
        rest("GET on the endpoint", "GET", "/"),
        rest("DELETE on a task", "DELETE", "/tasks/t"),
        rest("GET on a cancel", "GET", "/tasks/t:cancel"),
        rest("GET on a send", "GET", "/message:send"),
        rest("PUT on a subscription", "PUT", "/tasks/t:subscribe"),
        rest("POST on the card", "POST", "/.well-known/agent-card.json"),
        version("version 1.0", "1.0", ""),
        version("version 1.0.1", "1.0.1", ""),
        version("version 0.3", "0.3", ""),
        version("version 2.0", "2.0", ""),
        version("version in the query", "", "?A2A-Version=9.9"),
        version("the header wins", "1.0", "?A2A-Version=9.9"),
        case("version before path", None, gateway.call("GET", "/nope").header("a2a-version", "0.4")),
    ];
    insta::assert_snapshot!(transcript(cases).await);
    gateway.stop().await;
}

#[tokio::test]
async fn bodies_over_the_limit() {
    let gateway = Gateway::manual_with(|config| config.max_body_bytes = 1000).await;
    let large = json!({"message": message("m", &"x".repeat(2000))});
    let cases = vec![case(
        "too large",
        gateway.rpc("SendMessage", &large),
        gateway.call("POST", "/message:send").json(&large),
    )];
    insta::assert_snapshot!(transcript(cases).await);
    gateway.stop().await;
}
