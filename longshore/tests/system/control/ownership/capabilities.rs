//! A method that needs a capability is refused to credentials without it, before anything else is checked.

use longshore_testkit::fake_opencode::FakeOpenCode;
use longshore_testkit::gateway::{Gateway, Setup, TOKEN};
use longshore_testkit::raw::{Answer, RawClient};
use longshore_wire::methods::{Method, Switch};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{
    assert_forbidden, call_ok, error_code, error_fact, method_named, session_params,
};
use crate::control::fixture::{agent_methods, call, error_reason};

fn assert_lacks_capability(
    answer: &Answer,
    version: ProtocolVersion,
    method: &Method,
    switch: Switch,
    credential: &str,
) {
    let about = format!("{} {version:?}: {}", method.name, answer.body);
    assert_eq!((answer.status, error_code(answer)), (200, -32007), "{about}");
    assert_eq!(error_reason(answer, version), "AUTHORIZATION_FORBIDDEN", "{about}");
    assert_eq!(error_fact(answer, version, "capability"), switch.capability().as_str(), "{about}");
    assert_eq!(error_fact(answer, version, "credentialId"), credential, "{about}");
    assert_eq!(error_fact(answer, version, "method"), method.name, "{about}");
}

/// The gateway with credentials from its environment: the single token has every capability, the others have those of
/// the list.
#[tokio::test(flavor = "multi_thread")]
async fn the_single_token_of_a_gateway_has_every_capability() {
    const LIST: &str = r#"[
        {"scheme": "bearer", "token": "plain-token-0123456789abcdef", "principal": "plain", "credential_id": "p-1"},
        {"scheme": "bearer", "token": "claim-token-0123456789abcdef", "principal": "claims", "capabilities": ["session_claim"]}
    ]"#;
    let fake = FakeOpenCode::start();
    let setup = Setup::attached(env!("CARGO_BIN_EXE_longshore"), &fake.url())
        .env("A2A_ENABLE_SESSION_SHELL", "true")
        .env("A2A_ENABLE_WORKSPACE_MUTATIONS", "true")
        .env("LONGSHORE_SESSION_SHARE", "true")
        .env("LONGSHORE_SESSION_DELETE", "true")
        .env("A2A_STATIC_AUTH_CREDENTIALS", LIST);
    let gateway = Gateway::start(setup).await;
    let root = gateway.workspace().canonicalize().expect("the workspace is there");
    let root = root.to_str().expect("a path of a test is text");
    let caller = |token: &str| RawClient::new(gateway.url(), token);
    let owner = caller(TOKEN);
    let plain = caller("plain-token-0123456789abcdef");
    let claims = caller("claim-token-0123456789abcdef");
    for version in ProtocolVersion::ALL {
        let session = format!("ses_typed_{version:?}");
        fake.add_session(&session, root);
        for (method, switch) in agent_methods().filter_map(|method| Some((method, method.switch?))) {
            let may = call(&owner, version, method, &json!({"nonsense": 1})).await;
            assert_eq!(error_code(&may), -32602, "{} {}", method.name, may.body);
            assert_lacks_capability(
                &call(&plain, version, method, &json!({})).await,
                version,
                method,
                switch,
                "p-1",
            );
            assert_lacks_capability(
                &call(&claims, version, method, &json!({})).await,
                version,
                method,
                switch,
                "",
            );
        }
        let shell = method_named("opencode.sessions.shell");
        let params = session_params(shell, &session, "msg_1");
        let get = method_named("opencode.sessions.get");
        let look: Value = json!({"session_id": session});
        assert_forbidden(&call(&plain, version, get, &look).await, version, &session, "plain");
        call_ok(&claims, version, get, &look).await;
        call_ok(&owner, version, shell, &params).await;
        assert_forbidden(
            &call(&claims, version, get, &look).await,
            version,
            &session,
            "after the owner took it",
        );
    }
}
