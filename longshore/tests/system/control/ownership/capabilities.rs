//! What needs a capability is refused to credentials that lack it, before anything else is looked at.

use longshore_testkit::fake_opencode::FakeOpenCode;
use longshore_testkit::gateway::{Gateway, Setup, TOKEN};
use longshore_testkit::raw::{Answer, RawClient};
use longshore_wire::methods::{Method, Switch};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use super::answering;
use crate::control::calls::{asked, code, fact, first_message, forbidden, id_of, on_session, row, rows, works};
use crate::control::fixture::{FAY_TOKEN, GIL_TOKEN, Stage, call, notify, of_agent, word};

fn lacks(answer: &Answer, line: ProtocolVersion, method: &Method, switch: Switch, credential: &str) {
    let about = format!("{} {line:?}: {}", method.name, answer.body);
    assert_eq!((answer.status, code(answer)), (200, -32007), "{about}");
    assert_eq!(word(answer, line), "AUTHORIZATION_FORBIDDEN", "{about}");
    assert_eq!(fact(answer, line, "capability"), switch.capability().as_str(), "{about}");
    assert_eq!(fact(answer, line, "credentialId"), credential, "{about}");
    assert_eq!(fact(answer, line, "method"), method.name, "{about}");
}

#[tokio::test]
async fn a_method_that_needs_a_capability_is_for_credentials_that_have_it() {
    let stage = Stage::start().await;
    let mut seen = 0;
    asked(&stage, &mut seen);
    let callers = [
        ("eve-credential", stage.eve.clone(), [false, false]),
        ("fay-credential", RawClient::new(stage.url.clone(), FAY_TOKEN), [false, true]),
        ("gil-credential", RawClient::new(stage.url.clone(), GIL_TOKEN), [true, false]),
    ];
    let conditional: Vec<_> = of_agent().filter_map(|method| Some((method, method.switch?))).collect();
    assert_eq!(conditional.len(), 6);
    for (method, switch) in conditional {
        for (credential, caller, [may_shell, may_mutate]) in &callers {
            let may = match switch {
                Switch::SessionShell => *may_shell,
                Switch::WorkspaceMutations => *may_mutate,
            };
            for line in ProtocolVersion::ALL {
                // Nothing is good about these parameters, and that is not said to those who may not.
                let answer = call(caller, line, method, &json!({"nonsense": 1})).await;
                if may {
                    assert_eq!(code(&answer), -32602, "{credential} {} {}", method.name, answer.body);
                } else {
                    lacks(&answer, line, method, switch, credential);
                    notify(caller, line, method, &json!({})).await;
                }
                assert_eq!(asked(&stage, &mut seen), [""; 0], "{credential} {}", method.name);
            }
        }
    }
    // What runs in a shell needs that capability, too, whichever method it comes by.
    let create = row("opencode.worktrees.create");
    let (fay_id, fay, _) = &callers[1];
    for line in ProtocolVersion::ALL {
        let answer = call(fay, line, create, &json!({"request": {"startCommand": "touch here"}})).await;
        lacks(&answer, line, create, Switch::SessionShell, fay_id);
        assert_eq!(asked(&stage, &mut seen), [""; 0]);
    }
    stage.stop().await;
}

#[tokio::test]
async fn without_any_capability_ones_own_sessions_are_ones_own() {
    let stage = Stage::start().await;
    answering(&stage);
    let own = stage.session_of(&stage.eve, "eves").await;
    stage.fake.quiet().await;
    for line in ProtocolVersion::ALL {
        for method in rows().into_iter().filter(|method| method.needs().is_none()) {
            let params = on_session(method, &own, id_of(&first_message(&stage, &own)));
            works(&stage.eve, line, method, &params).await;
        }
    }
    stage.stop().await;
}

/// The program as it is set up by its environment: the one token holds all, and one of a list what the list says.
#[tokio::test(flavor = "multi_thread")]
async fn the_one_token_of_a_gateway_may_do_everything() {
    const LIST: &str = r#"[
        {"scheme": "bearer", "token": "plain-token-0123456789abcdef", "principal": "plain", "credential_id": "p-1"},
        {"scheme": "bearer", "token": "claim-token-0123456789abcdef", "principal": "claims", "capabilities": ["session_claim"]}
    ]"#;
    let fake = FakeOpenCode::start();
    let setup = Setup::attached(env!("CARGO_BIN_EXE_longshore"), &fake.url())
        .env("A2A_ENABLE_SESSION_SHELL", "true")
        .env("A2A_ENABLE_WORKSPACE_MUTATIONS", "true")
        .env("A2A_STATIC_AUTH_CREDENTIALS", LIST);
    let gateway = Gateway::start(setup).await;
    let root = gateway.workspace().canonicalize().expect("the workspace is there");
    let root = root.to_str().expect("a path of a test is text");
    let caller = |token: &str| RawClient::new(gateway.url(), token);
    let owner = caller(TOKEN);
    let plain = caller("plain-token-0123456789abcdef");
    let claims = caller("claim-token-0123456789abcdef");
    for line in ProtocolVersion::ALL {
        let session = format!("ses_typed_{line:?}");
        fake.add_session(&session, root);
        for (method, switch) in of_agent().filter_map(|method| Some((method, method.switch?))) {
            let may = call(&owner, line, method, &json!({"nonsense": 1})).await;
            assert_eq!(code(&may), -32602, "{} {}", method.name, may.body);
            lacks(&call(&plain, line, method, &json!({})).await, line, method, switch, "p-1");
            lacks(&call(&claims, line, method, &json!({})).await, line, method, switch, "");
        }
        let shell = row("opencode.sessions.shell");
        let params = on_session(shell, &session, "msg_1");
        let get = row("opencode.sessions.get");
        let look: Value = json!({"session_id": session});
        forbidden(&call(&plain, line, get, &look).await, line, &session, "plain");
        works(&claims, line, get, &look).await;
        works(&owner, line, shell, &params).await;
        forbidden(&call(&claims, line, get, &look).await, line, &session, "after the owner took it");
    }
}
