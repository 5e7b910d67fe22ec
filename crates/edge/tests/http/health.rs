//! `/health` over HTTP. Unit tests cover its content.

use std::sync::Arc;

use longshore_edge::contract::MissingVersion;
use longshore_testkit::faulty_store::FaultyStore;
use serde_json::Value;

use crate::support::Gateway;

#[tokio::test]
async fn health_needs_a_credential_and_has_the_profile_of_the_version() {
    let gateway = Gateway::echoing().await;
    let anonymous = gateway.call("GET", "/health").header("authorization", "").send().await;
    assert_eq!(anonymous.status.as_u16(), 401);
    for (version, expected) in [("", "1.0"), ("1.0", "1.0"), ("0.3", "0.3")] {
        let answer = gateway.call("GET", "/health").header("a2a-version", version).send().await;
        assert_eq!(answer.status.as_u16(), 200);
        assert_eq!(answer.header("cache-control"), "no-store");
        let health = answer.json();
        assert_eq!(health["status"], "ok");
        assert_eq!((&health["live"], &health["ready"]), (&Value::Bool(true), &Value::Bool(true)));
        assert_eq!(health["profile"]["protocol_version"], expected, "{version}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_header_and_the_profile_name_the_same_version() {
    let strict = Gateway::manual_with(|config| config.deployment.missing_version = MissingVersion::V03).await;
    let free = Gateway::echoing().await;
    for (gateway, version, expected) in [
        (&strict, "", "0.3"),
        (&strict, "1.0", "1.0"),
        (&strict, "9.9", "1.0"),
        (&free, "", "1.0"),
        (&free, "9.9", "1.0"),
    ] {
        let answer = gateway.call("GET", "/health").header("a2a-version", version).send().await;
        assert_eq!(answer.header("a2a-version"), expected, "{version}");
        assert_eq!(answer.json()["profile"]["protocol_version"], expected, "{version}");
    }
    strict.stop().await;
    free.stop().await;
}

#[tokio::test]
async fn a_gateway_whose_agent_or_store_is_down_is_live_and_not_ready() {
    let down = |health: &Value, part: &str| health["parts"][part]["status"] == "down";
    let gateway = Gateway::echoing().await;
    gateway.agent.set_down(true);
    let answer = gateway.call("GET", "/health").send().await;
    assert_eq!(answer.status.as_u16(), 503);
    let health = answer.json();
    assert!(down(&health, "opencode") && !down(&health, "store"), "{health}");
    assert_eq!((&health["live"], &health["ready"]), (&Value::Bool(true), &Value::Bool(false)));
    assert_eq!(gateway.call("GET", "/livez").send().await.status.as_u16(), 200);
    gateway.stop().await;

    let store = FaultyStore::over(longshore_store::memory());
    store.break_logs();
    let gateway = Gateway::manual_on(Arc::clone(&store) as _).await;
    let answer = gateway.call("GET", "/health").send().await;
    assert_eq!(answer.status.as_u16(), 503);
    let health = answer.json();
    assert!(down(&health, "store") && !down(&health, "opencode"), "{health}");
    gateway.stop().await;
}
